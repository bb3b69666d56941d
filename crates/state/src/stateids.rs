//! State ids as clients present them: the state that one names, whether it is current, and whether it allows
//! an I/O operation (RFC 8881 sections 8.2 and 9.1.2).

use std::hash::Hash;

use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, StateId};
use crate::principal::Requester;

/// The direction of an I/O operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// From the client.
    Write,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The number of the state that `client` names.
    pub(crate) fn resolve(&self, client: ClientId, id: &StateId) -> Result<u64, Error> {
        if id.is_reserved() || id.boot() != self.config.boot {
            return Err(Error::BadStateid);
        }
        let number = id.number();
        let Some(header) = self.header(number) else {
            let client = self.clients.get(client).filter(|client| client.revoked.contains(&number));
            return Err(match client {
                Some(client) if client.v40.is_some() => Error::Expired,
                Some(_) => Error::DelegRevoked,
                None => Error::BadStateid,
            });
        };
        if header.client() != client {
            return Err(Error::BadStateid);
        }
        match id.seqid {
            0 => Ok(number),
            seqid if seqid == header.seqid() => Ok(number),
            // The seqid wraps: less than half of all numbers behind is older.
            seqid if header.seqid().wrapping_sub(seqid) < 1 << 31 => Err(Error::OldStateid),
            _ => Err(Error::BadStateid),
        }
    }

    /// As [`Engine::resolve`], for an operation on `key`.
    pub(crate) fn resolve_on(&self, client: ClientId, id: &StateId, key: &K) -> Result<u64, Error> {
        let number = self.resolve(client, id)?;
        let is_on = self.header(number).is_some_and(|header| header.key() == key);
        if is_on { Ok(number) } else { Err(Error::BadStateid) }
    }

    /// TEST_STATEID, of one state id (RFC 8881 section 18.48).
    ///
    /// # Errors
    /// What is wrong with the state id.
    pub fn test_stateid(&self, client: ClientId, id: &StateId) -> Result<(), Error> {
        self.resolve(client, id).map(drop)
    }

    /// FREE_STATEID (RFC 8881 section 18.38).
    ///
    /// # Errors
    /// `LocksHeld` for a state in use, and what is wrong with the state id.
    pub fn free_stateid(&mut self, by: &Requester, id: &StateId) -> Result<(), Error> {
        let number = match self.resolve(by.client, id) {
            Err(Error::DelegRevoked) => {
                self.free_revoked(by.client, id.number());
                return Ok(());
            }
            other => other?,
        };
        self.check_principal(number, by)?;
        if !self.locks.get(number).is_some_and(|lock| lock.ranges().is_empty()) {
            return Err(Error::LocksHeld);
        }
        self.remove_state(number);
        Ok(())
    }

    /// The client knows that a delegation was revoked.
    pub(crate) fn free_revoked(&mut self, client: ClientId, number: u64) {
        if self.clients.get_mut(client).is_some_and(|client| client.revoked.remove(&number)) {
            self.record_client(client);
        }
    }

    /// Checks the state id of a READ, a WRITE or a SETATTR of the size. Without a `client` (NFSv3, or an
    /// NFSv4 request before the client has identified itself) only the special state ids are valid.
    ///
    /// # Errors
    /// `Openmode`, `Locked` for what another open's share reservation denies, `Grace`, `Delay` while a
    /// delegation is being recalled, and what is wrong with the state id.
    pub fn check_io(
        &mut self,
        now: Time,
        client: Option<ClientId>,
        id: &StateId,
        key: &K,
        direction: Direction,
    ) -> Result<(), Error> {
        let is_bypass = *id == StateId::READ_BYPASS;
        if *id == StateId::ANONYMOUS || is_bypass {
            if self.in_grace(now) {
                return Err(Error::Grace);
            }
            return match direction {
                Direction::Read if is_bypass => self.check_conflicts(now, client, key, AccessKind::Read),
                Direction::Read => self.check_conflicts_without_open(now, client, key, AccessKind::Read),
                Direction::Write => self.check_conflicts_without_open(now, client, key, AccessKind::Write),
            };
        }
        let number = self.resolve_on(client.ok_or(Error::BadStateid)?, id, key)?;
        let may_write = match self.delegations.get(number) {
            Some(delegation) => delegation.grantee().writes,
            None => {
                let open = self.locks.get(number).map_or(number, |lock| lock.open());
                self.opens.get(open).ok_or(Error::BadStateid)?.share().access & 2 != 0
            }
        };
        // An open for writing only may read, too: a client must, to fill its pages.
        if direction == Direction::Write && !may_write { Err(Error::Openmode) } else { Ok(()) }
    }
}
