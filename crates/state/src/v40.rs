//! What NFSv4.0 has instead of sessions (RFC 7530 sections 9.1, 16.33, 16.34): SETCLIENTID and its confirmation, and the sequence
//! numbers of open owners and lock owners, each with the one reply that a retry may ask for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::{Kind, State};
use crate::ids::{ClientId, StateId};
use crate::ranges::Ranges;

/// Who numbers its requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// An open owner.
    Open(Vec<u8>),
    /// A lock owner.
    Lock(Vec<u8>),
}

/// What SETCLIENTID says.
#[derive(Debug, Clone, Copy)]
pub struct SetClientId<'a> {
    /// `nfs_client_id4.id`.
    pub owner: &'a [u8],
    /// `nfs_client_id4.verifier`.
    pub verifier: [u8; 8],
    /// Who asks.
    pub principal: &'a [u8],
}

/// What an owner's request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numbered {
    /// New: it is to be run, and [`Engine::owner_end`] to be told.
    New,
    /// A retry: this is what was answered.
    Again(Arc<[u8]>),
}

/// What a client of NFSv4.0 has beside what every client has.
#[derive(Debug)]
pub(crate) struct Client40 {
    /// What confirmed it, or will.
    confirm: u64,
    /// Another SETCLIENTID of the same instance that isn't confirmed yet.
    update: Option<u64>,
    owners: HashMap<Owner, Numbers>,
    /// Opens that are closed, by their owner's last request: a retry of the CLOSE names them.
    closed: HashMap<u64, Owner>,
}

/// One owner's place in its requests.
#[derive(Debug)]
struct Numbers {
    seqid: u32,
    running: bool,
    reply: Option<Arc<[u8]>>,
    /// OPEN_CONFIRM was there, or wasn't needed.
    confirmed: bool,
    /// The last open that was closed, which [`Client40::closed`] knows.
    closed: Option<u64>,
}

impl Client40 {
    /// An owner begins to number its requests, anew if it did before.
    fn start(&mut self, owner: &Owner, numbers: Numbers) {
        let before = self.owners.insert(owner.clone(), numbers);
        if let Some(closed) = before.and_then(|before| before.closed) {
            self.closed.remove(&closed);
        }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// SETCLIENTID: the client's id, and what SETCLIENTID_CONFIRM must say.
    ///
    /// # Errors
    /// `ClidInuse`, `Delay` when there are too many clients.
    pub fn setclientid(&mut self, now: Time, asked: &SetClientId<'_>) -> Result<(ClientId, u64), Error> {
        let (lease, confirm) = (self.config.lease, (self.random)());
        let confirmed = self.named.get(asked.owner).and_then(|named| named.confirmed);
        if let Some(client) = confirmed.and_then(|id| self.clients.get_mut(&id)) {
            let same = client.principal == asked.principal;
            if !same && !client.states.is_empty() && !client.is_expired(now, lease) {
                return Err(Error::ClidInuse);
            }
            if let Some(v40) = client.v40.as_mut().filter(|_| same && client.verifier == asked.verifier) {
                v40.update = Some(confirm);
                return Ok((client.id, confirm));
            }
        }
        let id = self.add_client(now, asked.owner, asked.verifier, asked.principal)?;
        if let Some(client) = self.clients.get_mut(&id) {
            let (owners, closed) = Default::default();
            client.v40 = Some(Client40 { confirm, update: None, owners, closed });
        }
        Ok((id, confirm))
    }

    /// SETCLIENTID_CONFIRM.
    ///
    /// # Errors
    /// `StaleClientid`, `ClidInuse`.
    pub fn setclientid_confirm(
        &mut self,
        now: Time,
        id: ClientId,
        confirm: u64,
        principal: &[u8],
    ) -> Result<(), Error> {
        let client = self.clients.get_mut(&id).ok_or(Error::StaleClientid)?;
        let v40 = client.v40.as_mut().ok_or(Error::StaleClientid)?;
        if v40.update == Some(confirm) {
            v40.confirm = confirm;
        }
        if v40.confirm != confirm {
            return Err(Error::StaleClientid);
        }
        if client.principal != principal {
            return Err(Error::ClidInuse);
        }
        v40.update = None;
        client.renewed = now;
        if !client.confirmed {
            self.confirm(now, id);
        }
        Ok(())
    }

    /// RENEW; also what every operation that names a client does.
    ///
    /// # Errors
    /// `StaleClientid`, `Expired` for a client that had state and lost it.
    pub fn renew40(&mut self, now: Time, id: ClientId) -> Result<(), Error> {
        if !self.clients.contains_key(&id) && self.ended.contains(id.0) {
            return Err(Error::Expired);
        }
        self.client40(id)?;
        self.renew(now, id);
        Ok(())
    }

    fn client40(&mut self, id: ClientId) -> Result<&mut Client40, Error> {
        self.client(id)?.v40.as_mut().ok_or(Error::StaleClientid)
    }

    /// Whose a state id is: in 4.0 nothing else says who asks. Renews the lease.
    ///
    /// # Errors
    /// `StaleStateid`, `BadStateid`, `Expired` for the state of a client that has lost it.
    pub fn client_of(&mut self, now: Time, id: &StateId) -> Result<ClientId, Error> {
        if id.is_reserved() {
            return Err(Error::BadStateid);
        }
        if id.boot() != self.config.boot {
            return Err(Error::StaleStateid);
        }
        let number = id.number();
        let Some(state) = self.states.get(&number) else {
            if let Some(client) = self.ended.whose(number) {
                self.knows_of_revoked(client, number);
            }
            return Err(if self.ended.contains(number) { Error::Expired } else { Error::BadStateid });
        };
        let client = state.client;
        self.renew40(now, client).map_err(|_| Error::BadStateid)?;
        Ok(client)
    }

    /// Which owner numbers the requests that name a state id; also one that was closed by the owner's last request.
    ///
    /// # Errors
    /// `StaleStateid`, `BadStateid`.
    pub fn owner_of(&mut self, now: Time, id: &StateId) -> Result<(ClientId, Owner), Error> {
        match self.client_of(now, id) {
            Ok(client) => {
                let owner = owner_of(&self.states[&id.number()]).ok_or(Error::BadStateid)?;
                Ok((client, owner))
            }
            Err(Error::BadStateid) => {
                let closed = |client: &crate::client::Client| {
                    let owner = client.v40.as_ref()?.closed.get(&id.number())?;
                    Some((client.id, owner.clone()))
                };
                self.clients.values().find_map(closed).ok_or(Error::BadStateid)
            }
            Err(error) => Err(error),
        }
    }

    /// An owner's request begins.
    ///
    /// # Errors
    /// `BadSeqid`, `StaleClientid`; `Delay` while the owner's last request is running.
    pub fn owner_begin(
        &mut self,
        now: Time,
        client: ClientId,
        owner: &Owner,
        seqid: u32,
        opens: bool,
    ) -> Result<Numbered, Error> {
        self.renew40(now, client)?;
        self.bound_owners(client)?;
        let v40 = self.client40(client)?;
        if let Some(numbers) = v40.owners.get_mut(owner) {
            if numbers.running {
                return Err(Error::Delay);
            }
            if seqid == numbers.seqid {
                return numbers.reply.clone().map(Numbered::Again).ok_or(Error::BadSeqid);
            }
            if seqid == next(numbers.seqid) {
                numbers.running = true;
                return Ok(Numbered::New);
            }
            if numbers.confirmed || !opens {
                return Err(Error::BadSeqid);
            }
            // What an owner that was never confirmed has opened is forgotten: it may have been a stray request's.
            self.drop_opens(client, owner);
        } else if !opens {
            return Err(Error::BadSeqid);
        }
        let seqid = seqid.wrapping_sub(1);
        let numbers = Numbers { seqid, running: true, reply: None, confirmed: false, closed: None };
        self.client40(client)?.start(owner, numbers);
        Ok(Numbered::New)
    }

    /// An owner's request has come to its end. Without a reply it counts for nothing: the owner sends another with the same number.
    pub fn owner_end(&mut self, client: ClientId, owner: &Owner, seqid: u32, reply: Option<Arc<[u8]>>) {
        let Ok(v40) = self.client40(client) else { return };
        let Some(numbers) = v40.owners.get_mut(owner) else { return };
        numbers.running = false;
        if reply.is_some() {
            (numbers.seqid, numbers.reply) = (seqid, reply);
        }
    }

    /// A lock owner's first lock: its numbers begin with that.
    pub fn owner_starts(&mut self, client: ClientId, owner: &Owner, seqid: u32) {
        let numbers = Numbers { seqid, running: false, reply: None, confirmed: true, closed: None };
        if let Ok(v40) = self.client40(client) {
            v40.start(owner, numbers);
        }
    }

    /// Whether an open owner still has to be confirmed; from now on it hasn't if `reclaim`, for that is no stray request.
    pub fn needs_confirmation(&mut self, client: ClientId, owner: &[u8], reclaim: bool) -> bool {
        let Ok(v40) = self.client40(client) else { return false };
        let Some(numbers) = v40.owners.get_mut(&Owner::Open(owner.to_vec())) else { return false };
        numbers.confirmed |= reclaim;
        !numbers.confirmed
    }

    /// OPEN_CONFIRM.
    ///
    /// # Errors
    /// `BadStateid`, also for what is confirmed already, and what is wrong with the state id.
    pub fn open_confirm(&mut self, client: ClientId, id: &StateId, key: &K) -> Result<StateId, Error> {
        let number = self.resolve_on(client, id, key)?;
        let owner = match owner_of(&self.states[&number]) {
            Some(owner @ Owner::Open(_)) => owner,
            _ => return Err(Error::BadStateid),
        };
        let numbers = self.client40(client)?.owners.get_mut(&owner).ok_or(Error::BadStateid)?;
        if std::mem::replace(&mut numbers.confirmed, true) {
            return Err(Error::BadStateid);
        }
        let boot = self.config.boot;
        let state = self.states.get_mut(&number).ok_or(Error::BadStateid)?;
        Ok(state.bump(boot, number))
    }

    /// What a CLOSE has closed is remembered until the owner's next one.
    pub fn closed40(&mut self, client: ClientId, id: &StateId, owner: &Owner) {
        if let Ok(v40) = self.client40(client) {
            let Some(numbers) = v40.owners.get_mut(owner) else { return };
            if let Some(before) = numbers.closed.replace(id.number()) {
                v40.closed.remove(&before);
            }
            v40.closed.insert(id.number(), owner.clone());
        }
    }

    /// RELEASE_LOCKOWNER.
    ///
    /// # Errors
    /// `LocksHeld`, `StaleClientid`.
    pub fn release_lockowner(&mut self, now: Time, client: ClientId, owner: &[u8]) -> Result<(), Error> {
        self.renew40(now, client)?;
        let owner = Owner::Lock(owner.to_vec());
        let states = self.states_of(client, &owner);
        let held =
            |number: &u64| self.states[number].ranges().is_some_and(|ranges: &Ranges| !ranges.is_empty());
        if states.iter().any(held) {
            return Err(Error::LocksHeld);
        }
        states.into_iter().for_each(|number| self.drop_state(number));
        self.client40(client)?.owners.remove(&owner);
        Ok(())
    }

    fn states_of(&self, client: ClientId, owner: &Owner) -> Vec<u64> {
        let states = self.clients.get(&client).map(|client| &client.states);
        let of_owner = |number: &&u64| owner_of(&self.states[*number]).as_ref() == Some(owner);
        states.into_iter().flatten().filter(of_owner).copied().collect()
    }

    fn drop_opens(&mut self, client: ClientId, owner: &Owner) {
        self.states_of(client, owner).into_iter().for_each(|number| self.drop_state(number));
    }

    /// Owners without state are forgotten when there are too many.
    fn bound_owners(&mut self, client: ClientId) -> Result<(), Error> {
        let most = self.config.limits.states;
        if self.client40(client)?.owners.len() < most {
            return Ok(());
        }
        let states = self.client(client)?.states.clone();
        let used: std::collections::HashSet<Owner> =
            states.iter().filter_map(|number| owner_of(&self.states[number])).collect();
        let v40 = self.client40(client)?;
        v40.owners.retain(|owner, numbers| numbers.running || used.contains(owner));
        v40.closed.clear();
        if v40.owners.len() < most { Ok(()) } else { Err(Error::Delay) }
    }
}

/// Delegations have none.
fn owner_of<K, L>(state: &State<K, L>) -> Option<Owner> {
    match &state.kind {
        Kind::Open { owner, .. } => Some(Owner::Open(owner.clone())),
        Kind::Lock { owner, .. } => Some(Owner::Lock(owner.clone())),
        Kind::Delegation { .. } => None,
    }
}

/// The number after `seqid`.
const fn next(seqid: u32) -> u32 {
    seqid.wrapping_add(1)
}
