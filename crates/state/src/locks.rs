//! LOCK, LOCKT and LOCKU, as far as they are about state (RFC 8881 sections 9.1 to 9.6, 18.10 to 18.12).
//!
//! Who has which range among NFS clients is known here; local processes are excluded by the kernel's locks,
//! which the caller takes on the lock owner's file between [`Engine::lock_begin`] and [`Engine::lock_done`].
//! Two owners that are between the two at the same time meet in the kernel's locks, too.

use std::hash::Hash;
use std::sync::Arc;

use crate::accounts::Resource;
use crate::by_owner::Whose;
use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};
use crate::principal::Requester;
use crate::ranges::{LockKind, Range, Ranges};

/// A lock owner within a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockOwner {
    /// The client.
    pub client: ClientId,
    /// What it calls the owner.
    pub owner: Vec<u8>,
}

/// By which right a lock is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Locker<'a> {
    /// The owner has (or had) locks on the file.
    Existing(StateId),
    /// The first lock of an owner, through an open.
    New {
        /// The open.
        open: StateId,
        /// The owner.
        owner: &'a [u8],
    },
}

/// What LOCK wants.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a, K> {
    /// Who.
    pub by: &'a Requester,
    /// Which file.
    pub key: &'a K,
    /// By which right.
    pub locker: Locker<'a>,
    /// Which bytes.
    pub range: Range,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The client had it before the server restarted.
    pub reclaim: bool,
    /// The client is going to ask until it gets it (`READW_LT`, `WRITEW_LT`).
    pub waits: bool,
}

/// The lock that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockDenied {
    /// Its bytes.
    pub range: Range,
    /// Its kind.
    pub kind: LockKind,
    /// Whose.
    pub owner: LockOwner,
}

/// A LOCK that nothing here is against: the caller takes the kernel's lock on `file`, and then says how it
/// went.
#[derive(Debug, Clone)]
pub struct PendingLock<L> {
    state: u64,
    /// By which open.
    open: u64,
    /// What the owner holds open on the file.
    pub file: Arc<L>,
    /// What is kept for the client's own delegation for writing. While that keeps local processes out of the
    /// file, nothing but what it has open can be locked: the kernel refuses every other open of the file, the
    /// server's too.
    pub lent: Option<Arc<L>>,
}

/// What LOCKT is to ask the kernel when no client is in the way.
#[derive(Debug, Clone)]
pub struct PendingLockTest<L> {
    /// What the owner holds open on the file, if anything: the kernel's locks on it aren't in his own way.
    pub file: Option<Arc<L>>,
    /// As [`PendingLock::lent`].
    pub lent: Option<Arc<L>>,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The first half of LOCK. The inner error is the lock in the way.
    ///
    /// # Errors
    /// `Openmode`, `Grace`, `NoGrace`, `Delay` when the client has too much state, and what is wrong with the
    /// state id.
    pub fn lock_begin(
        &mut self,
        now: Time,
        asked: &LockRequest<'_, K>,
    ) -> Result<Result<PendingLock<L>, LockDenied>, Error> {
        let (open, owner) = match asked.locker {
            Locker::New { open, owner } => (self.resolve_for(asked.by, &open, asked.key)?, owner.to_vec()),
            Locker::Existing(id) => {
                let number = self.resolve_for(asked.by, &id, asked.key)?;
                match &self.states[&number].kind {
                    Kind::Lock { open, owner, .. } => (*open, owner.clone()),
                    _ => return Err(Error::BadStateid),
                }
            }
        };
        let (access, queues) = match self.states.get(&open).map(|state| &state.kind) {
            Some(Kind::Open { shares, queues, .. }) => (shares.union().access, *queues),
            _ => return Err(Error::BadStateid),
        };
        let needed = if asked.kind == LockKind::Write { 2 } else { 1 };
        if access & needed == 0 {
            return Err(Error::Openmode);
        }
        self.check_grace(now, asked.by.client, asked.reclaim)?;
        let owner = LockOwner { client: asked.by.client, owner };
        let wanted = (asked.range, asked.kind);
        let denied = match self.lock_conflict(now, asked.key, asked.range, asked.kind, &owner) {
            Some(_) if asked.reclaim => return Err(Error::ReclaimConflict),
            None if !asked.reclaim => self.whose_turn(now, asked.key, &owner, wanted),
            other => other,
        };
        if let Some(denied) = denied {
            if asked.waits && queues {
                self.enqueue(now, asked.key, (owner, open), wanted, None);
            }
            return Ok(Err(denied));
        }
        let existing = self.lock_state(asked.key, &owner);
        self.check_room(now, asked.by.client, usize::from(existing.is_none()))?;
        let state = match existing {
            Some(number) => number,
            None => {
                let (ranges, file) = (Ranges::default(), Arc::default());
                let kind = Kind::Lock { owner: owner.owner, open, ranges, file };
                self.add_state(asked.by, asked.key, kind)?
            }
        };
        match &self.states[&state].kind {
            Kind::Lock { ranges, .. } if ranges.len() >= self.config.limits.ranges => Err(Error::Delay),
            Kind::Lock { file, .. } => {
                let (file, lent) = (Arc::clone(file), self.lent_for_writing(asked.by.client, asked.key));
                Ok(Ok(PendingLock { state, open, file, lent }))
            }
            Kind::Open { .. } | Kind::Delegation { .. } => Err(Error::BadStateid),
        }
    }

    /// Whose a lock is: what its client calls itself, and the owner.
    #[must_use]
    pub fn lock_owner(&self, begun: &PendingLock<L>) -> Option<(&[u8], &[u8])> {
        let state = self.states.get(&begun.state)?;
        match &state.kind {
            Kind::Lock { owner, .. } => Some((&self.clients.get(&state.client)?.name.owner, owner)),
            Kind::Open { .. } | Kind::Delegation { .. } => None,
        }
    }

    /// What is kept for the client's delegation for writing the file, if it has one.
    fn lent_for_writing(&self, client: ClientId, key: &K) -> Option<Arc<L>> {
        let state = &self.states[&self.files.get(key)?.lent.writer()?];
        match &state.kind {
            Kind::Delegation { kept, .. } if state.client == client => Some(Arc::clone(kept)),
            _ => None,
        }
    }

    /// The second half of a LOCK that the kernel has granted.
    ///
    /// # Errors
    /// `BadStateid` if the state has gone meanwhile; the kernel's lock goes with the file.
    pub fn lock_done(
        &mut self,
        begun: &PendingLock<L>,
        range: Range,
        kind: LockKind,
    ) -> Result<StateId, Error> {
        self.set_lock(begun.state, range, Some(kind))
    }

    /// The second half of a LOCK that a local process is in the way of.
    pub fn lock_blocked_locally(&mut self, now: Time, begun: &PendingLock<L>, asked: &LockRequest<'_, K>) {
        let kind = |number: &u64| self.states.get(number).map(|state| &state.kind);
        let queues = matches!(kind(&begun.open), Some(Kind::Open { queues: true, .. }));
        if let (Some(Kind::Lock { owner, .. }), true) = (kind(&begun.state), asked.waits && queues) {
            let who = (LockOwner { client: asked.by.client, owner: owner.clone() }, begun.open);
            self.enqueue(now, asked.key, who, (asked.range, asked.kind), Some(Arc::clone(&begun.file)));
        }
        self.lock_failed(begun);
    }

    /// The second half of a LOCK that can't be had for another reason.
    pub fn lock_failed(&mut self, begun: &PendingLock<L>) {
        let unused = |state: &crate::files::State<K, L>| {
            state.seqid == 0 && state.ranges().is_some_and(Ranges::is_empty)
        };
        if self.states.get(&begun.state).is_some_and(unused) {
            self.drop_state(begun.state);
        }
    }

    /// LOCKT: the lock in the way, or what the kernel is to be asked. A delegation of another client whose
    /// holder may have given such a lock to one of its own processes, without telling, is recalled (RFC 8881
    /// section 10.4.2).
    ///
    /// # Errors
    /// `Grace`, `StaleClientid`, `Delay` while a delegation is being recalled.
    pub fn lock_test(
        &mut self,
        now: Time,
        owner: &LockOwner,
        key: &K,
        range: Range,
        kind: LockKind,
    ) -> Result<Result<PendingLockTest<L>, LockDenied>, Error> {
        self.check_grace(now, owner.client, false)?;
        if let Some(denied) = self.lock_conflict(now, key, range, kind, owner) {
            return Ok(Err(denied));
        }
        let touch = if kind == LockKind::Write { AccessKind::Write } else { AccessKind::Read };
        self.check_conflicts(now, Some(owner.client), key, touch)?;
        let own = self.lock_state(key, owner).and_then(|number| match &self.states[&number].kind {
            Kind::Lock { file, .. } => Some(Arc::clone(file)),
            Kind::Open { .. } | Kind::Delegation { .. } => None,
        });
        Ok(Ok(PendingLockTest { file: own, lent: self.lent_for_writing(owner.client, key) }))
    }

    /// LOCKU, first half: what the owner holds open, on which the kernel's lock is to be given back.
    ///
    /// # Errors
    /// `LockRange` for the middle of a lock when the owner has too many already, and what is wrong with the
    /// state id.
    pub fn unlock_begin(
        &self,
        by: &Requester,
        id: &StateId,
        key: &K,
        range: Range,
    ) -> Result<PendingLock<L>, Error> {
        let number = self.resolve_for(by, id, key)?;
        match &self.states[&number].kind {
            Kind::Lock { ranges, .. }
                if ranges.len() >= self.config.limits.ranges && ranges.splits(range) =>
            {
                Err(Error::LockRange)
            }
            Kind::Lock { file, open, .. } => {
                Ok(PendingLock { state: number, open: *open, file: Arc::clone(file), lent: None })
            }
            Kind::Open { .. } | Kind::Delegation { .. } => Err(Error::BadStateid),
        }
    }

    /// LOCKU, second half.
    ///
    /// # Errors
    /// `BadStateid` if the state has gone meanwhile.
    pub fn unlock_done(&mut self, begun: &PendingLock<L>, range: Range) -> Result<StateId, Error> {
        self.set_lock(begun.state, range, None)
    }

    /// What an owner has of a range is that now.
    fn set_lock(&mut self, number: u64, range: Range, kind: Option<LockKind>) -> Result<StateId, Error> {
        let boot = self.config.boot;
        let state = self.states.get_mut(&number).ok_or(Error::BadStateid)?;
        if let Kind::Lock { ranges, owner, .. } = &mut state.kind {
            let replaced = ranges.set(range, kind);
            self.accounts.charge(Resource::States, &state.peer, replaced.new.len());
            self.accounts.give_back(Resource::States, &state.peer, replaced.gone.len());
            if let Some(file) = self.files.get_mut(&state.key) {
                file.locked.replace(number, &replaced);
            }
            let who = LockOwner { client: state.client, owner: owner.clone() };
            self.effects.released.extend(self.waiting.leave(&state.key, &who, range));
            // Also what is locked for reading now may have been so for writing.
            self.waiting.stir(&state.key);
        }
        Ok(state.bump(boot, number))
    }

    /// The state of an owner's locks on a file.
    pub(crate) fn lock_state(&self, key: &K, wanted: &LockOwner) -> Option<u64> {
        let whose = Whose { client: wanted.client, key, owner: &wanted.owner, locks: true };
        self.by_owner.find(&self.states, &whose)
    }

    /// The lock in the way of `range`; courtesy clients give way.
    fn lock_conflict(
        &mut self,
        now: Time,
        key: &K,
        range: Range,
        kind: LockKind,
        own: &LockOwner,
    ) -> Option<LockDenied> {
        let own = self.lock_state(key, own);
        loop {
            let number = self.files.get(key)?.locked.against(own, range, kind)?;
            let state = &self.states[&number];
            let Kind::Lock { owner, ranges, .. } = &state.kind else { return None };
            let owner = LockOwner { client: state.client, owner: owner.clone() };
            let (range, kind) = ranges.conflict(range, kind)?;
            if self.end_courtesy(now, &[owner.client]).is_err() {
                return Some(LockDenied { range, kind, owner });
            }
        }
    }
}
