//! The nonces whose clients are to be searched for, and their order.

use super::NfsConnection;
use crate::nonce::Nonce;
use fairness::{Peer, Shares, Standing};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Instant;

/// The most waiting calls. The clients' addresses share them, and an eighth is reserved for root of this
/// host.
const MAX_QUEUE: usize = 64;
/// The number of clients whose searches are remembered.
const MAX_SERVED: usize = 64;

/// A nonce without a registration.
#[derive(Debug, Clone)]
pub(super) struct ClientCall {
    pub(super) nonce: Nonce,
    pub(super) nfs: NfsConnection,
    pub(super) asked: Instant,
}

/// The queue of calls.
pub(super) struct CallQueue {
    queue: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    calls: Vec<ClientCall>,
    shares: Shares,
    /// The clients that were searched for, the latest last, without duplicates.
    served: VecDeque<Peer>,
    /// The NFS connection of the client that is being called; `None` once it was closed.
    current: Option<u64>,
    stopped: bool,
}

impl CallQueue {
    pub(super) fn new() -> Self {
        let shares = Shares::new(MAX_QUEUE).with_reserves(0, MAX_QUEUE / 8);
        let queue =
            QueueState { calls: Vec::new(), shares, served: VecDeque::new(), current: None, stopped: false };
        Self { queue: Mutex::new(queue), changed: Condvar::new() }
    }

    /// Queues a search for the client. A call without room in its client's share is dropped: the client
    /// probes again.
    pub(super) fn ask(&self, call: ClientCall) {
        let mut queue = self.queue.lock();
        let share = call.nfs.share;
        if queue.shares.take(&share, Standing::of_admitted(&share), 1) {
            queue.calls.push(call);
            self.changed.notify_one();
        }
    }

    /// An NFS connection was closed: drops the calls of its client.
    pub(super) fn forget(&self, connection: u64) {
        let mut queue = self.queue.lock();
        let QueueState { calls, shares, .. } = &mut *queue;
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

    /// The next call, not before `not_before`; `None` when the server stops.
    pub(super) fn next(&self, not_before: Instant) -> Option<ClientCall> {
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

    pub(super) fn stopped(&self) -> bool {
        self.queue.lock().stopped
    }
}

impl QueueState {
    /// The call whose client was searched for the longest ago, or never; of one client's calls, the oldest.
    fn pop(&mut self) -> Option<ClientCall> {
        let turn = |call: &ClientCall| self.served.iter().rposition(|served| *served == call.nfs.share);
        // `None` sorts before every position.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(connection: u64) -> ClientCall {
        let address = std::net::IpAddr::from([192, 0, 2, connection as u8]);
        let nfs =
            NfsConnection { number: connection, peer: (address, 700).into(), share: Peer::remote(address) };
        ClientCall { nonce: Nonce([1; 16]), nfs, asked: Instant::now() }
    }

    #[test]
    fn a_client_with_a_closed_connection_is_not_called() {
        let caller = CallQueue::new();
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
    fn frequent_callers_come_last_and_leave_room() {
        let caller = CallQueue::new();
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
