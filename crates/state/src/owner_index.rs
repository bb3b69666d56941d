//! States that have an owner, found by their number, or by client, file and owner.
//!
//! Invariant: an owner has at most one state on a file, and every state is found both ways. The index by
//! owner holds numbers only; what it compares is in the states.

use std::hash::Hash;

use ahash::{HashMap, RandomState};
use hashbrown::HashTable;

use crate::ids::ClientId;
use crate::state_header::StateHeader;

/// The owner of a state on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OwnerKey<'a, K> {
    pub client: ClientId,
    pub key: &'a K,
    pub owner: &'a [u8],
}

/// A state that belongs to an open owner or a lock owner.
pub(crate) trait OwnedState {
    /// What names a file.
    type Key: Eq + Hash;

    /// The state's common part.
    fn header(&self) -> &StateHeader<Self::Key>;

    /// The owner, as the client calls it. It never changes.
    fn owner(&self) -> &[u8];

    /// What the state is found by.
    fn owner_key(&self) -> OwnerKey<'_, Self::Key> {
        let header = self.header();
        OwnerKey { client: header.client(), key: header.key(), owner: self.owner() }
    }
}

/// States by number and by owner.
#[derive(Debug)]
pub(crate) struct OwnedStates<S> {
    states: HashMap<u64, S>,
    by_owner: HashTable<u64>,
    hasher: RandomState,
}

impl<S> Default for OwnedStates<S> {
    fn default() -> Self {
        Self { states: HashMap::default(), by_owner: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<S: OwnedState> OwnedStates<S> {
    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn get(&self, number: u64) -> Option<&S> {
        self.states.get(&number)
    }

    /// A state to change, but not in what it is found by.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut S> {
        self.states.get_mut(&number)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &S)> {
        self.states.iter().map(|(number, state)| (*number, state))
    }

    /// The number of an owner's state on a file.
    pub fn find(&self, owner: &OwnerKey<'_, S::Key>) -> Option<u64> {
        let is_found = |number: &u64| self.get(*number).is_some_and(|state| state.owner_key() == *owner);
        self.by_owner.find(self.hasher.hash_one(owner), is_found).copied()
    }

    /// Adds a state with a new number, of an owner that has none on the file.
    pub fn insert(&mut self, number: u64, state: S) {
        let Self { states, by_owner, hasher } = self;
        let hash = hasher.hash_one(state.owner_key());
        states.insert(number, state);
        // Every number in the table is a state's.
        let rehash = |number: &u64| states.get(number).map_or(0, |state| hasher.hash_one(state.owner_key()));
        by_owner.insert_unique(hash, number, rehash);
    }

    pub fn remove(&mut self, number: u64) -> Option<S> {
        let state = self.states.remove(&number)?;
        let hash = self.hasher.hash_one(state.owner_key());
        if let Ok(entry) = self.by_owner.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fairness::Peer;
    use proptest::prelude::*;

    use super::*;
    use crate::principal::Principal;

    struct Owned(StateHeader<u8>, Vec<u8>);

    impl OwnedState for Owned {
        type Key = u8;

        fn header(&self) -> &StateHeader<u8> {
            &self.0
        }

        fn owner(&self) -> &[u8] {
            &self.1
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn states_are_found_by_number_and_by_owner(
            steps in proptest::collection::vec((0_u64..3, 0_u8..3, 0_u8..3, any::<bool>()), 1..80)
        ) {
            let (mut states, mut list) = (OwnedStates::<Owned>::default(), BTreeMap::new());
            for ((client, key, owner, removes), number) in steps.into_iter().zip(0_u64..) {
                let named = (client, key, owner);
                if removes {
                    let removed = list.remove(&named).and_then(|number| states.remove(number));
                    if let Some(Owned(header, name)) = removed {
                        prop_assert_eq!((header.client().0, *header.key(), name), (client, key, vec![owner]));
                    }
                } else if let std::collections::btree_map::Entry::Vacant(free) = list.entry(named) {
                    free.insert(number);
                    let header = StateHeader::new(ClientId(client), Peer::Local(0), key, Principal::Sys(0));
                    states.insert(number, Owned(header, vec![owner]));
                }
                prop_assert_eq!(states.len(), list.len());
                for (client, key, owner) in (0..27).map(|at| (u64::from(at / 9), at / 3 % 3, at % 3)) {
                    let number = list.get(&(client, key, owner)).copied();
                    let owned_by = OwnerKey { client: ClientId(client), key: &key, owner: &[owner] };
                    prop_assert_eq!(states.find(&owned_by), number);
                    prop_assert!(number.is_none_or(|number| states.get(number).is_some()));
                }
            }
        }
    }
}
