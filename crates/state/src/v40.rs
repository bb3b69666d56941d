//! Clients of NFSv4.0: SETCLIENTID and its confirmation, leases without sessions (RFC 7530 sections 9.1.1,
//! 16.33, 16.34).

use std::hash::Hash;

use crate::ended::Gone;
use fairness::Peer;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::names::Name;
use crate::owners::Owners;
use crate::principal::{Principal, Requester};

/// What SETCLIENTID says.
#[derive(Debug, Clone, Copy)]
pub struct SetClientId<'a> {
    /// `nfs_client_id4.id`.
    pub owner: &'a [u8],
    /// From where.
    pub peer: Peer,
    /// `nfs_client_id4.verifier`.
    pub verifier: [u8; 8],
    /// Who asks.
    pub principal: &'a Principal,
}

/// What a client of NFSv4.0 has beside what every client has.
#[derive(Debug)]
pub(crate) struct Client40 {
    /// What confirmed it, or will.
    confirm: u64,
    /// Another SETCLIENTID of the same instance that isn't confirmed yet.
    update: Option<u64>,
    pub owners: Owners,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// SETCLIENTID: the client's id, and what SETCLIENTID_CONFIRM must say.
    ///
    /// # Errors
    /// `ClidInuse`, `Delay` when there are too many clients.
    pub fn setclientid(&mut self, now: Time, asked: &SetClientId<'_>) -> Result<(ClientId, u64), Error> {
        let (lease, confirm) = (self.config.lease, (self.random)());
        let name = Name { owner: asked.owner.to_vec(), peer: asked.peer };
        let confirmed = self.known(&name, asked.verifier);
        if let Some(client) = confirmed.and_then(|id| self.clients.get_mut(&id)) {
            let same = client.principal == *asked.principal;
            if !same && !client.states.is_empty() && !client.is_expired(now, lease) {
                return Err(Error::ClidInuse);
            }
            if let Some(v40) = client.v40.as_mut().filter(|_| same && client.verifier == asked.verifier) {
                v40.update = Some(confirm);
                return Ok((client.id, confirm));
            }
        }
        let id = self.add_client(now, name, asked.verifier, asked.principal)?;
        if let Some(client) = self.clients.get_mut(&id) {
            client.v40 = Some(Client40 { confirm, update: None, owners: Owners::default() });
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
        principal: &Principal,
    ) -> Result<(), Error> {
        let client = self.clients.get_mut(&id).ok_or(Error::StaleClientid)?;
        let v40 = client.v40.as_mut().ok_or(Error::StaleClientid)?;
        if v40.update == Some(confirm) {
            v40.confirm = confirm;
        }
        if v40.confirm != confirm {
            return Err(Error::StaleClientid);
        }
        if client.principal != *principal {
            return Err(Error::ClidInuse);
        }
        v40.update = None;
        client.renewed = now;
        if !client.confirmed {
            self.confirm(now, id);
        }
        Ok(())
    }

    /// RENEW: by the client's own principal, or one that has a file open.
    ///
    /// # Errors
    /// `Access` for another principal, and as [`Engine::renew40`].
    pub fn renew_by(&mut self, now: Time, by: &Requester) -> Result<(), Error> {
        if let Some(client) = self.clients.get(&by.client).filter(|client| client.principal != by.principal) {
            let made =
                |number: &u64| self.states.get(number).is_some_and(|state| state.makers.has(&by.principal));
            if !client.states.iter().any(made) {
                return Err(Error::Access);
            }
        }
        self.renew40(now, by.client)
    }

    /// What every operation that names a client does: renews its lease.
    ///
    /// # Errors
    /// `StaleClientid`, `Expired` for a client that had state and lost it.
    pub fn renew40(&mut self, now: Time, id: ClientId) -> Result<(), Error> {
        if !self.clients.contains_key(&id) && self.ended.contains(Gone::Client(id.0)) {
            return Err(Error::Expired);
        }
        self.client40(id)?;
        self.renew(now, id);
        Ok(())
    }

    pub(crate) fn client40(&mut self, id: ClientId) -> Result<&mut Client40, Error> {
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
            if let Some(client) = self.ended.whose(Gone::State(number)) {
                self.knows_of_revoked(client, number);
            }
            return Err(if self.ended.contains(Gone::State(number)) {
                Error::Expired
            } else {
                Error::BadStateid
            });
        };
        let client = state.client;
        self.renew40(now, client).map_err(|_| Error::BadStateid)?;
        Ok(client)
    }
}
