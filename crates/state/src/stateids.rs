//! State ids as clients give them back: which state is meant, and whether it is still as the client knows it
//! (RFC 8881 section 8.2).

use std::hash::Hash;

use crate::engine::Engine;
use crate::error::Error;
use crate::files::Kind;
use crate::ids::{ClientId, StateId};
use crate::principal::Requester;

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The state that `client` means.
    pub(crate) fn resolve(&self, client: ClientId, id: &StateId) -> Result<u64, Error> {
        if id.is_reserved() || id.boot() != self.config.boot {
            return Err(Error::BadStateid);
        }
        let number = id.number();
        let Some(state) = self.states.get(&number) else {
            let client = self.clients.get(&client).filter(|client| client.revoked.contains(&number));
            return Err(match client {
                Some(client) if client.v40.is_some() => Error::Expired,
                Some(_) => Error::DelegRevoked,
                None => Error::BadStateid,
            });
        };
        if state.client != client {
            return Err(Error::BadStateid);
        }
        match id.seqid {
            0 => Ok(number),
            seqid if seqid == state.seqid => Ok(number),
            // Wrapping: what is less than half the way round behind is older.
            seqid if state.seqid.wrapping_sub(seqid) < 1 << 31 => Err(Error::OldStateid),
            _ => Err(Error::BadStateid),
        }
    }

    /// As `resolve`, for an operation on `key`.
    pub(crate) fn resolve_on(&self, client: ClientId, id: &StateId, key: &K) -> Result<u64, Error> {
        let number = self.resolve(client, id)?;
        if self.states[&number].key == *key { Ok(number) } else { Err(Error::BadStateid) }
    }

    /// TEST_STATEID (RFC 8881 section 18.48), one of them.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn test_stateid(&self, client: ClientId, id: &StateId) -> Result<(), Error> {
        self.resolve(client, id).map(drop)
    }

    /// FREE_STATEID (RFC 8881 section 18.38).
    ///
    /// # Errors
    /// `LocksHeld` for what is in use, and what is wrong with the state id.
    pub fn free_stateid(&mut self, by: &Requester, id: &StateId) -> Result<(), Error> {
        let number = match self.resolve(by.client, id) {
            Err(Error::DelegRevoked) => {
                self.knows_of_revoked(by.client, id.number());
                return Ok(());
            }
            other => other?,
        };
        self.check_maker(number, by)?;
        let free = match &self.states[&number].kind {
            Kind::Open { .. } | Kind::Delegation { .. } => false,
            Kind::Lock { ranges, .. } => ranges.is_empty(),
        };
        if !free {
            return Err(Error::LocksHeld);
        }
        self.drop_state(number);
        Ok(())
    }

    /// A client knows that a delegation was taken away from it.
    pub(crate) fn knows_of_revoked(&mut self, client: ClientId, number: u64) {
        let known = self.clients.get_mut(&client).is_some_and(|client| client.revoked.remove(&number));
        if known {
            self.remember(client);
        }
    }
}
