//! The byte-range locks (RFC 8881 sections 9.1 to 9.6, 18.10, 18.12 and 18.38): what applications have
//! locked, what the server holds for that, and the requests that bring the two together.
//!
//! A lock owner is what the locks belong to in POSIX: a process for fcntl(2), an open file description for
//! flock(2) and for open file description locks. Its ranges are merged and split as POSIX wants it; the
//! server's are the same.
//!
//! Invariants:
//! - A lock is an application's from the server's answer on, and not any more when it begins to unlock it, or
//!   to make a read lock of it.
//! - For one lock owner and file there is one request at a time: its state id has no other changes. Its
//!   `seqid` in requests is 0.
//! - The requests of different owners may arrive in any order. None is sent that the server would refuse only
//!   because another one, of an owner that gives up a lock, arrives later.
//!
//! What the caller does:
//! - To lock: calls [`Locks::lock`], sends the [`LockChange`] and reports [`Locks::changed`]. If the lock is
//!   refused to an application that waits for it, it begins again after CB_NOTIFY_LOCK or some time. A caller
//!   that doesn't wait for the reply any more still gets it, and reports [`Locks::given_up`] if it is a lock.
//! - To test (`F_GETLK`): calls [`Locks::test`], and sends LOCKT if that doesn't tell.
//! - To unlock: calls [`Locks::unlock`]. The lock may be forgotten at once, before the server's answer.
//! - When a lock owner ends or closes the file: calls [`Locks::release`]. The open that its locks were made
//!   through is closed when [`Locks::is_free`].
//! - Before each sending of a change, also of one that [`Locks::take_changes`] returns: makes the request of
//!   what [`Locks::request`] says. If that is nothing any more, or a first lock and its file isn't open, the
//!   change fails as [`StateError::Refused`], without being sent.
//! - When the server doesn't know the state of a request that would be another one by then: sends that one.
//!   The state has been recovered since the request was made.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use lock_ranges::{ByteRange, LockKind, LockRanges};

use crate::ids::{StateError, StateId};

/// All locks. `F` names a file, `L` a lock owner.
#[derive(Debug)]
pub struct Locks<F, L> {
    owners: BTreeMap<(F, L), OwnerLocks>,
    /// The files with a write delegation: the server is told of locks when it is recalled.
    delegated: BTreeSet<F>,
    last_number: u64,
    changes: Vec<LockChange<F, L>>,
    lost: Vec<(F, L)>,
}

/// The locks of one owner on one file.
#[derive(Debug, Default)]
struct OwnerLocks {
    /// What the application has locked.
    wanted: LockRanges,
    /// What the server holds.
    held: LockRanges,
    id: Option<StateId>,
    /// What the server doesn't hold is reclaimed.
    is_reclaiming: bool,
    /// The application's request that isn't answered.
    asked: Option<Asked>,
    /// The other request that isn't answered: its number, and what it is for.
    sent: Option<(u64, Purpose)>,
    /// The lock owner has ended.
    is_released: bool,
    is_lost: bool,
    /// [`Locks::take_lost`] hasn't told yet.
    is_newly_lost: bool,
}

/// A lock that an application asks the server for.
#[derive(Debug)]
struct Asked {
    number: u64,
    range: ByteRange,
    kind: LockKind,
}

/// A request that changes what the server holds for one lock owner and file.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the request has to be sent, and its result reported"]
pub struct LockChange<F, L> {
    key: (F, L),
    number: u64,
    purpose: Purpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// An application's lock.
    Ask(ByteRange, LockKind),
    /// The server is to have what the application has.
    Restore(ByteRange, Option<LockKind>),
    Reclaim(ByteRange, LockKind),
    Free,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockChangeRequest {
    /// LOCK, without waiting (`READ_LT`, `WRITE_LT`) unless the application waits.
    Lock {
        /// The owner's state id. Without one the lock is its first (`open_to_lock_owner4`), made through the
        /// open, with [`Opens::io_id`](crate::Opens::io_id).
        id: Option<StateId>,
        /// The bytes.
        range: ByteRange,
        /// Shared or exclusive.
        kind: LockKind,
        /// The client had the lock before the server restarted.
        reclaim: bool,
    },
    /// LOCKU.
    Unlock {
        /// The state id.
        id: StateId,
        /// The bytes.
        range: ByteRange,
    },
    /// FREE_STATEID.
    Free {
        /// The state id.
        id: StateId,
    },
}

/// What becomes of an application's request.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum LockAnswer<F, L> {
    /// The owner has the lock: it had it already, or the file is delegated.
    Granted,
    /// The file is delegated, and another owner has a lock that conflicts.
    Denied,
    /// Another request of the owner isn't answered or has to be made first, or one about a conflicting lock.
    /// The caller tries again after the next [`Locks::changed`] of the file.
    Busy,
    /// The server decides.
    Ask(LockChange<F, L>),
}

/// What the client knows about whether a range could be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tested {
    /// Another owner has this lock.
    Conflict(ByteRange, LockKind),
    /// The file is delegated, and no other owner has a lock that conflicts.
    Free,
    /// The server doesn't know yet that another owner has unlocked the range. The caller tests again after
    /// the next [`Locks::changed`] of the file.
    Busy,
    /// The server has to be asked (LOCKT).
    Server,
}

/// Why a LOCK or LOCKU failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// `NFS4ERR_DENIED`: another owner's lock conflicts.
    #[error("another owner has a lock")]
    Denied,
    /// Another reason.
    #[error(transparent)]
    State(#[from] StateError),
}

impl<F, L> LockChange<F, L> {
    /// The file.
    pub const fn file(&self) -> &F {
        &self.key.0
    }

    /// The lock owner.
    pub const fn owner(&self) -> &L {
        &self.key.1
    }

    /// Whether it is part of [`Step::Reclaim`](crate::Step::Reclaim).
    pub const fn is_reclaim(&self) -> bool {
        matches!(self.purpose, Purpose::Reclaim(..))
    }
}

impl<F, L> Default for Locks<F, L> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
            delegated: BTreeSet::new(),
            last_number: 0,
            changes: Vec::new(),
            lost: Vec::new(),
        }
    }
}

impl<F: Clone + Ord, L: Clone + Ord> Locks<F, L> {
    /// An application locks a range.
    pub fn lock(&mut self, file: F, owner: L, range: ByteRange, kind: LockKind) -> LockAnswer<F, L> {
        let key = (file, owner);
        if self.delegated.contains(&key.0) {
            return self.lock_locally(key, range, kind);
        }
        // The server doesn't know yet what another owner has, or has no longer: it mustn't grant what that
        // owner has under a delegation, or has again if nothing waits for its read lock any more, nor refuse
        // what it has unlocked.
        let is_untold = |locks: &OwnerLocks| {
            (!locks.is_told() || locks.may_weaken(range))
                && (locks.wanted.conflict(range, kind).is_some() || locks.keeps(range, kind))
        };
        if self.others(&key).any(is_untold) {
            return LockAnswer::Busy;
        }
        let locks = self.owners.entry(key.clone()).or_default();
        if locks.asked.is_some() || !locks.is_told() {
            return LockAnswer::Busy;
        }
        if locks.wanted.is_set(range, kind) {
            return LockAnswer::Granted;
        }
        self.last_number += 1;
        locks.asked = Some(Asked { number: self.last_number, range, kind });
        locks.is_released = false;
        LockAnswer::Ask(LockChange { key, number: self.last_number, purpose: Purpose::Ask(range, kind) })
    }

    fn lock_locally(&mut self, key: (F, L), range: ByteRange, kind: LockKind) -> LockAnswer<F, L> {
        let mut on_file = self.owners.iter().filter(|((file, _), _)| *file == key.0);
        if on_file.clone().any(|(_, locks)| locks.asked.is_some()) {
            // What the server grants now doesn't conflict with what it knows only.
            return LockAnswer::Busy;
        }
        if on_file.any(|(other, locks)| *other != key && locks.wanted.conflict(range, kind).is_some()) {
            return LockAnswer::Denied;
        }
        let locks = self.owners.entry(key.clone()).or_default();
        locks.wanted.set(range, Some(kind));
        locks.is_released = false;
        self.make_change(&key);
        LockAnswer::Granted
    }

    /// An application unlocks a range.
    pub fn unlock(&mut self, file: &F, owner: &L, range: ByteRange) {
        self.update(file, owner, |locks| {
            locks.wanted.set(range, None);
            locks.is_lost = false;
        });
    }

    /// A lock owner ends, or closes the file: it has no locks on it any more.
    pub fn release(&mut self, file: &F, owner: &L) {
        self.update(file, owner, |locks| {
            locks.wanted = LockRanges::default();
            (locks.is_released, locks.is_lost) = (true, false);
        });
    }

    /// Whether the server has no locks of the owner, and no request about them is on its way.
    #[must_use]
    pub fn is_free(&self, file: &F, owner: &L) -> bool {
        self.get(file, owner).is_none_or(OwnerLocks::is_free)
    }

    /// Whether no request is on its way that follows from an unlocked range, or an owner's end.
    #[must_use]
    pub fn is_settled_for(&self, file: &F, owner: &L) -> bool {
        self.get(file, owner).is_none_or(|locks| locks.sent.is_none())
    }

    /// Whether nothing is known of an owner's locks on a file: it has none, and asks for none.
    #[must_use]
    pub fn is_unknown(&self, file: &F, owner: &L) -> bool {
        self.get(file, owner).is_none()
    }

    /// Whether [`Locks::is_free`] holds for each owner that has locked something in the file.
    #[must_use]
    pub fn is_file_free(&self, file: &F) -> bool {
        let mut on_file = self.owners.iter().filter(|((on, _), _)| on == file);
        on_file.all(|(_, locks)| locks.is_free())
    }

    /// As [`Locks::is_file_free`], for some owners: those that `are` meant, which follow each other in the
    /// order of owners. `first` isn't behind the first of them.
    #[must_use]
    pub fn are_free(&self, file: &F, first: L, are: impl Fn(&L) -> bool) -> bool {
        let behind = self.owners.range((file.clone(), first)..);
        let mut theirs = behind.take_while(|((on, by), _)| on == file && are(by));
        theirs.all(|(_, locks)| locks.is_free())
    }

    /// Whether the owner has a lock that serves for `kind`. The lease has to be valid, too
    /// ([`StateManager::is_lease_valid`](crate::StateManager::is_lease_valid)).
    #[must_use]
    pub fn holds(&self, file: &F, owner: &L, range: ByteRange, kind: LockKind) -> bool {
        let is_local = self.delegated.contains(file);
        let holds = |locks: &OwnerLocks| {
            locks.wanted.covers(range, kind)
                && (is_local || locks.held.covers(range, kind))
                && (kind == LockKind::Read || !locks.may_weaken(range))
        };
        self.get(file, owner).is_some_and(holds)
    }

    /// A lock of another owner that keeps this one from locking the range. [`Tested::Server`]: none that the
    /// client knows of, and the server decides. That nothing conflicts is true while the lease is valid
    /// ([`StateManager::is_lease_valid`](crate::StateManager::is_lease_valid)).
    #[must_use]
    pub fn test(&self, file: &F, owner: &L, range: ByteRange, kind: LockKind) -> Tested {
        let others = self.owners.iter().filter(|((on, by), _)| on == file && by != owner);
        let mut others = others.map(|(_, locks)| locks);
        match others.clone().find_map(|locks| locks.wanted.conflict(range, kind)) {
            Some((range, kind)) => Tested::Conflict(range, kind),
            None if self.delegated.contains(file) => Tested::Free,
            None if others.any(|locks| !locks.is_told() && locks.keeps(range, kind)) => Tested::Busy,
            None => Tested::Server,
        }
    }

    /// The state id for I/O of an owner that has locks on the file (RFC 8881 section 8.2.5): if they are
    /// lost, the I/O fails. If the server doesn't know it, the caller reports [`Locks::gone`], and tries
    /// again with what is current then. Other I/O, and that under a write delegation, has
    /// [`Opens::io_id`](crate::Opens::io_id), which has to succeed in any case.
    #[must_use]
    pub fn io_id(&self, file: &F, owner: &L) -> Option<StateId> {
        let locks = self.get(file, owner).filter(|_| !self.delegated.contains(file))?;
        locks.id.filter(|_| !locks.held.is_empty()).map(StateId::any)
    }

    /// Whether the owner has lost locks on the file: its I/O fails with EIO until it unlocks something, or
    /// ends.
    #[must_use]
    pub fn is_lost(&self, file: &F, owner: &L) -> bool {
        self.get(file, owner).is_some_and(|locks| locks.is_lost)
    }

    /// The request of a change now. `None` if recovery has overtaken the change, or what it gives up is gone.
    #[must_use]
    pub fn request(&self, change: &LockChange<F, L>) -> Option<LockChangeRequest> {
        let locks = self.owners.get(&change.key)?;
        let is_asked = locks.asked.as_ref().is_some_and(|asked| asked.number == change.number);
        if !is_asked && !locks.is_sent(change.number) {
            return None;
        }
        let id = locks.id.map(StateId::any);
        Some(match change.purpose {
            Purpose::Ask(range, kind) | Purpose::Restore(range, Some(kind)) => {
                LockChangeRequest::Lock { id, range, kind, reclaim: false }
            }
            Purpose::Reclaim(range, kind) => LockChangeRequest::Lock { id, range, kind, reclaim: true },
            Purpose::Restore(range, None) => LockChangeRequest::Unlock { id: id?, range },
            Purpose::Free => LockChangeRequest::Free { id: id? },
        })
    }

    /// How a change has ended, with the state id of the reply, which FREE_STATEID's hasn't.
    pub fn changed(&mut self, change: LockChange<F, L>, result: Result<Option<StateId>, LockError>) {
        self.end(change, result, true);
    }

    /// The server has granted a lock to an application that doesn't wait for it any more, because of a
    /// signal. What it had before is restored.
    pub fn given_up(&mut self, change: LockChange<F, L>, id: StateId) {
        self.end(change, Ok(Some(id)), false);
    }

    /// The server doesn't have the state `id` of a lock owner on a file any more, as it answers an I/O
    /// request or TEST_STATEID.
    pub fn gone(&mut self, file: &F, owner: &L, id: StateId) {
        let is_delegated = self.delegated.contains(file);
        self.update(file, owner, |locks| {
            if locks.id.is_some_and(|held| held.is_same_state(id)) {
                locks.drop_held(is_delegated);
            }
        });
        self.make_changes(file);
    }

    /// The state ids that the server should know, to be tested.
    pub fn state_ids(&self) -> impl Iterator<Item = (&F, &L, StateId)> {
        self.owners.iter().filter_map(|((file, owner), locks)| Some((file, owner, locks.id?.any())))
    }

    /// The server has restarted, or the client's lease has expired, and it holds no locks any more. The files
    /// are open again. All locks are reclaimed.
    pub fn recover(&mut self) {
        self.delegated.clear();
        for locks in self.owners.values_mut() {
            (locks.held, locks.id, locks.sent) = (LockRanges::default(), None, None);
            locks.is_reclaiming = true;
            // The server may have made read locks already, and granted others to another owner.
            if let Some(Asked { range, kind: LockKind::Read, .. }) = locks.asked {
                locks.wanted.weaken(range);
            }
        }
        let keys: Vec<_> = self.owners.keys().cloned().collect();
        keys.iter().for_each(|key| self.make_change(key));
    }

    /// The changes that are due since the last call.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<LockChange<F, L>> {
        std::mem::take(&mut self.changes)
    }

    /// The lock owners that have lost their locks on a file since the last call.
    pub fn take_lost(&mut self) -> Vec<(F, L)> {
        std::mem::take(&mut self.lost)
    }

    /// The client has a write delegation of a file.
    pub(crate) fn delegate(&mut self, file: F) {
        self.delegated.insert(file);
    }

    /// The delegation will be returned: the server is told what is locked.
    pub(crate) fn recall(&mut self, file: &F) {
        if self.delegated.remove(file) {
            self.make_changes(file);
        }
    }

    /// Whether the server holds what applications have locked in a file.
    pub(crate) fn is_settled(&self, file: &F) -> bool {
        let mut on_file = self.owners.iter().filter(|((on, _), _)| on == file);
        on_file.all(|(_, locks)| locks.is_told())
    }

    /// The delegation was revoked: locks that the server wasn't told of are lost.
    pub(crate) fn revoke(&mut self, file: &F) {
        if self.delegated.remove(file) {
            let on_file = self.owners.iter_mut().filter(|((on, _), _)| on == file);
            let untold = on_file.map(|(_, locks)| locks).filter(|locks| locks.wanted != locks.held);
            untold.for_each(OwnerLocks::lose);
            self.make_changes(file);
        }
    }

    /// The locks of other owners on the same file.
    fn others(&self, key: &(F, L)) -> impl Iterator<Item = &OwnerLocks> {
        let before = self.owners.range(..key).rev();
        let behind = self.owners.range((Bound::Excluded(key), Bound::Unbounded));
        let is_on_file = |((file, _), _): &(&(F, L), &OwnerLocks)| *file == key.0;
        before.take_while(is_on_file).chain(behind.take_while(is_on_file)).map(|(_, locks)| locks)
    }

    fn get(&self, file: &F, owner: &L) -> Option<&OwnerLocks> {
        self.owners.get(&(file.clone(), owner.clone()))
    }

    fn update(&mut self, file: &F, owner: &L, update: impl FnOnce(&mut OwnerLocks)) {
        let key = (file.clone(), owner.clone());
        if let Some(locks) = self.owners.get_mut(&key) {
            update(locks);
            self.make_change(&key);
        }
    }

    fn end(&mut self, change: LockChange<F, L>, result: Result<Option<StateId>, LockError>, is_wanted: bool) {
        let LockChange { key, number, purpose } = change;
        let Some(locks) = self.owners.get_mut(&key) else { return };
        let was_asked = locks.asked.take_if(|asked| asked.number == number).is_some();
        if !was_asked && locks.sent.take_if(|(sent, _)| *sent == number).is_none() {
            // Recovery has overtaken it.
            return;
        }
        match (purpose, result) {
            (Purpose::Free, _) => locks.id = None,
            (Purpose::Ask(range, kind), Ok(id)) => {
                locks.set_held(range, Some(kind), id);
                if is_wanted {
                    locks.wanted.set(range, Some(kind));
                }
            }
            (Purpose::Restore(range, kind), Ok(id)) => locks.set_held(range, kind, id),
            (Purpose::Reclaim(range, kind), Ok(id)) => locks.set_held(range, Some(kind), id),
            (Purpose::Ask(..) | Purpose::Restore(..), Err(LockError::State(StateError::Gone))) => {
                locks.drop_held(self.delegated.contains(&key.0));
            }
            (Purpose::Ask(..), Err(_)) => {}
            // The server goes on holding what it doesn't unlock.
            (Purpose::Restore(range, None), Err(_)) => drop(locks.held.set(range, None)),
            (Purpose::Restore(_, Some(_)) | Purpose::Reclaim(..), Err(_)) => locks.lose(),
        }
        self.make_changes(&key.0);
    }

    /// Makes the changes that are due for a file. Those of some owners may have waited for others.
    fn make_changes(&mut self, file: &F) {
        let keys: Vec<_> = self.owners.keys().filter(|(on, _)| on == file).cloned().collect();
        keys.iter().for_each(|key| self.make_change(key));
    }

    /// Makes the change that is due for a lock owner and file.
    fn make_change(&mut self, key: &(F, L)) {
        let Some(locks) = self.owners.get_mut(key).filter(|locks| locks.sent.is_none()) else { return };
        if std::mem::take(&mut locks.is_newly_lost) {
            self.lost.push(key.clone());
        }
        locks.is_reclaiming = locks.is_reclaiming && locks.missing().is_some();
        let purpose = self.next_purpose(key);
        let Some(locks) = self.owners.get_mut(key) else { return };
        let Some(purpose) = purpose else {
            if locks.is_unused() {
                self.owners.remove(key);
            }
            return;
        };
        self.last_number += 1;
        locks.sent = Some((self.last_number, purpose));
        self.changes.push(LockChange { key: key.clone(), number: self.last_number, purpose });
    }

    fn next_purpose(&self, key: &(F, L)) -> Option<Purpose> {
        let locks = self.owners.get(key)?;
        if let Some((range, kind)) = locks.missing().filter(|_| locks.is_reclaiming) {
            return Some(Purpose::Reclaim(range, kind));
        }
        if locks.asked.is_some() {
            return None;
        }
        let is_delegated = self.delegated.contains(&key.0);
        let is_due = |(range, kind): &(ByteRange, Option<LockKind>)| match kind {
            None => true,
            Some(kind) => !is_delegated && !self.must_wait(key, *range, *kind),
        };
        if let Some((range, kind)) = locks.wanted.differences(&locks.held).find(is_due) {
            return Some(Purpose::Restore(range, kind));
        }
        let is_over = locks.is_released && locks.held.is_empty() && locks.id.is_some();
        is_over.then_some(Purpose::Free)
    }

    /// Whether a lock that the owner has waits until the server doesn't hold any more what another owner has
    /// given up.
    ///
    /// Owners don't wait for each other in a circle. Of the bytes that any owner waits for, take the last
    /// one. Its holder has unlocked it, which never waits, or has a read lock there in place of a write lock.
    /// That doesn't wait either: nobody else holds what it held for writing, and no byte behind that is
    /// waited for.
    fn must_wait(&self, key: &(F, L), range: ByteRange, kind: LockKind) -> bool {
        self.others(key).any(|locks| locks.keeps(range, kind) && locks.wanted.conflict(range, kind).is_none())
    }
}

impl OwnerLocks {
    const fn is_free(&self) -> bool {
        self.asked.is_none() && self.sent.is_none() && self.held.is_empty()
    }

    fn is_unused(&self) -> bool {
        self.id.is_none() && self.wanted.is_empty() && self.asked.is_none() && !self.is_lost
    }

    fn is_sent(&self, number: u64) -> bool {
        self.sent.is_some_and(|(sent, _)| sent == number)
    }

    /// Whether the server holds what the application has locked, and no request changes that.
    fn is_told(&self) -> bool {
        self.sent.is_none() && self.wanted == self.held
    }

    /// Whether the server has, or gets by a request that isn't answered, a lock for which it refuses this one
    /// to another owner.
    fn keeps(&self, range: ByteRange, kind: LockKind) -> bool {
        let sent = match self.sent {
            Some((_, Purpose::Restore(range, Some(kind)) | Purpose::Reclaim(range, kind))) => {
                Some((range, kind))
            }
            _ => None,
        };
        sent.is_some_and(|(sent, of)| sent.overlaps(range) && of.excludes(kind))
            || self.held.conflict(range, kind).is_some()
    }

    /// Whether the server may have made a read lock of a write lock in the range, as the application has
    /// asked.
    fn may_weaken(&self, range: ByteRange) -> bool {
        let asked = self.asked.as_ref().filter(|asked| asked.kind == LockKind::Read);
        asked.is_some_and(|asked| {
            asked.range.overlaps(range) && self.wanted.conflict(asked.range, LockKind::Read).is_some()
        })
    }

    /// A lock of the application that the server doesn't hold.
    fn missing(&self) -> Option<(ByteRange, LockKind)> {
        self.wanted.differences(&self.held).find_map(|(range, kind)| Some((range, kind?)))
    }

    fn set_held(&mut self, range: ByteRange, kind: Option<LockKind>, id: Option<StateId>) {
        self.held.set(range, kind);
        self.id = id.or(self.id);
    }

    /// The server has nothing of it any more, and nothing can be reclaimed. A delegation keeps the locks.
    fn drop_held(&mut self, is_delegated: bool) {
        (self.held, self.id) = (LockRanges::default(), None);
        if !is_delegated {
            self.lose();
        }
    }

    /// The locks, if there are any, can't be had back. What the server still holds is unlocked.
    fn lose(&mut self) {
        if !std::mem::take(&mut self.wanted).is_empty() {
            (self.is_lost, self.is_newly_lost) = (true, true);
        }
    }
}

#[cfg(test)]
mod tests;
