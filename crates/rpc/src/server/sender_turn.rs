//! The role of a connection's sender, which at most one thread has at any time, and whether calls may be run.
//! Pure; the connection keeps it under the lock of its queue.
//!
//! 1. Replies are added to the queue. A thread that wants them sent *claims* the turn.
//! 2. It takes the queue and sends without the lock. Others add their replies behind what it has taken, and
//!    leave them to it: they needn't wait for the socket. If it has room, they would be woken over and over.
//! 3. When all is sent it takes what was added, until nothing is left; back to 1. Or:
//! 4. The socket is full. The rest goes back to the queue, and the connection is *blocked* until epoll
//!    reports the socket as writable.
//!
//! A sender can take long, because a file's bytes may have to come from a disk. So no call is run while the
//! bytes behind what it has taken reach a limit, nor while the connection is blocked. A thread that has sent
//! arms the connection again when it leaves.

use std::time::Instant;

/// The outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderClaim {
    /// The caller is the sender now, takes the queue, and reports by [`SenderTurn::sent`].
    Send,
    /// There is nothing to send, or another thread is sending.
    Leave,
    /// Another thread is sending, and so much waits behind it that no call may be run.
    Full,
    /// The socket is full. No call may be run.
    Blocked,
    /// The connection is lost or closed.
    Broken,
}

/// What the sender does after a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterSend {
    /// It takes the queue again: there is more.
    Send,
    /// Everything is sent. It isn't the sender any more.
    Done,
    /// The socket is full. It isn't the sender any more.
    Blocked,
    /// The connection is lost or closed. It isn't the sender any more.
    Broken,
}

/// What a connection can continue with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendInterest {
    /// With calls.
    pub calls: bool,
    /// With sending, once the socket has room.
    pub socket: bool,
}

/// A full socket.
#[derive(Debug, Clone, Copy)]
struct Blocked {
    since: Instant,
    moved: u64,
}

/// The sender's role of one connection.
#[derive(Debug)]
pub struct SenderTurn {
    limit: u64,
    /// Bytes in the queue.
    waiting: u64,
    /// Bytes that the sender has taken out of the queue and not sent yet.
    taken: u64,
    sending: bool,
    blocked: Option<Blocked>,
    broken: bool,
}

impl SenderTurn {
    /// Nothing to send. With `limit` bytes in the queue no call is run while another thread is sending.
    pub const fn new(limit: u64) -> Self {
        Self { limit, waiting: 0, taken: 0, sending: false, blocked: None, broken: false }
    }

    /// Adds `bytes` to the queue. Returns whether the limit is reached, so that the caller should send before
    /// it runs another call.
    pub const fn add(&mut self, bytes: u64) -> bool {
        self.waiting += bytes;
        self.waiting >= self.limit
    }

    /// Claims the turn. `writable` means that epoll has reported the socket as writable.
    pub const fn claim(&mut self, writable: bool) -> SenderClaim {
        if self.broken {
            return SenderClaim::Broken;
        }
        if self.sending {
            return if self.waiting >= self.limit { SenderClaim::Full } else { SenderClaim::Leave };
        }
        if self.blocked.is_some() && !writable {
            return SenderClaim::Blocked;
        }
        if self.waiting == 0 {
            return SenderClaim::Leave;
        }
        self.sending = true;
        self.take();
        SenderClaim::Send
    }

    const fn take(&mut self) {
        self.taken = self.waiting;
        self.waiting = 0;
    }

    /// The sender has sent `bytes`, until everything was sent or the socket was full.
    pub fn sent(&mut self, bytes: u64, now: Instant) -> AfterSend {
        self.taken = self.taken.saturating_sub(bytes);
        if self.broken {
            self.sending = false;
            return AfterSend::Broken;
        }
        if self.taken > 0 {
            self.waiting += std::mem::take(&mut self.taken);
            self.sending = false;
            self.blocked.get_or_insert(Blocked { since: now, moved: 0 }).moved += bytes;
            return AfterSend::Blocked;
        }
        self.blocked = None;
        if self.waiting > 0 {
            self.take();
            return AfterSend::Send;
        }
        self.sending = false;
        AfterSend::Done
    }

    /// The connection is lost or closed: nothing is left to send. A sender learns of it after its send.
    pub const fn break_off(&mut self) {
        (self.waiting, self.taken, self.blocked, self.broken) = (0, 0, None, true);
    }

    /// What the connection can continue with, if it has no driver.
    pub const fn interest(&self) -> SendInterest {
        if self.sending {
            SendInterest { calls: self.waiting < self.limit, socket: false }
        } else {
            SendInterest { calls: self.blocked.is_none(), socket: self.waiting > 0 }
        }
    }

    /// Whether nothing waits, and nobody is sending.
    pub const fn is_idle(&self) -> bool {
        self.waiting == 0 && !self.sending
    }

    /// Whether the connection is lost or closed.
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// If the socket is full: since when, and how many bytes have moved since then.
    pub fn stalled(&self) -> Option<(Instant, u64)> {
        // While somebody is sending, the peer isn't to blame.
        self.blocked.filter(|_| !self.sending).map(|Blocked { since, moved }| (since, moved))
    }
}

#[cfg(test)]
mod tests {
    use shuttle::{
        rand::{Rng as _, thread_rng},
        sync::{Arc, Mutex},
        thread,
    };

    use super::super::turn::{DriverTurn, Ticket};
    use super::*;

    const LIMIT: u64 = 3;

    #[test]
    fn others_leave_their_replies_to_the_sender() {
        let now = Instant::now();
        let mut turn = SenderTurn::new(LIMIT);
        assert_eq!((turn.claim(false), turn.is_idle()), (SenderClaim::Leave, true));
        assert!(turn.add(5), "the limit is reached");
        assert_eq!(turn.interest(), SendInterest { calls: true, socket: true }, "nobody sends yet");
        assert_eq!(turn.claim(false), SenderClaim::Send);
        let calls_only = SendInterest { calls: true, socket: false };
        assert_eq!(turn.interest(), calls_only, "the socket is the sender's");
        assert!(!turn.add(2));
        assert_eq!((turn.claim(true), turn.interest()), (SenderClaim::Leave, calls_only));
        assert!(turn.add(1));
        let nothing = SendInterest { calls: false, socket: false };
        assert_eq!((turn.claim(true), turn.interest()), (SenderClaim::Full, nothing), "enough");
        assert_eq!(turn.sent(5, now), AfterSend::Send);
        assert_eq!(
            (turn.claim(true), turn.interest()),
            (SenderClaim::Leave, calls_only),
            "there is room again"
        );
        assert_eq!((turn.sent(3, now), turn.is_idle()), (AfterSend::Done, true));
    }

    #[test]
    fn a_full_socket_stops_calls_and_waits_for_room() {
        let now = Instant::now();
        let mut turn = SenderTurn::new(LIMIT);
        turn.add(2);
        assert_eq!(turn.claim(false), SenderClaim::Send);
        turn.add(1);
        assert_eq!(turn.sent(1, now), AfterSend::Blocked);
        assert_eq!(turn.interest(), SendInterest { calls: false, socket: true });
        assert_eq!(turn.stalled(), Some((now, 1)));
        assert_eq!(turn.claim(false), SenderClaim::Blocked);
        assert_eq!((turn.claim(true), turn.stalled()), (SenderClaim::Send, None));
        assert_eq!(turn.sent(1, Instant::now()), AfterSend::Blocked);
        assert_eq!(turn.stalled(), Some((now, 2)), "not everything has been sent since then");
        assert_eq!(
            (turn.claim(true), turn.sent(1, now), turn.stalled()),
            (SenderClaim::Send, AfterSend::Done, None)
        );
    }

    #[test]
    fn a_sender_learns_that_the_connection_is_closed() {
        let mut turn = SenderTurn::new(LIMIT);
        turn.add(2);
        assert_eq!(turn.claim(false), SenderClaim::Send);
        turn.break_off();
        assert!(!turn.is_idle(), "the sender hasn't returned");
        assert_eq!(turn.claim(true), SenderClaim::Broken);
        assert_eq!(turn.sent(1, Instant::now()), AfterSend::Broken);
        assert!(turn.is_idle() && turn.is_broken());
        assert_eq!(turn.claim(true), SenderClaim::Broken);
    }

    const WORKERS: usize = 3;
    /// Those, and the one that sends a callback.
    const THREADS: u64 = WORKERS as u64 + 1;

    /// A connection with its one-shot arming, a peer that reads at times, and two kinds of threads: workers,
    /// and one that sends a callback.
    struct Model {
        driver: DriverTurn,
        sender: SenderTurn,
        armed: SendInterest,
        /// Calls that have arrived.
        calls: u64,
        /// Room in the socket.
        room: u64,
        added: u64,
        sent: u64,
    }

    const UNARMED: SendInterest = SendInterest { calls: false, socket: false };

    impl Model {
        fn event(&mut self) -> Option<bool> {
            let writable = self.armed.socket && self.room > 0;
            let fires = writable || self.armed.calls && self.calls > 0;
            if fires {
                self.armed = UNARMED;
            }
            fires.then_some(writable)
        }

        /// Every reply is one byte.
        fn add(&mut self) -> bool {
            self.added += 1;
            let reached = self.sender.add(1);
            // Each thread may add one while others reach the limit.
            let waiting = self.sender.waiting;
            assert!(!self.sender.sending || waiting < LIMIT + THREADS, "{waiting} wait");
            reached
        }
    }

    /// As `Send::flush`: true if calls may be run.
    fn flush(model: &Mutex<Model>, writable: bool) -> bool {
        match model.lock().unwrap().sender.claim(writable) {
            SenderClaim::Send => {}
            SenderClaim::Leave => return true,
            SenderClaim::Full | SenderClaim::Blocked => return false,
            SenderClaim::Broken => panic!("nobody breaks it off"),
        }
        loop {
            // The socket, or a disk.
            let slow = thread_rng().gen_range(0..3) == 0;
            (0..if slow { 60 } else { 3 }).for_each(|_| thread::yield_now());
            let mut model = model.lock().unwrap();
            let bytes = model.sender.taken.min(model.room);
            model.room -= bytes;
            model.sent += bytes;
            match model.sender.sent(bytes, Instant::now()) {
                AfterSend::Send => {}
                AfterSend::Done => return true,
                AfterSend::Blocked => return false,
                AfterSend::Broken => panic!("nobody breaks it off"),
            }
        }
    }

    /// As `Engine::settle`.
    fn settle(model: &Mutex<Model>) {
        let interest = {
            let mut model = model.lock().unwrap();
            if model.driver.is_driven() {
                return;
            }
            let interest = model.sender.interest();
            if !model.driver.is_quiet() {
                model.armed = interest;
                return;
            }
            interest
        };
        thread::yield_now(); // the lock is dropped before the connection is armed
        model.lock().unwrap().armed = interest;
        thread::yield_now();
        let mut model = model.lock().unwrap();
        if model.sender.interest() != interest && !model.driver.is_driven() {
            model.armed = model.sender.interest();
        }
    }

    fn leave(model: &Mutex<Model>) {
        flush(model, false);
        model.lock().unwrap().driver.leave();
        settle(model);
    }

    fn release(model: &Mutex<Model>, ticket: Ticket) {
        let holds = {
            let mut model = model.lock().unwrap();
            let holds = model.driver.holds(ticket);
            if holds {
                model.driver.release(ticket);
            }
            holds
        };
        if holds { settle(model) } else { leave(model) }
    }

    /// As `Worker::steps`.
    fn work(model: &Mutex<Model>, index: usize) -> bool {
        let Some(writable) = model.lock().unwrap().event() else { return false };
        thread::yield_now();
        let Some(ticket) = model.lock().unwrap().driver.claim(index) else { return true };
        if !flush(model, writable) {
            release(model, ticket);
            return true;
        }
        loop {
            {
                let mut model = model.lock().unwrap();
                if !model.driver.holds(ticket) || model.calls == 0 {
                    break;
                }
                model.calls -= 1;
            }
            thread::yield_now(); // the program runs
            let reached = model.lock().unwrap().add();
            if reached && !flush(model, false) {
                break;
            }
        }
        if model.lock().unwrap().driver.holds(ticket) {
            flush(model, false);
        }
        release(model, ticket);
        true
    }

    /// Runs `calls` calls by `workers` workers, in every interleaving. A callback is sent meanwhile, turns
    /// are taken over, and the socket is full at times.
    fn check(workers: usize, calls: u64, iterations: usize) {
        let scenario = move || {
            let model = Arc::new(Mutex::new(Model {
                driver: DriverTurn::default(),
                sender: SenderTurn::new(LIMIT),
                armed: SendInterest { calls: true, socket: false },
                calls,
                room: thread_rng().gen_range(0..=calls),
                added: 0,
                sent: 0,
            }));
            let mut threads = Vec::new();
            for index in 0..workers {
                let model = Arc::clone(&model);
                threads.push(thread::spawn(move || (0..6).for_each(|_| _ = work(&model, index))));
            }
            let supervised = Arc::clone(&model);
            threads.push(thread::spawn(move || {
                for _ in 1..2 * workers {
                    let mut model = supervised.lock().unwrap();
                    if model.driver.take_over(thread_rng().gen_range(0..workers), workers - 1) {
                        model.armed = model.sender.interest();
                    }
                    drop(model);
                    thread::yield_now();
                }
            }));
            let callback = Arc::clone(&model);
            threads.push(thread::spawn(move || {
                callback.lock().unwrap().add();
                flush(&callback, false);
                settle(&callback);
            }));
            let peer = Arc::clone(&model);
            threads.push(thread::spawn(move || {
                for _ in 1..calls {
                    peer.lock().unwrap().room += 1;
                    thread::yield_now();
                }
            }));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // An idle worker gets the remaining events. Each one has something for it.
            for _ in 0..100 {
                model.lock().unwrap().room += 1;
                if !work(&model, 0) {
                    break;
                }
            }
            let model = model.lock().unwrap();
            assert!(model.driver.is_quiet() && model.sender.is_idle());
            assert_eq!((model.calls, model.added, model.sent), (0, calls + 1, calls + 1));
            assert_eq!(model.armed, SendInterest { calls: true, socket: false });
        };
        shuttle::check_random(scenario, iterations);
    }

    /// All calls are run and all replies sent: no wake-up is lost. What waits is bounded.
    #[test]
    fn no_interleaving_loses_a_reply_or_a_wakeup() {
        check(WORKERS, 16, 1000);
    }

    /// A callback is sent while a worker leaves.
    #[test]
    fn a_callback_and_the_last_worker_both_arm_the_connection() {
        check(1, 1, 3000);
    }
}
