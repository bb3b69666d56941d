//! LOCK, LOCKT and LOCKU, as far as they concern state (RFC 8881 sections 9.1 to 9.6, 18.10 to 18.12).
//!
//! The engine knows the locks of NFS clients. The kernel's locks keep local processes out: the caller takes
//! them on the lock owner's file between [`Engine::lock_begin`] and [`Engine::lock_done`]. Two owners between
//! these two meet in the kernel's locks, too.

use std::hash::Hash;
use std::sync::Arc;

use lock_ranges::{ByteRange, LockKind};

use crate::accounts::Resource;
use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::lock_queue::{LockWaiter, WantedLock};
use crate::lock_table::{LockDenied, LockOwner};
use crate::owner_index::OwnedState as _;
use crate::principal::Requester;

/// What a LOCK is made through (`locker4`).
#[derive(Debug, Clone, Copy)]
pub enum Locker<'a> {
    /// The owner has a lock state on the file.
    Existing(StateId),
    /// The first lock of an owner, through an open.
    New {
        /// The open.
        open: StateId,
        /// The owner.
        owner: &'a [u8],
    },
}

/// The arguments of LOCK.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a, K> {
    /// The requester.
    pub by: &'a Requester,
    /// The file.
    pub key: &'a K,
    /// What the lock is made through.
    pub locker: Locker<'a>,
    /// The bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The client had the lock before the server restarted.
    pub reclaim: bool,
    /// A blocking lock (`READW_LT`, `WRITEW_LT`): the client is going to ask until it gets it.
    pub waits: bool,
}

/// A LOCK or LOCKU that no client's lock conflicts with: the caller takes or gives back the kernel's lock on
/// `file`, and then reports the result.
#[derive(Debug, Clone)]
pub struct PendingLock<L> {
    state: u64,
    open: u64,
    /// The resources of the lock owner on the file.
    pub file: Arc<L>,
    /// The resources of the client's own write delegation of the file. While its lease keeps local processes
    /// out, the kernel refuses every other open of the file, the server's too: locks are made on the leased
    /// descriptor.
    pub write_delegation: Option<Arc<L>>,
}

/// A LOCKT that no client's lock conflicts with: the caller asks the kernel.
#[derive(Debug, Clone)]
pub struct PendingLockTest<L> {
    /// The resources of the lock owner on the file, if it has any: the kernel's locks on them are its own.
    pub file: Option<Arc<L>>,
    /// As [`PendingLock::write_delegation`].
    pub write_delegation: Option<Arc<L>>,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The first half of LOCK. The inner error is the conflicting lock.
    ///
    /// # Errors
    /// `Openmode`, `Grace`, `NoGrace`, `Delay` when the client has too much state, and what is wrong with the
    /// state id.
    pub fn lock_begin(
        &mut self,
        now: Time,
        args: &LockRequest<'_, K>,
    ) -> Result<Result<PendingLock<L>, LockDenied>, Error> {
        let client = args.by.client;
        let (open, owner) = match args.locker {
            Locker::New { open, owner } => (self.resolve_for(args.by, &open, args.key)?, owner.to_vec()),
            Locker::Existing(id) => {
                let number = self.resolve_for(args.by, &id, args.key)?;
                let lock = self.locks.get(number).ok_or(Error::BadStateid)?;
                (lock.open(), lock.owner().to_vec())
            }
        };
        let found = self.opens.get(open).ok_or(Error::BadStateid)?;
        let (access, may_queue) = (found.share().access, found.may_queue());
        let needed = if args.kind == LockKind::Write { 2 } else { 1 };
        if access & needed == 0 {
            return Err(Error::Openmode);
        }
        self.check_grace(now, client, args.reclaim)?;
        let owner = LockOwner { client, owner };
        let wanted = WantedLock { owner: &owner, range: args.range, kind: args.kind };
        let denied = match self.conflicting_lock(now, args.key, &wanted) {
            Some(_) if args.reclaim => return Err(Error::ReclaimConflict),
            None if !args.reclaim => self.turn_before(now, args.key, &wanted),
            other => other,
        };
        if let Some(denied) = denied {
            if args.waits && may_queue {
                self.enqueue_lock(now, args.key, open, &wanted, None);
            }
            return Ok(Err(denied));
        }
        let existing = self.locks.find(args.key, &owner);
        self.check_room(now, client, usize::from(existing.is_none()))?;
        let state = match existing {
            Some(number) => number,
            None => self.add_lock(args.by, args.key, owner.owner, open)?,
        };
        let lock = self.locks.get(state).ok_or(Error::BadStateid)?;
        if lock.ranges().len() >= self.config.limits.ranges {
            return Err(Error::Delay);
        }
        let file = Arc::clone(lock.resources());
        let write_delegation = self.own_write_delegation(client, args.key);
        Ok(Ok(PendingLock { state, open, file, write_delegation }))
    }

    /// The owner of a pending lock: the client's owner string, and the lock owner.
    #[must_use]
    pub fn lock_owner(&self, pending: &PendingLock<L>) -> Option<(&[u8], &[u8])> {
        let lock = self.locks.get(pending.state)?;
        let client = self.clients.get(lock.header().client())?;
        Some((&client.identity().name.owner, lock.owner()))
    }

    pub(crate) fn owner_of_pending(&self, pending: &PendingLock<L>) -> Option<LockOwner> {
        self.locks.get(pending.state).map(|lock| lock.lock_owner())
    }

    /// The resources of the client's write delegation of the file, if it has one.
    fn own_write_delegation(&self, client: ClientId, key: &K) -> Option<Arc<L>> {
        let delegation = self.delegations.get(self.delegations.writer(key)?)?;
        (delegation.header().client() == client).then(|| Arc::clone(delegation.resources()))
    }

    /// The second half of a LOCK that the kernel has granted.
    ///
    /// # Errors
    /// `BadStateid` if the state has ended meanwhile; the kernel's lock goes with the file.
    pub fn lock_done(
        &mut self,
        pending: &PendingLock<L>,
        range: ByteRange,
        kind: LockKind,
    ) -> Result<StateId, Error> {
        self.set_lock(pending.state, range, Some(kind))
    }

    /// The second half of a LOCK that conflicts with the lock of a local process.
    pub fn lock_blocked_locally(&mut self, now: Time, pending: &PendingLock<L>, args: &LockRequest<'_, K>) {
        let may_queue = self.opens.get(pending.open).is_some_and(|open| open.may_queue());
        if args.waits
            && may_queue
            && let Some(owner) = self.owner_of_pending(pending)
        {
            let wanted = WantedLock { owner: &owner, range: args.range, kind: args.kind };
            self.enqueue_lock(now, args.key, pending.open, &wanted, Some(Arc::clone(&pending.file)));
        }
        self.lock_failed(pending);
    }

    /// The second half of a LOCK that failed for another reason.
    pub fn lock_failed(&mut self, pending: &PendingLock<L>) {
        let is_new =
            |lock: &crate::lock_table::Lock<K, L>| lock.header().seqid() == 0 && lock.ranges().is_empty();
        if self.locks.get(pending.state).is_some_and(is_new) {
            self.remove_state(pending.state);
        }
    }

    /// LOCKT: the conflicting lock, or what to ask the kernel. Recalls a delegation of another client, which
    /// may have granted such a lock to one of its own processes (RFC 8881 section 10.4.2).
    ///
    /// # Errors
    /// `Grace`, `StaleClientid`, `Delay` while a delegation is being recalled.
    pub fn lock_test(
        &mut self,
        now: Time,
        owner: &LockOwner,
        key: &K,
        range: ByteRange,
        kind: LockKind,
    ) -> Result<Result<PendingLockTest<L>, LockDenied>, Error> {
        self.check_grace(now, owner.client, false)?;
        if let Some(denied) = self.conflicting_lock(now, key, &WantedLock { owner, range, kind }) {
            return Ok(Err(denied));
        }
        let access = if kind == LockKind::Write { AccessKind::Write } else { AccessKind::Read };
        self.check_conflicts(now, Some(owner.client), key, access)?;
        let own = self.locks.find(key, owner).and_then(|number| self.locks.get(number));
        let file = own.map(|lock| Arc::clone(lock.resources()));
        Ok(Ok(PendingLockTest { file, write_delegation: self.own_write_delegation(owner.client, key) }))
    }

    /// The first half of LOCKU: the caller gives the kernel's lock back.
    ///
    /// # Errors
    /// `LockRange` for the middle of a lock when the owner has too many ranges, and what is wrong with the
    /// state id.
    pub fn unlock_begin(
        &self,
        by: &Requester,
        id: &StateId,
        key: &K,
        range: ByteRange,
    ) -> Result<PendingLock<L>, Error> {
        let state = self.resolve_for(by, id, key)?;
        let lock = self.locks.get(state).ok_or(Error::BadStateid)?;
        if lock.ranges().len() >= self.config.limits.ranges && lock.ranges().splits(range) {
            return Err(Error::LockRange);
        }
        let (open, file) = (lock.open(), Arc::clone(lock.resources()));
        Ok(PendingLock { state, open, file, write_delegation: None })
    }

    /// The second half of LOCKU.
    ///
    /// # Errors
    /// `BadStateid` if the state has ended meanwhile.
    pub fn unlock_done(&mut self, pending: &PendingLock<L>, range: ByteRange) -> Result<StateId, Error> {
        self.set_lock(pending.state, range, None)
    }

    /// Locks a range as `kind`, or unlocks it.
    fn set_lock(&mut self, number: u64, range: ByteRange, kind: Option<LockKind>) -> Result<StateId, Error> {
        let change = self.locks.set_range(number, range, kind).ok_or(Error::BadStateid)?;
        let lock = self.locks.get(number).ok_or(Error::BadStateid)?;
        let (key, peer) = (lock.header().key(), lock.header().peer());
        self.accounts.charge(Resource::States, &peer, change.added.len());
        self.accounts.give_back(Resource::States, &peer, change.removed.len());
        let served = self.lock_queues.remove_served(key, &lock.lock_owner(), range);
        self.effects.released.extend(served);
        // A LOCK may turn a write lock into a read lock, which gives something back, too.
        self.lock_queues.mark_changed(key);
        let header = self.locks.header_mut(number).ok_or(Error::BadStateid)?;
        Ok(header.bump(self.config.boot, number))
    }

    /// The lock of another owner that conflicts. Courtesy clients in the way are ended.
    fn conflicting_lock(&mut self, now: Time, key: &K, wanted: &WantedLock<'_>) -> Option<LockDenied> {
        let own = self.locks.find(key, wanted.owner);
        loop {
            let denied = self.locks.denied(key, own, wanted.range, wanted.kind)?;
            if !self.end_courtesy_clients(now, &[denied.owner.client]) {
                return Some(denied);
            }
        }
    }

    /// Queues a waiter that was refused a lock. With `outside` the lock of a local process was in the way;
    /// these are the resources that the owner had then.
    fn enqueue_lock(
        &mut self,
        now: Time,
        key: &K,
        open: u64,
        wanted: &WantedLock<'_>,
        outside: Option<Arc<L>>,
    ) {
        let Some(client) = self.clients.get(wanted.owner.client) else { return };
        let waiter = LockWaiter::new(now, wanted, open, client.peer(), outside);
        self.effects.released.extend(self.lock_queues.enqueue(key, waiter, self.config.lease));
    }

    /// The waiter whose turn comes before that of another owner.
    fn turn_before(&mut self, now: Time, key: &K, wanted: &WantedLock<'_>) -> Option<LockDenied> {
        self.begin_turns(now, key);
        self.lock_queues.turn_before(now, key, wanted)
    }

    /// Ends the turns that are over on a file, and begins the next ones.
    fn begin_turns(&mut self, now: Time, key: &K) {
        let Self { locks, clients, lock_queues, config, effects, .. } = self;
        let is_held = |wanted: &WantedLock<'_>| {
            locks.conflict(key, locks.find(key, wanted.owner), wanted.range, wanted.kind).is_some()
        };
        // NFSv4.0 has no CB_NOTIFY_LOCK: its clients poll.
        let is_notified = |client| clients.get(client).is_some_and(|client| client.v40.is_none());
        let turns = lock_queues.begin_turns(now, key, config.lease, is_held, is_notified);
        effects.notices.extend(turns.notices);
        effects.released.extend(turns.released);
    }

    /// Begins turns on the files on which something was given back.
    pub(crate) fn begin_turns_on_changed_files(&mut self, now: Time) {
        for key in self.lock_queues.take_changed() {
            self.begin_turns(now, &key);
        }
    }

    /// Ends the turns that are over, on some files: the rest has its turn at the next tick.
    pub(crate) fn end_overdue_turns(&mut self, now: Time) {
        for key in self.lock_queues.take_due(now) {
            self.begin_turns(now, &key);
        }
    }
}
