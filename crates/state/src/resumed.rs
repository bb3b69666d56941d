//! The server hasn't run for a while, and so has heard nobody: what ran against its clients meanwhile doesn't
//! count.

use std::hash::Hash;

use crate::engine::{Engine, Time};

/// Which part of a lease is left at least of what would end otherwise: time for what stands in the sockets'
/// queues.
const STEP: u64 = 8;

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The server has run until `since` and runs again from `now` on, on a clock that went on by next to
    /// nothing between the two. Who was in his lease has a whole one again, for his renewals may be on their
    /// way, or in a queue behind others' requests; recalled delegations may be returned, and clients reclaim,
    /// for an eighth of a lease at least. Who was out of his lease before still is.
    pub fn resumed(&mut self, since: Time, now: Time) {
        let lease = self.config.lease;
        let in_time = self.clients.values_mut().filter(|client| !client.is_expired(since, lease));
        in_time.for_each(|client| client.renewed = client.renewed.max(now));
        let step = now.plus(lease / STEP);
        self.recall_until_at_least(step);
        self.grace.lasts_until_at_least(since, step);
    }
}
