//! The queues of blocking locks (RFC 8881 section 9.6, RFC 7530 section 9.4): a LOCK that is refused, and
//! that its owner is going to repeat, has a place in the file's queue.
//!
//! When no other owner holds what a waiter wants its *turn* begins. The waiter is notified if it can be
//! (CB_NOTIFY_LOCK), and for a part of a lease conflicting locks are refused to other owners. A waiter that
//! doesn't ask in that time loses its place. One that hasn't asked for a lease's time is notified, and has no
//! turn. A waiter that couldn't have its lock anyway holds up no other: two owners could wait for each other.
//!
//! The engine doesn't see when a local process gives a lock back: the caller tests the kernel's locks from
//! time to time ([`Engine::blocked_waiters`]), and before an owner takes a lock that others wait for
//! ([`Engine::blocked_waiters_before`]). The queue is for fairness only. An owner without a place, for
//! want of room or after a restart, gets the lock when it asks and the lock is free.
//!
//! Invariants: every queue has waiters and is in [`LockQueues::due`]; every waiter's place is charged to its
//! peer.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use ahash::HashMap;
use fairness::{Peer, Shares, Standing};
use lock_ranges::{ByteRange, LockKind};

use crate::accounts::account;
use crate::engine::{Engine, Time};
use crate::ids::ClientId;
use crate::lock_table::{LockDenied, LockOwner};
use crate::locks::{LockRequest, PendingLock};

/// The most waiters for one file, and the most of them of one peer.
const MAX_FILE_WAITERS: usize = 64;
const MAX_FILE_WAITERS_OF_PEER: usize = 48;
/// The number of leases after its last LOCK after which a waiter is forgotten.
const FORGOTTEN_LEASES: u64 = 3;
/// The fraction of a lease that a turn lasts for a waiter that is notified.
const NOTIFIED_TURN_FRACTION: u64 = 12;
/// The fraction of a lease that a turn lasts for a waiter that polls. Linux polls every 30 s at least, a
/// third of the usual lease.
const POLLED_TURN_FRACTION: u64 = 3;
/// The most waiters whose turns are ended in one tick.
const MAX_TICK_WAITERS: usize = 1024;

/// The lock that an owner wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedLock<'a> {
    pub owner: &'a LockOwner,
    pub range: ByteRange,
    pub kind: LockKind,
}

/// A waiter for a lock.
#[derive(Debug)]
pub(crate) struct LockWaiter<L> {
    who: LockOwner,
    /// The open that the LOCK was made through. When it is closed the waiter is gone.
    open: u64,
    range: ByteRange,
    kind: LockKind,
    /// The last LOCK.
    asked: Time,
    /// The end of the waiter's turn.
    turn: Option<Time>,
    /// The owner's resources, if the lock of a local process was in the way.
    outside: Option<Arc<L>>,
    /// The peer that is charged for the place.
    peer: Peer,
}

/// The waiters for one file, in the order in which they came.
#[derive(Debug)]
struct FileQueue<L> {
    waiters: Vec<LockWaiter<L>>,
    /// The file is in [`LockQueues::changed`].
    changed: bool,
    /// The queue's key in [`LockQueues::due`].
    due: QueueDue,
}

/// When a turn or a wait of a queue is over, and the queue's number.
type QueueDue = (Time, u64);

/// All queues.
#[derive(Debug)]
pub(crate) struct LockQueues<K, L> {
    queues: HashMap<K, FileQueue<L>>,
    due: BTreeMap<QueueDue, K>,
    /// The number of the last queue.
    last_number: u64,
    /// The last queue that [`LockQueues::blocked`] has looked at.
    looked_at: QueueDue,
    /// Files on which something was given back.
    changed: Vec<K>,
    /// Places by peer.
    places: Shares,
}

/// What has followed from the turns of a file's waiters.
#[derive(Debug)]
pub(crate) struct Turns<K, L> {
    /// The waiters whose turns have begun, and that can be notified.
    pub notices: Vec<LockNotice<K>>,
    /// The resources of waiters that have lost their places.
    pub released: Vec<Arc<L>>,
}

/// A waiter for a lock that a local process held when it last asked.
#[derive(Debug, Clone)]
pub struct BlockedWaiter<K, L> {
    /// The file.
    pub key: K,
    /// The lock owner.
    pub who: LockOwner,
    /// The bytes that it wants.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The resources that it had when it asked.
    pub file: Arc<L>,
}

/// A lock owner that may have the lock it waits for, and is to be notified (RFC 8881 section 20.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockNotice<K> {
    /// The lock owner.
    pub who: LockOwner,
    /// The file.
    pub key: K,
}

impl<L> FileQueue<L> {
    fn is_full_for(&self, peer: &Peer) -> bool {
        let of_peer = self.waiters.iter().filter(|waiter| waiter.peer == *peer).count();
        self.waiters.len() >= MAX_FILE_WAITERS || of_peer >= MAX_FILE_WAITERS_OF_PEER
    }
}

impl<L> LockWaiter<L> {
    /// A waiter that was refused a lock at `now`.
    pub fn new(now: Time, wanted: &WantedLock<'_>, open: u64, peer: Peer, outside: Option<Arc<L>>) -> Self {
        let WantedLock { owner, range, kind } = *wanted;
        Self { who: owner.clone(), open, range, kind, asked: now, turn: None, outside, peer }
    }

    fn is_same(&self, who: &LockOwner, range: ByteRange, kind: LockKind) -> bool {
        self.who == *who && self.range == range && self.kind == kind
    }

    /// The waiter, if it waits for a local process.
    fn blocked<K: Clone>(&self, key: &K) -> Option<BlockedWaiter<K, L>> {
        let file = Arc::clone(self.outside.as_ref()?);
        Some(BlockedWaiter {
            key: key.clone(),
            who: self.who.clone(),
            range: self.range,
            kind: self.kind,
            file,
        })
    }

    /// Whether it waits for something that conflicts with what another owner wants.
    fn conflicts_with(&self, wanted: &WantedLock<'_>) -> bool {
        self.who != *wanted.owner
            && self.range.overlaps(wanted.range)
            && (self.kind == LockKind::Write || wanted.kind == LockKind::Write)
    }

    /// When its turn is over, or it is forgotten unless it asks again.
    fn until(&self, lease: u64) -> Time {
        self.turn.unwrap_or(self.asked.plus(FORGOTTEN_LEASES * lease + 1))
    }

    /// Whether it is the waiter's turn, and it keeps another owner from the wanted lock.
    fn keeps_out(&self, now: Time, wanted: &WantedLock<'_>) -> bool {
        self.turn.is_some_and(|until| now < until) && self.conflicts_with(wanted)
    }

    const fn wanted(&self) -> WantedLock<'_> {
        WantedLock { owner: &self.who, range: self.range, kind: self.kind }
    }
}

impl<K: Clone + Eq + Hash, L> LockQueues<K, L> {
    /// Queues with `places` places in all.
    pub fn new(places: usize) -> Self {
        let (queues, due, changed) = Default::default();
        let looked_at = QueueDue::default();
        Self { queues, due, last_number: 0, looked_at, changed, places: account(places) }
    }

    /// Something on the file was given back: turns may begin.
    pub fn mark_changed(&mut self, key: &K) {
        if let Some(queue) = self.queues.get_mut(key)
            && !std::mem::replace(&mut queue.changed, true)
        {
            self.changed.push(key.clone());
        }
    }

    /// The files on which something was given back since the last call.
    pub fn take_changed(&mut self) -> Vec<K> {
        let changed = std::mem::take(&mut self.changed);
        for key in &changed {
            if let Some(queue) = self.queues.get_mut(key) {
                queue.changed = false;
            }
        }
        changed
    }

    /// Files with turns or waits that are over, with some [`MAX_TICK_WAITERS`] waiters. To be passed to
    /// [`LockQueues::begin_turns`].
    pub fn take_due(&mut self, now: Time) -> Vec<K> {
        let (mut left, mut taken) = (MAX_TICK_WAITERS, Vec::new());
        for (_, key) in self.due.range(..=(now, u64::MAX)) {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(self.queues.get(key).map_or(1, |queue| queue.waiters.len()));
            taken.push(key.clone());
        }
        taken
    }

    /// Removes an owner's waiters for what it has, or doesn't want any more; their resources.
    pub fn remove_served(&mut self, key: &K, who: &LockOwner, range: ByteRange) -> Vec<Arc<L>> {
        self.remove(key, |waiter| waiter.who == *who && waiter.range.overlaps(range))
    }

    /// Removes the waiters by an open that was closed; their resources.
    pub fn remove_open(&mut self, key: &K, open: u64) -> Vec<Arc<L>> {
        self.remove(key, |waiter| waiter.open == open)
    }

    fn remove(&mut self, key: &K, mut is_removed: impl FnMut(&LockWaiter<L>) -> bool) -> Vec<Arc<L>> {
        let Some(queue) = self.queues.get_mut(key) else { return Vec::new() };
        let removed: Vec<LockWaiter<L>> = queue.waiters.extract_if(.., |waiter| is_removed(waiter)).collect();
        removed.iter().for_each(|waiter| self.places.give_back(&waiter.peer, 1));
        if queue.waiters.is_empty() {
            self.due.remove(&queue.due);
            self.queues.remove(key);
        } else if !removed.is_empty() {
            // It may have been their turn.
            self.mark_changed(key);
        }
        removed.into_iter().filter_map(|waiter| waiter.outside).collect()
    }

    /// Gives a waiter a place, if there is room and it has none. Returns resources that aren't needed.
    pub fn enqueue(&mut self, key: &K, waiter: LockWaiter<L>, lease: u64) -> Option<Arc<L>> {
        let Self { queues, places, due, last_number, .. } = self;
        let LockWaiter { who, range, kind, peer, .. } = &waiter;
        let is_same = |other: &&mut LockWaiter<L>| other.is_same(who, *range, *kind);
        if let Some(same) = queues.get_mut(key).and_then(|queue| queue.waiters.iter_mut().find(is_same)) {
            (same.asked, same.open) = (waiter.asked, waiter.open);
            // The lock of a local process shows that it isn't its turn after all.
            if waiter.outside.is_some() {
                same.turn = None;
                let before = std::mem::replace(&mut same.outside, waiter.outside);
                self.mark_changed(key);
                return before;
            }
            return None;
        }
        let is_full = queues.get(key).is_some_and(|queue| queue.is_full_for(peer));
        if is_full || !places.take(peer, Standing::of_admitted(peer), 1) {
            return waiter.outside;
        }
        let until = waiter.until(lease);
        let queue = queues.entry(key.clone()).or_insert_with(|| {
            *last_number += 1;
            let at = (until, *last_number);
            due.insert(at, key.clone());
            FileQueue { waiters: Vec::new(), changed: false, due: at }
        });
        queue.waiters.push(waiter);
        None
    }

    /// The waiters before the place of the wanted lock in the queue; all if it has none.
    fn before(&self, key: &K, wanted: &WantedLock<'_>) -> impl Iterator<Item = &LockWaiter<L>> {
        let is_own = |waiter: &LockWaiter<L>| waiter.is_same(wanted.owner, wanted.range, wanted.kind);
        let waiters = self.queues.get(key).map_or(&[][..], |queue| &queue.waiters);
        waiters.iter().take_while(move |waiter| !is_own(waiter))
    }

    /// The waiter, before the owner's own place in the queue, whose turn keeps the owner from the lock.
    pub fn turn_before(&self, now: Time, key: &K, wanted: &WantedLock<'_>) -> Option<LockDenied> {
        let first = self.before(key, wanted).find(|waiter| waiter.keeps_out(now, wanted))?;
        Some(LockDenied { range: first.range, kind: first.kind, owner: first.who.clone() })
    }

    /// Removes the waiters of a file whose time is over, and begins the turns of those that could have their
    /// locks. `is_held` says whether another owner holds what a waiter wants, `is_notified` whether a client
    /// can be notified.
    pub fn begin_turns(
        &mut self,
        now: Time,
        key: &K,
        lease: u64,
        is_held: impl Fn(&WantedLock<'_>) -> bool,
        is_notified: impl Fn(ClientId) -> bool,
    ) -> Turns<K, L> {
        let mut turns = Turns { notices: Vec::new(), released: Vec::new() };
        let Some(queue) = self.queues.get_mut(key) else { return turns };
        let (waiters, places) = (&mut queue.waiters, &mut self.places);
        waiters.retain_mut(|waiter| {
            let stays = now < waiter.until(lease);
            if !stays {
                turns.released.extend(waiter.outside.take());
                places.give_back(&waiter.peer, 1);
            }
            stays
        });
        for at in 0..waiters.len() {
            let (front, rest) = waiters.split_at_mut(at);
            let waiter = &mut rest[0];
            let is_blocked = waiter.turn.is_some()
                || waiter.outside.is_some()
                || is_held(&waiter.wanted())
                || front.iter().any(|other| other.keeps_out(now, &waiter.wanted()));
            if is_blocked {
                continue;
            }
            let notified = is_notified(waiter.who.client);
            if notified {
                turns.notices.push(LockNotice { who: waiter.who.clone(), key: key.clone() });
            }
            let fraction = if notified { NOTIFIED_TURN_FRACTION } else { POLLED_TURN_FRACTION };
            // A waiter that hasn't asked for so long has no turn.
            let length = if now > waiter.asked.plus(lease) { 0 } else { (lease / fraction).max(1) };
            waiter.turn = Some(now.plus(length));
        }
        waiters.retain(|waiter| {
            let stays = waiter.turn.is_none_or(|until| now < until);
            places.give_back(&waiter.peer, usize::from(!stays));
            stays
        });
        self.due.remove(&queue.due);
        match waiters.iter().map(|waiter| waiter.until(lease)).min() {
            Some(until) => {
                queue.due = (until, queue.due.1);
                self.due.insert(queue.due, key.clone());
            }
            None => {
                self.queues.remove(key);
            }
        }
        turns
    }

    /// The waiters for locks of local processes. Looks at some `max` waiters, and at the others the next
    /// time.
    fn blocked(&mut self, max: usize) -> Vec<BlockedWaiter<K, L>> {
        let Self { queues, due, looked_at, .. } = self;
        let (mut left, mut found) = (max, Vec::new());
        let last = *looked_at;
        for (at, key) in due.range((Excluded(last), Unbounded)).chain(due.range(..=last)) {
            let Some(queue) = queues.get(key).filter(|_| left > 0) else { break };
            *looked_at = *at;
            left = left.saturating_sub(queue.waiters.len());
            found.extend(queue.waiters.iter().filter_map(|waiter| waiter.blocked(key)));
        }
        found
    }

    /// As [`LockQueues::blocked`]: those of a file that the wanted lock would keep from theirs, and that came
    /// before its owner.
    fn blocked_before(&self, key: &K, wanted: &WantedLock<'_>) -> Vec<BlockedWaiter<K, L>> {
        let conflicting = self.before(key, wanted).filter(|waiter| waiter.conflicts_with(wanted));
        conflicting.filter_map(|waiter| waiter.blocked(key)).collect()
    }

    /// A local process has given back what a waiter wants; the waiter's resources.
    fn unblock(&mut self, blocked: &BlockedWaiter<K, L>) -> Option<Arc<L>> {
        let BlockedWaiter { key, who, range, kind, .. } = blocked;
        let waiters = &mut self.queues.get_mut(key)?.waiters;
        let waiter = waiters.iter_mut().find(|waiter| waiter.is_same(who, *range, *kind));
        let released = waiter.and_then(|waiter| waiter.outside.take());
        self.mark_changed(key);
        released
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The waiters for locks that local processes held when they last asked. Looks at some `max` waiters, and
    /// at the others the next time.
    pub fn blocked_waiters(&mut self, max: usize) -> Vec<BlockedWaiter<K, L>> {
        self.lock_queues.blocked(max)
    }

    /// Between [`Engine::lock_begin`] and the kernel's lock: the waiters for locks that local processes held
    /// when they last asked, which came before this owner and which it would keep from their locks. The
    /// caller tests whether they could have them by now. For each that could it calls [`Engine::unblock`],
    /// and then [`Engine::lock_failed`] and [`Engine::lock_begin`] again.
    #[must_use]
    pub fn blocked_waiters_before(
        &self,
        pending: &PendingLock<L>,
        args: &LockRequest<'_, K>,
    ) -> Vec<BlockedWaiter<K, L>> {
        let Some(owner) = self.owner_of_pending(pending).filter(|_| !args.reclaim) else { return Vec::new() };
        let wanted = WantedLock { owner: &owner, range: args.range, kind: args.kind };
        self.lock_queues.blocked_before(args.key, &wanted)
    }

    /// The local process has given back what a waiter wants.
    pub fn unblock(&mut self, waiter: &BlockedWaiter<K, L>) {
        self.effects.released.extend(self.lock_queues.unblock(waiter));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEASE: u64 = 12;

    impl LockQueues<u8, ()> {
        fn check(&self) {
            let waiters: usize = self.queues.values().map(|queue| queue.waiters.len()).sum();
            assert_eq!(self.places.total(), waiters);
            assert_eq!(self.due.len(), self.queues.len());
            for (key, queue) in &self.queues {
                assert!(!queue.waiters.is_empty());
                assert_eq!(self.due.get(&queue.due), Some(key));
                assert!(!queue.changed || self.changed.contains(key));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn every_waiter_has_a_place_in_a_queue_that_is_due(
            steps in proptest::collection::vec((0_u8..8, 0_u8..2, 0_u8..4, any::<bool>(), 0_u64..9), 1..60)
        ) {
            let (mut queues, mut now) = (LockQueues::<u8, ()>::new(1024), Time(0));
            for (what, key, who, writes, time) in steps {
                let owner = LockOwner { client: ClientId(u64::from(who)), owner: vec![who] };
                let kind = if writes { LockKind::Write } else { LockKind::Read };
                let wanted = WantedLock { owner: &owner, range: ByteRange::ALL, kind };
                match what {
                    0 | 1 => {
                        let outside = (what == 1).then(Arc::default);
                        let waiter = LockWaiter::new(now, &wanted, u64::from(who), Peer::Local(0), outside);
                        queues.enqueue(&key, waiter, LEASE);
                    }
                    2 => drop(queues.remove_served(&key, &owner, ByteRange::ALL)),
                    3 => drop(queues.remove_open(&key, u64::from(who))),
                    4 => queues.mark_changed(&key),
                    5 => {
                        let blocked = queues.blocked(usize::MAX);
                        blocked.iter().for_each(|waiter| drop(queues.unblock(waiter)));
                    }
                    _ => {
                        now = now.plus(time);
                        for key in [queues.take_changed(), queues.take_due(now)].concat() {
                            let turns = queues.begin_turns(now, &key, LEASE, |_| writes, |_| true);
                            prop_assert!(!writes || turns.notices.is_empty());
                        }
                    }
                }
                queues.check();
            }
        }
    }
}
