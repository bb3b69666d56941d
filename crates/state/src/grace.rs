//! The grace period after a restart (RFC 8881 section 8.4.2): clients of the last run may reclaim what they
//! had, and until they have nobody gets anything new. It ends when all have said that they are done, or when
//! its time is up: after a lease, and as much later as somebody is still at it, for another lease at most.

use std::collections::HashSet;
use std::hash::Hash;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::ClientId;
use crate::principal::Requester;

/// Which part of a lease a client that has begun to reclaim may take for its next step.
const STEP: u64 = 8;

/// The grace period.
#[derive(Debug)]
pub(crate) struct Grace {
    /// Clients that may still reclaim, each by its [`crate::instance`].
    waiting: HashSet<Vec<u8>>,
    /// There may have been others, of whom nothing is known: it lasts its time, whoever has come back.
    incomplete: bool,
    ends: Time,
    /// When it ends whoever is still at it.
    latest: Time,
    /// How long the next step of a client is waited for, in milliseconds.
    step: u64,
}

impl Grace {
    /// Until `ends`, and for a `lease` longer (in milliseconds) while clients are at it.
    pub fn new(recovered: impl IntoIterator<Item = Vec<u8>>, ends: Time, lease: u64) -> Self {
        let waiting = recovered.into_iter().collect();
        Self { waiting, incomplete: false, ends, latest: ends.plus(lease), step: lease / STEP }
    }

    /// A client has come back or has reclaimed something. If it may still reclaim it gets the time to go on.
    pub fn heard(&mut self, now: Time, client: &[u8]) {
        if self.may_reclaim(now, client) {
            self.ends = self.ends.max(now.plus(self.step).min(self.latest));
        }
    }

    /// Whether somebody may still reclaim, or might have.
    pub fn is_on(&self, now: Time) -> bool {
        now < self.ends && (self.incomplete || !self.waiting.is_empty())
    }

    pub fn may_reclaim(&self, now: Time, client: &[u8]) -> bool {
        now < self.ends && self.waiting.contains(client)
    }

    /// Whether a client may reclaim, or might have, and the end of that wasn't noted yet.
    pub fn is_waited_for(&self, client: &[u8]) -> bool {
        self.waiting.contains(client)
    }

    /// A client has reclaimed all it wanted, or will never again.
    pub fn complete(&mut self, client: &[u8]) {
        self.waiting.remove(client);
    }

    /// If it wasn't over at `since` it isn't before `until`.
    pub fn lasts_until_at_least(&mut self, since: Time, until: Time) {
        if since < self.ends {
            self.ends = self.ends.max(until);
            self.latest = self.latest.max(self.ends);
        }
    }

    /// Once the time is up: the clients that haven't said that they are done.
    pub fn end_if_over(&mut self, now: Time) -> Vec<Vec<u8>> {
        if now < self.ends { Vec::new() } else { self.waiting.drain().collect() }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The clients that the last run remembered aren't all known, because what is on stable storage is
    /// damaged: nobody gets new state before the grace period has lasted its whole time. Those who aren't
    /// known are refused when they reclaim (`NoGrace`), as RFC 8881 section 8.4.3 demands.
    pub fn recovered_incompletely(&mut self) {
        self.grace.incomplete = true;
    }

    /// Whether new state has to wait for old clients.
    #[must_use]
    pub fn in_grace(&self, now: Time) -> bool {
        self.grace.is_on(now)
    }

    /// RECLAIM_COMPLETE (RFC 8881 section 18.51).
    ///
    /// # Errors
    /// `CompleteAlready`, `StaleClientid`, `WrongCred`.
    pub fn reclaim_complete(&mut self, by: &Requester) -> Result<(), Error> {
        self.check_own(by)?;
        let client = by.client;
        let known = self.client(client)?;
        if known.reclaim_complete {
            return Err(Error::CompleteAlready);
        }
        known.reclaim_complete = true;
        let instance = known.instance.clone();
        self.grace.complete(&instance);
        // What it may have had and lost before, it has given up.
        self.remember(client);
        Ok(())
    }

    /// Checks that `client` may have state now: new state, or, with `reclaim`, what it had before the
    /// restart. An OPEN that creates its file asks before it does.
    ///
    /// # Errors
    /// `Grace`, `NoGrace`, `StaleClientid`.
    pub fn check_grace(&mut self, now: Time, client: ClientId, reclaim: bool) -> Result<(), Error> {
        // Before anybody is given anything those are struck off who have lost it by that.
        self.end_grace_if_over(now);
        let client = self.clients.get(&client).ok_or(Error::StaleClientid)?;
        if reclaim {
            if !self.grace.may_reclaim(now, &client.instance) {
                return Err(Error::NoGrace);
            }
            self.grace.heard(now, &client.instance);
            return Ok(());
        }
        // In 4.0 nobody says that he has done.
        let complete = client.reclaim_complete || client.v40.is_some();
        if self.grace.is_on(now) || !complete { Err(Error::Grace) } else { Ok(()) }
    }
}
