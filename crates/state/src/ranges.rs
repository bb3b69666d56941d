//! The byte ranges that one owner has locked on one file.
//!
//! Invariant: they are in order, disjoint, and merged where two of a kind touch.

/// Whether a lock is shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// Shared: other owners may have read locks of the same bytes.
    Read,
    /// Exclusive.
    Write,
}

/// The bytes from `first` to `last`, both included. A `last` of all ones means to the end of the file,
/// however far that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

impl ByteRange {
    /// All bytes.
    pub(crate) const ALL: Self = Self { first: 0, last: u64::MAX };

    /// The range of a `length4` at an `offset4`; a length of all ones means to the end of the file. `None`
    /// for a length of 0, or an end beyond the largest offset (`NFS4ERR_INVAL`, RFC 8881 section 18.10.3).
    #[must_use]
    pub const fn of(offset: u64, length: u64) -> Option<Self> {
        match length {
            0 => None,
            u64::MAX => Some(Self { first: offset, last: u64::MAX }),
            _ => match offset.checked_add(length - 1) {
                Some(last) => Some(Self { first: offset, last }),
                None => None,
            },
        }
    }

    /// The `length4`: all ones for a range to the end of the file.
    #[must_use]
    pub const fn length(self) -> u64 {
        if self.last == u64::MAX { u64::MAX } else { self.last - self.first + 1 }
    }

    /// Whether the two have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The ranges that a change has removed, and those that it has added.
#[derive(Debug)]
pub(crate) struct RangeChange {
    pub removed: Vec<(ByteRange, LockKind)>,
    pub added: Vec<(ByteRange, LockKind)>,
}

/// One owner's locks on one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockRanges {
    /// In the order of their first bytes.
    held: Vec<(ByteRange, LockKind)>,
}

impl LockRanges {
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub const fn len(&self) -> usize {
        self.held.len()
    }

    /// The first of the ranges that keeps another owner from locking `range`.
    pub fn conflict(&self, range: ByteRange, kind: LockKind) -> Option<(ByteRange, LockKind)> {
        let from = self.held.partition_point(|(held, _)| held.last < range.first);
        let overlapping = self.held[from..].iter().take_while(|(held, _)| held.first <= range.last);
        { overlapping }.find(|(_, held)| kind == LockKind::Write || *held == LockKind::Write).copied()
    }

    /// The parts of `range` that are held, in order.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, LockKind)> + '_ {
        let from = self.held.partition_point(|(held, _)| held.last < range.first);
        let overlapping = self.held[from..].iter().take_while(move |(held, _)| held.first <= range.last);
        overlapping.map(move |(held, kind)| {
            (ByteRange { first: held.first.max(range.first), last: held.last.min(range.last) }, *kind)
        })
    }

    /// Whether unlocking `range` would split a held range in two.
    pub fn splits(&self, range: ByteRange) -> bool {
        let at = self.held.partition_point(|(held, _)| held.last < range.first);
        self.held.get(at).is_some_and(|(held, _)| held.first < range.first && held.last > range.last)
    }

    /// Locks the range as `kind`, or unlocks it, whatever it was before.
    pub fn set(&mut self, range: ByteRange, kind: Option<LockKind>) -> RangeChange {
        // Touching ranges may be merged.
        let from = self.held.partition_point(|(held, _)| held.last < range.first.saturating_sub(1));
        let to = self.held.partition_point(|(held, _)| held.first <= range.last.saturating_add(1));
        let (mut before, mut all, mut after) = (None, range, None);
        for (held, of) in &self.held[from..to] {
            if Some(*of) == kind {
                all = ByteRange { first: all.first.min(held.first), last: all.last.max(held.last) };
                continue;
            }
            if held.first < range.first {
                before = Some((ByteRange { last: held.last.min(range.first - 1), ..*held }, *of));
            }
            if held.last > range.last {
                after = Some((ByteRange { first: held.first.max(range.last + 1), ..*held }, *of));
            }
        }
        let added: Vec<_> = before.into_iter().chain(kind.map(|kind| (all, kind))).chain(after).collect();
        if self.held.is_empty() {
            // Most owners have one range.
            self.held.reserve_exact(added.len());
        }
        let removed = self.held.splice(from..to, added.iter().copied()).collect();
        RangeChange { removed, added }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn ranges_are_what_a_byte_by_byte_table_says(
            steps in proptest::collection::vec((0_u64..24, 1_u64..12, 0_u8..3), 1..40)
        ) {
            let (mut ranges, mut table) = (LockRanges::default(), [None; 40]);
            for (first, length, what) in steps {
                let range = ByteRange::of(first, length).unwrap();
                let kind = [Some(LockKind::Read), Some(LockKind::Write), None][usize::from(what)];
                let mut replaced = ranges.held.clone();
                let RangeChange { removed, added } = ranges.set(range, kind);
                replaced.retain(|held| !removed.contains(held));
                replaced.extend(added);
                replaced.sort_unstable_by_key(|(held, _)| held.first);
                prop_assert_eq!(&ranges.held, &replaced);
                table[first as usize..=range.last as usize].fill(kind);
                let mut again = [None; 40];
                for (held, kind) in &ranges.held {
                    prop_assert!(again[held.first as usize..=held.last as usize].iter().all(Option::is_none));
                    again[held.first as usize..=held.last as usize].fill(Some(*kind));
                }
                prop_assert_eq!(table, again);
                let is_apart = |two: &[(ByteRange, LockKind)]| {
                    two[0].0.last + 1 < two[1].0.first || two[0].1 != two[1].1
                };
                let merged = ranges.held.windows(2).all(is_apart);
                prop_assert!(merged, "{:?}", ranges);
            }
        }
    }

    #[test]
    fn a_range_to_the_end_has_no_end() {
        let all = ByteRange::of(5, u64::MAX).unwrap();
        assert_eq!((all.last, all.length()), (u64::MAX, u64::MAX));
        assert_eq!(ByteRange::of(0, 0), None);
        assert_eq!(ByteRange::of(u64::MAX, 2), None);
        assert_eq!(ByteRange::of(u64::MAX, 1).unwrap().last, u64::MAX);
        let mut ranges = LockRanges::default();
        ranges.set(all, Some(LockKind::Write));
        ranges.set(ByteRange::of(0, 10).unwrap(), None);
        assert_eq!(ranges.conflict(ByteRange::of(9, 1).unwrap(), LockKind::Write), None);
        assert!(ranges.conflict(ByteRange::of(10, 1).unwrap(), LockKind::Read).is_some());
    }
}
