//! The grace period after a restart, and the clients that may reclaim after the next one (RFC 8881 sections
//! 8.4.2 and 8.4.3).
//!
//! During the grace period the clients of the last run may reclaim their state, and no client gets new state.
//! It ends when all of them have said that they are done, or when its time is up: after a lease, and up to
//! another lease later while clients are still reclaiming.
//!
//! A client is recorded on stable storage when it says that it has reclaimed everything, since it is about to
//! want something, or else before it gets its first state. Its record is removed before its state, or a part
//! of it, goes to another client: also before a delegation is revoked. It is recorded again when it knows of
//! that. The record of a client that has had no state for a lease's time is removed, too: no grace period
//! need wait for it. That shortens the grace period of NFSv4.0's clients, which never say that they have
//! reclaimed everything.
//!
//! A client that restarts while the server does has nothing to reclaim, and its former instance never comes
//! back. So the record of the former instance is removed when the client confirms the next one (RFC 8881
//! section 18.35.4, case 5), and the grace period doesn't wait for it. A client's restart is believed from
//! its own peer and principal only, so the record has these ([`RecordHolder`]).
//!
//! A server of a cluster is told when to give no new state, because clients of another server reclaim
//! ([`Engine::enforce_grace`]), and when the clients of its former run may reclaim
//! ([`Engine::accept_reclaims`]). These are recorded anew when they have reclaimed.
//!
//! Invariant: `recorded` is what stable storage has once all effects are applied.

use std::collections::HashMap;
use std::hash::Hash;

use crate::client_table::{ClientRecord, RecordHolder};
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::ClientId;
use crate::principal::Requester;
use crate::reclaiming::Reclaiming;

/// The fraction of a lease that a client which has begun to reclaim may take for its next step.
const STEP_FRACTION: u64 = 8;

/// The grace period, and the records of clients. Clients are named by [`crate::instance`].
#[derive(Debug)]
pub(crate) struct Recovery {
    /// The clients that may still reclaim.
    reclaiming: Reclaiming,
    /// Unknown clients may have had state: the grace period lasts its whole time.
    is_incomplete: bool,
    /// No client gets new state, whether or not clients may reclaim from this server.
    is_enforced: bool,
    grace_ends: Time,
    /// The end of the grace period if clients are still reclaiming.
    latest_end: Time,
    /// The time for the next step of a client, in milliseconds.
    step: u64,
    /// The clients on stable storage, and who may end them.
    recorded: HashMap<Vec<u8>, Option<RecordHolder>>,
}

impl Recovery {
    /// A grace period of the `recorded` clients until `grace_ends`, and up to a `lease` (in milliseconds)
    /// longer.
    pub fn new(recorded: impl IntoIterator<Item = ClientRecord>, grace_ends: Time, lease: u64) -> Self {
        let (mut reclaiming, mut known) = (Reclaiming::default(), HashMap::new());
        for record in recorded {
            known.insert(record.instance.clone(), record.holder.clone());
            reclaiming.insert(record);
        }
        Self {
            reclaiming,
            is_incomplete: false,
            is_enforced: false,
            grace_ends,
            latest_end: grace_ends.plus(lease),
            step: lease / STEP_FRACTION,
            recorded: known,
        }
    }

    /// A client is back, or has reclaimed something. If it may still reclaim, the grace period lasts long
    /// enough for its next step.
    pub fn extend_grace(&mut self, now: Time, client: &[u8]) {
        if self.may_reclaim(now, client) {
            self.grace_ends = self.grace_ends.max(now.plus(self.step).min(self.latest_end));
        }
    }

    /// Whether the grace period is on.
    fn in_grace(&self, now: Time) -> bool {
        self.is_enforced || self.is_reclaiming(now)
    }

    /// Whether clients may still reclaim.
    fn is_reclaiming(&self, now: Time) -> bool {
        now < self.grace_ends && (self.is_incomplete || !self.reclaiming.is_empty())
    }

    /// Whether a client may reclaim.
    pub fn may_reclaim(&self, now: Time, client: &[u8]) -> bool {
        now < self.grace_ends && self.reclaiming.contains(client)
    }

    /// A client has reclaimed everything, or will never again.
    pub fn end_reclaim(&mut self, client: &[u8]) {
        self.reclaiming.remove(client);
    }

    /// The clients that may still reclaim and were an earlier instance of a client with this holder.
    pub fn former_instances(&self, instance: &[u8], holder: &RecordHolder) -> Vec<Vec<u8>> {
        self.reclaiming.former_instances(instance, holder)
    }

    /// A grace period that was on at `since` lasts until `until` at least.
    pub fn postpone_end(&mut self, since: Time, until: Time) {
        if since < self.grace_ends {
            self.grace_ends = self.grace_ends.max(until);
            self.latest_end = self.latest_end.max(self.grace_ends);
        }
    }

    /// Once the time is up: the clients that haven't said that they are done.
    fn end_if_over(&mut self, now: Time) -> Vec<Vec<u8>> {
        if now < self.grace_ends { Vec::new() } else { self.reclaiming.take().collect() }
    }

    /// Records a client. Returns whether its record is new, or another than before.
    fn record(&mut self, client: &ClientRecord) -> bool {
        if self.recorded.get(&client.instance) == Some(&client.holder) {
            return false;
        }
        self.recorded.insert(client.instance.clone(), client.holder.clone());
        true
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Not all clients of the last run are known, because the records are damaged: the grace period lasts its
    /// whole time. Unknown clients that reclaim are refused (`NoGrace`), as RFC 8881 section 8.4.3 demands.
    pub fn recovered_incompletely(&mut self) {
        self.recovery.is_incomplete = true;
    }

    /// Gives no new state until this is called with `false`. Clients that may reclaim do.
    pub fn enforce_grace(&mut self, is_enforced: bool) {
        self.recovery.is_enforced = is_enforced;
    }

    /// Lets these clients reclaim, too, for `time` milliseconds, and up to a lease longer while they are at
    /// it. If `is_incomplete`, not all of them are known, and the whole time is to be waited for.
    pub fn accept_reclaims(
        &mut self,
        now: Time,
        clients: impl IntoIterator<Item = ClientRecord>,
        is_incomplete: bool,
        time: u64,
    ) {
        let recovery = &mut self.recovery;
        recovery.reclaiming.extend(clients);
        recovery.is_incomplete |= is_incomplete;
        recovery.grace_ends = recovery.grace_ends.max(now.plus(time));
        recovery.latest_end = recovery.grace_ends.plus(self.config.lease);
    }

    /// Whether clients may still reclaim.
    pub fn is_reclaiming(&mut self, now: Time) -> bool {
        self.end_grace_if_over(now);
        self.recovery.is_reclaiming(now)
    }

    /// Accepts no reclaims any more.
    pub fn end_reclaims(&mut self, now: Time) {
        let recovery = &mut self.recovery;
        recovery.grace_ends = recovery.grace_ends.min(now);
        recovery.is_incomplete = false;
        self.end_grace_if_over(now);
    }

    /// Whether the grace period is on, in which no client gets new state.
    #[must_use]
    pub fn in_grace(&self, now: Time) -> bool {
        self.recovery.in_grace(now)
    }

    /// RECLAIM_COMPLETE (RFC 8881 section 18.51).
    ///
    /// # Errors
    /// `CompleteAlready`, `StaleClientid`, `WrongCred`.
    pub fn reclaim_complete(&mut self, by: &Requester) -> Result<(), Error> {
        self.check_client_principal(by)?;
        let client = self.clients.confirmed_mut(by.client)?;
        // Also of a client that has reclaimed before, and has come with another server's state since.
        self.recovery.end_reclaim(client.instance());
        if client.reclaim_complete {
            return Err(Error::CompleteAlready);
        }
        client.reclaim_complete = true;
        // It has given up what it hadn't reclaimed.
        self.record_client(by.client);
        Ok(())
    }

    /// Checks that `client` may have state now: new state, or, with `reclaim`, what it had before the
    /// restart. An OPEN that creates its file asks before it does.
    ///
    /// # Errors
    /// `Grace`, `NoGrace`, `StaleClientid`.
    pub fn check_grace(&mut self, now: Time, client: ClientId, reclaim: bool) -> Result<(), Error> {
        // Clients lose their right to reclaim before others get what they had.
        self.end_grace_if_over(now);
        let client = self.clients.get(client).ok_or(Error::StaleClientid)?;
        if reclaim {
            if !self.recovery.may_reclaim(now, client.instance()) {
                return Err(Error::NoGrace);
            }
            self.recovery.extend_grace(now, client.instance());
            return Ok(());
        }
        if self.recovery.in_grace(now) || !client.has_reclaimed() { Err(Error::Grace) } else { Ok(()) }
    }

    /// Records a client that has state, or is about to, if it knows what it has lost: revoked delegations,
    /// and what it hadn't reclaimed when the grace period ended.
    pub(crate) fn record_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id).filter(|client| client.revoked.is_empty()) else { return };
        let instance = client.instance();
        if !client.has_reclaimed() && !self.recovery.reclaiming.contains(instance) {
            return;
        }
        let record = ClientRecord { instance: instance.to_owned(), holder: client.holder() };
        if self.recovery.record(&record) {
            self.effects.remember.push(record);
        }
    }

    /// Removes the record of a client that has nothing to reclaim any more.
    pub(crate) fn forget_client(&mut self, instance: &[u8]) {
        if self.recovery.recorded.remove(instance).is_some() {
            // The last change counts.
            self.effects.remember.retain(|other| other.instance != instance);
            self.effects.forget.push(instance.to_owned());
        }
    }

    /// Ends the grace period if its time is up. A client that hasn't come back has lost its state. A client
    /// that is back, and hasn't said that it is done, has lost what it hadn't reclaimed and may not know that
    /// yet: it keeps what it has, and can't reclaim after another restart before it says so. A client of
    /// NFSv4.0 never does; what it has reclaimed is taken for everything.
    pub(crate) fn end_grace_if_over(&mut self, now: Time) {
        for instance in self.recovery.end_if_over(now) {
            let client = self.clients.of_instance(&instance);
            if client.is_none_or(|client| client.v40.is_none() || client.states.is_empty()) {
                self.forget_client(&instance);
            }
        }
    }

    /// Removes the records of clients that have had no state for a lease's time.
    pub(crate) fn forget_idle_clients(&mut self, now: Time) {
        let Self { clients, recovery, config, .. } = self;
        let mut idle = Vec::new();
        for client in clients.iter_mut() {
            if !client.states.is_empty() || recovery.may_reclaim(now, client.instance()) {
                client.idle_since = None;
            } else if now > client.idle_since.get_or_insert(now).plus(config.lease)
                && recovery.recorded.contains_key(client.instance())
            {
                idle.push(client.instance().to_owned());
            }
        }
        idle.iter().for_each(|instance| self.forget_client(instance));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_period_ends_with_the_last_client_or_its_time() {
        let record = |name: &[u8]| ClientRecord { instance: name.to_vec(), holder: None };
        let recorded = || [record(b"a"), record(b"b")];
        let mut recovery = Recovery::new(recorded(), Time(1000), 800);
        assert!(recovery.in_grace(Time(999)) && !recovery.in_grace(Time(1000)));
        recovery.extend_grace(Time(950), b"unknown");
        assert!(!recovery.in_grace(Time(1000)));
        recovery.extend_grace(Time(950), b"a");
        assert!(recovery.in_grace(Time(1049)) && !recovery.in_grace(Time(1050)));
        recovery.end_reclaim(b"a");
        assert!(recovery.in_grace(Time(0)) && !recovery.may_reclaim(Time(0), b"a"));
        recovery.end_reclaim(b"b");
        assert!(!recovery.in_grace(Time(0)));
        recovery.is_enforced = true;
        assert!(recovery.in_grace(Time(5000)) && !recovery.is_reclaiming(Time(0)));
        let mut recovery = Recovery::new(recorded(), Time(1000), 800);
        for now in (900..3000).step_by(50) {
            recovery.extend_grace(Time(now), b"a");
        }
        assert!(recovery.in_grace(Time(1799)) && !recovery.in_grace(Time(1800)), "another lease at most");
        assert_eq!(recovery.end_if_over(Time(1799)).len(), 0);
        assert_eq!(recovery.end_if_over(Time(1800)).len(), 2);
        assert!(!recovery.record(&record(b"a")) && recovery.record(&record(b"c")));
    }
}
