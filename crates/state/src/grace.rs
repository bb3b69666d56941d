//! The grace period after a restart (RFC 8881 section 8.4.2): clients of the last run may reclaim what they had, and until they have
//! nobody gets anything new. It ends when all have said that they are done, or when its time is up.

use std::collections::HashSet;
use std::hash::Hash;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::ClientId;

/// The grace period.
#[derive(Debug)]
pub(crate) struct Grace {
    /// Clients that may still reclaim.
    waiting: HashSet<Vec<u8>>,
    ends: Time,
}

impl Grace {
    pub fn new(recovered: impl IntoIterator<Item = Vec<u8>>, ends: Time) -> Self {
        Self { waiting: recovered.into_iter().collect(), ends }
    }

    /// Whether somebody may still reclaim.
    pub fn is_on(&self, now: Time) -> bool {
        now < self.ends && !self.waiting.is_empty()
    }

    pub fn may_reclaim(&self, now: Time, owner: &[u8]) -> bool {
        now < self.ends && self.waiting.contains(owner)
    }

    /// A client has reclaimed all it wanted, or will never again.
    pub fn complete(&mut self, owner: &[u8]) {
        self.waiting.remove(owner);
    }

    /// Once the time is up: the clients that haven't said that they are done.
    pub fn end_if_over(&mut self, now: Time) -> Vec<Vec<u8>> {
        if now < self.ends { Vec::new() } else { self.waiting.drain().collect() }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Whether new state has to wait for old clients.
    #[must_use]
    pub fn in_grace(&self, now: Time) -> bool {
        self.grace.is_on(now)
    }

    /// RECLAIM_COMPLETE (RFC 8881 section 18.51).
    ///
    /// # Errors
    /// `CompleteAlready`, `StaleClientid`.
    pub fn reclaim_complete(&mut self, client: ClientId) -> Result<(), Error> {
        let client = self.client(client)?;
        if client.reclaim_complete {
            return Err(Error::CompleteAlready);
        }
        client.reclaim_complete = true;
        let owner = client.owner.clone();
        self.grace.complete(&owner);
        Ok(())
    }

    /// Whether `client` may have state now, new or, with `reclaim`, what it had before the restart.
    pub(crate) fn check_grace(&mut self, now: Time, client: ClientId, reclaim: bool) -> Result<(), Error> {
        // Before anybody is given anything those are struck off who have lost it by that.
        self.end_grace_if_over(now);
        let client = self.clients.get(&client).ok_or(Error::StaleClientid)?;
        if reclaim {
            let may = !client.reclaim_complete && self.grace.may_reclaim(now, &client.owner);
            return if may { Ok(()) } else { Err(Error::NoGrace) };
        }
        // In 4.0 nobody says that he has done.
        let complete = client.reclaim_complete || client.v40.is_some();
        if self.grace.is_on(now) || !complete { Err(Error::Grace) } else { Ok(()) }
    }
}
