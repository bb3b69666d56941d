//! Leases: who is in time, and what becomes of who isn't (RFC 8881 section 8.3; courtesy is section 8.4.2's
//! "courtesy" to clients whose lease has expired without anybody wanting their state).

use std::hash::Hash;

use crate::engine::{Engine, Time};
use crate::ids::ClientId;

/// What a client whose lease was renewed should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Renewed {
    /// It still has to say that it has reclaimed everything.
    pub reclaim_needed: bool,
    /// Delegations were taken away from it.
    pub revoked: bool,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// Renews a lease.
    pub(crate) fn renew(&mut self, now: Time, client: ClientId) -> Renewed {
        let Some(client) = self.clients.get_mut(&client) else { return Renewed::default() };
        client.renewed = client.renewed.max(now);
        Renewed {
            reclaim_needed: !client.reclaim_complete && self.grace.may_reclaim(now, &client.instance),
            revoked: !client.revoked.is_empty(),
        }
    }

    /// Whether a client has run out of its lease: what it holds is whoever's that asks for it.
    pub(crate) fn is_courtesy(&self, now: Time, client: ClientId) -> bool {
        self.clients.get(&client).is_none_or(|client| client.is_expired(now, self.config.lease))
    }

    /// To be called every few seconds: ends the clients whose time is up, takes away the delegations that
    /// should have been returned, and ends the grace period when it is over.
    pub fn tick(&mut self, now: Time) {
        let Self { clients, config, .. } = self;
        let over = |client: &crate::client::Client| {
            let idle = !client.confirmed || client.states.is_empty();
            let patience = if idle { config.lease } else { config.lease.saturating_add(config.courtesy) };
            client.is_expired(now, patience)
        };
        let gone: Vec<ClientId> =
            clients.values().filter(|client| over(client)).map(|client| client.id).collect();
        for client in gone {
            self.end_client(client);
        }
        self.end_courtesy_if_short(now);
        self.revoke_overdue(now);
        self.end_grace_if_over(now);
        self.forget_idle(now);
        self.end_turns(now);
        self.contended.forget(now);
        self.distrusted.forget(now);
    }
}
