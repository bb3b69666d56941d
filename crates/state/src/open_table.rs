//! The open states: by number, by owner, and counted by file and client.
//!
//! Invariants: a file's counts are those of the opens on it, and [`OpenTable::has_denials`] tells whether any
//! open denies access. With the counts, the clients whose opens conflict with another are found without
//! looking at every open: a file may have a hundred thousand.

use std::hash::Hash;

use ahash::HashMap;

use crate::ids::ClientId;
use crate::owner_index::{OwnedState, OwnedStates, OwnerKey};
use crate::principal::Principal;
use crate::share::{OpenShares, Share};
use crate::state_header::StateHeader;

/// The OPENs of one owner on one file.
#[derive(Debug)]
pub(crate) struct Open<K> {
    header: StateHeader<K>,
    owner: Vec<u8>,
    shares: OpenShares,
    /// Blocking locks through this open get a place in the queue ([`crate::OpenRequest::under_delegation`]).
    may_queue: bool,
}

/// All open states.
#[derive(Debug)]
pub(crate) struct OpenTable<K> {
    opens: OwnedStates<Open<K>>,
    files: HashMap<K, FileOpens>,
    /// The number of opens that deny access.
    denials: usize,
}

/// The opens of one file.
#[derive(Debug, Default)]
struct FileOpens {
    all: ShareCounts,
    /// In the order of the ids.
    clients: Vec<(ClientId, ShareCounts)>,
}

/// The number of opens, and how many of them are for reading and for writing, and deny reading and writing.
#[derive(Debug, Clone, Copy, Default)]
struct ShareCounts {
    opens: u32,
    access: [u32; 2],
    deny: [u32; 2],
}

impl<K: Eq + Hash> OwnedState for Open<K> {
    type Key = K;

    fn header(&self) -> &StateHeader<K> {
        &self.header
    }

    fn owner(&self) -> &[u8] {
        &self.owner
    }
}

impl<K> Open<K> {
    /// The union of the OPENs' access and deny bits.
    pub fn share(&self) -> Share {
        self.shares.union()
    }

    /// Whether blocking locks through this open get a place in the queue.
    pub const fn may_queue(&self) -> bool {
        self.may_queue
    }
}

impl<K> Default for OpenTable<K> {
    fn default() -> Self {
        Self { opens: OwnedStates::default(), files: HashMap::default(), denials: 0 }
    }
}

impl<K: Clone + Eq + Hash> OpenTable<K> {
    pub fn len(&self) -> usize {
        self.opens.len()
    }

    /// Whether any open denies access to others.
    pub const fn has_denials(&self) -> bool {
        self.denials > 0
    }

    pub fn get(&self, number: u64) -> Option<&Open<K>> {
        self.opens.get(number)
    }

    pub fn header_mut(&mut self, number: u64) -> Option<&mut StateHeader<K>> {
        self.opens.get_mut(number).map(|open| &mut open.header)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Open<K>)> {
        self.opens.iter()
    }

    /// The open of an owner on a file.
    pub fn find(&self, owner: &OwnerKey<'_, K>) -> Option<u64> {
        self.opens.find(owner)
    }

    /// Adds an open without access, of an owner that has none on the file.
    pub fn insert(&mut self, number: u64, header: StateHeader<K>, owner: Vec<u8>) {
        let file = self.files.entry(header.key().clone()).or_default();
        file.add(header.client(), Share::default());
        let shares = OpenShares::default();
        self.opens.insert(number, Open { header, owner, shares, may_queue: false });
    }

    pub fn remove(&mut self, number: u64) -> Option<Open<K>> {
        let open = self.opens.remove(number)?;
        self.denials -= usize::from(open.shares.denies());
        if let Some(file) = self.files.get_mut(open.header.key()) {
            file.remove(open.header.client(), open.share());
            if file.is_empty() {
                self.files.remove(open.header.key());
            }
        }
        Some(open)
    }

    /// OPEN by a principal: adds to what the open is for.
    pub fn add_share(&mut self, number: u64, principal: &Principal, share: Share) {
        self.change(number, |open| {
            open.header.add_principal(principal);
            open.shares.add(share);
            true
        });
    }

    /// Gives blocking locks through the open a place in the queue.
    pub fn set_may_queue(&mut self, number: u64) {
        if let Some(open) = self.opens.get_mut(number) {
            open.may_queue = true;
        }
    }

    /// OPEN_DOWNGRADE. False if `to` isn't the union of some of the OPENs.
    pub fn downgrade(&mut self, number: u64, to: Share) -> bool {
        self.change(number, |open| open.shares.downgrade(to))
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Open<K>) -> bool) -> bool {
        let Some(open) = self.opens.get_mut(number) else { return false };
        let (before, denied) = (open.share(), open.shares.denies());
        if !change(open) {
            return false;
        }
        self.denials = self.denials + usize::from(open.shares.denies()) - usize::from(denied);
        if let Some(file) = self.files.get_mut(open.header.key()) {
            file.add(open.header.client(), open.share());
            file.remove(open.header.client(), before);
        }
        true
    }

    /// Whether the client has the file open.
    pub fn is_open_by(&self, key: &K, client: ClientId) -> bool {
        self.files.get(key).is_some_and(|file| file.find(client).is_ok())
    }

    /// One of the clients that have the file open.
    pub fn any_client(&self, key: &K) -> Option<ClientId> {
        self.files.get(key)?.clients.first().map(|(client, _)| *client)
    }

    /// The clients whose opens of the file conflict with `share`.
    pub fn conflicting_clients(&self, key: &K, share: Share) -> Vec<ClientId> {
        self.files.get(key).map_or_else(Vec::new, |file| file.conflicting_clients(share))
    }

    /// The access for which the client has the file open, and that for which other clients have.
    pub fn access(&self, key: &K, client: ClientId) -> (u8, u8) {
        self.files.get(key).map_or((0, 0), |file| file.access(client))
    }
}

impl ShareCounts {
    fn add(&mut self, share: Share) {
        self.opens += 1;
        for bit in 0..2 {
            self.access[bit] += u32::from(share.access >> bit & 1);
            self.deny[bit] += u32::from(share.deny >> bit & 1);
        }
    }

    fn remove(&mut self, share: Share) {
        self.opens -= 1;
        for bit in 0..2 {
            self.access[bit] -= u32::from(share.access >> bit & 1);
            self.deny[bit] -= u32::from(share.deny >> bit & 1);
        }
    }

    /// The union of all opens.
    const fn union(&self) -> Share {
        Share { access: bits(self.access), deny: bits(self.deny) }
    }
}

/// The bits whose count isn't 0.
const fn bits(counts: [u32; 2]) -> u8 {
    (counts[0] > 0) as u8 | ((counts[1] > 0) as u8) << 1
}

impl FileOpens {
    const fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    fn add(&mut self, client: ClientId, share: Share) {
        self.all.add(share);
        match self.find(client) {
            Ok(at) => self.clients[at].1.add(share),
            Err(at) => {
                if self.clients.is_empty() {
                    // Most files are opened by one client.
                    self.clients.reserve_exact(1);
                }
                self.clients.insert(at, (client, ShareCounts::default()));
                self.clients[at].1.add(share);
            }
        }
    }

    fn remove(&mut self, client: ClientId, share: Share) {
        let Ok(at) = self.find(client) else { return };
        self.all.remove(share);
        self.clients[at].1.remove(share);
        if self.clients[at].1.opens == 0 {
            self.clients.remove(at);
        }
    }

    fn conflicting_clients(&self, share: Share) -> Vec<ClientId> {
        if !self.all.union().conflicts(share) {
            return Vec::new();
        }
        let conflicting = self.clients.iter().filter(|(_, counts)| counts.union().conflicts(share));
        conflicting.map(|(client, _)| *client).collect()
    }

    fn access(&self, client: ClientId) -> (u8, u8) {
        let Ok(at) = self.find(client) else { return (0, self.all.union().access) };
        let own = &self.clients[at].1;
        let others = [0, 1].map(|bit| self.all.access[bit] - own.access[bit]);
        (own.union().access, bits(others))
    }

    fn find(&self, client: ClientId) -> Result<usize, usize> {
        self.clients.binary_search_by_key(&client, |(client, _)| *client)
    }
}

#[cfg(test)]
mod tests {
    use fairness::Peer;
    use proptest::prelude::*;

    use super::*;

    const FILES: u8 = 2;

    /// An open in a list: its number, file and client, and its OPENs.
    type Listed = (u64, u8, ClientId, OpenShares);

    /// What happens to an open, if there is one, and else a new one is made.
    #[derive(Debug, Clone)]
    enum OpenEvent {
        Open(u64, u8, Share),
        Share(prop::sample::Index, Share),
        Downgrade(prop::sample::Index, Share),
        Close(prop::sample::Index),
    }

    fn share() -> impl Strategy<Value = Share> {
        (1_u8..4, 0_u8..4).prop_map(|(access, deny)| Share { access, deny })
    }

    fn step() -> impl Strategy<Value = OpenEvent> {
        prop_oneof![
            (0_u64..4, 0..FILES, share())
                .prop_map(|(client, key, share)| OpenEvent::Open(client, key, share)),
            (any::<prop::sample::Index>(), share()).prop_map(|(which, share)| OpenEvent::Share(which, share)),
            (any::<prop::sample::Index>(), share()).prop_map(|(which, to)| OpenEvent::Downgrade(which, to)),
            any::<prop::sample::Index>().prop_map(OpenEvent::Close),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_counts_are_those_of_a_list_of_opens(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut table, mut list) = (OpenTable::<u8>::default(), Vec::<Listed>::new());
            let user = Principal::Sys(0);
            for (step, number) in steps.into_iter().zip(0_u64..) {
                let count = list.len();
                match step {
                    OpenEvent::Open(client, key, share) => {
                        let (client, owner) = (ClientId(client), number.to_be_bytes().to_vec());
                        let header = StateHeader::new(client, Peer::Local(0), key, user.clone());
                        table.insert(number, header, owner.clone());
                        table.add_share(number, &user, share);
                        let mut shares = OpenShares::default();
                        shares.add(share);
                        list.push((number, key, client, shares));
                        let found = table.find(&OwnerKey { client, key: &key, owner: &owner });
                        prop_assert_eq!(found, Some(number));
                    }
                    OpenEvent::Share(which, share) if count > 0 => {
                        let (number, _, _, shares) = &mut list[which.index(count)];
                        shares.add(share);
                        table.add_share(*number, &user, share);
                    }
                    OpenEvent::Downgrade(which, to) if count > 0 => {
                        let (number, _, _, shares) = &mut list[which.index(count)];
                        prop_assert_eq!(table.downgrade(*number, to), shares.downgrade(to));
                    }
                    OpenEvent::Close(which) if count > 0 => {
                        let (number, _, _, shares) = list.swap_remove(which.index(count));
                        let closed = table.remove(number).map(|open| open.share());
                        prop_assert_eq!(closed, Some(shares.union()));
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), list.len());
                prop_assert_eq!(table.has_denials(), list.iter().any(|(_, _, _, shares)| shares.denies()));
                for key in 0..FILES {
                    let on = || list.iter().filter(|(_, on, _, _)| *on == key);
                    prop_assert_eq!(table.files.contains_key(&key), on().count() > 0);
                    prop_assert_eq!(table.any_client(&key), on().map(|(_, _, client, _)| *client).min());
                    for client in (0..4).map(ClientId) {
                        prop_assert_eq!(table.is_open_by(&key, client), on().any(|open| open.2 == client));
                        let access = |own| {
                            let of = on().filter(|(_, _, holder, _)| (*holder == client) == own);
                            of.fold(0, |all, (_, _, _, shares)| all | shares.union().access)
                        };
                        prop_assert_eq!(table.access(&key, client), (access(true), access(false)));
                    }
                    for access in 1..4 {
                        for deny in 0..4 {
                            let wanted = Share { access, deny };
                            let conflicting = on().filter(|open| open.3.union().conflicts(wanted));
                            let mut clients: Vec<ClientId> = conflicting.map(|open| open.2).collect();
                            clients.sort_unstable();
                            clients.dedup();
                            prop_assert_eq!(table.conflicting_clients(&key, wanted), clients);
                        }
                    }
                }
            }
        }
    }
}
