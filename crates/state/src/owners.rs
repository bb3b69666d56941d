//! NFSv4.0's open owners and lock owners: each numbers its requests, and the one reply that a retry may ask
//! for is kept (RFC 7530 sections 9.1.3 to 9.1.9).
//!
//! An owner without state is forgotten when its client has too many of them ([`IDLE`]): it begins anew then.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::files::{Kind, State};
use crate::ids::{ClientId, StateId};
use crate::principal::{Principal, Requester};
use crate::ranges::Ranges;

/// How many owners without state a client has at most, beside as many as have some.
const IDLE: usize = 128;

/// Who numbers its requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StateOwner {
    /// An open owner.
    Open(Vec<u8>),
    /// A lock owner.
    Lock(Vec<u8>),
}

/// What an owner's request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRequest {
    /// New: it is to be run, and [`Engine::owner_end`] to be told.
    New,
    /// A retry: this is what was answered.
    Replay(Arc<[u8]>),
}

/// One client's owners.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    all: HashMap<StateOwner, Known>,
    /// How many of them have no state.
    idle: usize,
}

/// What is known of an owner.
#[derive(Debug, Default)]
struct Known {
    /// None for a lock owner whose first lock isn't done yet.
    numbers: Option<Numbers>,
    /// Its opens, or its locks, on whatever files.
    states: BTreeSet<u64>,
}

/// One owner's place in its requests.
#[derive(Debug)]
struct Numbers {
    seqid: u32,
    /// Whose the last request was: nobody else is told what was answered.
    by: Principal,
    running: bool,
    reply: Option<Arc<[u8]>>,
    /// OPEN_CONFIRM was there, or wasn't needed.
    confirmed: bool,
    /// The last open that was closed, which [`Engine::closed`] knows.
    closed: Option<u64>,
}

impl Owners {
    fn get(&mut self, owner: &StateOwner) -> Option<&mut Numbers> {
        self.all.get_mut(owner)?.numbers.as_mut()
    }

    fn known(&mut self, owner: StateOwner) -> &mut Known {
        self.all.entry(owner).or_insert_with(|| {
            self.idle += 1;
            Known::default()
        })
    }

    /// An owner begins to number its requests, anew if it did before; the open that it closed last.
    fn start(&mut self, owner: &StateOwner, numbers: Numbers) -> Option<u64> {
        self.known(owner.clone()).numbers.replace(numbers)?.closed
    }

    /// An owner has a state more.
    pub fn add(&mut self, owner: StateOwner, state: u64) {
        let known = self.known(owner);
        let first = known.states.is_empty();
        known.states.insert(state);
        self.idle -= usize::from(first);
    }

    /// An owner has a state less.
    pub fn remove(&mut self, owner: &StateOwner, state: u64) {
        let Some(known) = self.all.get_mut(owner) else { return };
        if known.states.remove(&state) && known.states.is_empty() {
            self.idle += 1;
            if known.numbers.is_none() {
                self.forget(owner);
            }
        }
    }

    fn states(&self, owner: &StateOwner) -> Vec<u64> {
        self.all.get(owner).into_iter().flat_map(|known| &known.states).copied().collect()
    }

    /// An owner that has no state is forgotten; the open that it closed last.
    fn forget(&mut self, owner: &StateOwner) -> Option<u64> {
        let known = self.all.remove(owner)?;
        self.idle -= usize::from(known.states.is_empty());
        known.numbers?.closed
    }

    /// Forgets owners without state, if there are so many that it is worth looking at all of them: the opens
    /// that they closed last.
    fn prune(&mut self) -> Vec<u64> {
        if self.idle < IDLE || 2 * self.idle < self.all.len() {
            return Vec::new();
        }
        let is_idle = |known: &Known| {
            known.states.is_empty() && known.numbers.as_ref().is_none_or(|numbers| !numbers.running)
        };
        let gone: Vec<Known> =
            self.all.extract_if(|_, known| is_idle(known)).map(|(_, known)| known).collect();
        self.idle -= gone.len();
        gone.into_iter().filter_map(|known| known.numbers?.closed).collect()
    }

    /// The opens that owners closed last.
    pub fn closed(&self) -> impl Iterator<Item = u64> {
        self.all.values().filter_map(|known| known.numbers.as_ref()?.closed)
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Which owner numbers the requests that name a state id; also one that was closed by the owner's last
    /// request.
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
                self.check_maker(id.number(), &Requester { client, principal: principal.clone() })?;
                let owner = self.states[&id.number()].numbered().ok_or(Error::BadStateid)?;
                Ok((client, owner))
            }
            Err(Error::BadStateid) => self.closed.get(&id.number()).cloned().ok_or(Error::BadStateid),
            Err(error) => Err(error),
        }
    }

    /// An owner's request begins. A retry is answered to the principal that sent the request, and to nobody
    /// else.
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
        if let Some(numbers) = self.client40(client)?.owners.get(owner) {
            if numbers.running {
                return Err(Error::Delay);
            }
            let is_same = numbers.by == by.principal;
            if seqid == numbers.seqid && is_same {
                return numbers.reply.clone().map(OwnerRequest::Replay).ok_or(Error::BadSeqid);
            }
            if seqid == next(numbers.seqid) {
                numbers.running = true;
                return Ok(OwnerRequest::New);
            }
            if numbers.confirmed || !opens || !is_same {
                return Err(Error::BadSeqid);
            }
            // What an owner that was never confirmed has opened is forgotten: it may have been a stray
            // request's.
            let opened = self.client40(client)?.owners.states(owner);
            opened.into_iter().for_each(|number| self.drop_state(number));
        } else if !opens {
            return Err(Error::BadSeqid);
        }
        for closed in self.client40(client)?.owners.prune() {
            self.closed.remove(&closed);
        }
        let seqid = seqid.wrapping_sub(1);
        let principal = by.principal.clone();
        let numbers =
            Numbers { seqid, by: principal, running: true, reply: None, confirmed: false, closed: None };
        self.owner_numbers(client, owner, numbers)?;
        Ok(OwnerRequest::New)
    }

    fn owner_numbers(&mut self, client: ClientId, owner: &StateOwner, numbers: Numbers) -> Result<(), Error> {
        if let Some(closed) = self.client40(client)?.owners.start(owner, numbers) {
            self.closed.remove(&closed);
        }
        Ok(())
    }

    /// An owner's request has come to its end. Without a reply it counts for nothing: the owner sends another
    /// with the same number.
    pub fn owner_end(&mut self, by: &Requester, owner: &StateOwner, seqid: u32, reply: Option<Arc<[u8]>>) {
        let Ok(v40) = self.client40(by.client) else { return };
        let Some(numbers) = v40.owners.get(owner) else { return };
        numbers.running = false;
        if reply.is_some() {
            (numbers.seqid, numbers.reply) = (seqid, reply);
            numbers.by = by.principal.clone();
        }
    }

    /// A lock owner's first lock: its numbers begin with that.
    pub fn start_lock_owner(&mut self, by: &Requester, owner: &StateOwner, seqid: u32) {
        let principal = by.principal.clone();
        let numbers =
            Numbers { seqid, by: principal, running: false, reply: None, confirmed: true, closed: None };
        // Where the client has gone meanwhile nobody asks.
        let _ = self.owner_numbers(by.client, owner, numbers);
    }

    /// Whether an open owner still has to be confirmed; from now on it hasn't if `reclaim`, for that is no
    /// stray request.
    pub fn needs_confirmation(&mut self, client: ClientId, owner: &[u8], reclaim: bool) -> bool {
        let Ok(v40) = self.client40(client) else { return false };
        let Some(numbers) = v40.owners.get(&StateOwner::Open(owner.to_vec())) else { return false };
        numbers.confirmed |= reclaim;
        !numbers.confirmed
    }

    /// OPEN_CONFIRM.
    ///
    /// # Errors
    /// `BadStateid`, also for what is confirmed already, and what is wrong with the state id.
    pub fn open_confirm(&mut self, by: &Requester, id: &StateId, key: &K) -> Result<StateId, Error> {
        let number = self.resolve_for(by, id, key)?;
        let owner = match self.states[&number].numbered() {
            Some(owner @ StateOwner::Open(_)) => owner,
            _ => return Err(Error::BadStateid),
        };
        let numbers = self.client40(by.client)?.owners.get(&owner).ok_or(Error::BadStateid)?;
        if std::mem::replace(&mut numbers.confirmed, true) {
            return Err(Error::BadStateid);
        }
        let boot = self.config.boot;
        let state = self.states.get_mut(&number).ok_or(Error::BadStateid)?;
        Ok(state.bump(boot, number))
    }

    /// What a CLOSE has closed is remembered until the owner's next one.
    pub fn remember_closed_open(&mut self, client: ClientId, id: &StateId, owner: &StateOwner) {
        let Ok(v40) = self.client40(client) else { return };
        let Some(numbers) = v40.owners.get(owner) else { return };
        if let Some(before) = numbers.closed.replace(id.number()) {
            self.closed.remove(&before);
        }
        self.closed.insert(id.number(), (client, owner.clone()));
    }

    /// RELEASE_LOCKOWNER. Whoever of the client's users asks: nothing is released that anybody holds, and
    /// Linux sends it as whoever happens to close the file.
    ///
    /// # Errors
    /// `LocksHeld`, `StaleClientid`.
    pub fn release_lockowner(&mut self, now: Time, client: ClientId, owner: &[u8]) -> Result<(), Error> {
        self.renew40(now, client)?;
        let owner = StateOwner::Lock(owner.to_vec());
        let states = self.client40(client)?.owners.states(&owner);
        let held =
            |number: &u64| self.states[number].ranges().is_some_and(|ranges: &Ranges| !ranges.is_empty());
        if states.iter().any(held) {
            return Err(Error::LocksHeld);
        }
        states.into_iter().for_each(|number| self.drop_state(number));
        self.client40(client)?.owners.forget(&owner);
        Ok(())
    }
}

impl<K, L> State<K, L> {
    /// Who numbers the requests about it, in 4.0. Delegations have no owner.
    pub(crate) fn numbered(&self) -> Option<StateOwner> {
        match &self.kind {
            Kind::Open { owner, .. } => Some(StateOwner::Open(owner.clone())),
            Kind::Lock { owner, .. } => Some(StateOwner::Lock(owner.clone())),
            Kind::Delegation { .. } => None,
        }
    }
}

/// The number after `seqid`.
const fn next(seqid: u32) -> u32 {
    seqid.wrapping_add(1)
}
