//! One client: who it is, until when, and how it ends.

use std::collections::HashSet;
use std::hash::Hash;

use crate::accounts::Resource;
use crate::ended::Gone;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::names::{Name, instance};
use crate::principal::{Principal, Requester};
use crate::session::Creation;
use crate::v40::Client40;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub id: ClientId,
    /// What it calls itself, and where it was when it was made.
    pub name: Name,
    /// Another when it has restarted.
    pub verifier: [u8; 8],
    /// Its name and verifier: see [`crate::instance`].
    pub instance: Vec<u8>,
    /// Whose requests are its own.
    pub principal: Principal,
    pub confirmed: bool,
    /// When it was made.
    pub since: Time,
    /// When it was heard of last.
    pub renewed: Time,
    pub sessions: Vec<SessionId>,
    /// The one-slot reply cache of CREATE_SESSION.
    pub creation: Creation,
    /// When it was first seen without state since it last had some.
    pub idle_since: Option<Time>,
    /// It has said that it has reclaimed everything.
    pub reclaim_complete: bool,
    /// What it has of NFSv4.0, if it is a client of that.
    pub v40: Option<Client40>,
    /// Its opens, locks and delegations.
    pub states: HashSet<u64>,
    /// How many of them are delegations.
    pub delegations: usize,
    /// When it was last asked to give some of those back.
    pub asked_back: Option<Time>,
    /// Delegations that were taken away from it, until it knows: it has said so (4.1), or was told (4.0). As
    /// long it isn't on stable storage, for it would reclaim them (RFC 8881 section 8.4.3).
    pub revoked: HashSet<u64>,
}

impl Client {
    /// Whether its lease has run out.
    pub fn is_expired(&self, now: Time, lease: u64) -> bool {
        now > self.renewed.plus(lease)
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// A client that may have state.
    pub(crate) fn client(&mut self, id: ClientId) -> Result<&mut Client, Error> {
        self.clients.get_mut(&id).filter(|client| client.confirmed).ok_or(Error::StaleClientid)
    }

    /// A new unconfirmed client; the one of that name that was unconfirmed before goes.
    pub(crate) fn add_client(
        &mut self,
        now: Time,
        name: Name,
        verifier: [u8; 8],
        principal: &Principal,
    ) -> Result<ClientId, Error> {
        if let Some(old) = self.named.get(&name).and_then(|named| named.unconfirmed) {
            self.end_client(old);
        }
        let peer = name.peer;
        if !self.has_room(now, (peer, None), Resource::Clients, 1) {
            return Err(Error::Delay);
        }
        self.accounts.charge(Resource::Clients, &peer, 1);
        let id = self.new_client_id();
        self.named.entry(name.clone()).or_default().unconfirmed = Some(id);
        self.accounts.add_unconfirmed(peer, now, id);
        self.clients.insert(
            id,
            Client {
                id,
                instance: instance(&name.owner, verifier),
                name,
                verifier,
                principal: principal.clone(),
                confirmed: false,
                since: now,
                renewed: now,
                sessions: Vec::new(),
                creation: Creation::default(),
                idle_since: None,
                reclaim_complete: false,
                v40: None,
                states: HashSet::new(),
                delegations: 0,
                asked_back: None,
                revoked: HashSet::new(),
            },
        );
        Ok(id)
    }

    /// An unconfirmed client becomes the client of its name; the instance before it ends.
    pub(crate) fn confirm(&mut self, now: Time, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.confirmed = true;
        self.accounts.remove_unconfirmed(&client.name.peer, client.since, id);
        self.grace.heard(now, &client.instance);
        let named = self.named.entry(client.name.clone()).or_default();
        named.unconfirmed = named.unconfirmed.filter(|other| *other != id);
        let before = [named.confirmed.replace(id), self.instances.insert(client.instance.clone(), id)];
        before.into_iter().flatten().filter(|old| *old != id).for_each(|old| self.end_client(old));
    }

    /// Ends a client and all of its state.
    pub(crate) fn end_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.effects.ended.push(id);
        self.accounts.remove_unconfirmed(&client.name.peer, client.since, id);
        self.accounts.give_back(Resource::Clients, &client.name.peer, 1);
        for session in &client.sessions {
            self.remove_session(*session);
        }
        if client.v40.is_some() && client.confirmed {
            self.ended.add(Gone::Client(id.0), None);
            client.states.iter().for_each(|state| self.ended.add(Gone::State(*state), None));
        }
        for closed in client.v40.iter().flat_map(|v40| v40.owners.closed()) {
            self.closed.remove(&closed);
        }
        for state in client.states {
            self.drop_state(state);
        }
        if let Some(named) = self.named.get_mut(&client.name) {
            named.confirmed = named.confirmed.filter(|other| *other != id);
            named.unconfirmed = named.unconfirmed.filter(|other| *other != id);
            if named.confirmed.is_none() && named.unconfirmed.is_none() {
                self.named.remove(&client.name);
            }
        }
        if self.instances.get(&client.instance) == Some(&id) {
            self.instances.remove(&client.instance);
            self.grace.complete(&client.instance);
            self.forget(&client.instance);
        }
    }

    /// DESTROY_CLIENTID (RFC 8881 section 18.50).
    ///
    /// # Errors
    /// `StaleClientid`, `WrongCred`, `ClientidBusy`.
    pub fn destroy_clientid(&mut self, by: &Requester) -> Result<(), Error> {
        self.check_own(by)?;
        let client = self.clients.get(&by.client).ok_or(Error::StaleClientid)?;
        if !client.sessions.is_empty() || !client.states.is_empty() {
            return Err(Error::ClientidBusy);
        }
        self.end_client(by.client);
        Ok(())
    }
}
