//! The reverse rendezvous: a privileged server calls a client that can't reach it.
//!
//! A client in a container that sees no server listens on an abstract socket of its own network namespace,
//! whose name is derived from its nonce. When a nonce without a registration arrives, the server looks for
//! that name in the other network namespaces of its host. The name alone is worth nothing: the process that
//! answers there must register the commitment, as every client does, and that can't be derived from the name.
//!
//! Every NFS client that an export names can send unregistered nonces, so searches are bounded: one thread, a
//! short queue shared by the clients' addresses, a pause between two searches, a time limit for each. The
//! client that was searched for the longest ago comes next, so a client that asks all the time waits the
//! longest.

use super::acceptor::WaitingConnection;
use super::call_queue::{CallQueue, ClientCall};
use super::shared::ServerShared;
use crate::message::{self, LaneRequest, MAX_MESSAGE};
use crate::namespaces::{self, Namespace};
use crate::nonce::Commitment;
use crate::peer::PeerCredentials;
use crate::run_dir;
use crate::socket::{self, Received};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// The shortest time between two searches.
const PAUSE: Duration = Duration::from_millis(100);
/// The age at which a call is dropped: its client has given up.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How long the processes that answered may take to register, all together.
const REGISTER: Duration = Duration::from_secs(1);
/// The most sockets of one name that are called.
const MAX_ANSWERS: usize = 16;

/// The caller's thread.
pub(super) fn run(shared: &Arc<ServerShared>) {
    let Some(queue) = &shared.calls else { return };
    let mut not_before = Instant::now();
    while let Some(call) = queue.next(not_before) {
        if call.asked.elapsed() < MAX_AGE {
            search(shared, queue, &call);
        }
        not_before = Instant::now() + PAUSE;
    }
}

/// Calls every socket of the client's name, and binds the first that registers.
fn search(shared: &Arc<ServerShared>, queue: &CallQueue, call: &ClientCall) {
    let commitment = call.nonce.commitment();
    let name = run_dir::calling_name(&commitment);
    let mut answers = Vec::new();
    // The server's own namespace, too: its client may have no /proc to find the server in.
    if let Ok(socket) = connect(&name) {
        answers.push((socket, format!("@{name} (called)")));
    }
    for Namespace { pid, file } in namespaces::others(vec![Some(0)]).into_iter().flatten() {
        if queue.stopped() || answers.len() == MAX_ANSWERS {
            break;
        }
        if let Ok(Ok(socket)) = sys::namespace::in_network_namespace(file.as_fd(), || connect(&name)) {
            answers.push((socket, format!("@{name} in the network namespace of process {pid} (called)")));
        }
    }
    debug!(nfs_peer = %call.nfs.peer, "an unknown nonce: {} sockets have its client's name", answers.len());
    if let Some(waiting) = first_to_register(answers, commitment)
        && !shared.bind_called(waiting, call)
    {
        debug!("the client that was called is no lane: its nonce is spent, or there are too many");
    }
}

fn connect(name: &str) -> std::io::Result<OwnedFd> {
    let socket = run_dir::seqpacket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Waits, for a bounded time, for the socket that registers the commitment. Others are closed.
fn first_to_register(mut answers: Vec<(OwnedFd, String)>, expected: Commitment) -> Option<WaitingConnection> {
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

fn registered(socket: OwnedFd, through: String, expected: Commitment) -> Option<WaitingConnection> {
    let mut buffer = [0; MAX_MESSAGE + 1];
    let Ok(Received::Datagram { length, .. }) = socket::receive_bytes(&socket, &mut buffer, false) else {
        return None;
    };
    let Ok(LaneRequest::Register { lowest, highest, commitment }) = message::decode(&buffer[..length]) else {
        return None;
    };
    if commitment != expected {
        return None;
    }
    let version = message::negotiate(lowest, highest)?;
    let process = PeerCredentials::of(&socket).ok()?;
    // From here on the lane's thread blocks on it.
    rustix::io::ioctl_fionbio(&socket, false).ok()?;
    Some(WaitingConnection::called(socket, process, version, through))
}
