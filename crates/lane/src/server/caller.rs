//! The reverse of the search: a privileged server calls a client that can't come to it.
//!
//! A client in a container that sees no server listens on an abstract socket of its own network namespace, whose name
//! is made of its nonce. When a nonce comes that nobody registered, the server looks for that name in the other
//! network namespaces of its host. The name alone is worth nothing: whoever answers there must register the
//! commitment, as everybody does, and that can't be made from the name.
//!
//! Any NFS client in the world can send nonces that nobody registered, so this is bounded in every way: one thread,
//! a short queue in which one address takes few places, a pause between two searches, a time for each.

use super::NfsConnection;
use super::door::Waiting;
use super::hub::Hub;
use crate::message::{self, MAX_MESSAGE, Request};
use crate::namespaces::{self, Namespace};
use crate::nonce::{Commitment, Nonce};
use crate::peer::PeerCredentials;
use crate::run_dir;
use crate::socket::{self, Received};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Calls that wait for the thread.
const MAX_QUEUE: usize = 16;
/// Calls of one address among them.
const MAX_PER_ADDRESS: usize = 4;
/// The least time between two searches.
const PAUSE: Duration = Duration::from_millis(100);
/// A client that asked longer ago than this has given up.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How long those who answered may take to register, all together.
const REGISTER: Duration = Duration::from_secs(1);
/// How many sockets of the same name are called.
const MAX_ANSWERS: usize = 16;

/// A nonce that nobody had registered.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) nonce: Nonce,
    pub(super) nfs: NfsConnection,
    pub(super) asked: Instant,
}

/// The queue of calls.
pub(super) struct Caller {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Call>,
    /// The NFS connection of the client that is being called; `None` once it was closed.
    current: Option<u64>,
    stopped: bool,
}

impl Caller {
    /// Whether this process may enter other namespaces at all.
    pub(super) fn is_possible() -> bool {
        namespaces::may_enter()
    }

    pub(super) fn new() -> Self {
        Self { queue: Mutex::default(), changed: Condvar::new() }
    }

    /// Looks for the client, later. A full queue forgets the call: the client probes again.
    pub(super) fn ask(&self, call: Call) {
        let mut queue = self.queue.lock();
        let same = queue.calls.iter().filter(|other| other.nfs.peer.ip() == call.nfs.peer.ip()).count();
        if queue.calls.len() < MAX_QUEUE && same < MAX_PER_ADDRESS {
            queue.calls.push_back(call);
            self.changed.notify_one();
        }
    }

    /// An NFS connection was closed: its client isn't called any more.
    pub(super) fn forget(&self, connection: u64) {
        let mut queue = self.queue.lock();
        queue.calls.retain(|call| call.nfs.number != connection);
        queue.current.take_if(|current| *current == connection);
    }

    /// Whether the NFS connection of the client that is being called still stands.
    pub(super) fn client_is_connected(&self) -> bool {
        self.queue.lock().current.is_some()
    }

    pub(super) fn stop(&self) {
        self.queue.lock().stopped = true;
        self.changed.notify_one();
    }

    /// The next call; `None` when the server stops.
    fn next(&self, not_before: Instant) -> Option<Call> {
        let mut queue = self.queue.lock();
        while !queue.stopped && Instant::now() < not_before {
            self.changed.wait_until(&mut queue, not_before);
        }
        loop {
            if queue.stopped {
                return None;
            }
            if let Some(call) = queue.calls.pop_front() {
                queue.current = Some(call.nfs.number);
                return Some(call);
            }
            self.changed.wait(&mut queue);
        }
    }

    fn stopped(&self) -> bool {
        self.queue.lock().stopped
    }
}

/// The caller's thread.
pub(super) fn run(hub: &Arc<Hub>) {
    let Some(caller) = &hub.caller else { return };
    let mut not_before = Instant::now();
    while let Some(call) = caller.next(not_before) {
        if call.asked.elapsed() < MAX_AGE {
            search(hub, caller, &call);
        }
        not_before = Instant::now() + PAUSE;
    }
}

/// Calls every socket of the client's name, and binds the first that registers.
fn search(hub: &Arc<Hub>, caller: &Caller, call: &Call) {
    let commitment = call.nonce.commitment();
    let name = run_dir::calling_name(&commitment);
    let mut answers = Vec::new();
    // Our own namespace, too: its client may have no /proc to find us in.
    if let Ok(socket) = connect(&name) {
        answers.push((socket, format!("@{name} (called)")));
    }
    let deadline = Instant::now() + namespaces::MAX_TIME;
    for Namespace { pid, file } in namespaces::others().unwrap_or_default() {
        if caller.stopped() || answers.len() == MAX_ANSWERS || Instant::now() > deadline {
            break;
        }
        if let Ok(Ok(socket)) = sys::namespace::in_network_namespace(file.as_fd(), || connect(&name)) {
            answers.push((socket, format!("@{name} in the network namespace of process {pid} (called)")));
        }
    }
    debug!(nfs_peer = %call.nfs.peer, "an unknown nonce: {} sockets have its client's name", answers.len());
    if let Some(waiting) = first_to_register(answers, commitment)
        && !hub.bind_called(waiting, call)
    {
        debug!("the client that was called is no lane: its nonce is spent, or there are too many");
    }
}

fn connect(name: &str) -> std::io::Result<OwnedFd> {
    let socket = run_dir::seqpacket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Waits, bounded, for the one that shows the commitment. Others are closed.
fn first_to_register(mut answers: Vec<(OwnedFd, String)>, expected: Commitment) -> Option<Waiting> {
    let deadline = Instant::now() + REGISTER;
    while !answers.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled: Vec<_> =
            answers.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Ok(0) if left.is_zero() => return None,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        let ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        for index in (0..answers.len()).rev().filter(|index| ready[*index]) {
            let (socket, through) = answers.swap_remove(index);
            if let Some(waiting) = registered(socket, through, expected) {
                return Some(waiting);
            }
        }
        if left.is_zero() {
            return None;
        }
    }
    None
}

fn registered(socket: OwnedFd, through: String, expected: Commitment) -> Option<Waiting> {
    let mut buffer = [0; MAX_MESSAGE + 1];
    let Ok(Received::Datagram { length, .. }) = socket::receive_bytes(&socket, &mut buffer, false) else {
        return None;
    };
    let Ok(Request::Register { lowest, highest, commitment }) = message::decode(&buffer[..length]) else {
        return None;
    };
    if commitment != expected {
        return None;
    }
    let version = message::negotiate(lowest, highest)?;
    let process = PeerCredentials::of(&socket).ok()?;
    // From here on its thread waits for it.
    rustix::io::ioctl_fionbio(&socket, false).ok()?;
    Some(Waiting::called(socket, process, version, through))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(connection: u64) -> Call {
        let nfs = NfsConnection { number: connection, peer: ([192, 0, 2, connection as u8], 700).into() };
        Call { nonce: Nonce([1; 16]), nfs, asked: Instant::now() }
    }

    #[test]
    fn a_client_whose_connection_has_gone_is_not_called_and_becomes_no_lane() {
        let caller = Caller::new();
        [1, 2, 3].into_iter().for_each(|connection| caller.ask(call(connection)));
        caller.forget(1);
        assert_eq!(caller.next(Instant::now()).map(|call| call.nfs.number), Some(2));
        caller.forget(3);
        assert!(caller.client_is_connected());
        caller.forget(2);
        assert!(!caller.client_is_connected());
        caller.ask(call(4));
        assert_eq!(caller.next(Instant::now()).map(|call| call.nfs.number), Some(4));
        assert!(caller.client_is_connected());
    }
}
