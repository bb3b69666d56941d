//! The delegations (RFC 8881 sections 10.2 and 10.4): what a client does by itself because the server has
//! promised to recall it first, and what it tells the server then.
//!
//! Under a read delegation files are opened for reading, and under a write delegation also for writing and
//! locked, without a request. [`Opens`] and [`Locks`] have these opens and locks like any others.
//!
//! A client whose applications use deny modes asks for no delegations (`OPEN4_SHARE_ACCESS_WANT_NO_DELEG`):
//! the server decides which opens conflict with a deny mode, and doesn't know those under a delegation.
//!
//! Invariant: a delegation is returned after the server was told of all that was done under it.
//!
//! What the caller does:
//! - When the reply to an OPEN has a delegation: [`Delegations::granted`]. If the server recalls it at once:
//!   [`Delegations::recall`], too.
//! - open(2) of a file that it knows: if the user has the rights (the delegation's ACE, or ACCESS),
//!   [`Delegations::open`]. If that gives nothing the server is asked. The lease has to be valid
//!   ([`StateManager::is_lease_valid`](crate::StateManager::is_lease_valid)).
//! - CB_RECALL: [`Delegations::recall`], and answers NFS4ERR_BAD_STATEID if the delegation isn't known.
//!   CB_RECALL_ANY: [`Delegations::recall_any`].
//! - After each report to the opens and locks: [`Delegations::take_returns`]. For each of these it writes
//!   back the file's data, sends DELEGRETURN, and reports [`Delegations::returned`], whatever the result is.
//! - If the server doesn't know a delegation (`NFS4ERR_DELEG_REVOKED`, or by TEST_STATEID):
//!   [`Delegations::gone`].

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::StateId;
use crate::locks::Locks;
use crate::opens::{OpenRef, Opens, Share};

/// What a delegation allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationKind {
    /// `OPEN_DELEGATE_READ`.
    Read,
    /// `OPEN_DELEGATE_WRITE`.
    Write,
}

/// The delegations of a client. `F` names a file.
#[derive(Debug)]
pub struct Delegations<F> {
    delegations: BTreeMap<F, Delegation>,
    /// The files whose delegations are to be returned, and that [`Delegations::take_returns`] hasn't told of.
    recalled: BTreeSet<F>,
    /// Delegations of files that have others now. They are returned so that the server forgets them: it may
    /// have revoked them.
    replaced: Vec<(F, StateId)>,
    /// The number of the last use of any.
    last_use: u64,
}

#[derive(Debug)]
struct Delegation {
    id: StateId,
    kind: DelegationKind,
    phase: Phase,
    last_use: u64,
}

/// How far a delegation is on its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// The server is told of opens.
    Opens,
    /// The server is told of locks, which need the opens.
    Locks,
    /// The caller returns it.
    Returning,
}

impl<F> Default for Delegations<F> {
    fn default() -> Self {
        Self { delegations: BTreeMap::new(), recalled: BTreeSet::new(), replaced: Vec::new(), last_use: 0 }
    }
}

impl<F: Clone + Ord> Delegations<F> {
    /// The server has delegated a file. This replaces a delegation that the client had of it. A read
    /// delegation in place of a write delegation doesn't cover what was done under that: it is on its way
    /// back at once ([`Delegations::is_held`]).
    pub fn granted<O: Clone + Ord, L: Clone + Ord>(
        &mut self,
        opens: &mut Opens<F, O>,
        locks: &mut Locks<F, L>,
        file: F,
        id: StateId,
        kind: DelegationKind,
    ) {
        self.last_use += 1;
        let former = self.delegations.get(&file).map(|former| (former.id, former.kind, former.phase));
        if let Some((former_id, _, phase)) = former
            && !former_id.is_same_state(id)
        {
            // The server hasn't changed the kind of the former delegation, which would have kept its id (RFC
            // 8881 section 8.2.2), but doesn't have it any more.
            if phase != Phase::Returning {
                self.replaced.push((file.clone(), former_id));
            }
            self.gone(opens, locks, &file, former_id);
        }
        match kind {
            // What was locked under a write delegation is told behind the opens that it needs.
            DelegationKind::Read => opens.delegate(file.clone(), id, 1),
            DelegationKind::Write => {
                opens.delegate(file.clone(), id, 3);
                locks.delegate(file.clone());
            }
        }
        self.recalled.remove(&file);
        let delegation = Delegation { id, kind, phase: Phase::Held, last_use: self.last_use };
        self.delegations.insert(file.clone(), delegation);
        let was_for_writing = former.is_some_and(|(_, kind, _)| kind == DelegationKind::Write);
        if was_for_writing && kind == DelegationKind::Read {
            self.recall(opens, &file, id);
        }
    }

    /// An application opens a file. `None` if the server has to be asked.
    pub fn open<O: Clone + Ord>(
        &mut self,
        opens: &mut Opens<F, O>,
        file: &F,
        owner: O,
        share: Share,
    ) -> Option<OpenRef<F, O>> {
        let open = opens.open_locally(file.clone(), owner, share)?;
        self.last_use += 1;
        if let Some(delegation) = self.delegations.get_mut(file) {
            delegation.last_use = self.last_use;
        }
        Some(open)
    }

    /// The delegation has to be returned: the server, or the caller for reasons of its own, wants that.
    /// Returns whether there is such a delegation.
    pub fn recall<O: Clone + Ord>(&mut self, opens: &mut Opens<F, O>, file: &F, id: StateId) -> bool {
        let is_it = |delegation: &&mut Delegation| delegation.id.is_same_state(id);
        let Some(delegation) = self.delegations.get_mut(file).filter(is_it) else { return false };
        if delegation.phase == Phase::Held {
            delegation.phase = Phase::Opens;
            self.recalled.insert(file.clone());
            opens.recall(file);
        }
        true
    }

    /// CB_RECALL_ANY: the client may keep `keep` delegations of these kinds, those that it has used last, and
    /// all others.
    pub fn recall_any<O: Clone + Ord>(
        &mut self,
        opens: &mut Opens<F, O>,
        keep: usize,
        kinds: &[DelegationKind],
    ) {
        let is_meant =
            |delegation: &Delegation| delegation.phase == Phase::Held && kinds.contains(&delegation.kind);
        let held = self.delegations.iter().filter(|(_, delegation)| is_meant(delegation));
        let mut held: Vec<_> =
            held.map(|(file, delegation)| (delegation.last_use, file.clone(), delegation.id)).collect();
        held.sort_unstable_by_key(|(last_use, ..)| std::cmp::Reverse(*last_use));
        for (_, file, id) in held.into_iter().skip(keep) {
            self.recall(opens, &file, id);
        }
    }

    /// The delegations that can be returned now, each once: the server knows what was opened and locked, or
    /// has given another delegation instead.
    pub fn take_returns<O: Clone + Ord, L: Clone + Ord>(
        &mut self,
        opens: &Opens<F, O>,
        locks: &mut Locks<F, L>,
    ) -> Vec<(F, StateId)> {
        let mut returns = Vec::new();
        for file in &self.recalled {
            let Some(delegation) = self.delegations.get_mut(file) else { continue };
            if delegation.phase == Phase::Opens && opens.is_settled(file) {
                delegation.phase = Phase::Locks;
                locks.recall(file);
            }
            if delegation.phase == Phase::Locks && locks.is_settled(file) {
                delegation.phase = Phase::Returning;
                returns.push((file.clone(), delegation.id));
            }
        }
        for (file, _) in &returns {
            self.recalled.remove(file);
        }
        returns.append(&mut self.replaced);
        returns
    }

    /// DELEGRETURN was answered.
    pub fn returned<O: Clone + Ord>(&mut self, opens: &mut Opens<F, O>, file: &F, id: StateId) {
        if self.remove(file, id) {
            opens.drop_delegation(file, id);
        }
    }

    /// The server doesn't have a delegation any more. What was opened under it is opened at the server, and
    /// what was locked under it is lost.
    pub fn gone<O: Clone + Ord, L: Clone + Ord>(
        &mut self,
        opens: &mut Opens<F, O>,
        locks: &mut Locks<F, L>,
        file: &F,
        id: StateId,
    ) {
        if self.remove(file, id) {
            opens.drop_delegation(file, id);
            locks.revoke(file);
        }
    }

    /// The server has lost the client's state, and the opens and locks recover theirs: there are no
    /// delegations any more, and what was done under them is reclaimed.
    pub fn recover(&mut self) {
        self.delegations.clear();
        self.recalled.clear();
        self.replaced.clear();
    }

    /// The state ids that the server should know, to be tested.
    pub fn state_ids(&self) -> impl Iterator<Item = (&F, StateId)> {
        self.delegations.iter().map(|(file, delegation)| (file, delegation.id.any()))
    }

    /// Whether the client has a delegation of a file, which may be on its way back.
    #[must_use]
    pub fn contains(&self, file: &F) -> bool {
        self.delegations.contains_key(file)
    }

    /// Whether the client has a delegation of a file that isn't on its way back.
    #[must_use]
    pub fn is_held(&self, file: &F) -> bool {
        self.delegations.get(file).is_some_and(|delegation| delegation.phase == Phase::Held)
    }

    fn remove(&mut self, file: &F, id: StateId) -> bool {
        let is_it = self.delegations.get(file).is_some_and(|delegation| delegation.id.is_same_state(id));
        if is_it {
            self.delegations.remove(file);
            self.recalled.remove(file);
        }
        is_it
    }
}

#[cfg(test)]
mod tests;
