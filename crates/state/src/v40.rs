//! Clients of NFSv4.0: SETCLIENTID and its confirmation, and leases without sessions (RFC 7530 sections
//! 9.1.1, 16.33 and 16.34).

use std::hash::Hash;

use fairness::Peer;

use crate::client_table::ClientName;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::principal::{Principal, Requester};
use crate::v40_owners::StateOwners;

/// The arguments of SETCLIENTID.
#[derive(Debug, Clone, Copy)]
pub struct SetClientId<'a> {
    /// `nfs_client_id4.id`.
    pub owner: &'a [u8],
    /// The peer that the request comes from.
    pub peer: Peer,
    /// `nfs_client_id4.verifier`.
    pub verifier: [u8; 8],
    /// The request's principal.
    pub principal: &'a Principal,
}

/// What only clients of NFSv4.0 have.
#[derive(Debug)]
pub(crate) struct V40Client {
    /// The verifier of the last confirmation, or the first one that is expected.
    confirm: u64,
    /// The verifier of a later SETCLIENTID of the same instance that isn't confirmed yet.
    update: Option<u64>,
    pub owners: StateOwners,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// SETCLIENTID: the client's id, and the verifier for SETCLIENTID_CONFIRM.
    ///
    /// # Errors
    /// `ClidInuse`, `Delay` when there are too many clients.
    pub fn setclientid(&mut self, now: Time, args: &SetClientId<'_>) -> Result<(ClientId, u64), Error> {
        let (lease, confirm) = (self.config.lease, (self.random)());
        let name = ClientName { owner: args.owner.to_vec(), peer: args.peer };
        let confirmed = self.clients.find(&name, args.verifier);
        if let Some(client) = confirmed.and_then(|id| self.clients.get_mut(id)) {
            let is_same = client.principal() == args.principal;
            if !is_same && !client.states.is_empty() && !client.is_expired(now, lease) {
                return Err(Error::ClidInuse);
            }
            let (id, verifier) = (client.id(), client.identity().verifier);
            if let Some(v40) = client.v40.as_mut().filter(|_| is_same && verifier == args.verifier) {
                v40.update = Some(confirm);
                return Ok((id, confirm));
            }
        }
        let id = self.add_client(now, name, args.verifier, args.principal)?;
        if let Some(client) = self.clients.get_mut(id) {
            client.v40 = Some(V40Client { confirm, update: None, owners: StateOwners::default() });
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
        let client = self.clients.get_mut(id).ok_or(Error::StaleClientid)?;
        let is_same = client.principal() == principal;
        let v40 = client.v40.as_mut().ok_or(Error::StaleClientid)?;
        if v40.update == Some(confirm) {
            v40.confirm = confirm;
        }
        if v40.confirm != confirm {
            return Err(Error::StaleClientid);
        }
        if !is_same {
            return Err(Error::ClidInuse);
        }
        v40.update = None;
        client.renewed = now;
        if !client.is_confirmed() {
            self.confirm_client(now, id);
        }
        Ok(())
    }

    /// RENEW: by the client's own principal, or one that has a file open.
    ///
    /// # Errors
    /// `Access` for another principal, and those of [`Engine::renew40`].
    pub fn renew_by(&mut self, now: Time, by: &Requester) -> Result<(), Error> {
        if let Some(client) = self.clients.get(by.client).filter(|client| *client.principal() != by.principal)
        {
            let is_holder = |number: u64| {
                self.header(number).is_some_and(|header| header.principals().contains(&by.principal))
            };
            if !client.states.iter().any(is_holder) {
                return Err(Error::Access);
            }
        }
        self.renew40(now, by.client)
    }

    /// Renews the lease of the client that an operation names.
    ///
    /// # Errors
    /// `StaleClientid`, `Expired` for a client that had state and lost it.
    pub fn renew40(&mut self, now: Time, id: ClientId) -> Result<(), Error> {
        if self.clients.get(id).is_none() && self.expired_ids.has_client(id) {
            return Err(Error::Expired);
        }
        self.v40_client(id)?;
        self.renew_lease(now, id);
        Ok(())
    }

    pub(crate) fn v40_client(&mut self, id: ClientId) -> Result<&mut V40Client, Error> {
        self.clients.confirmed_mut(id)?.v40.as_mut().ok_or(Error::StaleClientid)
    }

    /// The client that holds a state: in 4.0 only the state id says which client sends a request. Renews the
    /// lease.
    ///
    /// # Errors
    /// `StaleStateid`, `BadStateid`, `Expired` for a state that the client has lost.
    pub fn client_of(&mut self, now: Time, id: &StateId) -> Result<ClientId, Error> {
        if id.is_reserved() {
            return Err(Error::BadStateid);
        }
        if id.boot() != self.config.boot {
            return Err(Error::StaleStateid);
        }
        let number = id.number();
        let Some(header) = self.header(number) else {
            if let Some(holder) = self.expired_ids.holder_of(number) {
                self.free_revoked(holder, number);
            }
            let is_expired = self.expired_ids.has_state(number);
            return Err(if is_expired { Error::Expired } else { Error::BadStateid });
        };
        let client = header.client();
        self.renew40(now, client).map_err(|_| Error::BadStateid)?;
        Ok(client)
    }
}
