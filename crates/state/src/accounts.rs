//! What each peer makes the engine hold, and the clients that make room when that runs short.
//!
//! Resources are shared by [`Peer`], by the rule of [`Shares`]: no peer takes so much that the next one gets
//! nothing. When a peer can't have more, dispensable clients end to make room: first unconfirmed clients,
//! then courtesy clients (their lease has expired), each time of the peer that holds the most, and of its
//! clients the one that has been silent for the longest time. A peer makes room for a peer that holds less,
//! and for itself.

use std::collections::BTreeSet;
use std::hash::Hash;

use ahash::HashMap;
use fairness::{Peer, Shares, Standing};

use crate::delegations::TooMany;
use crate::engine::{Engine, EngineLimits, Time};
use crate::error::Error;
use crate::ids::ClientId;

/// The fraction of a resource that is reserved for root of this host.
const LOCAL_ROOT_FRACTION: usize = 32;
/// A resource is short when less than this fraction is free: then courtesy clients that hold some are ended.
const SHORT_FRACTION: usize = 4;
/// The fraction of a lease between two searches for courtesy clients.
const SEARCH_FRACTION: u64 = 64;
/// The fraction of a lease in which a client should be confirmed. Until then it makes no room for a peer with
/// as many clients.
const CONFIRM_FRACTION: u64 = 32;

/// A shared resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Clients.
    Clients,
    /// Bytes of sessions and their reply caches.
    Sessions,
    /// States, and the ranges of lock owners.
    States,
    /// Descriptors of open files.
    Descriptors,
}

/// The accounts of all peers, and the dispensable clients.
#[derive(Debug)]
pub(crate) struct Accounts {
    clients: Shares,
    sessions: Shares,
    states: Shares,
    descriptors: Shares,
    /// Unconfirmed clients, the oldest first.
    unconfirmed: HashMap<Peer, BTreeSet<(Time, ClientId)>>,
    /// The courtesy clients of the last search, the oldest last.
    courtesy: HashMap<Peer, Vec<(Time, ClientId)>>,
    /// The last search.
    searched: Option<Time>,
}

/// An account of `limit`, with a reserve for root of this host.
pub(crate) fn account(limit: usize) -> Shares {
    Shares::new(limit).with_reserves(0, limit / LOCAL_ROOT_FRACTION)
}

impl Accounts {
    pub fn new(limits: &EngineLimits) -> Self {
        Self {
            clients: account(limits.clients),
            sessions: account(usize::try_from(limits.replies).unwrap_or(usize::MAX)),
            states: account(limits.all),
            descriptors: account(limits.descriptors),
            unconfirmed: HashMap::default(),
            courtesy: HashMap::default(),
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

    /// Charges a peer, whatever it holds already.
    pub fn charge(&mut self, resource: Resource, peer: &Peer, amount: usize) {
        self.of_mut(resource).charge(peer, amount);
    }

    pub fn give_back(&mut self, resource: Resource, peer: &Peer, amount: usize) {
        self.of_mut(resource).give_back(peer, amount);
    }

    pub fn is_short(&self, resource: Resource) -> bool {
        let shares = self.of(resource);
        shares.free(Standing::Admitted) < shares.limit() / SHORT_FRACTION
    }

    /// Whether a peer couldn't have half as much again as it has. Then it gets no delegations, so that there
    /// is room for opens.
    pub fn is_tight(&self, resource: Resource, peer: &Peer) -> bool {
        let shares = self.of(resource);
        !shares.may_take(peer, Standing::of_admitted(peer), shares.held_by(peer).div_ceil(2))
    }

    /// Adds an unconfirmed client, made at `since`.
    pub fn add_unconfirmed(&mut self, peer: Peer, since: Time, client: ClientId) {
        self.unconfirmed.entry(peer).or_default().insert((since, client));
    }

    /// The client was confirmed, or has ended.
    pub fn remove_unconfirmed(&mut self, peer: &Peer, since: Time, client: ClientId) {
        if let Some(of_peer) = self.unconfirmed.get_mut(peer) {
            of_peer.remove(&(since, client));
            if of_peer.is_empty() {
                self.unconfirmed.remove(peer);
            }
        }
    }

    /// The unconfirmed client, other than `but`, that makes room for a client of `newcomer`. A client that
    /// was made at `late` or before has had the time to be confirmed.
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

    /// Takes out the courtesy client that makes room for `newcomer`, or for any peer. It may have renewed its
    /// lease since the search.
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
    /// Whether `peer` may have `amount` more. Dispensable clients other than `but` make room.
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

    /// Checks that a client may have one more state or range, and so many `descriptors`: see
    /// [`Engine::has_room`].
    ///
    /// # Errors
    /// `Delay`, `StaleClientid`.
    pub(crate) fn check_room(
        &mut self,
        now: Time,
        client: ClientId,
        descriptors: usize,
    ) -> Result<(), Error> {
        let peer = self.clients.get(client).ok_or(Error::StaleClientid)?.peer();
        if !self.has_room(now, (peer, Some(client)), Resource::States, 1) {
            return Err(Error::Delay);
        }
        if !self.has_room(now, (peer, Some(client)), Resource::Descriptors, descriptors) {
            // Its delegations may take the room.
            self.recall_any(now, TooMany::Peer(peer));
            return Err(Error::Delay);
        }
        Ok(())
    }

    /// Ends a dispensable client to make room for `newcomer`. Returns whether there was one.
    fn make_room(
        &mut self,
        now: Time,
        (newcomer, but): (Peer, Option<ClientId>),
        resource: Resource,
    ) -> bool {
        let late = Time(now.0.saturating_sub(self.config.lease / CONFIRM_FRACTION));
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

    /// Whether a client is a courtesy client and holds some of a resource.
    fn is_spare(&self, now: Time, client: ClientId, resource: Resource) -> bool {
        let Some(client) = self.clients.get(client) else { return false };
        let holds = match resource {
            Resource::Clients => true,
            Resource::Sessions => !client.sessions.is_empty(),
            Resource::States | Resource::Descriptors => !client.states.is_empty(),
        };
        holds && client.is_confirmed() && client.is_expired(now, self.config.lease)
    }

    /// Searches for courtesy clients, unless that was done just now.
    fn search_courtesy(&mut self, now: Time) {
        let lease = self.config.lease;
        let Accounts { courtesy, searched, .. } = &mut self.accounts;
        if searched.is_some_and(|at| now < at.plus((lease / SEARCH_FRACTION).max(1))) {
            return;
        }
        *searched = Some(now);
        courtesy.clear();
        for client in self.clients.iter() {
            if client.is_confirmed() && client.is_expired(now, lease) {
                courtesy.entry(client.peer()).or_default().push((client.renewed, client.id()));
            }
        }
        courtesy.values_mut().for_each(|of_peer| of_peer.sort_unstable_by(|a, b| b.cmp(a)));
    }

    /// Ends the courtesy clients that hold a resource which is short.
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
