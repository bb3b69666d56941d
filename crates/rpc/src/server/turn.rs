//! The role of a connection's driver, which at most one worker has at any time. Pure; the connection keeps it
//! under a lock.
//!
//! 1. The connection has no driver and is armed in epoll, once.
//! 2. An event arrives. A worker *claims* the turn and drives: it receives, and runs calls one after another.
//! 3. It finds nothing more to do and *releases* the turn, arming the connection again; back to 1. Or:
//! 4. One of its steps takes long. The turn is *taken over* (by the supervisor, or by the worker itself
//!    before it blocks), and the connection is armed again. Another worker claims the turn. The first one is
//!    now *detached*: it notices after its step, delivers that step's reply, and leaves.

/// The right to drive, until it is released or taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// The driver's role of one connection.
#[derive(Debug, Default)]
pub struct DriverTurn {
    /// The number of claims. A ticket of an earlier claim is void.
    claims: u64,
    /// The worker that drives.
    driver: Option<usize>,
    /// Workers that lost their turn and have not left yet.
    detached: usize,
}

impl DriverTurn {
    /// Takes the turn for `worker` if the connection has no driver. Failure is normal (the event was on its
    /// way when another worker claimed the turn) and needs no action: the driver arms the connection in the
    /// end.
    pub fn claim(&mut self, worker: usize) -> Option<Ticket> {
        if self.driver.is_some() {
            return None;
        }
        self.claims += 1;
        self.driver = Some(worker);
        Some(Ticket(self.claims))
    }

    /// Whether `ticket` is still the driver's.
    #[inline]
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.driver.is_some() && ticket.0 == self.claims
    }

    /// Gives the turn back. The caller must arm the connection under the same lock.
    pub fn release(&mut self, ticket: Ticket) {
        debug_assert!(self.holds(ticket), "only the driver releases");
        self.driver = None;
    }

    /// Takes the turn from `worker`, if it drives and fewer than `max_detached` workers are detached. On
    /// success the caller must arm the connection under the same lock.
    pub fn take_over(&mut self, worker: usize, max_detached: usize) -> bool {
        if self.driver != Some(worker) || self.detached >= max_detached {
            return false;
        }
        self.driver = None;
        self.detached += 1;
        true
    }

    /// A detached worker leaves.
    pub fn leave(&mut self) {
        debug_assert!(self.detached > 0, "only a detached worker leaves");
        self.detached = self.detached.saturating_sub(1);
    }

    /// Whether the connection has a driver.
    pub const fn is_driven(&self) -> bool {
        self.driver.is_some()
    }

    /// Whether the connection has neither a driver nor a detached worker.
    pub const fn is_quiet(&self) -> bool {
        self.driver.is_none() && self.detached == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use shuttle::{
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    #[test]
    fn a_void_ticket_stays_void() {
        let mut turn = DriverTurn::default();
        let first = turn.claim(0).unwrap();
        assert!(turn.claim(1).is_none());
        assert!(!turn.take_over(1, 4), "worker 1 doesn't drive");
        assert!(turn.take_over(0, 4));
        assert!(!turn.holds(first) && !turn.is_driven());
        let second = turn.claim(1).unwrap();
        assert!(turn.holds(second) && !turn.holds(first));
        assert!(!turn.take_over(1, 1), "one detached worker is enough");
        turn.leave();
        turn.release(second);
        assert!(turn.is_quiet());
    }

    /// A connection with its one-shot arming, the calls that wait in the socket, and the calls that were run.
    #[derive(Default)]
    struct Model {
        turn: DriverTurn,
        armed: bool,
        waiting: VecDeque<u32>,
        run: Vec<u32>,
        replied: Vec<u32>,
    }

    impl Model {
        /// One-shot epoll: one event for each arming, if there is something to do.
        fn event(&mut self) -> bool {
            let fires = self.armed && !self.waiting.is_empty();
            if fires {
                self.armed = false;
            }
            fires
        }
    }

    fn worker(model: &Mutex<Model>, index: usize) {
        // The event and the claim are two steps. Another worker may come between them.
        if !model.lock().unwrap().event() {
            return;
        }
        let Some(ticket) = model.lock().unwrap().turn.claim(index) else { return };
        loop {
            let call = {
                let mut model = model.lock().unwrap();
                if !model.turn.holds(ticket) {
                    model.turn.leave();
                    return;
                }
                let Some(call) = model.waiting.pop_front() else {
                    model.turn.release(ticket);
                    model.armed = true;
                    return;
                };
                model.run.push(call);
                call
            };
            thread::yield_now(); // the program runs, no lock held
            model.lock().unwrap().replied.push(call);
        }
    }

    /// In every interleaving each call is run exactly once, started in the order of arrival, and answered,
    /// and the turn is never lost: the connection ends up armed with nothing waiting.
    #[test]
    fn no_interleaving_loses_or_repeats_a_call() {
        shuttle::check_random(
            || {
                let model = Model { armed: true, waiting: (0..3).collect(), ..Model::default() };
                let model = Arc::new(Mutex::new(model));
                let mut threads: Vec<_> = (0..3)
                    .map(|index| {
                        let model = Arc::clone(&model);
                        thread::spawn(move || {
                            for _ in 0..3 {
                                worker(&model, index);
                            }
                        })
                    })
                    .collect();
                let supervised = Arc::clone(&model);
                threads.push(thread::spawn(move || {
                    for victim in [0, 1, 2, 0] {
                        let mut model = supervised.lock().unwrap();
                        if model.turn.take_over(victim, 2) {
                            model.armed = true;
                        }
                        drop(model);
                        thread::yield_now();
                    }
                }));
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                // An idle worker gets the next event.
                worker(&model, 3);
                let mut model = model.lock().unwrap();
                assert!(model.turn.is_quiet() && model.armed, "somebody forgot to arm");
                assert_eq!(model.run, [0, 1, 2]);
                model.replied.sort_unstable();
                assert_eq!(model.replied, [0, 1, 2]);
            },
            3000,
        );
    }
}
