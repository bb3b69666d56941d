//! Which state is an owner's on a file: open owners and lock owners have one each. Only the states' numbers
//! are kept, what they are found by is in the states.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};

use hashbrown::HashTable;

use crate::files::{Kind, State};
use crate::ids::ClientId;

/// What an owner's state on a file is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Whose<'a, K> {
    pub client: ClientId,
    pub key: &'a K,
    pub owner: &'a [u8],
    /// A lock owner.
    pub locks: bool,
}

/// All owners' states.
#[derive(Debug, Default)]
pub(crate) struct ByOwner {
    numbers: HashTable<u64>,
    hasher: RandomState,
}

impl<K, L> State<K, L> {
    /// Delegations have no owner.
    fn whose(&self) -> Option<Whose<'_, K>> {
        let (owner, locks) = match &self.kind {
            Kind::Open { owner, .. } => (owner, false),
            Kind::Lock { owner, .. } => (owner, true),
            Kind::Delegation { .. } => return None,
        };
        Some(Whose { client: self.client, key: &self.key, owner, locks })
    }
}

impl ByOwner {
    pub fn find<K: Eq + Hash, L>(
        &self,
        states: &HashMap<u64, State<K, L>>,
        whose: &Whose<'_, K>,
    ) -> Option<u64> {
        let is = |number: &u64| states.get(number).and_then(State::whose).as_ref() == Some(whose);
        self.numbers.find(self.hasher.hash_one(whose), is).copied()
    }

    /// Enters a state that is in `states`, if it has an owner.
    pub fn add<K: Eq + Hash, L>(&mut self, states: &HashMap<u64, State<K, L>>, number: u64) {
        let Self { numbers, hasher } = self;
        // One that had gone from `states` would be found no more, wherever it is.
        let hash = |number: &u64| {
            states.get(number).and_then(State::whose).map_or(0, |whose| hasher.hash_one(whose))
        };
        if states.get(&number).and_then(State::whose).is_some() {
            numbers.insert_unique(hash(&number), number, hash);
        }
    }

    /// Takes out a state.
    pub fn remove<K: Eq + Hash, L>(&mut self, state: &State<K, L>, number: u64) {
        let Some(whose) = state.whose() else { return };
        if let Ok(entry) = self.numbers.find_entry(self.hasher.hash_one(whose), |other| *other == number) {
            entry.remove();
        }
    }
}
