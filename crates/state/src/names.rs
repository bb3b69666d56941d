//! Which client a name means.
//!
//! Clients name themselves (`co_ownerid`, `nfs_client_id4.id`), and their names are easy to guess: Linux's
//! has the host's name in it. By RFC 8881 section 18.35.4 whoever comes with somebody's name and principal
//! and another verifier is that client, restarted, and ends its state; AUTH_SYS proves no principal. So a
//! name means one client for each [`Peer`] it comes from: a stranger who takes the name of another has a
//! client of its own, can't end the other's, and can't keep the name from it.
//!
//! The same *instance* of a client, by name and verifier, is the same client wherever it comes from: it may
//! have several addresses, or get another one. A verifier is 64 bits that the client makes up when it starts,
//! and tells nobody but servers.
//!
//! After a restart of the server instances may reclaim what they had, for who has restarted meanwhile has
//! nothing.

use std::hash::Hash;

use fairness::Peer;

use crate::engine::Engine;
use crate::ids::ClientId;

/// What a client calls itself, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub owner: Vec<u8>,
    pub peer: Peer,
}

/// The clients of one name: at most one that is in use, and at most one that may replace it.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub confirmed: Option<ClientId>,
    pub unconfirmed: Option<ClientId>,
}

/// An instance of a client: its verifier, and what it calls itself. What is on stable storage has this form.
#[must_use]
pub fn instance(owner: &[u8], verifier: [u8; 8]) -> Vec<u8> {
    [&verifier, owner].concat()
}

/// What the client of an [`instance`] calls itself.
#[must_use]
pub fn owner_of_instance(instance: &[u8]) -> &[u8] {
    instance.get(8..).unwrap_or_default()
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// The confirmed client that `name` with this verifier is, or was before it restarted.
    pub(crate) fn known(&self, name: &Name, verifier: [u8; 8]) -> Option<ClientId> {
        let same = self.instances.get(&instance(&name.owner, verifier)).copied();
        same.or_else(|| self.named.get(name)?.confirmed)
    }
}
