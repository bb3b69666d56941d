//! Waiters for locks, in the order of their requests, and their turns.

use state::LockKind;

use super::{LEASE, LockArgs, LockDenied, Reference};

/// How long other clients wait for a notified waiter whose turn it is.
const TURN: u64 = LEASE / 12;
/// The time without a request after which a waiter is forgotten.
const FORGOTTEN: u64 = 3 * LEASE;

/// A lock request that waits.
#[derive(Debug, Clone)]
pub struct Waiter {
    pub args: LockArgs,
    request: u64,
    /// The end of its turn.
    turn: Option<u64>,
    /// Whether a local process holds the lock.
    pub outside: bool,
}

impl Waiter {
    fn is_same(&self, other: &LockArgs) -> bool {
        self.is_own(other) && self.args.bytes == other.bytes && self.args.kind == other.kind
    }

    fn is_own(&self, other: &LockArgs) -> bool {
        self.args.is_own(other.open.client, other.owner, other.open.file)
    }

    /// Whether it is this waiter's turn and the other request conflicts with it.
    fn is_before(&self, other: &LockArgs, now: u64) -> bool {
        let ((first, last), (from, to)) = (self.args.bytes, other.bytes);
        self.turn.is_some_and(|until| now < until)
            && self.args.open.file == other.open.file
            && !self.is_own(other)
            && first <= to
            && from <= last
            && (self.args.kind == LockKind::Write || other.kind == LockKind::Write)
    }
}

impl Reference {
    /// Adds or updates a waiter; with `outside` a local process holds the lock.
    pub fn enqueue(&mut self, args: &LockArgs, outside: bool) {
        let (now, args) = (self.now, args.clone());
        match self.waiters.iter_mut().find(|waiter| waiter.is_same(&args)) {
            Some(waiter) => {
                (waiter.request, waiter.args.open) = (now, args.open);
                if outside {
                    (waiter.turn, waiter.outside) = (None, true);
                }
            }
            None => self.waiters.push(Waiter { args, request: now, turn: None, outside }),
        }
    }

    /// The owner has locked or unlocked these bytes, and so waits for none of them.
    pub fn leave(&mut self, client: usize, owner: u8, file: u32, (from, to): (usize, usize)) {
        self.waiters.retain(|Waiter { args, .. }| {
            !args.is_own(client, owner, file) || args.bytes.1 < from || to < args.bytes.0
        });
    }

    /// The local process has released the lock.
    pub fn unblock(&mut self, args: &LockArgs) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.is_same(args));
        waiter.expect("it waits").outside = false;
    }

    /// The waiter that comes before this request.
    pub fn waiter_before(&mut self, args: &LockArgs) -> Option<LockDenied> {
        self.begin_turns();
        let before = self.waiters.iter().take_while(|waiter| !waiter.is_same(args));
        let first = { before }.find(|waiter| waiter.is_before(args, self.now))?;
        let LockArgs { open, owner, bytes, kind } = &first.args;
        Some((open.client, *owner, (bytes.0, bytes.1, *kind)))
    }

    /// Ends turns, and begins those of waiters without conflicts.
    pub fn begin_turns(&mut self) {
        let now = self.now;
        self.waiters.retain(|waiter| match waiter.turn {
            Some(until) => now < until,
            None => now <= waiter.request + FORGOTTEN,
        });
        for at in 0..self.waiters.len() {
            let Waiter { args, request, turn, outside } = self.waiters[at].clone();
            let is_held = self.locks.iter().any(|lock| {
                lock.file == args.open.file
                    && !args.is_own(lock.client, lock.owner, lock.file)
                    && !lock.against(args.bytes, args.kind).is_empty()
            });
            let comes_later = self.waiters[..at].iter().any(|waiter| waiter.is_before(&args, now));
            if turn.is_none() && !outside && !is_held && !comes_later {
                self.notified.push((args.open.client, args.owner, args.open.file));
                // A waiter without a recent request gets no turn.
                self.waiters[at].turn = Some(if now > request + LEASE { now } else { now + TURN });
            }
        }
        self.waiters.retain(|waiter| waiter.turn.is_none_or(|until| now < until));
    }
}
