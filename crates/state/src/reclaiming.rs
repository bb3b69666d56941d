//! The client instances that may still reclaim, and who may end each of them.
//!
//! A client that is confirmed ends its former instances. Any peer can make the server ask for them as often
//! as it likes, and other peers' clients may have tens of thousands of records. So they are found by owner
//! and holder, and other clients' records aren't looked at.
//!
//! Invariant: an instance is in `former` under its owner and holder if and only if it has a holder.

use std::collections::{BTreeSet, HashMap};

use crate::client_table::{ClientRecord, RecordHolder, instance, owner_of_instance, verifier_of_instance};

/// The instances that may still reclaim.
#[derive(Debug, Default)]
pub(crate) struct Reclaiming {
    holders: HashMap<Vec<u8>, Option<RecordHolder>>,
    /// The verifiers of the instances of one owner that have one holder.
    former: HashMap<HeldOwner, BTreeSet<[u8; 8]>>,
}

/// An owner string, and who may end the instances that have it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HeldOwner {
    owner: Vec<u8>,
    holder: RecordHolder,
}

impl HeldOwner {
    fn of(instance: &[u8], holder: &RecordHolder) -> Self {
        Self { owner: owner_of_instance(instance).to_owned(), holder: holder.clone() }
    }
}

impl Reclaiming {
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub fn contains(&self, instance: &[u8]) -> bool {
        self.holders.contains_key(instance)
    }

    /// Adds an instance. One that is there has the record's holder from now on.
    pub fn insert(&mut self, record: ClientRecord) {
        self.remove(&record.instance);
        if let Some((holder, verifier)) = record.holder.as_ref().zip(verifier_of_instance(&record.instance)) {
            self.former.entry(HeldOwner::of(&record.instance, holder)).or_default().insert(verifier);
        }
        self.holders.insert(record.instance, record.holder);
    }

    pub fn remove(&mut self, instance: &[u8]) {
        let holder = self.holders.remove(instance).flatten();
        let Some((holder, verifier)) = holder.zip(verifier_of_instance(instance)) else { return };
        let owner = HeldOwner::of(instance, &holder);
        if let Some(verifiers) = self.former.get_mut(&owner) {
            verifiers.remove(&verifier);
            if verifiers.is_empty() {
                self.former.remove(&owner);
            }
        }
    }

    /// Removes all instances, and returns them.
    pub fn take(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        std::mem::take(self).holders.into_keys()
    }

    /// The other instances of this one's owner that `holder` may end. It takes time for these only.
    pub fn former_instances(&self, of: &[u8], holder: &RecordHolder) -> Vec<Vec<u8>> {
        let owner = HeldOwner::of(of, holder);
        let verifiers = self.former.get(&owner).into_iter().flatten();
        verifiers.map(|verifier| instance(&owner.owner, *verifier)).filter(|other| other != of).collect()
    }
}

impl Extend<ClientRecord> for Reclaiming {
    fn extend<I: IntoIterator<Item = ClientRecord>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.insert(record));
    }
}

#[cfg(test)]
mod tests {
    use fairness::Peer;
    use proptest::prelude::*;

    use super::*;
    use crate::principal::Principal;

    fn record(owner: u8, verifier: u8, holder: Option<(u32, u32)>) -> ClientRecord {
        let holder =
            holder.and_then(|(host, user)| RecordHolder::new(Peer::Local(host), &Principal::Sys(user)));
        ClientRecord { instance: instance(&[owner], [verifier; 8]), holder }
    }

    /// What the search through all records finds, sorted.
    fn searched(records: &HashMap<Vec<u8>, ClientRecord>, of: &ClientRecord) -> Vec<Vec<u8>> {
        let is_former = |other: &&ClientRecord| {
            owner_of_instance(&other.instance) == owner_of_instance(&of.instance)
                && other.instance != of.instance
                && other.holder == of.holder
        };
        let mut found: Vec<_> =
            records.values().filter(is_former).map(|record| record.instance.clone()).collect();
        found.sort();
        found
    }

    fn any_record() -> impl Strategy<Value = ClientRecord> {
        (0_u8..3, 0_u8..3, proptest::option::of((0_u32..2, 0_u32..2)))
            .prop_map(|(owner, verifier, holder)| record(owner, verifier, holder))
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn former_instances_are_those_of_a_search_through_all_records(
            steps in proptest::collection::vec((any_record(), 0_u8..20), 1..80)
        ) {
            let (mut reclaiming, mut records) = (Reclaiming::default(), HashMap::new());
            for (record, what) in steps {
                match what {
                    0 => {
                        let mut taken: Vec<_> = reclaiming.take().collect();
                        taken.sort();
                        let mut all: Vec<_> = records.drain().map(|(instance, _)| instance).collect();
                        all.sort();
                        prop_assert_eq!(taken, all);
                    }
                    1..8 => {
                        reclaiming.remove(&record.instance);
                        records.remove(&record.instance);
                    }
                    _ => {
                        reclaiming.insert(record.clone());
                        records.insert(record.instance.clone(), record.clone());
                    }
                }
                prop_assert_eq!(reclaiming.is_empty(), records.is_empty());
                let instance = &record.instance;
                prop_assert_eq!(reclaiming.contains(instance), records.contains_key(instance));
                for of in records.values().chain([&record]) {
                    if let Some(holder) = &of.holder {
                        let found = reclaiming.former_instances(&of.instance, holder);
                        prop_assert_eq!(found, searched(&records, of));
                    }
                }
                let indexed: usize = reclaiming.former.values().map(BTreeSet::len).sum();
                prop_assert_eq!(indexed, records.values().filter(|record| record.holder.is_some()).count());
                prop_assert!(reclaiming.former.values().all(|verifiers| !verifiers.is_empty()));
            }
        }
    }

    /// The attack: a client restarts again and again, while everybody else's records, many with its own
    /// owner string, wait to be reclaimed. What each of its restarts looks at is what it left itself.
    #[test]
    fn a_restart_looks_at_the_records_of_its_own_client_only() {
        let mut reclaiming = Reclaiming::default();
        for host in 0..10_000 {
            reclaiming.insert(record(1, 1, Some((1 + host, 0))));
            reclaiming.insert(record((host % 251) as u8, 2 + (host / 251) as u8, Some((0, 1 + host))));
        }
        for restart in 1..200 {
            let (last, next) = (record(1, restart - 1, Some((0, 0))), record(1, restart, Some((0, 0))));
            reclaiming.insert(last.clone());
            let holder = next.holder.as_ref().unwrap();
            let looked_at = &reclaiming.former[&HeldOwner::of(&next.instance, holder)];
            assert_eq!(looked_at.len(), 1);
            let former = reclaiming.former_instances(&next.instance, holder);
            assert_eq!(former, std::slice::from_ref(&last.instance));
            reclaiming.remove(&last.instance);
        }
    }
}
