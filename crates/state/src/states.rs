//! States across the tables: what it takes to add one and to end one.
//!
//! A state is in the table of its kind, in its client's set, on its peer's accounts, and, in NFSv4.0, in its
//! owner's set. The first state on a file charges a peer for the descriptor that keeps the file open. When
//! the client that is charged has no more of the file, another client is charged, or the file is closed.

use std::hash::Hash;
use std::sync::Arc;

use fairness::Peer;

use crate::accounts::Resource;
use crate::client_table::Client;
use crate::conflicts::AccessKind;
use crate::delegation_table::Grantee;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::ClientId;
use crate::owner_index::OwnedState as _;
use crate::principal::Requester;
use crate::share::Share;
use crate::state_header::StateHeader;
use crate::v40_owners::StateOwner;

/// The descriptors that a delegation costs: one for its lease, one for its holder's locks.
pub(crate) const DELEGATION_DESCRIPTORS: usize = 2;

/// The kinds of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StateKind {
    Open,
    Lock,
    Delegation,
}

impl StateKind {
    /// The descriptors that a state costs, beside the file's.
    const fn descriptors(self) -> usize {
        match self {
            Self::Open => 0,
            Self::Lock => 1,
            Self::Delegation => DELEGATION_DESCRIPTORS,
        }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The common part of a state.
    pub(crate) fn header(&self, number: u64) -> Option<&StateHeader<K>> {
        let open = self.opens.get(number).map(|open| open.header());
        let lock = || self.locks.get(number).map(|lock| lock.header());
        let delegation = || self.delegations.get(number).map(|delegation| delegation.header());
        open.or_else(lock).or_else(delegation)
    }

    /// Adds an open without access, of an owner that has none on the file.
    pub(crate) fn add_open(&mut self, by: &Requester, key: &K, owner: &[u8]) -> Result<u64, Error> {
        let (number, header) = self.new_state(by, key, StateKind::Open)?;
        self.add_to_owner(by.client, StateOwner::Open(owner.to_vec()), number);
        self.opens.insert(number, header, owner.to_vec());
        Ok(number)
    }

    /// Adds a lock state without ranges, of an owner that has none on the file.
    pub(crate) fn add_lock(
        &mut self,
        by: &Requester,
        key: &K,
        owner: Vec<u8>,
        open: u64,
    ) -> Result<u64, Error> {
        let (number, header) = self.new_state(by, key, StateKind::Lock)?;
        self.add_to_owner(by.client, StateOwner::Lock(owner.clone()), number);
        self.locks.insert(number, header, owner, open);
        Ok(number)
    }

    /// Adds a delegation, which the client doesn't know yet; its number and its resources.
    pub(crate) fn add_delegation(
        &mut self,
        by: &Requester,
        key: &K,
        grantee: Grantee,
    ) -> Result<(u64, Arc<L>), Error> {
        let (number, header) = self.new_state(by, key, StateKind::Delegation)?;
        Ok((number, self.delegations.insert(number, header, grantee)))
    }

    /// A number and the common part of a new state: the client has it, and its peer is charged.
    fn new_state(
        &mut self,
        by: &Requester,
        key: &K,
        kind: StateKind,
    ) -> Result<(u64, StateHeader<K>), Error> {
        let (max, client) = (self.config.limits.states, by.client);
        let number = self.new_state_number(client);
        let holder = self.clients.confirmed_mut(client)?;
        holder.check_room(max)?;
        holder.states.add(number, kind == StateKind::Delegation);
        let peer = holder.peer();
        self.record_client(client);
        self.accounts.charge(Resource::States, &peer, 1);
        self.accounts.charge(Resource::Descriptors, &peer, kind.descriptors());
        if self.files.charged(key).is_none() {
            self.files.set_charged(key, (client, peer));
            self.accounts.charge(Resource::Descriptors, &peer, 1);
        }
        Ok((number, StateHeader::new(client, peer, key.clone(), by.principal.clone())))
    }

    fn add_to_owner(&mut self, client: ClientId, owner: StateOwner, number: u64) {
        if let Ok(v40) = self.v40_client(client) {
            v40.owners.add(owner, number);
        }
    }

    /// Ends a state, and with an open the locks that were made through it.
    pub(crate) fn remove_state(&mut self, number: u64) {
        self.remove_open(number);
        self.remove_lock(number);
        self.remove_delegation(number);
    }

    fn remove_open(&mut self, number: u64) {
        let Some(open) = self.opens.remove(number) else { return };
        self.locks.of_open(number).into_iter().for_each(|lock| self.remove_lock(lock));
        self.effects.released.extend(self.lock_queues.remove_open(open.header().key(), number));
        let owner = StateOwner::Open(open.owner().to_vec());
        self.end_state(open.header(), StateKind::Open, Some(&owner), number);
    }

    fn remove_lock(&mut self, number: u64) {
        let Some(lock) = self.locks.remove(number) else { return };
        self.accounts.give_back(Resource::States, &lock.header().peer(), lock.ranges().len());
        self.effects.released.push(Arc::clone(lock.resources()));
        self.lock_queues.mark_changed(lock.header().key());
        let owner = StateOwner::Lock(lock.owner().to_vec());
        self.end_state(lock.header(), StateKind::Lock, Some(&owner), number);
    }

    fn remove_delegation(&mut self, number: u64) {
        let Some(delegation) = self.delegations.remove(number) else { return };
        self.effects.released.push(Arc::clone(delegation.resources()));
        self.end_state(delegation.header(), StateKind::Delegation, None, number);
    }

    /// What [`Engine::new_state`] has done, undone.
    fn end_state(
        &mut self,
        header: &StateHeader<K>,
        kind: StateKind,
        owner: Option<&StateOwner>,
        number: u64,
    ) {
        self.accounts.give_back(Resource::States, &header.peer(), 1);
        self.accounts.give_back(Resource::Descriptors, &header.peer(), kind.descriptors());
        if let Some(client) = self.clients.get_mut(header.client()) {
            client.states.remove(number, kind == StateKind::Delegation);
            if let (Some(v40), Some(owner)) = (&mut client.v40, owner) {
                v40.owners.remove(owner, number);
            }
        }
        self.recharge_file(header.key(), Some(header.client()));
    }

    /// Closes a file that `client`, or a local process, was the last to have open. Charges another client if
    /// `client` is charged and has no more of the file.
    fn recharge_file(&mut self, key: &K, client: Option<ClientId>) {
        if !self.files.contains(key) {
            return;
        }
        let next = self.opens.any_client(key).or_else(|| self.delegations.any_client(key));
        if next.is_none() && self.files.local_access(key) == 0 {
            if let Some((_, peer)) = self.files.remove(key) {
                self.accounts.give_back(Resource::Descriptors, &peer, 1);
            }
            self.effects.closed.push(key.clone());
            return;
        }
        let Some((charged, peer)) = self.files.charged(key).filter(|(charged, _)| Some(*charged) == client)
        else {
            return;
        };
        if self.opens.is_open_by(key, charged) || self.delegations.is_held_by(key, charged) {
            return;
        }
        // A file that only local processes have open stays with the client that had it last.
        let next = next.and_then(|next| self.clients.get(next)).map(|next| (next.id(), next.peer()));
        if let Some(next) = next {
            self.files.set_charged(key, next);
            self.accounts.give_back(Resource::Descriptors, &peer, 1);
            self.accounts.charge(Resource::Descriptors, &next.1, 1);
        }
    }

    /// Whether the file is open, delegated, or granted to a local process.
    #[must_use]
    pub fn is_open(&self, key: &K) -> bool {
        self.files.contains(key)
    }

    /// Opens a file for a local process (a grant of the lane), for `access`: 1 to read, 2 to write, 3 for
    /// both. Conflicts are those of an open without denials. Ends courtesy clients that are in the way. The
    /// open lasts until [`Engine::release_grant`]: what a process has open can't be recalled.
    ///
    /// # Errors
    /// `Grace`; `ShareDenied` if an open denies it, `Delay` while a delegation is being recalled.
    pub fn grant(&mut self, now: Time, key: &K, access: u8) -> Result<(), Error> {
        // Clients lose their right to reclaim before others get what they had.
        self.end_grace_if_over(now);
        if self.in_grace(now) {
            return Err(Error::Grace);
        }
        self.check_conflicts(now, None, key, AccessKind::Open(Share { access, deny: 0 }))?;
        self.files.add_local(key, access);
        Ok(())
    }

    /// The end of an open by [`Engine::grant`].
    pub fn release_grant(&mut self, key: &K, access: u8) {
        self.files.remove_local(key, access);
        self.recharge_file(key, None);
    }

    /// The peers of all clients.
    pub fn peers(&self) -> impl Iterator<Item = Peer> {
        self.clients.iter().map(Client::peer)
    }

    /// Ends the state of clients of a peer on files for which `is_withdrawn` holds, and returns its
    /// resources. The files are no longer served to the peer: their export is gone, or refers the peer to
    /// other servers, or the filesystem is unmounted and nothing may keep it busy. Takes time in proportion
    /// to all states, and is for rare events.
    #[must_use]
    pub fn withdraw(&mut self, is_withdrawn: impl Fn(&K, Option<Peer>) -> bool) -> Vec<Arc<L>> {
        let opens = self.opens.iter().map(|(number, open)| (number, open.header()));
        let locks = self.locks.iter().map(|(number, lock)| (number, lock.header()));
        let delegations = self.delegations.iter();
        let delegations = delegations.map(|(number, delegation)| (number, delegation.header()));
        let all = opens.chain(locks).chain(delegations);
        let peer = |client| self.clients.get(client).map(Client::peer);
        let withdrawn = all.filter(|(_, header)| is_withdrawn(header.key(), peer(header.client())));
        let withdrawn = withdrawn.map(|(number, _)| number);
        let withdrawn: Vec<u64> = withdrawn.collect();
        withdrawn.into_iter().for_each(|number| self.remove_state(number));
        std::mem::take(&mut self.effects.released)
    }
}
