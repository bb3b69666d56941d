//! The delegations: by number, by file, by the peers that they were given to, and by when they are revoked.
//!
//! Invariants: a file has one write delegation, or any number of read delegations, one a client. The counts
//! and indexes are those of the delegations in the table. Read delegations are found without looking at one
//! another, since a popular file has as many as there are clients.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use ahash::HashMap;
use fairness::Peer;

use crate::engine::Time;
use crate::ids::ClientId;
use crate::state_header::StateHeader;

/// A delegation.
#[derive(Debug)]
pub(crate) struct Delegation<K, L> {
    header: StateHeader<K>,
    grantee: Grantee,
    recall: Option<RecallTimes>,
    resources: Arc<L>,
}

/// To whom a delegation was given, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grantee {
    /// The peer that asked for it.
    pub peer: Peer,
    /// A write delegation.
    pub writes: bool,
    /// The user could open the file for writing, whatever the delegation is for.
    pub may_write: bool,
}

/// The times of a recall.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecallTimes {
    /// The first recall.
    started: Time,
    /// When the delegation is revoked.
    revoke_at: Time,
}

/// What a recall has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecallStarted {
    /// It is the first recall of the delegation.
    pub is_first: bool,
}

/// All delegations.
#[derive(Debug)]
pub(crate) struct DelegationTable<K, L> {
    delegations: HashMap<u64, Delegation<K, L>>,
    files: HashMap<K, FileDelegations>,
    /// The number of read and of write delegations.
    counts: [usize; 2],
    by_peer: BTreeSet<(Peer, u64)>,
    /// Recalled delegations, by when they are revoked.
    recalled: BTreeSet<(Time, u64)>,
}

/// The delegations of one file.
#[derive(Debug, Default)]
struct FileDelegations {
    readers: BTreeMap<ClientId, u64>,
    writer: Option<(ClientId, u64)>,
}

impl RecallTimes {
    /// Whether the delegation is due to be revoked.
    pub fn is_over(self, now: Time) -> bool {
        now >= self.revoke_at
    }

    /// Whether more than half of the time to return the delegation has passed.
    pub const fn is_late(self, now: Time) -> bool {
        now.0.saturating_sub(self.started.0) > self.revoke_at.0.saturating_sub(now.0)
    }
}

impl<K, L> Delegation<K, L> {
    pub const fn header(&self) -> &StateHeader<K> {
        &self.header
    }

    pub const fn grantee(&self) -> Grantee {
        self.grantee
    }

    /// The recall, if the delegation was recalled.
    pub const fn recall(&self) -> Option<RecallTimes> {
        self.recall
    }

    /// What the caller keeps for the delegation.
    pub const fn resources(&self) -> &Arc<L> {
        &self.resources
    }
}

impl<K, L> Default for DelegationTable<K, L> {
    fn default() -> Self {
        let (by_peer, recalled) = Default::default();
        Self { delegations: HashMap::default(), files: HashMap::default(), counts: [0; 2], by_peer, recalled }
    }
}

impl<K: Clone + Eq + Hash, L: Default> DelegationTable<K, L> {
    pub fn len(&self) -> usize {
        self.delegations.len()
    }

    /// The number of read and of write delegations.
    pub const fn counts(&self) -> [usize; 2] {
        self.counts
    }

    pub fn get(&self, number: u64) -> Option<&Delegation<K, L>> {
        self.delegations.get(&number)
    }

    pub fn header_mut(&mut self, number: u64) -> Option<&mut StateHeader<K>> {
        self.delegations.get_mut(&number).map(|delegation| &mut delegation.header)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Delegation<K, L>)> {
        self.delegations.iter().map(|(number, delegation)| (*number, delegation))
    }

    /// Adds a delegation of a file that has no write delegation, to a client that has none of the file; a
    /// write delegation only of a file without delegations.
    pub fn insert(&mut self, number: u64, header: StateHeader<K>, grantee: Grantee) -> Arc<L> {
        let file = self.files.entry(header.key().clone()).or_default();
        if grantee.writes {
            file.writer = Some((header.client(), number));
        } else {
            file.readers.insert(header.client(), number);
        }
        self.counts[usize::from(grantee.writes)] += 1;
        self.by_peer.insert((grantee.peer, number));
        let resources = Arc::default();
        let delegation = Delegation { header, grantee, recall: None, resources: Arc::clone(&resources) };
        self.delegations.insert(number, delegation);
        resources
    }

    pub fn remove(&mut self, number: u64) -> Option<Delegation<K, L>> {
        let delegation = self.delegations.remove(&number)?;
        let Delegation { header, grantee, recall, .. } = &delegation;
        if let Some(file) = self.files.get_mut(header.key()) {
            if grantee.writes {
                file.writer = None;
            } else {
                file.readers.remove(&header.client());
            }
            if file.writer.is_none() && file.readers.is_empty() {
                self.files.remove(header.key());
            }
        }
        self.counts[usize::from(grantee.writes)] -= 1;
        self.by_peer.remove(&(grantee.peer, number));
        if let Some(recall) = recall {
            self.recalled.remove(&(recall.revoke_at, number));
        }
        Some(delegation)
    }

    /// Recalls a delegation: it is revoked at `deadline`, or when it was to be revoked before, if that is
    /// earlier.
    pub fn recall(&mut self, now: Time, number: u64, deadline: Time) -> Option<RecallStarted> {
        let recall = &mut self.delegations.get_mut(&number)?.recall;
        let before = *recall;
        if before.is_none_or(|before| deadline < before.revoke_at) {
            let started = before.map_or(now, |before| before.started);
            *recall = Some(RecallTimes { started, revoke_at: deadline });
            if let Some(before) = before {
                self.recalled.remove(&(before.revoke_at, number));
            }
            self.recalled.insert((deadline, number));
        }
        Some(RecallStarted { is_first: before.is_none() })
    }

    /// No recalled delegation is revoked before `until`.
    pub fn postpone_revocations(&mut self, until: Time) {
        let later = self.recalled.split_off(&(until, 0));
        for (_, number) in std::mem::replace(&mut self.recalled, later) {
            let delegation = self.delegations.get_mut(&number);
            if let Some(recall) = delegation.and_then(|delegation| delegation.recall.as_mut()) {
                recall.revoke_at = until;
                self.recalled.insert((until, number));
            }
        }
    }

    /// The delegations that are due to be revoked, the longest due first.
    pub fn overdue(&self, now: Time) -> Vec<u64> {
        self.recalled.range(..=(now, u64::MAX)).map(|(_, number)| *number).collect()
    }

    /// The delegations that were given to a peer.
    pub fn of_peer(&self, peer: Peer) -> Vec<u64> {
        self.by_peer.range((peer, 0)..=(peer, u64::MAX)).map(|(_, number)| *number).collect()
    }

    /// Whether there is any delegation of the file.
    pub fn is_delegated(&self, key: &K) -> bool {
        self.files.contains_key(key)
    }

    /// The write delegation of the file.
    pub fn writer(&self, key: &K) -> Option<u64> {
        self.files.get(key)?.writer.map(|(_, number)| number)
    }

    /// Whether the client has a delegation of the file.
    pub fn is_held_by(&self, key: &K, client: ClientId) -> bool {
        self.files.get(key).is_some_and(|file| {
            file.readers.contains_key(&client) || file.writer.is_some_and(|(writer, _)| writer == client)
        })
    }

    /// One of the clients that have a delegation of the file.
    pub fn any_client(&self, key: &K) -> Option<ClientId> {
        let FileDelegations { readers, writer } = self.files.get(key)?;
        writer.map(|(writer, _)| writer).or_else(|| readers.keys().next().copied())
    }

    /// The delegations of the file that other clients than `by` have: all, or only the write delegation.
    pub fn of_others(&self, key: &K, by: Option<ClientId>, all: bool) -> Vec<u64> {
        let Some(FileDelegations { readers, writer }) = self.files.get(key) else { return Vec::new() };
        let readers = all.then_some(readers).into_iter().flatten();
        let held = writer.iter().copied().chain(readers.map(|(client, number)| (*client, *number)));
        held.filter(|(client, _)| Some(*client) != by).map(|(_, number)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::principal::Principal;

    const PEERS: [Peer; 2] = [Peer::Local(1), Peer::Local(2)];

    /// A delegation in a list.
    #[derive(Debug, Clone)]
    struct Listed {
        number: u64,
        key: u8,
        client: ClientId,
        grantee: Grantee,
        revoke_at: Option<Time>,
    }

    #[derive(Debug, Clone)]
    enum DelegationEvent {
        Give(u64, u8, bool, usize),
        Recall(prop::sample::Index, u64),
        Postpone(u64),
        End(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = DelegationEvent> {
        prop_oneof![
            3 => (0_u64..4, 0_u8..2, any::<bool>(), 0_usize..2)
                .prop_map(|(client, key, writes, peer)| DelegationEvent::Give(client, key, writes, peer)),
            3 => (any::<prop::sample::Index>(), 0_u64..20)
                .prop_map(|(which, at)| DelegationEvent::Recall(which, at)),
            1 => (0_u64..20).prop_map(DelegationEvent::Postpone),
            2 => any::<prop::sample::Index>().prop_map(DelegationEvent::End),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_indexes_are_those_of_a_list_of_delegations(steps in proptest::collection::vec(step(), 1..60)) {
            let (mut table, mut list) = (DelegationTable::<u8, ()>::default(), Vec::<Listed>::new());
            for (step, number) in steps.into_iter().zip(0_u64..) {
                let count = list.len();
                match step {
                    DelegationEvent::Give(client, key, writes, peer) => {
                        let client = ClientId(client);
                        let mut on = list.iter().filter(|listed| listed.key == key);
                        if !on.any(|other| writes || other.grantee.writes || other.client == client) {
                            let grantee = Grantee { peer: PEERS[peer], writes, may_write: true };
                            let header = StateHeader::new(client, PEERS[peer], key, Principal::Sys(0));
                            table.insert(number, header, grantee);
                            list.push(Listed { number, key, client, grantee, revoke_at: None });
                        }
                    }
                    DelegationEvent::Recall(which, at) if count > 0 => {
                        let listed = &mut list[which.index(count)];
                        let started = table.recall(Time(0), listed.number, Time(at));
                        prop_assert_eq!(
                            started,
                            Some(RecallStarted { is_first: listed.revoke_at.is_none() })
                        );
                        listed.revoke_at =
                            Some(listed.revoke_at.map_or(Time(at), |before| before.min(Time(at))));
                    }
                    DelegationEvent::Postpone(until) => {
                        table.postpone_revocations(Time(until));
                        list.iter_mut()
                            .filter_map(|listed| listed.revoke_at.as_mut())
                            .for_each(|at| *at = (*at).max(Time(until)));
                    }
                    DelegationEvent::End(which) if count > 0 => {
                        let listed = list.swap_remove(which.index(count));
                        prop_assert!(table.remove(listed.number).is_some());
                    }
                    _ => {}
                }
                let is_writer = |writes: bool| list.iter().filter(|one| one.grantee.writes == writes).count();
                prop_assert_eq!(table.counts(), [false, true].map(is_writer));
                prop_assert_eq!((table.len(), table.by_peer.len()), (list.len(), list.len()));
                let numbers = |of: &dyn Fn(&&Listed) -> bool| {
                    let mut numbers: Vec<u64> = list.iter().filter(of).map(|listed| listed.number).collect();
                    numbers.sort_unstable();
                    numbers
                };
                for peer in PEERS {
                    prop_assert_eq!(table.of_peer(peer), numbers(&|listed| listed.grantee.peer == peer));
                }
                for now in (0..20).map(Time) {
                    let mut overdue = table.overdue(now);
                    overdue.sort_unstable();
                    prop_assert_eq!(overdue, numbers(&|listed| listed.revoke_at.is_some_and(|at| at <= now)));
                }
                for key in 0..2 {
                    let on = numbers(&|listed| listed.key == key);
                    prop_assert_eq!(table.is_delegated(&key), !on.is_empty());
                    prop_assert_eq!(table.any_client(&key).is_some(), !on.is_empty());
                    let writer = numbers(&|listed| listed.key == key && listed.grantee.writes);
                    prop_assert_eq!(table.writer(&key), writer.first().copied());
                    for client in (0..4).map(ClientId) {
                        let own = numbers(&|listed| listed.key == key && listed.client == client);
                        prop_assert_eq!(table.is_held_by(&key, client), !own.is_empty());
                        for all in [false, true] {
                            let mut others = table.of_others(&key, Some(client), all);
                            others.sort_unstable();
                            let expected = numbers(&|listed| {
                                let in_the_way = all || listed.grantee.writes;
                                listed.key == key && listed.client != client && in_the_way
                            });
                            prop_assert_eq!(others, expected);
                        }
                    }
                }
            }
        }
    }
}
