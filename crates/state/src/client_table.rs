//! The clients: by id, by name, and by instance.
//!
//! Clients name themselves (`co_ownerid`, `nfs_client_id4.id`), and the names are easy to guess: Linux's has
//! the host's name in it. By RFC 8881 section 18.35.4 a client with a known name and principal and another
//! verifier is the known client, restarted, and ends its state. AUTH_SYS proves no principal. So a name
//! means one client for each [`Peer`] it comes from: a stranger that takes another client's name gets a
//! client of its own, which neither ends the other's state nor keeps the name from it.
//!
//! An *instance* of a client, its name and verifier, is the same client wherever it comes from: a client may
//! have several addresses, or change its address. A verifier is 64 bits that a client makes up when it starts
//! and tells only to servers.
//!
//! Invariants: a name has at most one confirmed client, and at most one unconfirmed client that may replace
//! it. An instance has at most one confirmed client.

use ahash::{HashMap, HashSet};
use fairness::Peer;

use crate::engine::Time;
use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::principal::Principal;
use crate::session_table::CreateSessionCache;
use crate::v40::V40Client;

/// The name of a client instance on stable storage: its verifier and its owner string.
#[must_use]
pub fn instance(owner: &[u8], verifier: [u8; 8]) -> Vec<u8> {
    [&verifier, owner].concat()
}

/// The owner string of an [`instance`].
#[must_use]
pub fn owner_of_instance(instance: &[u8]) -> &[u8] {
    instance.get(8..).unwrap_or_default()
}

/// The verifier of an [`instance`]. `None` if it is none.
pub(crate) fn verifier_of_instance(instance: &[u8]) -> Option<[u8; 8]> {
    instance.first_chunk().copied()
}

/// A client instance on stable storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientRecord {
    /// The client's [`instance`].
    pub instance: Vec<u8>,
    /// Who may end the record as the client's next instance. `None`: nobody.
    pub holder: Option<RecordHolder>,
}

/// Who made a recorded client. Its restart is believed from the same peer and principal only, as that of a
/// client whose state the server has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordHolder {
    /// The peer that the client came from.
    pub peer: Peer,
    /// The client's principal, as [`Principal`] displays it.
    pub principal: String,
}

impl RecordHolder {
    /// A holder, unless the peer is several users.
    #[must_use]
    pub fn new(peer: Peer, principal: &Principal) -> Option<Self> {
        (peer != Peer::LocalUnknown).then(|| Self { peer, principal: principal.to_string() })
    }
}

/// A client's owner string, and the peer it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientName {
    pub owner: Vec<u8>,
    pub peer: Peer,
}

/// What identifies a client. It never changes.
#[derive(Debug, Clone)]
pub(crate) struct ClientIdentity {
    pub id: ClientId,
    pub name: ClientName,
    /// `co_verifier`: another one when the client has restarted.
    pub verifier: [u8; 8],
    /// The principal that made the client, and to which its sessions belong.
    pub principal: Principal,
    /// When the client was made.
    pub created: Time,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    identity: ClientIdentity,
    instance: Vec<u8>,
    confirmed: bool,
    /// The last renewal of its lease.
    pub renewed: Time,
    pub sessions: Vec<SessionId>,
    pub create_session: CreateSessionCache,
    /// When the client was first seen without state since it last had some.
    pub idle_since: Option<Time>,
    /// RECLAIM_COMPLETE was done.
    pub reclaim_complete: bool,
    /// What only clients of NFSv4.0 have.
    pub v40: Option<V40Client>,
    pub states: ClientStates,
    /// The last CB_RECALL_ANY.
    pub recall_any_at: Option<Time>,
    /// Revoked delegations, until the client knows of it: it has freed them (4.1), or was told (4.0). As long
    /// as there are any the client isn't on stable storage, for it would reclaim them (RFC 8881 section
    /// 8.4.3).
    pub revoked: HashSet<u64>,
}

/// The numbers of a client's opens, locks and delegations.
#[derive(Debug, Default)]
pub(crate) struct ClientStates {
    numbers: HashSet<u64>,
    delegations: usize,
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    clients: HashMap<ClientId, Client>,
    names: HashMap<ClientName, NamedClients>,
    /// Confirmed clients by instance.
    instances: HashMap<Vec<u8>, ClientId>,
}

/// The clients of one name.
#[derive(Debug, Default)]
struct NamedClients {
    confirmed: Option<ClientId>,
    unconfirmed: Option<ClientId>,
}

/// A client that was removed from the table.
#[derive(Debug)]
pub(crate) struct RemovedClient {
    pub client: Client,
    /// It was the confirmed client of its instance.
    pub was_its_instance: bool,
}

impl ClientStates {
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// How many of the states are delegations.
    pub const fn delegations(&self) -> usize {
        self.delegations
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().copied()
    }

    pub fn add(&mut self, number: u64, is_delegation: bool) {
        if self.numbers.insert(number) {
            self.delegations += usize::from(is_delegation);
        }
    }

    pub fn remove(&mut self, number: u64, is_delegation: bool) {
        if self.numbers.remove(&number) {
            self.delegations -= usize::from(is_delegation);
        }
    }
}

impl Client {
    pub const fn id(&self) -> ClientId {
        self.identity.id
    }

    pub const fn identity(&self) -> &ClientIdentity {
        &self.identity
    }

    pub const fn peer(&self) -> Peer {
        self.identity.name.peer
    }

    pub const fn principal(&self) -> &Principal {
        &self.identity.principal
    }

    /// Checks that it has fewer than `max` states.
    ///
    /// # Errors
    /// `Delay`.
    pub fn check_room(&self, max: usize) -> Result<(), Error> {
        if self.states.len() + self.revoked.len() < max { Ok(()) } else { Err(Error::Delay) }
    }

    /// The client's [`instance`].
    pub fn instance(&self) -> &[u8] {
        &self.instance
    }

    /// Who may end the client's record.
    pub fn holder(&self) -> Option<RecordHolder> {
        RecordHolder::new(self.peer(), self.principal())
    }

    pub const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether the client's lease has expired. `lease` is its length in milliseconds.
    pub fn is_expired(&self, now: Time, lease: u64) -> bool {
        now > self.renewed.plus(lease)
    }

    /// Whether the client has reclaimed all that it wants: NFSv4.0 has no operation that says so.
    pub const fn has_reclaimed(&self) -> bool {
        self.reclaim_complete || self.v40.is_some()
    }
}

impl ClientTable {
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    pub fn get(&self, id: ClientId) -> Option<&Client> {
        self.clients.get(&id)
    }

    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&id)
    }

    /// A client that may have state.
    ///
    /// # Errors
    /// `StaleClientid` if there is none, or it isn't confirmed.
    pub fn confirmed_mut(&mut self, id: ClientId) -> Result<&mut Client, Error> {
        self.get_mut(id).filter(|client| client.confirmed).ok_or(Error::StaleClientid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.clients.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.values_mut()
    }

    /// The confirmed client of an instance.
    pub fn of_instance(&self, instance: &[u8]) -> Option<&Client> {
        self.get(*self.instances.get(instance)?)
    }

    /// The confirmed client that has this name and verifier, or had it before it restarted.
    pub fn find(&self, name: &ClientName, verifier: [u8; 8]) -> Option<ClientId> {
        let same = self.instances.get(&instance(&name.owner, verifier)).copied();
        same.or_else(|| self.names.get(name)?.confirmed)
    }

    /// The unconfirmed client of a name.
    pub fn unconfirmed(&self, name: &ClientName) -> Option<ClientId> {
        self.names.get(name)?.unconfirmed
    }

    /// Adds a client, unconfirmed. Its id is new, and its name has no other unconfirmed client.
    pub fn insert(&mut self, identity: ClientIdentity) {
        self.names.entry(identity.name.clone()).or_default().unconfirmed = Some(identity.id);
        let client = Client {
            instance: instance(&identity.name.owner, identity.verifier),
            confirmed: false,
            renewed: identity.created,
            sessions: Vec::new(),
            create_session: CreateSessionCache::default(),
            idle_since: None,
            reclaim_complete: false,
            v40: None,
            states: ClientStates::default(),
            recall_any_at: None,
            revoked: HashSet::default(),
            identity,
        };
        self.clients.insert(client.id(), client);
    }

    /// Confirms a client. Returns the clients that it replaces, to be removed.
    pub fn confirm(&mut self, id: ClientId) -> Vec<ClientId> {
        let Some(client) = self.clients.get_mut(&id) else { return Vec::new() };
        client.confirmed = true;
        let named = self.names.entry(client.identity.name.clone()).or_default();
        named.unconfirmed.take_if(|other| *other == id);
        let replaced = [named.confirmed.replace(id), self.instances.insert(client.instance.clone(), id)];
        replaced.into_iter().flatten().filter(|old| *old != id).collect()
    }

    pub fn remove(&mut self, id: ClientId) -> Option<RemovedClient> {
        let client = self.clients.remove(&id)?;
        let name = &client.identity.name;
        if let Some(named) = self.names.get_mut(name) {
            named.confirmed.take_if(|other| *other == id);
            named.unconfirmed.take_if(|other| *other == id);
            if named.confirmed.is_none() && named.unconfirmed.is_none() {
                self.names.remove(name);
            }
        }
        let was_its_instance = self.instances.get(&client.instance) == Some(&id);
        if was_its_instance {
            self.instances.remove(&client.instance);
        }
        Some(RemovedClient { client, was_its_instance })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(owner: u8, host: u32) -> ClientName {
        ClientName { owner: vec![owner], peer: Peer::Local(host) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn names_and_instances_have_one_confirmed_client(
            steps in proptest::collection::vec((0_u8..2, 0_u32..2, 0_u8..2, 0_u8..3), 1..60)
        ) {
            let mut table = ClientTable::default();
            for ((owner, host, verifier, what), number) in steps.into_iter().zip(0_u64..) {
                let (name, verifier) = (name(owner, host), [verifier; 8]);
                match what {
                    0 => {
                        if let Some(old) = table.unconfirmed(&name) {
                            prop_assert!(table.remove(old).is_some());
                        }
                        table.insert(ClientIdentity {
                            id: ClientId(number),
                            name,
                            verifier,
                            principal: Principal::Sys(0),
                            created: Time(0),
                        });
                    }
                    1 => {
                        if let Some(id) = table.unconfirmed(&name) {
                            let known = table.get(id).map(|client| client.identity.verifier).unwrap();
                            for old in table.confirm(id) {
                                // One client may be replaced by name and by instance.
                                let Some(removed) = table.remove(old) else { continue };
                                let is_other = removed.client.instance != instance(&name.owner, known);
                                prop_assert_eq!(removed.was_its_instance, is_other);
                            }
                            prop_assert_eq!(table.find(&name, known), Some(id));
                        }
                    }
                    _ => {
                        if let Some(id) = table.find(&name, verifier) {
                            let removed = table.remove(id).unwrap();
                            prop_assert!(removed.client.confirmed && removed.was_its_instance);
                        }
                    }
                }
                let confirmed = || table.iter().filter(|client| client.confirmed);
                prop_assert_eq!(table.instances.len(), confirmed().count());
                let unconfirmed: usize =
                    table.names.values().filter(|named| named.unconfirmed.is_some()).count();
                prop_assert_eq!(unconfirmed, table.len() - confirmed().count());
                for client in confirmed() {
                    prop_assert_eq!(table.instances.get(client.instance()), Some(&client.id()));
                    prop_assert_eq!(table.names[&client.identity.name].confirmed, Some(client.id()));
                }
            }
        }
    }
}
