//! The locks of several owners on one open file description.
//!
//! The kernel tells locks apart by the description that they were made on (fcntl_locking(2), `F_OFD_SETLK`).
//! Owners that share a description have one set of locks there: what one of them locks the kernel doesn't
//! refuse to the other, and what one of them unlocks is unlocked for all. [`DescriptionLocks`] remembers
//! which owner has what, so that the caller asks the kernel for no more than he may, and unlocks no more than
//! he must.

use std::collections::HashMap;

use crate::locked::Locked;
use crate::ranges::{LockKind, Range, Ranges};

/// Which owner has which bytes of a file locked by one description. An owner is a number that
/// [`DescriptionLocks::join`] gives.
#[derive(Debug, Default)]
pub struct DescriptionLocks {
    owners: HashMap<u64, Ranges>,
    locked: Locked,
    next: u64,
}

impl DescriptionLocks {
    /// A new owner, without locks.
    pub fn join(&mut self) -> u64 {
        self.next += 1;
        self.owners.insert(self.next, Ranges::default());
        self.next
    }

    /// The lock of another owner that is in the way of `range`.
    #[must_use]
    pub fn conflict(&self, owner: u64, range: Range, kind: LockKind) -> Option<(Range, LockKind)> {
        let other = self.locked.against(Some(owner), range, kind)?;
        self.owners.get(&other)?.conflict(range, kind)
    }

    /// The kernel has granted an owner's lock.
    pub fn add(&mut self, owner: u64, range: Range, kind: LockKind) {
        self.set(owner, range, Some(kind));
    }

    /// What the kernel is to unlock when an owner unlocks `range`: not what another owner has locked, too.
    #[must_use]
    pub fn only_of(&self, owner: u64, range: Range) -> Vec<Range> {
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

    /// The parts of `range`, which the owner has locked for reading, that nobody else has.
    fn without_other_readers(&self, owner: u64, mut range: Range, found: &mut Vec<Range>) {
        loop {
            // Of the others this one reaches farthest: nobody has what lies behind.
            let other = self.locked.against(Some(owner), range, LockKind::Write);
            let last = other.and_then(|other| self.owners.get(&other)?.within(range).last());
            let Some((theirs, _)) = last else {
                found.push(range);
                return;
            };
            if theirs.last < range.last {
                found.push(Range { first: theirs.last + 1, ..range });
            }
            if theirs.first == range.first {
                return;
            }
            range.last = theirs.first - 1;
        }
    }

    /// An owner has unlocked a range.
    pub fn remove(&mut self, owner: u64, range: Range) {
        self.set(owner, range, None);
    }

    /// An owner has gone: what the kernel is to unlock.
    pub fn leave(&mut self, owner: u64) -> Vec<Range> {
        let left = match self.owners.get(&owner) {
            Some(own) if !own.is_empty() => self.only_of(owner, Range::ALL),
            _ => Vec::new(),
        };
        self.set(owner, Range::ALL, None);
        self.owners.remove(&owner);
        left
    }

    /// All locks of an owner.
    #[must_use]
    pub fn of(&self, owner: u64) -> Vec<(Range, LockKind)> {
        self.owners.get(&owner).map_or_else(Vec::new, |own| own.within(Range::ALL).collect())
    }

    /// What no owner has.
    #[must_use]
    pub fn unowned(&self) -> Vec<Range> {
        let mut held: Vec<Range> =
            self.owners.values().flat_map(|own| own.within(Range::ALL)).map(|(range, _)| range).collect();
        held.sort_unstable_by_key(|range| range.first);
        let (mut found, mut next) = (Vec::new(), Some(0));
        for Range { first, last } in held {
            let Some(from) = next else { break };
            if from < first {
                found.push(Range { first: from, last: first - 1 });
            }
            next = if last < from { Some(from) } else { last.checked_add(1) };
        }
        found.extend(next.map(|first| Range { first, last: u64::MAX }));
        found
    }

    fn set(&mut self, owner: u64, range: Range, kind: Option<LockKind>) {
        if let Some(own) = self.owners.get_mut(&owner) {
            let replaced = own.set(range, kind);
            self.locked.replace(owner, &replaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 24;
    type Table = Vec<[Option<LockKind>; BYTES]>;

    fn bytes(range: Range) -> std::ops::RangeInclusive<usize> {
        range.first as usize..=(range.last as usize).min(BYTES - 1)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn the_kernels_locks_are_those_of_all_owners(
            steps in proptest::collection::vec((0_usize..3, 0_u64..16, 1_u64..9, 0_u8..5), 1..60)
        ) {
            let mut locks = DescriptionLocks::default();
            let mut owners = [0; 3].map(|_: u64| locks.join());
            let (mut table, mut kernel): (Table, _) = (vec![[None; BYTES]; 3], [None; BYTES]);
            for (who, first, length, what) in steps {
                let range = if what == 4 { Range::ALL } else { Range::of(first, length).unwrap() };
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
                            locks.add(owners[who], range, kind);
                            table[who][bytes(range)].fill(Some(kind));
                            kernel[bytes(range)].fill(Some(kind));
                        }
                        Vec::new()
                    }
                    2 | 3 => {
                        let unlocked = locks.only_of(owners[who], range);
                        locks.remove(owners[who], range);
                        unlocked
                    }
                    _ => {
                        let unlocked = locks.leave(owners[who]);
                        owners[who] = locks.join();
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
                let unowned = locks.unowned();
                prop_assert!(unowned.windows(2).all(|two| two[0].last < two[1].first));
                for (byte, kernel) in kernel.iter().enumerate() {
                    let byte_is = |range: &Range| (range.first..=range.last).contains(&(byte as u64));
                    prop_assert_eq!(unowned.iter().any(byte_is), kernel.is_none(), "byte {}", byte);
                    let all = table.iter().find_map(|owner| owner[byte]);
                    prop_assert_eq!(*kernel, all, "byte {}", byte);
                }
            }
        }
    }
}
