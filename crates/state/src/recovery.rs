//! Who may reclaim after a restart (RFC 8881 section 8.4.3): whoever has state when the server goes, and
//! nobody whose state somebody else may have been given meanwhile.
//!
//! A client is entered on stable storage when it says that it has reclaimed everything, for next it will want
//! something, or else before it gets its first state; and taken out before its state goes to another, or a
//! part of it: a delegation that it didn't return. It is entered again when it knows of that. One that has
//! had nothing for a lease's time is taken out, too: after a restart nobody need wait for it. That is what
//! shortens the grace period where clients of NFSv4.0 are about, which never say that they have reclaimed
//! everything.

use std::hash::Hash;

use crate::engine::{Engine, Time};
use crate::ids::ClientId;

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// A client has state, or is about to. It knows what it has lost: delegations that were taken away, and
    /// what it hadn't reclaimed when the grace period ended.
    pub(crate) fn remember(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(&id).filter(|client| client.revoked.is_empty()) else { return };
        let knows = client.reclaim_complete || client.v40.is_some();
        if !knows && !self.grace.is_waited_for(&client.instance) {
            return;
        }
        if !self.recorded.contains(&client.instance) {
            self.recorded.insert(client.instance.clone());
            self.effects.remember.push(client.instance.clone());
        }
    }

    /// An instance has nothing any more that it could reclaim.
    pub(crate) fn forget(&mut self, instance: &[u8]) {
        if self.recorded.remove(instance) {
            // It comes to the last that was said.
            self.effects.remember.retain(|other| other != instance);
            self.effects.forget.push(instance.to_vec());
        }
    }

    /// Ends the grace period if its time is up: who hasn't come back has lost what it had. Who has come back
    /// and hasn't said that it was done has lost what it hadn't reclaimed, and may not know that yet: it
    /// keeps what it has, and can't reclaim after another restart before it says so. A client of 4.0 never
    /// does; what it has reclaimed is taken for all.
    pub(crate) fn end_grace_if_over(&mut self, now: Time) {
        for instance in self.grace.end_if_over(now) {
            let holder = self.instances.get(&instance).and_then(|id| self.clients.get(id));
            if holder.is_none_or(|client| client.v40.is_none() || client.states.is_empty()) {
                self.forget(&instance);
            }
        }
    }

    /// Takes out who has had nothing for a lease's time. To be called every few seconds.
    pub(crate) fn forget_idle(&mut self, now: Time) {
        let Self { clients, recorded, grace, config, .. } = self;
        let mut idle = Vec::new();
        for client in clients.values_mut() {
            if !client.states.is_empty() || grace.may_reclaim(now, &client.instance) {
                client.idle_since = None;
            } else if now > client.idle_since.get_or_insert(now).plus(config.lease)
                && recorded.contains(&client.instance)
            {
                idle.push(client.instance.clone());
            }
        }
        idle.iter().for_each(|instance| self.forget(instance));
    }
}
