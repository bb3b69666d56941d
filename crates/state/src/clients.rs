//! Clients: EXCHANGE_ID, DESTROY_CLIENTID, leases, and the end of a client (RFC 8881 sections 8.3, 18.35 and
//! 18.50).

use std::hash::Hash;

use fairness::Peer;

use crate::accounts::Resource;
use crate::client_table::{ClientIdentity, ClientName};
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::ClientId;
use crate::principal::{Principal, Requester};

/// The arguments of EXCHANGE_ID.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeId<'a> {
    /// `co_ownerid`.
    pub owner: &'a [u8],
    /// The peer that the request comes from.
    pub peer: Peer,
    /// `co_verifier`.
    pub verifier: [u8; 8],
    /// The request's principal.
    pub principal: &'a Principal,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub update: bool,
}

/// The result of EXCHANGE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangedId {
    /// `eir_clientid`.
    pub client: ClientId,
    /// `eir_sequenceid`: the sequence id of the next CREATE_SESSION.
    pub sequence: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub confirmed: bool,
}

/// What SEQUENCE reports to a client whose lease it renews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Renewed {
    /// The client may have something to reclaim, and hasn't sent RECLAIM_COMPLETE.
    pub reclaim_needed: bool,
    /// Delegations were revoked, and the client hasn't freed them.
    pub revoked: bool,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// EXCHANGE_ID. The cases are numbered as in RFC 8881 section 18.35.4.
    ///
    /// # Errors
    /// `ClidInuse`, `Noent`, `NotSame`, `Perm`, `Delay` when there are too many clients.
    pub fn exchange_id(&mut self, now: Time, args: &ExchangeId<'_>) -> Result<ExchangedId, Error> {
        let lease = self.config.lease;
        let name = ClientName { owner: args.owner.to_vec(), peer: args.peer };
        let confirmed = self.clients.find(&name, args.verifier);
        let confirmed =
            confirmed.and_then(|id| self.clients.get_mut(id)).filter(|client| client.v40.is_none());
        if args.update {
            // Cases 6 to 9.
            let client = confirmed.ok_or(Error::Noent)?;
            if client.identity().verifier != args.verifier {
                return Err(Error::NotSame);
            }
            if client.principal() != args.principal {
                return Err(Error::Perm);
            }
            client.renewed = now;
            let (client, sequence) = (client.id(), client.create_session.next());
            return Ok(ExchangedId { client, sequence, confirmed: true });
        }
        if let Some(client) = confirmed {
            let is_idle = client.states.is_empty() || client.is_expired(now, lease);
            if client.principal() != args.principal {
                // Case 3: a collision of names.
                if !is_idle {
                    return Err(Error::ClidInuse);
                }
                let old = client.id();
                self.end_client(old);
            } else if client.identity().verifier == args.verifier {
                // Case 2: a repeated request.
                client.renewed = now;
                let (client, sequence) = (client.id(), client.create_session.next());
                return Ok(ExchangedId { client, sequence, confirmed: true });
            }
            // Else case 5: the client has restarted. The old instance keeps its state until the new one is
            // confirmed.
        }
        // Cases 1, 4 and 5: a new client.
        let client = self.add_client(now, name, args.verifier, args.principal)?;
        let sequence = self.clients.get(client).map_or(1, |client| client.create_session.next());
        Ok(ExchangedId { client, sequence, confirmed: false })
    }

    /// Adds an unconfirmed client, and ends the unconfirmed client of the same name.
    pub(crate) fn add_client(
        &mut self,
        now: Time,
        name: ClientName,
        verifier: [u8; 8],
        principal: &Principal,
    ) -> Result<ClientId, Error> {
        if let Some(old) = self.clients.unconfirmed(&name) {
            self.end_client(old);
        }
        let peer = name.peer;
        if !self.has_room(now, (peer, None), Resource::Clients, 1) {
            return Err(Error::Delay);
        }
        let id = self.new_client_id();
        self.accounts.charge(Resource::Clients, &peer, 1);
        self.accounts.add_unconfirmed(peer, now, id);
        self.clients.insert(ClientIdentity {
            id,
            name,
            verifier,
            principal: principal.clone(),
            created: now,
        });
        Ok(id)
    }

    /// Confirms a client, and ends the clients that it replaces, and those of the last run that it would have
    /// replaced.
    pub(crate) fn confirm_client(&mut self, now: Time, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        self.accounts.remove_unconfirmed(&client.peer(), client.identity().created, id);
        self.recovery.extend_grace(now, client.instance());
        let former = client.holder().map(|holder| self.recovery.former_instances(client.instance(), &holder));
        for replaced in self.clients.confirm(id) {
            self.end_client(replaced);
        }
        for instance in former.unwrap_or_default() {
            // One that is back, at another peer, isn't the former instance of this client.
            if self.clients.of_instance(&instance).is_none() {
                self.recovery.end_reclaim(&instance);
                self.forget_client(&instance);
            }
        }
    }

    /// Ends a client and all of its state.
    pub(crate) fn end_client(&mut self, id: ClientId) {
        let Some(removed) = self.clients.remove(id) else { return };
        let client = removed.client;
        self.effects.ended.push(id);
        self.denied_opens.end_client(id);
        self.accounts.remove_unconfirmed(&client.peer(), client.identity().created, id);
        self.accounts.give_back(Resource::Clients, &client.peer(), 1);
        for session in &client.sessions {
            self.remove_session(*session);
        }
        if client.v40.is_some() && client.is_confirmed() {
            self.expired_ids.add_client(id);
            client.states.iter().for_each(|number| self.expired_ids.add_state(number, None));
        }
        for closed in client.v40.iter().flat_map(|v40| v40.owners.closed()) {
            self.expired_ids.remove_closed(closed);
        }
        for number in client.states.iter() {
            self.remove_state(number);
        }
        if removed.was_its_instance {
            self.recovery.end_reclaim(client.instance());
            self.forget_client(client.instance());
        }
    }

    /// DESTROY_CLIENTID.
    ///
    /// # Errors
    /// `StaleClientid`, `WrongCred`, `ClientidBusy`.
    pub fn destroy_clientid(&mut self, by: &Requester) -> Result<(), Error> {
        self.check_client_principal(by)?;
        let client = self.clients.get(by.client).ok_or(Error::StaleClientid)?;
        if !client.sessions.is_empty() || !client.states.is_empty() {
            return Err(Error::ClientidBusy);
        }
        self.end_client(by.client);
        Ok(())
    }

    /// Renews a client's lease.
    pub(crate) fn renew_lease(&mut self, now: Time, client: ClientId) -> Renewed {
        let Some(client) = self.clients.get_mut(client) else { return Renewed::default() };
        client.renewed = client.renewed.max(now);
        Renewed {
            reclaim_needed: !client.reclaim_complete && self.recovery.may_reclaim(now, client.instance()),
            revoked: !client.revoked.is_empty(),
        }
    }

    /// Whether a client is a courtesy client: its lease has expired, and its state gives way to other
    /// clients.
    pub(crate) fn is_courtesy(&self, now: Time, client: ClientId) -> bool {
        self.clients.get(client).is_none_or(|client| client.is_expired(now, self.config.lease))
    }

    /// Ends the clients if all of them are courtesy clients. Returns whether they are.
    pub(crate) fn end_courtesy_clients(&mut self, now: Time, clients: &[ClientId]) -> bool {
        let all_are = clients.iter().all(|client| self.is_courtesy(now, *client));
        if all_are {
            clients.iter().for_each(|client| self.end_client(*client));
        }
        all_are
    }

    /// Ends the clients whose time is up: unconfirmed clients and clients without state after a lease, others
    /// when they have been courtesy clients for [`crate::EngineConfig::courtesy`].
    pub(crate) fn end_idle_clients(&mut self, now: Time) {
        let (lease, courtesy) = (self.config.lease, self.config.courtesy);
        let is_over = |client: &&crate::client_table::Client| {
            let is_idle = !client.is_confirmed() || client.states.is_empty();
            client.is_expired(now, if is_idle { lease } else { lease.saturating_add(courtesy) })
        };
        let over: Vec<ClientId> = self.clients.iter().filter(is_over).map(|client| client.id()).collect();
        over.into_iter().for_each(|client| self.end_client(client));
    }
}
