//! How many workers one peer may keep busy, so that calls that hang (a dead disk, a filesystem over a
//! network) hold up their own peer and nobody else.
//!
//! Every peer may have one worker. It may have more while it holds at most three times as many as stay free:
//! one greedy peer gets three quarters of the workers, two get three sevenths each. A connection whose peer
//! has its share isn't driven; it waits in its peer's line, and each time a worker is done with that peer the
//! first in line goes on.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

/// What the connections of one peer share.
#[derive(Debug, Default)]
pub struct WorkersShare {
    /// Workers that drive a connection of this peer, or are detached from one.
    busy: AtomicUsize,
    /// Connections that wait, by number; at most all of the peer.
    line: Mutex<VecDeque<u64>>,
    /// How many connections are in line, to be looked at without the lock.
    waiting: AtomicUsize,
}

/// Below this many workers there is nothing to divide.
const DIVIDED_FROM: usize = 4;

impl WorkersShare {
    /// A worker begins to work for the peer. `threads` are all workers; `at_work` counts those that work for
    /// anybody, this one included, and is asked only if it matters. If it returns false the worker must not
    /// go on: [`WorkersShare::wait`] says what instead.
    #[inline]
    pub fn begin(&self, threads: usize, at_work: impl FnOnce() -> usize) -> bool {
        let own = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        own == 1 || threads < DIVIDED_FROM || own <= 3 * threads.saturating_sub(at_work())
    }

    /// The worker that was refused puts its connection in line and is done with the peer. Returns the number
    /// of a connection that is to go on all the same, because no other worker of the peer is left to call it.
    pub fn wait(&self, connection: u64) -> Option<u64> {
        let mut line = self.line.lock();
        if !line.contains(&connection) {
            line.push_back(connection);
        }
        self.waiting.store(line.len(), Ordering::SeqCst);
        drop(line);
        // Whoever leaves before this doesn't see the line, and isn't counted here; whoever leaves after it
        // sees it.
        if self.busy.fetch_sub(1, Ordering::SeqCst) == 1 { self.next() } else { None }
    }

    /// A worker is done with the peer. Returns the number of a connection that may go on now.
    #[inline]
    pub fn end(&self) -> Option<u64> {
        self.busy.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 { None } else { self.next() }
    }

    /// A connection has been closed and needn't go on.
    pub fn forget(&self, connection: u64) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut line = self.line.lock();
            line.retain(|other| *other != connection);
            self.waiting.store(line.len(), Ordering::SeqCst);
        }
    }

    /// The first in line, if anybody waits. Also to be asked from time to time: the workers of other peers,
    /// who were in the way, may have left, while this peer's own calls hang.
    #[cold]
    pub fn next(&self) -> Option<u64> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut line = self.line.lock();
        let first = line.pop_front();
        self.waiting.store(line.len(), Ordering::SeqCst);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_gets_three_quarters_and_others_find_the_rest() {
        let (greedy, modest) = (WorkersShare::default(), WorkersShare::default());
        let mut at_work = 0;
        while greedy.begin(16, || at_work + 1) {
            at_work += 1;
        }
        assert_eq!(at_work, 12);
        assert_eq!(greedy.wait(100), None);
        assert!(modest.begin(16, || 13) && modest.begin(16, || 14));
        assert!(!modest.begin(16, || 16), "two, when none stays free");
        assert_eq!(modest.wait(200), None);
        assert_eq!(greedy.end(), Some(100), "who waits goes on when one is done");
        assert_eq!(greedy.end(), None);
    }

    #[test]
    fn who_waits_is_called_by_whoever_is_left() {
        let share = WorkersShare::default();
        assert!(share.begin(4, || 4));
        assert!(!share.begin(4, || 4));
        assert_eq!(share.end(), None, "nobody is in line yet");
        assert_eq!(share.wait(7), Some(7), "nobody is left to call it");
        assert!(share.begin(4, || 4));
        assert_eq!((share.end(), share.next()), (None, None));
        // Once, however often it is put there.
        for _ in 0..2 {
            assert!(share.begin(4, || 1) && !share.begin(4, || 4));
            assert_eq!(share.wait(8), None);
            let _ = share.busy.fetch_sub(1, Ordering::SeqCst);
        }
        assert_eq!((share.next(), share.next()), (Some(8), None));
        assert!(share.begin(4, || 1) && !share.begin(4, || 4));
        assert_eq!(share.wait(9), None);
        share.forget(9);
        assert_eq!(share.end(), None);
    }
}
