//! NFSv4.0's state-owners: open owners and lock owners number their requests by `seqid`, and the last reply
//! is cached for a retry (RFC 7530 sections 9.1.3 to 9.1.9).
//!
//! Invariant: `idle` counts the owners without state. Beyond [`MAX_IDLE_OWNERS`] of them a client's idle
//! owners are forgotten, and begin anew.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use ahash::HashMap;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::owner_index::OwnedState as _;
use crate::principal::{Principal, Requester};

/// The most owners without state that a client has, beside as many as have some.
const MAX_IDLE_OWNERS: usize = 128;

/// An owner that numbers its requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StateOwner {
    /// An open owner.
    Open(Vec<u8>),
    /// A lock owner.
    Lock(Vec<u8>),
}

/// The kind of an owner's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRequest {
    /// A new request: the caller runs it, and then calls [`Engine::owner_end`].
    New,
    /// A retry, with the cached reply.
    Replay(Arc<[u8]>),
}

/// The owners of one client.
#[derive(Debug, Default)]
pub(crate) struct StateOwners {
    owners: HashMap<StateOwner, OwnerEntry>,
    /// The number of owners without state.
    idle: usize,
}

#[derive(Debug, Default)]
struct OwnerEntry {
    /// None for a lock owner whose first LOCK isn't done.
    requests: Option<OwnerRequests>,
    /// Its opens or its locks, on all files.
    states: BTreeSet<u64>,
}

/// The requests of one owner.
#[derive(Debug)]
struct OwnerRequests {
    /// The `seqid` of the last request.
    seqid: u32,
    /// The principal of the last request: only it gets the cached reply.
    by: Principal,
    running: bool,
    reply: Option<Arc<[u8]>>,
    /// The owner is confirmed (OPEN_CONFIRM), or needn't be.
    confirmed: bool,
    /// The last open that it closed: in [`crate::expired_ids::ExpiredIds`].
    closed: Option<u64>,
}

impl StateOwners {
    fn requests_mut(&mut self, owner: &StateOwner) -> Option<&mut OwnerRequests> {
        self.owners.get_mut(owner)?.requests.as_mut()
    }

    fn entry(&mut self, owner: StateOwner) -> &mut OwnerEntry {
        self.owners.entry(owner).or_insert_with(|| {
            self.idle += 1;
            OwnerEntry::default()
        })
    }

    /// An owner begins to number its requests, or begins anew; the open that it closed last.
    fn start(&mut self, owner: &StateOwner, requests: OwnerRequests) -> Option<u64> {
        self.entry(owner.clone()).requests.replace(requests)?.closed
    }

    /// Adds a state of an owner.
    pub fn add(&mut self, owner: StateOwner, state: u64) {
        let entry = self.entry(owner);
        let is_first = entry.states.is_empty();
        entry.states.insert(state);
        self.idle -= usize::from(is_first);
    }

    /// Removes a state of an owner.
    pub fn remove(&mut self, owner: &StateOwner, state: u64) {
        let Some(entry) = self.owners.get_mut(owner) else { return };
        if entry.states.remove(&state) && entry.states.is_empty() {
            self.idle += 1;
            if entry.requests.is_none() {
                self.forget(owner);
            }
        }
    }

    fn states(&self, owner: &StateOwner) -> Vec<u64> {
        self.owners.get(owner).into_iter().flat_map(|entry| &entry.states).copied().collect()
    }

    /// Forgets an owner without state; the open that it closed last.
    fn forget(&mut self, owner: &StateOwner) -> Option<u64> {
        let entry = self.owners.remove(owner)?;
        self.idle -= usize::from(entry.states.is_empty());
        entry.requests?.closed
    }

    /// Forgets owners without state, if there are so many that a search pays; the opens that they closed
    /// last.
    fn prune(&mut self) -> Vec<u64> {
        if self.idle < MAX_IDLE_OWNERS || 2 * self.idle < self.owners.len() {
            return Vec::new();
        }
        let is_idle = |entry: &OwnerEntry| {
            entry.states.is_empty() && entry.requests.as_ref().is_none_or(|requests| !requests.running)
        };
        let removed: Vec<OwnerEntry> =
            self.owners.extract_if(|_, entry| is_idle(entry)).map(|(_, entry)| entry).collect();
        self.idle -= removed.len();
        removed.into_iter().filter_map(|entry| entry.requests?.closed).collect()
    }

    /// The opens that owners closed last.
    pub fn closed(&self) -> impl Iterator<Item = u64> {
        self.owners.values().filter_map(|entry| entry.requests.as_ref()?.closed)
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The owner that numbers the requests with a state id; also with one that the owner's last request has
    /// closed.
    ///
    /// # Errors
    /// `StaleStateid`, `BadStateid`, also for the state of another principal.
    pub fn owner_of(
        &mut self,
        now: Time,
        id: &StateId,
        principal: &Principal,
    ) -> Result<(ClientId, StateOwner), Error> {
        match self.client_of(now, id) {
            Ok(client) => {
                let by = Requester { client, principal: principal.clone() };
                self.check_principal(id.number(), &by)?;
                let owner = self.state_owner(id.number()).ok_or(Error::BadStateid)?;
                Ok((client, owner))
            }
            Err(Error::BadStateid) => self.expired_ids.closed(id.number()).cloned().ok_or(Error::BadStateid),
            Err(error) => Err(error),
        }
    }

    /// The owner of a state. Delegations have none.
    fn state_owner(&self, number: u64) -> Option<StateOwner> {
        let open = self.opens.get(number).map(|open| StateOwner::Open(open.owner().to_vec()));
        open.or_else(|| self.locks.get(number).map(|lock| StateOwner::Lock(lock.owner().to_vec())))
    }

    /// The beginning of an owner's request; `opens` says that it is an OPEN. Only the principal that has sent
    /// a request gets the cached reply.
    ///
    /// # Errors
    /// `BadSeqid`, `StaleClientid`; `Delay` while the owner's last request is running.
    pub fn owner_begin(
        &mut self,
        now: Time,
        by: &Requester,
        owner: &StateOwner,
        seqid: u32,
        opens: bool,
    ) -> Result<OwnerRequest, Error> {
        let client = by.client;
        self.renew40(now, client)?;
        if let Some(requests) = self.v40_client(client)?.owners.requests_mut(owner) {
            if requests.running {
                return Err(Error::Delay);
            }
            let is_same = requests.by == by.principal;
            if seqid == requests.seqid && is_same {
                return requests.reply.clone().map(OwnerRequest::Replay).ok_or(Error::BadSeqid);
            }
            if seqid == next(requests.seqid) {
                requests.running = true;
                return Ok(OwnerRequest::New);
            }
            if requests.confirmed || !opens || !is_same {
                return Err(Error::BadSeqid);
            }
            // The opens of an owner that was never confirmed are forgotten: a stray request may have made
            // them.
            let opened = self.v40_client(client)?.owners.states(owner);
            opened.into_iter().for_each(|number| self.remove_state(number));
        } else if !opens {
            return Err(Error::BadSeqid);
        }
        for closed in self.v40_client(client)?.owners.prune() {
            self.expired_ids.remove_closed(closed);
        }
        let (seqid, principal) = (seqid.wrapping_sub(1), by.principal.clone());
        self.start_owner(client, owner, OwnerRequests::new(seqid, principal, true))?;
        Ok(OwnerRequest::New)
    }

    fn start_owner(
        &mut self,
        client: ClientId,
        owner: &StateOwner,
        requests: OwnerRequests,
    ) -> Result<(), Error> {
        if let Some(closed) = self.v40_client(client)?.owners.start(owner, requests) {
            self.expired_ids.remove_closed(closed);
        }
        Ok(())
    }

    /// The end of an owner's request. Without a reply it doesn't count: the owner's next request has the same
    /// number.
    pub fn owner_end(&mut self, by: &Requester, owner: &StateOwner, seqid: u32, reply: Option<Arc<[u8]>>) {
        let Ok(v40) = self.v40_client(by.client) else { return };
        let Some(requests) = v40.owners.requests_mut(owner) else { return };
        requests.running = false;
        if reply.is_some() {
            (requests.seqid, requests.reply) = (seqid, reply);
            requests.by = by.principal.clone();
        }
    }

    /// A lock owner begins to number its requests, with its first LOCK. The client may have ended meanwhile.
    pub fn start_lock_owner(&mut self, by: &Requester, owner: &StateOwner, seqid: u32) {
        let requests =
            OwnerRequests { confirmed: true, ..OwnerRequests::new(seqid, by.principal.clone(), false) };
        let _ = self.start_owner(by.client, owner, requests);
    }

    /// Whether an open owner must be confirmed. With `reclaim` it needn't any more: that is no stray request.
    pub fn needs_confirmation(&mut self, client: ClientId, owner: &[u8], reclaim: bool) -> bool {
        let Ok(v40) = self.v40_client(client) else { return false };
        let owner = StateOwner::Open(owner.to_vec());
        let Some(requests) = v40.owners.requests_mut(&owner) else { return false };
        requests.confirmed |= reclaim;
        !requests.confirmed
    }

    /// OPEN_CONFIRM.
    ///
    /// # Errors
    /// `BadStateid`, also for a confirmed owner, and what is wrong with the state id.
    pub fn open_confirm(&mut self, by: &Requester, id: &StateId, key: &K) -> Result<StateId, Error> {
        let number = self.resolve_for(by, id, key)?;
        let owner = self.opens.get(number).ok_or(Error::BadStateid)?.owner().to_vec();
        let owners = &mut self.v40_client(by.client)?.owners;
        let requests = owners.requests_mut(&StateOwner::Open(owner)).ok_or(Error::BadStateid)?;
        if std::mem::replace(&mut requests.confirmed, true) {
            return Err(Error::BadStateid);
        }
        let header = self.opens.header_mut(number).ok_or(Error::BadStateid)?;
        Ok(header.bump(self.config.boot, number))
    }

    /// Remembers the open that an owner's CLOSE has closed, until the owner's next one.
    pub fn remember_closed_open(&mut self, client: ClientId, id: &StateId, owner: &StateOwner) {
        let Ok(v40) = self.v40_client(client) else { return };
        let Some(requests) = v40.owners.requests_mut(owner) else { return };
        if let Some(before) = requests.closed.replace(id.number()) {
            self.expired_ids.remove_closed(before);
        }
        self.expired_ids.add_closed(id.number(), client, owner.clone());
    }

    /// RELEASE_LOCKOWNER, by any of the client's users: it releases nothing that is held, and Linux sends it
    /// as the user that happens to close the file.
    ///
    /// # Errors
    /// `LocksHeld`, `StaleClientid`.
    pub fn release_lockowner(&mut self, now: Time, client: ClientId, owner: &[u8]) -> Result<(), Error> {
        self.renew40(now, client)?;
        let owner = StateOwner::Lock(owner.to_vec());
        let states = self.v40_client(client)?.owners.states(&owner);
        let holds = |number: &u64| self.locks.get(*number).is_some_and(|lock| !lock.ranges().is_empty());
        if states.iter().any(holds) {
            return Err(Error::LocksHeld);
        }
        states.into_iter().for_each(|number| self.remove_state(number));
        self.v40_client(client)?.owners.forget(&owner);
        Ok(())
    }
}

impl OwnerRequests {
    /// The requests of an unconfirmed owner, of which the last one has `seqid`.
    const fn new(seqid: u32, by: Principal, running: bool) -> Self {
        Self { seqid, by, running, reply: None, confirmed: false, closed: None }
    }
}

/// The number after `seqid`.
const fn next(seqid: u32) -> u32 {
    seqid.wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn owners_without_state_are_counted(
            steps in proptest::collection::vec((0_u8..5, 0_u8..200, 0_u64..3), 1..400)
        ) {
            let mut owners = StateOwners::default();
            for (what, owner, state) in steps {
                let owner = StateOwner::Open(vec![owner]);
                match what {
                    0 => {
                        let requests = OwnerRequests::new(1, Principal::Sys(0), false);
                        owners.start(&owner, OwnerRequests { closed: Some(state), ..requests });
                    }
                    1 => owners.add(owner, state),
                    2 => owners.remove(&owner, state),
                    3 if owners.states(&owner).is_empty() => drop(owners.forget(&owner)),
                    _ => drop(owners.prune()),
                }
                let idle = owners.owners.values().filter(|entry| entry.states.is_empty()).count();
                prop_assert_eq!(owners.idle, idle);
                // An owner is there for its requests, or for its states.
                let mut entries = owners.owners.values();
                prop_assert!(entries.all(|entry| entry.requests.is_some() || !entry.states.is_empty()));
            }
        }
    }
}
