//! Delegations: when a client gets one, and how it returns it (RFC 8881 sections 10.2 to 10.5 and 18.6).
//!
//! With a read delegation no other client has the file open for writing, with a write delegation no other
//! client has it open. A kernel lease keeps local processes out: the caller takes it between
//! [`Engine::delegate_begin`] and [`Engine::delegate_done`]. The delegation's state exists from the first
//! half on, so that a conflicting access between the two is noticed.

use std::hash::Hash;
use std::sync::Arc;

use fairness::Peer;

use crate::accounts::Resource;
use crate::client_table::Client;
use crate::delegation_table::Grantee;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::principal::Requester;
use crate::states::DELEGATION_DESCRIPTORS;

/// When no client could be asked to return delegations, the next search is made after this fraction of a
/// lease.
const SEARCH_FRACTION: u64 = 64;

/// Why a client doesn't get a delegation (`why_no_delegation4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDelegation {
    /// Other clients have the file open, or wanted it lately.
    Contention,
    /// There are too many delegations.
    Resource,
    /// The client has a delegation of the file already.
    Held,
    /// The client's peer was late to return a delegation.
    Distrusted,
}

/// A request for a delegation.
#[derive(Debug, Clone)]
pub struct DelegationRequest<'a, K> {
    /// The requester.
    pub by: &'a Requester,
    /// The peer that the request comes from.
    pub peer: Peer,
    /// The file. The user may open it for reading.
    pub key: &'a K,
    /// A write delegation: the user may open the file for writing, too.
    pub writes: bool,
    /// The user could open the file for writing, whatever the delegation is for.
    pub may_write: bool,
    /// The client had the delegation before the server restarted.
    pub reclaim: bool,
}

/// A delegation that no client's state conflicts with.
#[derive(Debug, Clone)]
pub struct PendingDelegation<L> {
    number: u64,
    /// A write delegation.
    pub writes: bool,
    /// What the caller keeps for the delegation: released by the effects when the delegation ends.
    pub resources: Arc<L>,
}

/// Another client's write delegation.
#[derive(Debug, Clone)]
pub struct WriteDelegation<L> {
    /// The client that holds it.
    pub client: ClientId,
    /// The delegation.
    pub id: StateId,
    /// What the caller keeps for the delegation.
    pub resources: Arc<L>,
}

/// The clients that have too many delegations.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TooMany {
    /// One client.
    Client(ClientId),
    /// The clients of a peer together.
    Peer(Peer),
    /// All clients together.
    All,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The first half of giving a delegation to a client that may open the file.
    ///
    /// # Errors
    /// The reason why not.
    pub fn delegate_begin(
        &mut self,
        now: Time,
        args: &DelegationRequest<'_, K>,
    ) -> Result<PendingDelegation<L>, NoDelegation> {
        let DelegationRequest { by, peer, key, writes, may_write, reclaim } = *args;
        let client = by.client;
        if !reclaim && self.contended.has(now, key) {
            return Err(NoDelegation::Contention);
        }
        if !reclaim && self.distrusted.has(now, &peer) {
            return Err(NoDelegation::Distrusted);
        }
        if self.delegations.is_held_by(key, client) {
            return Err(NoDelegation::Held);
        }
        if self.delegations.writer(key).is_some() || writes && self.delegations.is_delegated(key) {
            return Err(NoDelegation::Contention);
        }
        let (own, others) = self.opens.access(key, client);
        let others = others | self.files.local_access(key);
        if others & 2 != 0 || writes && others != 0 || !writes && own & 2 != 0 {
            return Err(NoDelegation::Contention);
        }
        let is_charged = self.files.charged(key).is_some();
        let descriptors = DELEGATION_DESCRIPTORS + usize::from(!is_charged);
        if !reclaim && self.has_too_many_delegations(now, client)
            || self.check_room(now, client, descriptors).is_err()
        {
            return Err(NoDelegation::Resource);
        }
        let added = self.add_delegation(by, key, Grantee { peer, writes, may_write });
        let (number, resources) = added.map_err(|_| NoDelegation::Resource)?;
        Ok(PendingDelegation { number, writes, resources })
    }

    /// The second half, when local processes are kept out: the state id for the client. `None` if there was a
    /// conflicting access meanwhile.
    pub fn delegate_done(&mut self, pending: &PendingDelegation<L>) -> Option<StateId> {
        let number = pending.number;
        if self.delegations.get(number)?.recall().is_some() {
            self.remove_state(number);
            return None;
        }
        Some(self.delegations.header_mut(number)?.bump(self.config.boot, number))
    }

    /// The second half of reclaiming a delegation when local processes can't be kept out: the client has the
    /// delegation back, and must return it.
    pub fn delegate_and_recall(&mut self, now: Time, pending: &PendingDelegation<L>) -> Option<StateId> {
        let number = pending.number;
        let id = self.delegations.header_mut(number)?.bump(self.config.boot, number);
        self.recall(now, number, now.plus(self.config.lease));
        Some(id)
    }

    /// The second half when a local process is in the way.
    pub fn delegate_failed(&mut self, pending: &PendingDelegation<L>) {
        self.remove_state(pending.number);
    }

    /// DELEGRETURN.
    ///
    /// # Errors
    /// What is wrong with the state id.
    pub fn delegreturn(&mut self, now: Time, by: &Requester, id: &StateId, key: &K) -> Result<(), Error> {
        let number = match self.resolve_for(by, id, key) {
            // It was revoked, and the client knows now.
            Err(Error::DelegRevoked) => return self.free_stateid(by, id),
            other => other?,
        };
        let delegation = self.delegations.get(number).ok_or(Error::BadStateid)?;
        let (recall, peer) = (delegation.recall(), delegation.grantee().peer);
        self.remove_state(number);
        if recall.is_some_and(|recall| recall.is_late(now)) {
            self.distrust(now, peer, self.config.lease);
        }
        Ok(())
    }

    /// Checks that the client holds the delegation `id` on the file, and may open the file so by it
    /// (CLAIM_DELEGATE_CUR).
    ///
    /// # Errors
    /// What is wrong with the state id, `Openmode` to write by a read delegation.
    pub fn check_delegation(&self, client: ClientId, id: &StateId, key: &K, access: u8) -> Result<(), Error> {
        let number = self.resolve_on(client, id, key)?;
        let delegation = self.delegations.get(number).ok_or(Error::BadStateid)?;
        if access & 2 != 0 && !delegation.grantee().writes { Err(Error::Openmode) } else { Ok(()) }
    }

    /// The write delegation that another client than `by` holds: its attributes of the file are newer than
    /// the server's.
    #[must_use]
    pub fn write_delegation(&self, by: Option<ClientId>, key: &K) -> Option<WriteDelegation<L>> {
        let number = self.delegations.writer(key)?;
        let delegation = self.delegations.get(number)?;
        let header = delegation.header();
        // The client doesn't know of one with a `seqid` of 0 yet.
        (Some(header.client()) != by && header.seqid() > 0).then(|| WriteDelegation {
            client: header.client(),
            id: header.id(self.config.boot, number),
            resources: Arc::clone(delegation.resources()),
        })
    }

    /// Whether a client holds any delegation.
    #[must_use]
    pub fn holds_delegations(&self, client: ClientId) -> bool {
        self.clients.get(client).is_some_and(|client| client.states.delegations() > 0)
    }

    /// Whether a client holds a delegation of a file.
    #[must_use]
    pub fn holds_delegation_of(&self, client: ClientId, key: &K) -> bool {
        self.delegations.is_held_by(key, client)
    }

    /// The number of read and of write delegations.
    #[must_use]
    pub const fn delegated(&self) -> [usize; 2] {
        self.delegations.counts()
    }

    /// Whether the client can't have another delegation: it has too many, its peer or the engine is short of
    /// descriptors, or all clients together have too many. Then asks a client to return some.
    fn has_too_many_delegations(&mut self, now: Time, client: ClientId) -> bool {
        let limits = &self.config.limits;
        let Some(asking) = self.clients.get(client) else { return true };
        let peer = asking.peer();
        let too_many = if asking.states.delegations() >= limits.client_delegations {
            TooMany::Client(client)
        } else if self.delegations.len() >= limits.delegations
            || self.accounts.is_short(Resource::Descriptors)
        {
            TooMany::All
        } else if self.accounts.is_tight(Resource::Descriptors, &peer) {
            TooMany::Peer(peer)
        } else {
            return false;
        };
        self.recall_any(now, too_many);
        true
    }

    /// Asks a client to return a quarter of its delegations ([`crate::Effects::recall_any`]): of the clients
    /// that weren't asked for a lease's time the one with the most delegations; where descriptors are short,
    /// a client of the peer that holds the most of them.
    pub(crate) fn recall_any(&mut self, now: Time, too_many: TooMany) {
        let lease = self.config.lease;
        let is_of_one = matches!(too_many, TooMany::Client(_));
        let was_lately = |at: Time| now < at.plus((lease / SEARCH_FRACTION).max(1));
        if !is_of_one && self.recall_any_failed.is_some_and(was_lately) {
            return;
        }
        let is_short = self.accounts.is_short(Resource::Descriptors);
        let descriptors = self.accounts.of(Resource::Descriptors);
        let may_be_asked = |holder: &&mut Client| {
            let is_meant = match too_many {
                TooMany::Client(client) => holder.id() == client,
                TooMany::Peer(peer) => holder.peer() == peer,
                TooMany::All => true,
            };
            let was_asked = holder.recall_any_at.is_some_and(|at| now < at.plus(lease));
            is_meant && holder.states.delegations() > 0 && !was_asked
        };
        // The id makes the choice deterministic.
        let most = |holder: &&mut Client| {
            let of_peer = if is_short { descriptors.held_by(&holder.peer()) } else { 0 };
            (of_peer, holder.states.delegations(), std::cmp::Reverse(holder.id()))
        };
        if let Some(holder) = self.clients.iter_mut().filter(may_be_asked).max_by_key(most) {
            holder.recall_any_at = Some(now);
            let held = holder.states.delegations();
            self.effects.recall_any.push((holder.id(), held - held.div_ceil(4)));
        } else if !is_of_one {
            self.recall_any_failed = Some(now);
        }
    }
}
