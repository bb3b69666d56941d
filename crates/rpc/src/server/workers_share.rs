//! The number of workers that one peer may keep busy, so that calls that hang (a dead disk, a network
//! filesystem) delay only their own peer.
//!
//! Every peer may have one worker. It may have more while it holds at most three times as many as stay free:
//! one greedy peer gets three quarters of the workers, two get three sevenths each. A connection of a peer at
//! its limit isn't driven. It waits in its peer's line, and each time a worker finishes with that peer the
//! first in line is armed.
//!
//! An event doesn't mean that a connection has something to do: a driver may have done it meanwhile. So the
//! worker that arms a connection in line continues with the next one unless the first has an event to come
//! ([`super::engine::Engine::resume_first`]). Otherwise the rest of the line would wait for ever.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

/// The workers of one peer, shared by its connections.
#[derive(Debug, Default)]
pub struct WorkersShare {
    /// The workers that drive a connection of this peer, or are detached from one.
    busy: AtomicUsize,
    /// The connections that wait, by number: at most all of the peer's.
    line: Mutex<VecDeque<u64>>,
    /// The number of connections in line, to be read without the lock.
    waiting: AtomicUsize,
}

/// With fewer workers nothing is divided.
const DIVIDED_FROM: usize = 4;

impl WorkersShare {
    /// A worker begins to work for the peer. `threads` is the number of workers; `at_work` counts the busy
    /// ones, this one included, and is called only if it matters. If this returns false the worker must not
    /// continue: call [`WorkersShare::wait`].
    #[inline]
    pub fn begin(&self, threads: usize, busy: impl FnOnce() -> usize) -> bool {
        let own = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        own == 1 || threads < DIVIDED_FROM || own <= 3 * threads.saturating_sub(busy())
    }

    /// The refused worker puts its connection in line and leaves the peer. Returns the number of a connection
    /// that may be driven after all, because no other worker of the peer is left to arm it.
    pub fn wait(&self, connection: u64) -> Option<u64> {
        let mut line = self.line.lock();
        if !line.contains(&connection) {
            line.push_back(connection);
        }
        self.waiting.store(line.len(), Ordering::SeqCst);
        drop(line);
        // A worker that leaves before this doesn't see the line and isn't counted here. One that leaves after
        // it sees the line.
        if self.busy.fetch_sub(1, Ordering::SeqCst) == 1 { self.next() } else { None }
    }

    /// A worker leaves the peer. Returns the number of a connection that may be driven now.
    #[inline]
    pub fn end(&self) -> Option<u64> {
        self.busy.fetch_sub(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 { None } else { self.next() }
    }

    /// Removes a closed connection from the line.
    pub fn forget(&self, connection: u64) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut line = self.line.lock();
            line.retain(|other| *other != connection);
            self.waiting.store(line.len(), Ordering::SeqCst);
        }
    }

    /// The first in line. Also to be called from time to time: workers of other peers may have become free
    /// while this peer's own calls hang.
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
    use shuttle::{
        sync::{Arc, Mutex},
        thread,
    };

    use super::super::turn::DriverTurn;
    use super::{AtomicUsize, Ordering, WorkersShare};

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
    fn a_waiting_connection_is_resumed_by_the_last_worker() {
        let share = WorkersShare::default();
        assert!(share.begin(4, || 4));
        assert!(!share.begin(4, || 4));
        assert_eq!(share.end(), None, "nobody is in line yet");
        assert_eq!(share.wait(7), Some(7), "nobody is left to call it");
        assert!(share.begin(4, || 4));
        assert_eq!((share.end(), share.next()), (None, None));
        // A connection stands in line once, however often it is added.
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

    /// A connection with its one-shot arming, and the calls that wait in the socket.
    #[derive(Default)]
    struct Connection {
        turn: DriverTurn,
        armed: bool,
        calls: usize,
    }

    const THREADS: usize = 4;

    struct Model {
        share: WorkersShare,
        connections: Vec<Mutex<Connection>>,
        busy: AtomicUsize,
    }

    impl Model {
        /// The number of a connection whose event a worker gets.
        fn event(&self) -> Option<usize> {
            self.connections.iter().position(|connection| {
                let mut connection = connection.lock().unwrap();
                let fires = connection.armed && connection.calls > 0;
                connection.armed &= !fires;
                fires
            })
        }

        /// As `Worker::drive`.
        fn work(&self, worker: usize) {
            let Some(number) = self.event() else { return };
            let connection = &self.connections[number];
            thread::yield_now();
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            let next = if self.share.begin(THREADS, || busy) {
                self.drive(connection, worker);
                self.share.end()
            } else {
                self.share.wait(number as u64)
            };
            self.busy.fetch_sub(1, Ordering::SeqCst);
            thread::yield_now();
            self.resume(next);
        }

        fn drive(&self, connection: &Mutex<Connection>, worker: usize) {
            let Some(ticket) = connection.lock().unwrap().turn.claim(worker) else { return };
            loop {
                thread::yield_now(); // the program runs, no lock held
                let mut connection = connection.lock().unwrap();
                if !connection.turn.holds(ticket) {
                    connection.turn.leave();
                    connection.armed |= !connection.turn.is_driven();
                    return;
                }
                if connection.calls == 0 {
                    connection.turn.release(ticket);
                    connection.armed = true;
                    return;
                }
                connection.calls -= 1;
            }
        }

        /// As `Engine::resume_first`.
        fn resume(&self, mut next: Option<u64>) {
            while let Some(number) = next {
                let mut connection = self.connections[number as usize].lock().unwrap();
                if !connection.turn.is_driven() {
                    connection.armed = true;
                    if connection.calls > 0 {
                        return;
                    }
                }
                drop(connection);
                next = self.share.next();
            }
        }
    }

    /// In every interleaving all calls are run, although workers are refused and drivers replaced: no
    /// connection stays in line.
    #[test]
    fn no_interleaving_leaves_a_connection_in_line() {
        shuttle::check_random(
            || {
                let connection = || Connection { armed: true, calls: 2, ..Connection::default() };
                let model = Arc::new(Model {
                    share: WorkersShare::default(),
                    connections: (0..3).map(|_| Mutex::new(connection())).collect(),
                    // Workers of other peers: this one may have one.
                    busy: AtomicUsize::new(THREADS),
                });
                let mut threads: Vec<_> = (0..THREADS)
                    .map(|worker| {
                        let model = Arc::clone(&model);
                        thread::spawn(move || (0..4).for_each(|_| model.work(worker)))
                    })
                    .collect();
                let supervised = Arc::clone(&model);
                threads.push(thread::spawn(move || {
                    for victim in 0..THREADS {
                        for connection in &supervised.connections {
                            let mut connection = connection.lock().unwrap();
                            connection.armed |= connection.turn.take_over(victim, 2);
                            drop(connection);
                            thread::yield_now();
                        }
                    }
                }));
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                // An idle worker gets the remaining events.
                (0..20).for_each(|_| model.work(0));
                assert!(model.connections.iter().all(|connection| connection.lock().unwrap().calls == 0));
            },
            3000,
        );
    }
}
