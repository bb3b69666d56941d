//! Who waits for locks, in the order in which they came, and whose turn it is.

use state::LockKind;

use super::{LEASE, LockDenied, Reference, Wanted};

/// How long others wait for one whose turn it is and who was told.
const TURN: u64 = LEASE / 12;
/// After how long a waiter that doesn't ask is forgotten.
const FORGOTTEN: u64 = 3 * LEASE;

/// Somebody who waits.
#[derive(Debug, Clone)]
pub struct Waiter {
    pub wanted: Wanted,
    asked: u64,
    /// Until when it is its turn.
    turn: Option<u64>,
    /// It was a local process that was in its way.
    pub outside: bool,
}

impl Waiter {
    fn is_same(&self, other: &Wanted) -> bool {
        self.is_own(other) && self.wanted.bytes == other.bytes && self.wanted.kind == other.kind
    }

    fn is_own(&self, other: &Wanted) -> bool {
        self.wanted.is_own(other.open.who, other.owner, other.open.file)
    }

    /// Whether it is this one's turn, and it wants what the other may not have then.
    fn is_before(&self, other: &Wanted, now: u64) -> bool {
        let ((first, last), (from, to)) = (self.wanted.bytes, other.bytes);
        self.turn.is_some_and(|until| now < until)
            && self.wanted.open.file == other.open.file
            && !self.is_own(other)
            && first <= to
            && from <= last
            && (self.wanted.kind == LockKind::Write || other.kind == LockKind::Write)
    }
}

impl Reference {
    /// Somebody is refused what it waits for, because of a local process if `outside`.
    pub fn enqueue(&mut self, wanted: &Wanted, outside: bool) {
        let (now, wanted) = (self.now, wanted.clone());
        match self.waiters.iter_mut().find(|waiter| waiter.is_same(&wanted)) {
            Some(waiter) => {
                (waiter.asked, waiter.wanted.open) = (now, wanted.open);
                if outside {
                    (waiter.turn, waiter.outside) = (None, true);
                }
            }
            None => self.waiters.push(Waiter { wanted, asked: now, turn: None, outside }),
        }
    }

    /// An owner has locked or unlocked these bytes: it doesn't wait for any of them.
    pub fn leave(&mut self, who: usize, owner: u8, file: u32, (from, to): (usize, usize)) {
        self.waiters.retain(|Waiter { wanted, .. }| {
            !wanted.is_own(who, owner, file) || wanted.bytes.1 < from || to < wanted.bytes.0
        });
    }

    /// No local process has any longer what somebody waits for.
    pub fn unblock(&mut self, wanted: &Wanted) {
        let waiter = self.waiters.iter_mut().find(|waiter| waiter.is_same(wanted));
        waiter.expect("it waits").outside = false;
    }

    /// Whose turn it is before this one may have what it wants.
    pub fn whose_turn(&mut self, wanted: &Wanted) -> Option<LockDenied> {
        self.begin_turns();
        let before = self.waiters.iter().take_while(|waiter| !waiter.is_same(wanted));
        let first = { before }.find(|waiter| waiter.is_before(wanted, self.now))?;
        let Wanted { open, owner, bytes, kind } = &first.wanted;
        Some((open.who, *owner, (bytes.0, bytes.1, *kind)))
    }

    /// Turns end, and begin for whoever could have what it wants.
    pub fn begin_turns(&mut self) {
        let now = self.now;
        self.waiters.retain(|waiter| match waiter.turn {
            Some(until) => now < until,
            None => now <= waiter.asked + FORGOTTEN,
        });
        for at in 0..self.waiters.len() {
            let Waiter { wanted, asked, turn, outside } = self.waiters[at].clone();
            let is_held = self.locks.iter().any(|lock| {
                lock.file == wanted.open.file
                    && !wanted.is_own(lock.who, lock.owner, lock.file)
                    && !lock.against(wanted.bytes, wanted.kind).is_empty()
            });
            let comes_later = self.waiters[..at].iter().any(|waiter| waiter.is_before(&wanted, now));
            if turn.is_none() && !outside && !is_held && !comes_later {
                self.told.push((wanted.open.who, wanted.owner, wanted.open.file));
                // Who hasn't asked for so long isn't waited for.
                self.waiters[at].turn = Some(if now > asked + LEASE { now } else { now + TURN });
            }
        }
        self.waiters.retain(|waiter| waiter.turn.is_none_or(|until| now < until));
    }
}
