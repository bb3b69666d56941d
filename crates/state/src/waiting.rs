//! Blocking locks in order (RFC 8881 section 9.6, RFC 7530 section 9.4): who asks for a lock that he can't
//! have yet, and is going to ask again, has a place in a queue.
//!
//! When nobody holds what a waiter wants its *turn* begins: it is told, if it can be (CB_NOTIFY_LOCK), and
//! for a part of a lease what is in its way is refused to others. A waiter that doesn't come back in that
//! time loses its place; one that hasn't asked for a lease's time is told, and gets no turn. Nobody is held
//! back for the sake of somebody who couldn't have the lock anyhow: that could make two wait for each other.
//!
//! Where a local process has the range nobody here sees it go: the caller looks from time to time
//! ([`Engine::blocked_waiters`]). The queue is for fairness only. Who finds no room in it, or finds it lost after a
//! restart, is served when he happens to ask.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use fairness::{Peer, Shares, Standing};

use crate::accounts::account;
use crate::engine::{Engine, Time};
use crate::ids::ClientId;
use crate::locks::{LockDenied, LockOwner};
use crate::ranges::{LockKind, Range};

/// The most that wait for locks on one file, and of those the most of one peer.
const MOST_OF_FILE: usize = 64;
const MOST_OF_PEER: usize = 48;
/// How many leases after it last asked a waiter is forgotten.
const FORGOTTEN: u64 = 3;
/// Which part of a lease a turn lasts for who is told of it, and for who polls (Linux does every 30 s at
/// least, a third of the usual lease).
const TURN_TOLD: u64 = 12;
const TURN_POLLED: u64 = 3;
/// How many waiters are looked at in one tick.
const MOST_OF_TICK: usize = 1024;

/// Somebody who waits for a lock.
#[derive(Debug)]
struct Waiter<L> {
    who: LockOwner,
    /// By which open: who closes it doesn't wait any more.
    open: u64,
    range: Range,
    kind: LockKind,
    /// When it last asked.
    asked: Time,
    /// Until when others may not have what it wants.
    turn: Option<Time>,
    /// It was a local process that was in the way: what the owner held open then.
    outside: Option<Arc<L>>,
    /// Whom its place is charged to.
    peer: Peer,
}

/// Those who wait for locks on one file, in the order in which they came.
#[derive(Debug)]
struct Queue<L> {
    waiters: Vec<Waiter<L>>,
    /// The file is among [`Waiting::stirred`].
    stirred: bool,
    /// Its place in [`Waiting::due`].
    due: Due,
}

/// When a queue has to be looked at again because of the time, and its number.
type Due = (Time, u64);

/// Everybody who waits for locks.
#[derive(Debug)]
pub(crate) struct Waiting<K, L> {
    queues: HashMap<K, Queue<L>>,
    due: BTreeMap<Due, K>,
    /// Numbers the queues.
    next: u64,
    /// Where [`Engine::blocked_waiters`] stopped.
    looked_at: Due,
    /// Files on which something was given back.
    stirred: Vec<K>,
    /// Who waits, by peer.
    places: Shares,
}

/// Somebody who waits for what a local process has.
#[derive(Debug, Clone)]
pub struct BlockedWaiter<K, L> {
    /// The file.
    pub key: K,
    /// Who.
    pub who: LockOwner,
    /// What for.
    pub range: Range,
    /// How.
    pub kind: LockKind,
    /// What the owner held open when it asked.
    pub file: Arc<L>,
}

/// A client to be told that one of its owners may have the lock it waits for (RFC 8881 section 20.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockNotice<K> {
    /// Who.
    pub who: LockOwner,
    /// The file.
    pub key: K,
}

impl<L> Queue<L> {
    /// Whether another of that peer finds no place.
    fn is_full_for(&self, peer: &Peer) -> bool {
        let of_peer = self.waiters.iter().filter(|waiter| waiter.peer == *peer).count();
        self.waiters.len() >= MOST_OF_FILE || of_peer >= MOST_OF_PEER
    }
}

impl<L> Waiter<L> {
    fn wants(&self, range: Range, kind: LockKind) -> bool {
        self.range == range && self.kind == kind
    }

    /// When its turn is over, or it is forgotten unless it asks again.
    fn until(&self, lease: u64) -> Time {
        self.turn.unwrap_or(self.asked.plus(FORGOTTEN * lease + 1))
    }

    /// Whether it is this one's turn, and it wants what somebody else couldn't have then.
    fn keeps_out(&self, now: Time, who: &LockOwner, range: Range, kind: LockKind) -> bool {
        self.turn.is_some_and(|until| now < until)
            && self.who != *who
            && self.range.overlaps(range)
            && (self.kind == LockKind::Write || kind == LockKind::Write)
    }
}

impl<K: Clone + Eq + Hash, L> Waiting<K, L> {
    /// With places for so many.
    pub fn new(places: usize) -> Self {
        let (queues, due, stirred) = Default::default();
        Self { queues, due, next: 0, looked_at: Due::default(), stirred, places: account(places) }
    }

    /// Something on the file was given back: turns may begin.
    pub fn stir(&mut self, key: &K) {
        if let Some(queue) = self.queues.get_mut(key)
            && !std::mem::replace(&mut queue.stirred, true)
        {
            self.stirred.push(key.clone());
        }
    }

    /// An owner has what it wanted, or doesn't want it any more: what was kept for it.
    pub fn leave(&mut self, key: &K, who: &LockOwner, range: Range) -> Vec<Arc<L>> {
        self.remove(key, |waiter| waiter.who == *who && waiter.range.overlaps(range))
    }

    /// An open has gone, and with it whoever waits by it: what was kept for those.
    pub fn close(&mut self, key: &K, open: u64) -> Vec<Arc<L>> {
        self.remove(key, |waiter| waiter.open == open)
    }

    fn remove(&mut self, key: &K, mut is_gone: impl FnMut(&Waiter<L>) -> bool) -> Vec<Arc<L>> {
        let Some(queue) = self.queues.get_mut(key) else { return Vec::new() };
        let gone: Vec<Waiter<L>> = queue.waiters.extract_if(.., |waiter| is_gone(waiter)).collect();
        gone.iter().for_each(|waiter| self.places.give_back(&waiter.peer, 1));
        if queue.waiters.is_empty() {
            self.due.remove(&queue.due);
            self.queues.remove(key);
        } else if !gone.is_empty() {
            // It may have been their turn.
            self.stir(key);
        }
        gone.into_iter().filter_map(|waiter| waiter.outside).collect()
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// An owner is refused what it waits for, by an open: it gets a place if it has none. With `outside` it
    /// was a local process's lock that was in the way.
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        key: &K,
        (who, open): (LockOwner, u64),
        (range, kind): (Range, LockKind),
        outside: Option<Arc<L>>,
    ) {
        let Some(peer) = self.clients.get(&who.client).map(|client| client.name.peer) else { return };
        let Waiting { queues, places, due, next, .. } = &mut self.waiting;
        let is_there = |waiter: &&mut Waiter<L>| waiter.who == who && waiter.wants(range, kind);
        if let Some(waiter) = queues.get_mut(key).and_then(|queue| queue.waiters.iter_mut().find(is_there)) {
            (waiter.asked, waiter.open) = (now, open);
            // What it found in its way says that it isn't its turn after all.
            if outside.is_some() {
                waiter.turn = None;
                self.effects.released.extend(std::mem::replace(&mut waiter.outside, outside));
                self.waiting.stir(key);
            }
            return;
        }
        let is_full = queues.get(key).is_some_and(|queue| queue.is_full_for(&peer));
        if is_full || !places.take(&peer, Standing::of_admitted(&peer), 1) {
            self.effects.released.extend(outside);
            return;
        }
        let waiter = Waiter { who, open, range, kind, asked: now, turn: None, outside, peer };
        let until = waiter.until(self.config.lease);
        let queue = queues.entry(key.clone()).or_insert_with(|| {
            *next += 1;
            due.insert((until, *next), key.clone());
            Queue { waiters: Vec::new(), stirred: false, due: (until, *next) }
        });
        queue.waiters.push(waiter);
    }

    /// Whose turn it is before this owner may have the range.
    pub(crate) fn whose_turn(
        &mut self,
        now: Time,
        key: &K,
        who: &LockOwner,
        (range, kind): (Range, LockKind),
    ) -> Option<LockDenied> {
        self.begin_turns(now, key);
        let queue = self.waiting.queues.get(key)?;
        let before =
            queue.waiters.iter().take_while(|waiter| waiter.who != *who || !waiter.wants(range, kind));
        let first = { before }.find(|waiter| waiter.keeps_out(now, who, range, kind))?;
        Some(LockDenied { range: first.range, kind: first.kind, owner: first.who.clone() })
    }

    /// Begins the turns of those who could have what they want since something was given back.
    pub(crate) fn begin_all_turns(&mut self, now: Time) {
        for key in std::mem::take(&mut self.waiting.stirred) {
            if let Some(queue) = self.waiting.queues.get_mut(&key) {
                queue.stirred = false;
            }
            self.begin_turns(now, &key);
        }
    }

    /// To be called every few seconds: ends the turns that were let pass, and begins the next ones. If there
    /// are too many, the rest is for the next time.
    pub(crate) fn end_turns(&mut self, now: Time) {
        let mut left = MOST_OF_TICK;
        while left > 0
            && let Some(first) = self.waiting.due.first_entry().filter(|first| first.key().0 <= now)
        {
            let key = first.remove();
            left = left.saturating_sub(self.waiting.queues.get(&key).map_or(1, |queue| queue.waiters.len()));
            self.begin_turns(now, &key);
        }
    }

    fn begin_turns(&mut self, now: Time, key: &K) {
        let Some(Queue { waiters: mut queue, stirred, due }) = self.waiting.queues.remove(key) else {
            return;
        };
        let lease = self.config.lease;
        let mut over = Vec::new();
        let places = &mut self.waiting.places;
        queue.retain_mut(|waiter| {
            let stays = now < waiter.until(lease);
            if !stays {
                over.extend(waiter.outside.take());
                places.give_back(&waiter.peer, 1);
            }
            stays
        });
        self.effects.released.append(&mut over);
        let held = self.are_held(key, &queue);
        for (at, held) in held.into_iter().enumerate() {
            let (front, rest) = queue.split_at_mut(at);
            let waiter = &mut rest[0];
            let in_front = |other: &Waiter<L>| other.keeps_out(now, &waiter.who, waiter.range, waiter.kind);
            if waiter.turn.is_some() || waiter.outside.is_some() || held || front.iter().any(in_front) {
                continue;
            }
            let told = self.can_be_told(waiter.who.client);
            if told {
                self.effects.notices.push(LockNotice { who: waiter.who.clone(), key: key.clone() });
            }
            let part = if told { TURN_TOLD } else { TURN_POLLED };
            // Who hasn't asked for so long isn't waited for.
            let length = if now > waiter.asked.plus(lease) { 0 } else { (lease / part).max(1) };
            waiter.turn = Some(now.plus(length));
        }
        let places = &mut self.waiting.places;
        queue.retain(|waiter| {
            let stays = waiter.turn.is_none_or(|until| now < until);
            places.give_back(&waiter.peer, usize::from(!stays));
            stays
        });
        self.waiting.due.remove(&due);
        if let Some(until) = queue.iter().map(|waiter| waiter.until(lease)).min() {
            let due = (until, due.1);
            self.waiting.due.insert(due, key.clone());
            self.waiting.queues.insert(key.clone(), Queue { waiters: queue, stirred, due });
        }
    }

    /// Of each who waits: whether somebody else holds some of it.
    fn are_held(&self, key: &K, queue: &[Waiter<L>]) -> Vec<bool> {
        let locked = self.files.get(key).map(|file| &file.locked);
        let is_held = |waiter: &Waiter<L>| {
            let own = self.lock_state(key, &waiter.who);
            locked.is_some_and(|locked| locked.against(own, waiter.range, waiter.kind).is_some())
        };
        queue.iter().map(is_held).collect()
    }

    /// Whether a client has CB_NOTIFY_LOCK: 4.0's poll.
    fn can_be_told(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.v40.is_none())
    }

    /// Those who wait for what a local process had when they last asked. Some `most` waiters are looked at,
    /// and the others the next time.
    pub fn blocked_waiters(&mut self, most: usize) -> Vec<BlockedWaiter<K, L>> {
        let Waiting { queues, due, looked_at, .. } = &mut self.waiting;
        let (mut left, mut found) = (most, Vec::new());
        let last = *looked_at;
        for (at, key) in due.range((Excluded(last), Unbounded)).chain(due.range(..=last)) {
            let Some(queue) = queues.get(key).filter(|_| left > 0) else { break };
            *looked_at = *at;
            left = left.saturating_sub(queue.waiters.len());
            found.extend(queue.waiters.iter().filter_map(|waiter| {
                let Waiter { who, range, kind, outside, .. } = waiter;
                let file = Arc::clone(outside.as_ref()?);
                Some(BlockedWaiter { key: key.clone(), who: who.clone(), range: *range, kind: *kind, file })
            }));
        }
        found
    }

    /// No local process has any longer what somebody waits for.
    pub fn unblock(&mut self, who: &BlockedWaiter<K, L>) {
        let Some(queue) = self.waiting.queues.get_mut(&who.key) else { return };
        let is_it = |waiter: &&mut Waiter<L>| waiter.who == who.who && waiter.wants(who.range, who.kind);
        if let Some(waiter) = queue.waiters.iter_mut().find(is_it) {
            self.effects.released.extend(waiter.outside.take());
        }
        self.waiting.stir(&who.key);
    }
}
