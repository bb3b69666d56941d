//! EXCHANGE_ID's cases (RFC 8881 section 18.35.4).

use std::hash::Hash;

use fairness::Peer;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::ClientId;
use crate::names::Name;
use crate::principal::Principal;

/// What EXCHANGE_ID says.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeId<'a> {
    /// `co_ownerid`.
    pub owner: &'a [u8],
    /// From where.
    pub peer: Peer,
    /// `co_verifier`.
    pub verifier: [u8; 8],
    /// Who asks.
    pub principal: &'a Principal,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub update: bool,
}

/// What EXCHANGE_ID answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangedId {
    /// `eir_clientid`.
    pub client: ClientId,
    /// `eir_sequenceid`: what CREATE_SESSION must begin with.
    pub sequence: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub confirmed: bool,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// EXCHANGE_ID. The cases are numbered as in the RFC.
    ///
    /// # Errors
    /// `ClidInuse`, `Noent`, `NotSame`, `Perm`, `Delay` when there are too many clients.
    pub fn exchange_id(&mut self, now: Time, asked: &ExchangeId<'_>) -> Result<ExchangedId, Error> {
        let lease = self.config.lease;
        let name = Name { owner: asked.owner.to_vec(), peer: asked.peer };
        let confirmed = self.known(&name, asked.verifier);
        let confirmed =
            confirmed.and_then(|id| self.clients.get_mut(&id)).filter(|client| client.v40.is_none());
        if asked.update {
            // Cases 6 to 9.
            let client = confirmed.ok_or(Error::Noent)?;
            if client.verifier != asked.verifier {
                return Err(Error::NotSame);
            }
            if client.principal != *asked.principal {
                return Err(Error::Perm);
            }
            client.renewed = now;
            return Ok(ExchangedId { client: client.id, sequence: client.creation.next(), confirmed: true });
        }
        if let Some(client) = confirmed {
            let idle = client.states.is_empty() || client.is_expired(now, lease);
            if client.principal != *asked.principal {
                // Case 3: a collision of names.
                if !idle {
                    return Err(Error::ClidInuse);
                }
                let old = client.id;
                self.end_client(old);
            } else if client.verifier == asked.verifier {
                // Case 2: asked again.
                client.renewed = now;
                return Ok(ExchangedId {
                    client: client.id,
                    sequence: client.creation.next(),
                    confirmed: true,
                });
            }
            // Else case 5: the client has restarted; what the old instance has stays until the new one is
            // confirmed.
        }
        // Cases 1, 4 and 5: a new one.
        let client = self.add_client(now, name, asked.verifier, asked.principal)?;
        Ok(ExchangedId { client, sequence: self.clients[&client].creation.next(), confirmed: false })
    }
}
