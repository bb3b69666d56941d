//! The locks of several owners on one open file description.
//!
//! The kernel tells locks apart by the description that they were made on (fcntl_locking(2), `F_OFD_SETLK`).
//! Owners that share a description have one set of locks there: the kernel grants one owner what another has
//! locked, and an unlock by one owner unlocks for all. [`DescriptionLocks`] knows the locks of each owner.
//! With it the caller asks the kernel only for locks that don't conflict, and unlocks only what no other
//! owner has locked.

use ahash::HashMap;
use lock_ranges::{ByteRange, LockKind, LockRanges};

use crate::lock_tree::LockTree;

/// The locks of each owner on one open file description. An owner is a number that
/// [`DescriptionLocks::add_owner`] gives.
#[derive(Debug, Default)]
pub struct DescriptionLocks {
    owners: HashMap<u64, LockRanges>,
    tree: LockTree,
    next: u64,
}

impl DescriptionLocks {
    /// A new owner, without locks.
    pub fn add_owner(&mut self) -> u64 {
        self.next += 1;
        self.owners.insert(self.next, LockRanges::default());
        self.next
    }

    /// A lock of another owner that conflicts with a lock of `range`.
    #[must_use]
    pub fn conflict(&self, owner: u64, range: ByteRange, kind: LockKind) -> Option<(ByteRange, LockKind)> {
        let other = self.tree.conflict(Some(owner), range, kind)?;
        self.owners.get(&other)?.conflict(range, kind)
    }

    /// Notes a lock that the kernel has granted.
    pub fn lock(&mut self, owner: u64, range: ByteRange, kind: LockKind) {
        self.set(owner, range, Some(kind));
    }

    /// What the kernel must unlock when an owner unlocks `range`: the parts that no other owner has locked.
    #[must_use]
    pub fn exclusive_ranges(&self, owner: u64, range: ByteRange) -> Vec<ByteRange> {
        let Some(own) = self.owners.get(&owner) else { return Vec::new() };
        if self.owners.len() == 1 {
            return vec![range];
        }
        let mut found = Vec::new();
        for (held, kind) in own.within(range) {
            match kind {
                LockKind::Write => found.push(held),
                LockKind::Read => self.without_other_readers(owner, held, &mut found),
            }
        }
        found
    }

    /// Adds to `found` the parts of `range`, a read lock of the owner, that no other owner has locked.
    fn without_other_readers(&self, owner: u64, mut range: ByteRange, found: &mut Vec<ByteRange>) {
        loop {
            // This owner's lock reaches farthest: no other owner has the bytes behind it.
            let other = self.tree.conflict(Some(owner), range, LockKind::Write);
            let last = other.and_then(|other| self.owners.get(&other)?.within(range).last());
            let Some((theirs, _)) = last else {
                found.push(range);
                return;
            };
            if theirs.last < range.last {
                found.push(ByteRange { first: theirs.last + 1, ..range });
            }
            if theirs.first == range.first {
                return;
            }
            range.last = theirs.first - 1;
        }
    }

    /// Notes that an owner has unlocked a range.
    pub fn unlock(&mut self, owner: u64, range: ByteRange) {
        self.set(owner, range, None);
    }

    /// Removes an owner; what the kernel must unlock.
    pub fn remove_owner(&mut self, owner: u64) -> Vec<ByteRange> {
        let left = match self.owners.get(&owner) {
            Some(own) if !own.is_empty() => self.exclusive_ranges(owner, ByteRange::ALL),
            _ => Vec::new(),
        };
        self.set(owner, ByteRange::ALL, None);
        self.owners.remove(&owner);
        left
    }

    /// All locks of an owner.
    #[must_use]
    pub fn locks_of(&self, owner: u64) -> Vec<(ByteRange, LockKind)> {
        self.owners.get(&owner).map_or_else(Vec::new, |own| own.within(ByteRange::ALL).collect())
    }

    /// The ranges that no owner has locked.
    #[must_use]
    pub fn unlocked_ranges(&self) -> Vec<ByteRange> {
        let mut held: Vec<ByteRange> =
            self.owners.values().flat_map(|own| own.within(ByteRange::ALL)).map(|(range, _)| range).collect();
        held.sort_unstable_by_key(|range| range.first);
        let (mut found, mut next) = (Vec::new(), Some(0));
        for ByteRange { first, last } in held {
            let Some(from) = next else { break };
            if from < first {
                found.push(ByteRange { first: from, last: first - 1 });
            }
            next = if last < from { Some(from) } else { last.checked_add(1) };
        }
        found.extend(next.map(|first| ByteRange { first, last: u64::MAX }));
        found
    }

    fn set(&mut self, owner: u64, range: ByteRange, kind: Option<LockKind>) {
        if let Some(own) = self.owners.get_mut(&owner) {
            let change = own.set(range, kind);
            self.tree.apply(owner, &change);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 24;
    type ByteTable = Vec<[Option<LockKind>; BYTES]>;

    fn bytes(range: ByteRange) -> std::ops::RangeInclusive<usize> {
        range.first as usize..=(range.last as usize).min(BYTES - 1)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_kernels_locks_are_the_union_of_all_owners(
            steps in proptest::collection::vec((0_usize..3, 0_u64..16, 1_u64..9, 0_u8..5), 1..60)
        ) {
            let mut locks = DescriptionLocks::default();
            let mut owners = [0; 3].map(|_: u64| locks.add_owner());
            let (mut table, mut kernel): (ByteTable, _) = (vec![[None; BYTES]; 3], [None; BYTES]);
            for (who, first, length, what) in steps {
                let range = if what == 4 { ByteRange::ALL } else { ByteRange::of(first, length).unwrap() };
                let unlocked = match what {
                    0 | 1 => {
                        let kind = [LockKind::Read, LockKind::Write][usize::from(what)];
                        let against = |held: &Option<LockKind>| {
                            held.is_some_and(|held| held == LockKind::Write || kind == LockKind::Write)
                        };
                        let others = table.iter().enumerate().filter(|(other, _)| *other != who);
                        let denied = { others }.any(|(_, table)| table[bytes(range)].iter().any(against));
                        prop_assert_eq!(locks.conflict(owners[who], range, kind).is_some(), denied);
                        if !denied {
                            locks.lock(owners[who], range, kind);
                            table[who][bytes(range)].fill(Some(kind));
                            kernel[bytes(range)].fill(Some(kind));
                        }
                        Vec::new()
                    }
                    2 | 3 => {
                        let unlocked = locks.exclusive_ranges(owners[who], range);
                        locks.unlock(owners[who], range);
                        unlocked
                    }
                    _ => {
                        let unlocked = locks.remove_owner(owners[who]);
                        owners[who] = locks.add_owner();
                        unlocked
                    }
                };
                if what >= 2 {
                    table[who][bytes(range)].fill(None);
                }
                for range in unlocked {
                    prop_assert!(range.first <= range.last);
                    kernel[bytes(range)].fill(None);
                }
                let free = locks.unlocked_ranges();
                prop_assert!(free.windows(2).all(|two| two[0].last < two[1].first));
                for (byte, kernel) in kernel.iter().enumerate() {
                    let byte_is = |range: &ByteRange| (range.first..=range.last).contains(&(byte as u64));
                    prop_assert_eq!(free.iter().any(byte_is), kernel.is_none(), "byte {}", byte);
                    let all = table.iter().find_map(|owner| owner[byte]);
                    prop_assert_eq!(*kernel, all, "byte {}", byte);
                }
            }
        }
    }
}
