//! The reverse of the search: a privileged server calls a client that can't come to it.
//!
//! A client in a container that sees no server listens on an abstract socket of its own network namespace,
//! whose name is made of its nonce. When a nonce comes that nobody registered, the server looks for that name
//! in the other network namespaces of its host. The name alone is worth nothing: whoever answers there must
//! register the commitment, as everybody does, and that can't be made from the name.
//!
//! Every NFS client that an export names can send nonces that nobody registered, so this is bounded in every
//! way: one thread, a short queue that the clients share by address, a pause between two searches, a time for
//! each. Of those who wait the one comes next that was searched for the longest ago, so that whoever asks all
//! the time waits the longest.

use super::NfsConnection;
use super::door::Waiting;
use super::hub::Hub;
use crate::message::{self, MAX_MESSAGE, Request};
use crate::namespaces::{self, Namespace};
use crate::nonce::{Commitment, Nonce};
use crate::peer::PeerCredentials;
use crate::run_dir;
use crate::socket::{self, Received};
use fairness::{Peer, Shares, Standing};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Calls that wait for the thread. Their clients' addresses share them, and root of this host has an eighth
/// for itself.
const MAX_QUEUE: usize = 64;
/// How many of those who were searched for are remembered.
const MAX_SERVED: usize = 64;
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

struct Queue {
    calls: Vec<Call>,
    shares: Shares,
    /// Who was searched for, the latest last; nobody is in it twice.
    served: VecDeque<Peer>,
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
        let shares = Shares::new(MAX_QUEUE).with_reserves(0, MAX_QUEUE / 8);
        let queue =
            Queue { calls: Vec::new(), shares, served: VecDeque::new(), current: None, stopped: false };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// Looks for the client, later. A call that has no room in its client's share is forgotten: the client
    /// probes again.
    pub(super) fn ask(&self, call: Call) {
        let mut queue = self.queue.lock();
        let share = call.nfs.share;
        if queue.shares.take(&share, Standing::of_admitted(&share), 1) {
            queue.calls.push(call);
            self.changed.notify_one();
        }
    }

    /// An NFS connection was closed: its client isn't called any more.
    pub(super) fn forget(&self, connection: u64) {
        let mut queue = self.queue.lock();
        let Queue { calls, shares, .. } = &mut *queue;
        for gone in calls.extract_if(.., |call| call.nfs.number == connection) {
            shares.give_back(&gone.nfs.share, 1);
        }
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
            if let Some(call) = queue.pop() {
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

impl Queue {
    /// The call whose client was searched for the longest ago, or never; of one client's, the oldest.
    fn pop(&mut self) -> Option<Call> {
        let turn = |call: &Call| self.served.iter().rposition(|served| *served == call.nfs.share);
        // None comes before every place.
        let (index, _) = self.calls.iter().enumerate().min_by_key(|(index, call)| (turn(call), *index))?;
        let call = self.calls.remove(index);
        self.shares.give_back(&call.nfs.share, 1);
        self.served.retain(|served| *served != call.nfs.share);
        if self.served.len() == MAX_SERVED {
            self.served.pop_front();
        }
        self.served.push_back(call.nfs.share);
        Some(call)
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
    for Namespace { pid, file } in namespaces::others(vec![Some(0)]).into_iter().flatten() {
        if caller.stopped() || answers.len() == MAX_ANSWERS {
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
        let address = std::net::IpAddr::from([192, 0, 2, connection as u8]);
        let nfs =
            NfsConnection { number: connection, peer: (address, 700).into(), share: Peer::remote(address) };
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

    #[test]
    fn who_asks_all_the_time_comes_last_and_leaves_room_for_others() {
        let caller = Caller::new();
        for _ in 0..MAX_QUEUE * 2 {
            caller.ask(call(1));
        }
        assert_eq!(caller.queue.lock().calls.len(), MAX_QUEUE * 7 / 8 / 2);
        let next = || caller.next(Instant::now()).map(|call| call.nfs.number);
        assert_eq!(next(), Some(1));
        [2, 3].into_iter().for_each(|connection| caller.ask(call(connection)));
        assert_eq!([next(), next(), next()], [Some(2), Some(3), Some(1)]);
        [3, 2].into_iter().for_each(|connection| caller.ask(call(connection)));
        assert_eq!([next(), next(), next()], [Some(2), Some(3), Some(1)]);
    }
}
