//! The lock states: by number, by owner, by the open that they were made through, and the locks on each file.
//!
//! Invariants: a file's [`LockTree`] has exactly the ranges of the lock states on it, and every lock state is
//! found by its open.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use ahash::HashMap;
use lock_ranges::{ByteRange, LockKind, LockRanges, RangeChange};

use crate::ids::ClientId;
use crate::lock_tree::LockTree;
use crate::owner_index::{OwnedState, OwnedStates, OwnerKey};
use crate::state_header::StateHeader;

/// A lock owner within a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockOwner {
    /// The client.
    pub client: ClientId,
    /// The owner, as the client calls it.
    pub owner: Vec<u8>,
}

/// The lock in the way of a LOCK or LOCKT (`LOCK4denied`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockDenied {
    /// Its bytes.
    pub range: ByteRange,
    /// Its kind.
    pub kind: LockKind,
    /// Its owner.
    pub owner: LockOwner,
}

/// The locks of one owner on one file.
#[derive(Debug)]
pub(crate) struct Lock<K, L> {
    header: StateHeader<K>,
    owner: Vec<u8>,
    open: u64,
    ranges: LockRanges,
    resources: Arc<L>,
}

/// All lock states.
#[derive(Debug)]
pub(crate) struct LockTable<K, L> {
    locks: OwnedStates<Lock<K, L>>,
    /// Files with locked ranges.
    files: HashMap<K, LockTree>,
    /// Opens and the lock states that were made through them.
    by_open: BTreeSet<(u64, u64)>,
}

impl<K: Eq + Hash, L> OwnedState for Lock<K, L> {
    type Key = K;

    fn header(&self) -> &StateHeader<K> {
        &self.header
    }

    fn owner(&self) -> &[u8] {
        &self.owner
    }
}

impl<K, L> Lock<K, L> {
    /// The open that the first lock was made through.
    pub const fn open(&self) -> u64 {
        self.open
    }

    pub const fn ranges(&self) -> &LockRanges {
        &self.ranges
    }

    /// What the caller keeps for the lock owner.
    pub const fn resources(&self) -> &Arc<L> {
        &self.resources
    }

    /// The owner within its client.
    pub fn lock_owner(&self) -> LockOwner {
        LockOwner { client: self.header.client(), owner: self.owner.clone() }
    }
}

impl<K, L> Default for LockTable<K, L> {
    fn default() -> Self {
        Self { locks: OwnedStates::default(), files: HashMap::default(), by_open: BTreeSet::new() }
    }
}

impl<K: Clone + Eq + Hash, L: Default> LockTable<K, L> {
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    pub fn get(&self, number: u64) -> Option<&Lock<K, L>> {
        self.locks.get(number)
    }

    pub fn header_mut(&mut self, number: u64) -> Option<&mut StateHeader<K>> {
        self.locks.get_mut(number).map(|lock| &mut lock.header)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Lock<K, L>)> {
        self.locks.iter()
    }

    /// The lock state of an owner on a file.
    pub fn find(&self, key: &K, owner: &LockOwner) -> Option<u64> {
        self.locks.find(&OwnerKey { client: owner.client, key, owner: &owner.owner })
    }

    /// The lock states that were made through an open.
    pub fn of_open(&self, open: u64) -> Vec<u64> {
        self.by_open.range((open, 0)..=(open, u64::MAX)).map(|(_, number)| *number).collect()
    }

    /// Adds a lock state without ranges, of an owner that has none on the file.
    pub fn insert(&mut self, number: u64, header: StateHeader<K>, owner: Vec<u8>, open: u64) {
        self.by_open.insert((open, number));
        let (ranges, resources) = (LockRanges::default(), Arc::default());
        self.locks.insert(number, Lock { header, owner, open, ranges, resources });
    }

    /// Removes a lock state; the returned one has its ranges still.
    pub fn remove(&mut self, number: u64) -> Option<Lock<K, L>> {
        let lock = self.locks.remove(number)?;
        self.by_open.remove(&(lock.open, number));
        let change = lock.ranges.clone().set(ByteRange::ALL, None);
        self.apply(lock.header.key(), number, &change);
        Some(lock)
    }

    /// Locks a range as `kind`, or unlocks it.
    pub fn set_range(
        &mut self,
        number: u64,
        range: ByteRange,
        kind: Option<LockKind>,
    ) -> Option<RangeChange> {
        let lock = self.locks.get_mut(number)?;
        let change = lock.ranges.set(range, kind);
        let key = lock.header.key().clone();
        self.apply(&key, number, &change);
        Some(change)
    }

    fn apply(&mut self, key: &K, number: u64, change: &RangeChange) {
        if !change.added.is_empty() {
            self.files.entry(key.clone()).or_default().apply(number, change);
        } else if let Some(tree) = self.files.get_mut(key) {
            tree.apply(number, change);
            if tree.is_empty() {
                self.files.remove(key);
            }
        }
    }

    /// The lock state, other than `own`, with a lock that conflicts with a lock of `range`.
    pub fn conflict(&self, key: &K, own: Option<u64>, range: ByteRange, kind: LockKind) -> Option<u64> {
        self.files.get(key)?.conflict(own, range, kind)
    }

    /// The lock that keeps an owner from locking `range`.
    pub fn denied(&self, key: &K, own: Option<u64>, range: ByteRange, kind: LockKind) -> Option<LockDenied> {
        let lock = self.get(self.conflict(key, own, range, kind)?)?;
        let (range, kind) = lock.ranges.conflict(range, kind)?;
        Some(LockDenied { range, kind, owner: lock.lock_owner() })
    }
}

#[cfg(test)]
mod tests {
    use fairness::Peer;
    use proptest::prelude::*;

    use super::*;
    use crate::principal::Principal;

    /// A lock state in a list: its number, file and open, and its ranges.
    type Listed = (u64, u8, u64, LockRanges);

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_files_have_the_locks_of_a_list_of_states(
            steps in proptest::collection::vec((0_u8..2, 0_u64..3, 0_u64..24, 1_u64..9, 0_u8..5), 1..60)
        ) {
            let (mut table, mut list) = (LockTable::<u8, ()>::default(), Vec::<Listed>::new());
            for ((key, open, first, length, what), number) in steps.into_iter().zip(0_u64..) {
                let range = ByteRange::of(first, length).unwrap();
                let which = list.iter().position(|(_, on, by, _)| (*on, *by) == (key, open));
                match (what, which) {
                    (_, None) => {
                        let header = StateHeader::new(ClientId(1), Peer::Local(0), key, Principal::Sys(0));
                        let owner = LockOwner { client: ClientId(1), owner: open.to_be_bytes().to_vec() };
                        table.insert(number, header, owner.owner.clone(), open);
                        prop_assert_eq!(table.find(&key, &owner), Some(number));
                        list.push((number, key, open, LockRanges::default()));
                    }
                    (4, Some(which)) => {
                        let (number, _, _, ranges) = list.swap_remove(which);
                        prop_assert_eq!(table.remove(number).map(|lock| lock.ranges), Some(ranges));
                    }
                    (_, Some(which)) => {
                        let kind = [Some(LockKind::Read), Some(LockKind::Write), None][usize::from(what % 3)];
                        list[which].3.set(range, kind);
                        prop_assert!(table.set_range(list[which].0, range, kind).is_some());
                    }
                }
                prop_assert_eq!(table.len(), list.len());
                for open in 0..3 {
                    let mut of_open: Vec<u64> =
                        list.iter().filter(|(_, _, by, _)| *by == open).map(|listed| listed.0).collect();
                    of_open.sort_unstable();
                    prop_assert_eq!(table.of_open(open), of_open);
                }
                for key in 0..2 {
                    let on = || list.iter().filter(|(_, on, _, ranges)| *on == key && !ranges.is_empty());
                    prop_assert_eq!(table.files.contains_key(&key), on().count() > 0);
                    for kind in [LockKind::Read, LockKind::Write] {
                        for own in list.iter().map(|(number, ..)| Some(*number)).chain([None]) {
                            let mut others = on().filter(|(number, ..)| Some(*number) != own);
                            let is_denied = others.any(|listed| listed.3.conflict(range, kind).is_some());
                            prop_assert_eq!(table.denied(&key, own, range, kind).is_some(), is_denied);
                        }
                    }
                }
            }
        }
    }
}
