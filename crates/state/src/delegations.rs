//! Delegations: when a client gets one, and how it gives it back (RFC 8881 sections 10.2 to 10.5, 18.6).
//!
//! A delegation for reading says that nobody else has the file open for writing, one for writing that nobody
//! else has it open at all. That no local process has is for the caller to see to, by a kernel lease: he
//! takes it between [`Engine::delegate_begin`] and [`Engine::delegate_done`]. The state that stands for the
//! delegation is there from the first on, so that whoever comes between is noticed.

use std::hash::Hash;
use std::sync::Arc;

use fairness::Peer;

use crate::accounts::Resource;
use crate::client::Client;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};
use crate::principal::Requester;

/// How many files are kept open for one.
pub(crate) const DESCRIPTORS: usize = 2;
/// Which part of a lease passes from one search for somebody to ask for delegations to the next, if there was
/// nobody.
const SEARCH: u64 = 64;

/// Why a client doesn't get a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDelegation {
    /// Others have the file open, or want it.
    Contention,
    /// There are too many.
    Resource,
    /// The client has one already.
    Held,
    /// The client, or another at its address, was late to return one.
    Distrusted,
}

/// Who is to get a delegation of what.
#[derive(Debug, Clone)]
pub struct DelegationRequest<'a, K> {
    /// The client, and as which of its users.
    pub by: &'a Requester,
    /// Whom it is charged to.
    pub peer: Peer,
    /// The file. The user may open it for reading.
    pub key: &'a K,
    /// For writing, too: the user may open it so.
    pub writes: bool,
    /// Whether the user could open the file for writing, whatever the delegation is for.
    pub may_write: bool,
    /// The client had it before the server restarted.
    pub reclaim: bool,
}

/// A delegation that nothing here is against.
#[derive(Debug, Clone)]
pub struct PendingDelegation<L> {
    number: u64,
    /// Whether it is for writing, too.
    pub writes: bool,
    /// What the caller keeps for it: given back among the effects when the delegation ends.
    pub kept: Arc<L>,
}

/// Another client's delegation for writing.
#[derive(Debug, Clone)]
pub struct WriteDelegation<L> {
    /// Whose.
    pub client: ClientId,
    /// The delegation.
    pub id: StateId,
    /// What the caller keeps for it.
    pub kept: Arc<L>,
}

/// Whose delegations are too many.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TooMany {
    /// One client's.
    Client(ClientId),
    /// Those of all clients of a peer.
    Peer(Peer),
    /// Everybody's.
    All,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The first half of giving a delegation to a client that may open the file, and most likely has.
    ///
    /// # Errors
    /// Why not.
    pub fn delegate_begin(
        &mut self,
        now: Time,
        asked: &DelegationRequest<'_, K>,
    ) -> Result<PendingDelegation<L>, NoDelegation> {
        let DelegationRequest { by, peer, key, writes, may_write, reclaim } = *asked;
        let client = by.client;
        if !reclaim && self.contended.has(now, key) {
            return Err(NoDelegation::Contention);
        }
        if !reclaim && self.distrusted.has(now, &peer) {
            return Err(NoDelegation::Distrusted);
        }
        let file = self.files.get(key);
        if file.is_some_and(|file| file.lent.has(client)) {
            return Err(NoDelegation::Held);
        }
        if file.is_some_and(|file| file.lent.writer().is_some() || writes && !file.lent.is_empty()) {
            return Err(NoDelegation::Contention);
        }
        let (own, others) = self.opened(client, key);
        if others & 2 != 0 || writes && others != 0 || !writes && own & 2 != 0 {
            return Err(NoDelegation::Contention);
        }
        let is_held = file.is_some_and(|file| file.charged.is_some());
        let descriptors = DESCRIPTORS + usize::from(!is_held);
        if !reclaim && self.are_too_many(now, client) || self.check_room(now, client, descriptors).is_err() {
            return Err(NoDelegation::Resource);
        }
        let kept = Arc::default();
        let kind = Kind::Delegation { writes, peer, may_write, recalled: None, kept: Arc::clone(&kept) };
        let number = self.add_state(by, key, kind).map_err(|_| NoDelegation::Resource)?;
        Ok(PendingDelegation { number, writes, kept })
    }

    /// The second half, when local processes are kept out: the state id for the client. None if somebody has
    /// come between.
    pub fn delegate_done(&mut self, begun: &PendingDelegation<L>) -> Option<StateId> {
        let boot = self.config.boot;
        let state = self.states.get_mut(&begun.number)?;
        if matches!(state.kind, Kind::Delegation { recalled: None, .. }) {
            return Some(state.bump(boot, begun.number));
        }
        self.drop_state(begun.number);
        None
    }

    /// The second half of reclaiming one when local processes can't be kept out: the client has it back, but
    /// only to return it.
    pub fn delegate_and_recall(&mut self, now: Time, begun: &PendingDelegation<L>) -> Option<StateId> {
        let boot = self.config.boot;
        let id = self.states.get_mut(&begun.number)?.bump(boot, begun.number);
        let deadline = now.plus(self.config.lease);
        self.recall(now, begun.number, deadline);
        Some(id)
    }

    /// The second half when there is a local process in the way.
    pub fn delegate_failed(&mut self, begun: &PendingDelegation<L>) {
        self.drop_state(begun.number);
    }

    /// DELEGRETURN.
    ///
    /// # Errors
    /// What is wrong with the state id.
    pub fn delegreturn(&mut self, now: Time, by: &Requester, id: &StateId, key: &K) -> Result<(), Error> {
        match self.resolve_for(by, id, key) {
            // It was too late, and knows now.
            Err(Error::DelegRevoked) => self.free_stateid(by, id),
            Err(error) => Err(error),
            Ok(number) => match self.states[&number].kind {
                Kind::Delegation { recalled, peer, .. } => {
                    self.drop_state(number);
                    // Nearer to when it would have been taken away than to when it was asked for.
                    if recalled.is_some_and(|recalled| recalled.is_late(now)) {
                        self.distrust(now, peer, self.config.lease);
                    }
                    Ok(())
                }
                _ => Err(Error::BadStateid),
            },
        }
    }

    /// Whether `id` is a delegation of the client on the file by which it may open it so: what OPEN by
    /// CLAIM_DELEGATE_CUR asks.
    ///
    /// # Errors
    /// What is wrong with the state id, `Openmode` for a delegation that is for reading only.
    pub fn check_delegation(&self, client: ClientId, id: &StateId, key: &K, access: u8) -> Result<(), Error> {
        let number = self.resolve_on(client, id, key)?;
        match self.states[&number].kind {
            Kind::Delegation { writes: false, .. } if access & 2 != 0 => Err(Error::Openmode),
            Kind::Delegation { .. } => Ok(()),
            _ => Err(Error::BadStateid),
        }
    }

    /// The delegation for writing that somebody other than `by` has: he knows better than the file what its
    /// attributes are.
    #[must_use]
    pub fn writer(&self, by: Option<ClientId>, key: &K) -> Option<WriteDelegation<L>> {
        let number = self.files.get(key)?.lent.writer()?;
        let state = &self.states[&number];
        let Kind::Delegation { kept, .. } = &state.kind else { return None };
        // Of one with a `seqid` of 0 its client doesn't know yet.
        (Some(state.client) != by && state.seqid > 0).then(|| WriteDelegation {
            client: state.client,
            id: StateId::new(self.config.boot, number, state.seqid),
            kept: Arc::clone(kept),
        })
    }

    /// Whether a client has any delegation.
    #[must_use]
    pub fn holds_delegations(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.delegations > 0)
    }

    /// Whether a client has a delegation of a file.
    #[must_use]
    pub fn holds_delegation_of(&self, client: ClientId, key: &K) -> bool {
        self.files.get(key).is_some_and(|file| file.lent.has(client))
    }

    /// Whether the client can't have another delegation: it has too many, its peer or the engine is short of
    /// open files, or there are too many of all clients. Then some are asked back.
    fn are_too_many(&mut self, now: Time, client: ClientId) -> bool {
        let limits = &self.config.limits;
        let Some(asking) = self.clients.get(&client) else { return true };
        let peer = asking.name.peer;
        let all = self.delegated[0] + self.delegated[1];
        let too_many = if asking.delegations >= limits.client_delegations {
            TooMany::Client(client)
        } else if all >= limits.delegations || self.accounts.is_short(Resource::Descriptors) {
            TooMany::All
        } else if self.accounts.is_tight(Resource::Descriptors, &peer) {
            TooMany::Peer(peer)
        } else {
            return false;
        };
        self.ask_back(now, too_many);
        true
    }

    /// Asks a client to give a quarter of its delegations back ([`crate::Effects::recall_any`]): of those that
    /// haven't been asked for a lease's time the one that has the most, where open files are short of the
    /// peer that holds the most of these.
    pub(crate) fn ask_back(&mut self, now: Time, too_many: TooMany) {
        let lease = self.config.lease;
        let of_one = matches!(too_many, TooMany::Client(_));
        let searched_lately = |at: Time| now < at.plus((lease / SEARCH).max(1));
        if !of_one && self.nobody_to_ask.is_some_and(searched_lately) {
            return;
        }
        let is_short = self.accounts.is_short(Resource::Descriptors);
        let descriptors = self.accounts.of(Resource::Descriptors);
        let may_be_asked = |holder: &&mut Client| {
            let is_meant = match too_many {
                TooMany::Client(client) => holder.id == client,
                TooMany::Peer(peer) => holder.name.peer == peer,
                TooMany::All => true,
            };
            is_meant && holder.delegations > 0 && holder.asked_back.is_none_or(|at| now >= at.plus(lease))
        };
        // Of several with as many always the same, whatever order the map has.
        let most = |holder: &&mut Client| {
            let of_peer = if is_short { descriptors.held_by(&holder.name.peer) } else { 0 };
            (of_peer, holder.delegations, std::cmp::Reverse(holder.id.0))
        };
        if let Some(holder) = self.clients.values_mut().filter(may_be_asked).max_by_key(most) {
            holder.asked_back = Some(now);
            self.effects.recall_any.push((holder.id, holder.delegations - holder.delegations.div_ceil(4)));
        } else if !of_one {
            self.nobody_to_ask = Some(now);
        }
    }

    /// How many delegations there are for reading, and for writing.
    #[must_use]
    pub const fn delegated(&self) -> [usize; 2] {
        self.delegated
    }

    /// The access for which the client has the file open, and for which others have.
    fn opened(&self, client: ClientId, key: &K) -> (u8, u8) {
        let Some(file) = self.files.get(key) else { return (0, 0) };
        let (own, others) = file.opened.access(client);
        (own, others | file.granted.access())
    }
}
