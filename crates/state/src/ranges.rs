//! The byte ranges that one owner has locked on one file: disjoint, and merged where they touch.

/// Shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// Others may have it, too.
    Read,
    /// Nobody else may.
    Write,
}

/// Bytes from `first` to `last`, both included; `last` of all ones: to the end, however far that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

impl Range {
    /// Every byte that there may ever be.
    pub(crate) const ALL: Self = Self { first: 0, last: u64::MAX };

    /// From a lock's offset and length, where a length of all ones means "to the end". `None` for a length of
    /// 0, or beyond the largest offset (RFC 8881 section 18.10.3: `NFS4ERR_INVAL`).
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

    /// The length, in the same words.
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

/// Ranges that aren't there any more, and those in their place.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub gone: Vec<(Range, LockKind)>,
    pub new: Vec<(Range, LockKind)>,
}

/// One owner's locks on one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// By their first byte.
    held: Vec<(Range, LockKind)>,
}

impl Ranges {
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub const fn len(&self) -> usize {
        self.held.len()
    }

    /// What keeps somebody else from locking `range`.
    pub fn conflict(&self, range: Range, kind: LockKind) -> Option<(Range, LockKind)> {
        let from = self.held.partition_point(|(held, _)| held.last < range.first);
        let overlapping = self.held[from..].iter().take_while(|(held, _)| held.first <= range.last);
        { overlapping }.find(|(_, held)| kind == LockKind::Write || *held == LockKind::Write).copied()
    }

    /// What is held of `range`, in order, cut to it.
    pub fn within(&self, range: Range) -> impl Iterator<Item = (Range, LockKind)> + '_ {
        let from = self.held.partition_point(|(held, _)| held.last < range.first);
        let overlapping = self.held[from..].iter().take_while(move |(held, _)| held.first <= range.last);
        overlapping.map(move |(held, kind)| {
            (Range { first: held.first.max(range.first), last: held.last.min(range.last) }, *kind)
        })
    }

    /// Whether what is left beside `range` would be one more than there was, if it were unlocked.
    pub fn splits(&self, range: Range) -> bool {
        let at = self.held.partition_point(|(held, _)| held.last < range.first);
        self.held.get(at).is_some_and(|(held, _)| held.first < range.first && held.last > range.last)
    }

    /// The range is locked so, or isn't any more, whatever it was before.
    pub fn set(&mut self, range: Range, kind: Option<LockKind>) -> Replaced {
        // What touches it is looked at, too: it may be joined.
        let from = self.held.partition_point(|(held, _)| held.last < range.first.saturating_sub(1));
        let to = self.held.partition_point(|(held, _)| held.first <= range.last.saturating_add(1));
        let (mut before, mut all, mut after) = (None, range, None);
        for (held, of) in &self.held[from..to] {
            if Some(*of) == kind {
                all = Range { first: all.first.min(held.first), last: all.last.max(held.last) };
                continue;
            }
            if held.first < range.first {
                before = Some((Range { last: held.last.min(range.first - 1), ..*held }, *of));
            }
            if held.last > range.last {
                after = Some((Range { first: held.first.max(range.last + 1), ..*held }, *of));
            }
        }
        let new: Vec<_> = before.into_iter().chain(kind.map(|kind| (all, kind))).chain(after).collect();
        if self.held.is_empty() {
            // Most owners have one.
            self.held.reserve_exact(new.len());
        }
        let gone = self.held.splice(from..to, new.iter().copied()).collect();
        Replaced { gone, new }
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
            let (mut ranges, mut table) = (Ranges::default(), [None; 40]);
            for (first, length, what) in steps {
                let range = Range::of(first, length).unwrap();
                let kind = [Some(LockKind::Read), Some(LockKind::Write), None][usize::from(what)];
                let mut replaced = ranges.held.clone();
                let Replaced { gone, new } = ranges.set(range, kind);
                replaced.retain(|held| !gone.contains(held));
                replaced.extend(new);
                replaced.sort_unstable_by_key(|(held, _)| held.first);
                prop_assert_eq!(&ranges.held, &replaced);
                table[first as usize..=range.last as usize].fill(kind);
                let mut again = [None; 40];
                for (held, kind) in &ranges.held {
                    prop_assert!(again[held.first as usize..=held.last as usize].iter().all(Option::is_none));
                    again[held.first as usize..=held.last as usize].fill(Some(*kind));
                }
                prop_assert_eq!(table, again);
                let merged = ranges.held.windows(2).all(|two| two[0].0.last + 1 < two[1].0.first || two[0].1 != two[1].1);
                prop_assert!(merged, "{:?}", ranges);
            }
        }
    }

    #[test]
    fn a_range_to_the_end_has_no_end() {
        let all = Range::of(5, u64::MAX).unwrap();
        assert_eq!((all.last, all.length()), (u64::MAX, u64::MAX));
        assert_eq!(Range::of(0, 0), None);
        assert_eq!(Range::of(u64::MAX, 2), None);
        assert_eq!(Range::of(u64::MAX, 1).unwrap().last, u64::MAX);
        let mut ranges = Ranges::default();
        ranges.set(all, Some(LockKind::Write));
        ranges.set(Range::of(0, 10).unwrap(), None);
        assert_eq!(ranges.conflict(Range::of(9, 1).unwrap(), LockKind::Write), None);
        assert!(ranges.conflict(Range::of(10, 1).unwrap(), LockKind::Read).is_some());
    }
}
