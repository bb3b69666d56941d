//! What each peer makes the engine hold, and who makes room when that runs short.
//!
//! Everything is shared by [`Peer`], by the rule of [`Shares`]: nobody takes so much that the next one finds
//! nothing. When a peer can't have more, clients that can be dispensed with make room for it: first those
//! that haven't been confirmed, then courtesy clients (out of their lease), each time of the peer that holds
//! the most, and of its clients the one that has been silent for the longest time. A peer makes room for one
//! that holds less, or for itself.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use fairness::{Peer, Shares, Standing};

use crate::delegations::TooMany;
use crate::engine::{Engine, EngineLimits, Time};
use crate::error::Error;
use crate::ids::ClientId;

/// Which part of a resource is kept for root of this host.
const FOR_LOCAL_ROOT: usize = 32;
/// Which part of a resource must be free: if it isn't, it is short, and nobody has any out of courtesy.
const SHORT: usize = 4;
/// Which part of a lease passes at least from one search for courtesy clients to the next.
const SEARCH: u64 = 64;

/// Which part of a lease a client may take to be confirmed: as long it makes room for nobody who has as many.
const CONFIRMS: u64 = 32;

/// What is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Clients.
    Clients,
    /// Bytes for sessions and the replies they keep.
    Sessions,
    /// States, and the ranges that lock owners hold.
    States,
    /// Open files.
    Descriptors,
}

/// The accounts, and who can be dispensed with.
#[derive(Debug)]
pub(crate) struct Accounts {
    clients: Shares,
    sessions: Shares,
    states: Shares,
    descriptors: Shares,
    /// Unconfirmed clients, the oldest first.
    unconfirmed: HashMap<Peer, BTreeSet<(Time, ClientId)>>,
    /// Those that were out of their lease at the last search, the oldest last.
    courtesy: HashMap<Peer, Vec<(Time, ClientId)>>,
    searched: Option<Time>,
}

/// An account of `limit`, with a reserve for root of this host.
pub(crate) fn account(limit: usize) -> Shares {
    Shares::new(limit).with_reserves(0, limit / FOR_LOCAL_ROOT)
}

impl Accounts {
    pub fn new(limits: &EngineLimits) -> Self {
        Self {
            clients: account(limits.clients),
            sessions: account(usize::try_from(limits.replies).unwrap_or(usize::MAX)),
            states: account(limits.all),
            descriptors: account(limits.descriptors),
            unconfirmed: HashMap::new(),
            courtesy: HashMap::new(),
            searched: None,
        }
    }

    pub const fn of(&self, resource: Resource) -> &Shares {
        match resource {
            Resource::Clients => &self.clients,
            Resource::Sessions => &self.sessions,
            Resource::States => &self.states,
            Resource::Descriptors => &self.descriptors,
        }
    }

    const fn of_mut(&mut self, resource: Resource) -> &mut Shares {
        match resource {
            Resource::Clients => &mut self.clients,
            Resource::Sessions => &mut self.sessions,
            Resource::States => &mut self.states,
            Resource::Descriptors => &mut self.descriptors,
        }
    }

    /// Charges what exists.
    pub fn charge(&mut self, resource: Resource, peer: &Peer, amount: usize) {
        self.of_mut(resource).charge(peer, amount);
    }

    pub fn give_back(&mut self, resource: Resource, peer: &Peer, amount: usize) {
        self.of_mut(resource).give_back(peer, amount);
    }

    pub fn is_short(&self, resource: Resource) -> bool {
        let shares = self.of(resource);
        shares.free(Standing::Admitted) < shares.limit() / SHORT
    }

    /// Whether a peer is so near to its share that it couldn't have half as much again. What is only for
    /// speed then stops, so that there is room for what isn't.
    pub fn is_tight(&self, resource: Resource, peer: &Peer) -> bool {
        let shares = self.of(resource);
        !shares.may_take(peer, Standing::of_admitted(peer), shares.held_by(peer).div_ceil(2))
    }

    /// A client that nobody has confirmed yet.
    pub fn add_unconfirmed(&mut self, peer: Peer, since: Time, client: ClientId) {
        self.unconfirmed.entry(peer).or_default().insert((since, client));
    }

    /// It has been confirmed, or has gone.
    pub fn remove_unconfirmed(&mut self, peer: &Peer, since: Time, client: ClientId) {
        if let Some(of_peer) = self.unconfirmed.get_mut(peer) {
            of_peer.remove(&(since, client));
            if of_peer.is_empty() {
                self.unconfirmed.remove(peer);
            }
        }
    }

    /// The unconfirmed client that makes room for a client of `newcomer`. One that was made at `late` or
    /// before has had the time to be confirmed.
    fn unconfirmed_before(&self, newcomer: &Peer, but: Option<ClientId>, late: Time) -> Option<ClientId> {
        let own = self.clients.held_by(newcomer);
        let gives = |(peer, since): &(&Peer, &BTreeSet<(Time, ClientId)>)| {
            let is_late = since.first().is_some_and(|(since, _)| *since <= late);
            *peer == newcomer || self.clients.held_by(peer) > own + usize::from(!is_late)
        };
        let of_peers = self.unconfirmed.iter().filter(gives);
        let (_, oldest) = of_peers.max_by_key(|(peer, _)| (self.clients.held_by(peer), **peer))?;
        oldest.iter().map(|(_, client)| *client).find(|client| Some(*client) != but)
    }

    /// The courtesy client that makes room for `newcomer`, or for whoever comes next. It isn't known here any
    /// more, and may have come back since the search.
    fn courtesy_before(&mut self, newcomer: Option<&Peer>, resource: Resource) -> Option<ClientId> {
        let shares = self.of(resource);
        let own = newcomer.map_or(0, |newcomer| shares.held_by(newcomer));
        let gives = |peer: &Peer| Some(peer) == newcomer || shares.held_by(peer) >= own;
        let peers = self.courtesy.keys().filter(|peer| gives(peer));
        let greediest = *peers.max_by_key(|peer| (shares.held_by(peer), **peer))?;
        let of_peer = self.courtesy.get_mut(&greediest)?;
        let oldest = of_peer.pop();
        if of_peer.is_empty() {
            self.courtesy.remove(&greediest);
        }
        oldest.map(|(_, client)| client)
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Whether `peer` may have `amount` more; dispensable clients make room, but not `but`.
    pub(crate) fn has_room(
        &mut self,
        now: Time,
        (peer, but): (Peer, Option<ClientId>),
        resource: Resource,
        amount: usize,
    ) -> bool {
        loop {
            if self.accounts.of(resource).may_take(&peer, Standing::of_admitted(&peer), amount) {
                return true;
            }
            if !self.make_room(now, (peer, but), resource) {
                return false;
            }
        }
    }

    /// Whether a client may have one state or range more, and so many open files. See [`Engine::has_room`].
    ///
    /// # Errors
    /// `Delay`, `StaleClientid`.
    pub(crate) fn check_room(
        &mut self,
        now: Time,
        client: ClientId,
        descriptors: usize,
    ) -> Result<(), Error> {
        let peer = self.clients.get(&client).ok_or(Error::StaleClientid)?.name.peer;
        if !self.has_room(now, (peer, Some(client)), Resource::States, 1) {
            return Err(Error::Delay);
        }
        if !self.has_room(now, (peer, Some(client)), Resource::Descriptors, descriptors) {
            // Its delegations may be what takes the room.
            self.ask_back(now, TooMany::Peer(peer));
            return Err(Error::Delay);
        }
        Ok(())
    }

    /// Ends a client that can be dispensed with, and by which `newcomer` has more room. Whether there was
    /// one.
    fn make_room(
        &mut self,
        now: Time,
        (newcomer, but): (Peer, Option<ClientId>),
        resource: Resource,
    ) -> bool {
        let late = Time(now.0.saturating_sub(self.config.lease / CONFIRMS));
        if resource == Resource::Clients
            && let Some(client) = self.accounts.unconfirmed_before(&newcomer, but, late)
        {
            self.end_client(client);
            return true;
        }
        self.search_courtesy(now);
        while let Some(client) = self.accounts.courtesy_before(Some(&newcomer), resource) {
            if Some(client) != but && self.is_spare(now, client, resource) {
                self.end_client(client);
                return true;
            }
        }
        false
    }

    /// Whether a client is out of its lease and holds some of this.
    fn is_spare(&self, now: Time, client: ClientId, resource: Resource) -> bool {
        let Some(client) = self.clients.get(&client) else { return false };
        let holds = match resource {
            Resource::Clients => true,
            Resource::Sessions => !client.sessions.is_empty(),
            Resource::States | Resource::Descriptors => !client.states.is_empty(),
        };
        holds && client.confirmed && client.is_expired(now, self.config.lease)
    }

    /// Looks for clients that are out of their lease, unless it was done just now.
    fn search_courtesy(&mut self, now: Time) {
        let lease = self.config.lease;
        let Accounts { courtesy, searched, .. } = &mut self.accounts;
        if searched.is_some_and(|at| now < at.plus((lease / SEARCH).max(1))) {
            return;
        }
        *searched = Some(now);
        courtesy.clear();
        for client in self.clients.values() {
            if client.confirmed && client.is_expired(now, lease) {
                courtesy.entry(client.name.peer).or_default().push((client.renewed, client.id));
            }
        }
        courtesy.values_mut().for_each(|of_peer| of_peer.sort_unstable_by(|a, b| b.cmp(a)));
    }

    /// To be called every few seconds: where anything runs short nobody keeps it out of courtesy.
    pub(crate) fn end_courtesy_if_short(&mut self, now: Time) {
        for resource in [Resource::Clients, Resource::Sessions, Resource::States, Resource::Descriptors] {
            if !self.accounts.is_short(resource) {
                continue;
            }
            self.search_courtesy(now);
            while self.accounts.is_short(resource)
                && let Some(client) = self.accounts.courtesy_before(None, resource)
            {
                if self.is_spare(now, client, resource) {
                    self.end_client(client);
                }
            }
        }
    }
}
