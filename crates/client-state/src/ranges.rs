//! The byte ranges that one lock owner has locked on one file.
//!
//! Invariant: they are in order, disjoint, and merged where two of a kind touch.

/// Whether a lock is shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Shared: other owners may have read locks of the same bytes.
    Read,
    /// Exclusive.
    Write,
}

/// The bytes from `first` to `last`, both included. A `last` of all ones means to the end of the file,
/// however far that moves (a `length4` of all ones).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub first: u64,
    /// Last byte, not less than `first`.
    pub last: u64,
}

impl ByteRange {
    /// Whether the two have a byte in common.
    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The locks of one owner on one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockRanges(Vec<(ByteRange, LockKind)>);

impl LockRanges {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lock of a byte.
    fn at(&self, byte: u64) -> Option<LockKind> {
        let found = self.0.partition_point(|(range, _)| range.last < byte);
        self.0.get(found).filter(|(range, _)| range.first <= byte).map(|(_, kind)| *kind)
    }

    /// The last byte behind `byte` up to which all bytes have the same lock as it, or none as it.
    fn end(&self, byte: u64) -> u64 {
        let found = self.0.partition_point(|(range, _)| range.last < byte);
        match self.0.get(found) {
            Some((range, _)) if range.first <= byte => range.last,
            Some((range, _)) => range.first - 1,
            None => u64::MAX,
        }
    }

    /// Whether all bytes of a range have a lock that serves for `kind`.
    pub fn covers(&self, range: ByteRange, kind: LockKind) -> bool {
        let mut byte = range.first;
        loop {
            match self.at(byte) {
                Some(held) if held == kind || held == LockKind::Write => {}
                _ => return false,
            }
            match self.end(byte) {
                end if end >= range.last => return true,
                end => byte = end + 1,
            }
        }
    }

    /// Whether a lock keeps another owner from locking the range as `kind`.
    pub fn conflicts(&self, range: ByteRange, kind: LockKind) -> bool {
        let excludes = |held: LockKind| held == LockKind::Write || kind == LockKind::Write;
        self.0.iter().any(|(held, of)| held.overlaps(range) && excludes(*of))
    }

    /// Whether the range is locked as `kind` exactly.
    pub fn is_set(&self, range: ByteRange, kind: LockKind) -> bool {
        self.at(range.first) == Some(kind) && self.end(range.first) >= range.last
    }

    /// Locks the range as `kind`, or unlocks it, whatever it was before.
    pub fn set(&mut self, range: ByteRange, kind: Option<LockKind>) {
        let mut set = Vec::with_capacity(self.0.len() + 2);
        for (held, of) in self.0.drain(..) {
            if held.first < range.first {
                set.push((ByteRange { last: held.last.min(range.first - 1), ..held }, of));
            }
            if held.last > range.last {
                set.push((ByteRange { first: held.first.max(range.last + 1), ..held }, of));
            }
        }
        set.extend(kind.map(|kind| (range, kind)));
        set.sort_unstable_by_key(|(range, _)| range.first);
        for (range, kind) in set {
            match self.0.last_mut() {
                Some((before, of)) if *of == kind && before.last + 1 == range.first => {
                    before.last = range.last
                }
                _ => self.0.push((range, kind)),
            }
        }
    }

    /// Makes read locks of the write locks of a range.
    pub fn weaken(&mut self, range: ByteRange) {
        let is_written =
            |(held, kind): &&(ByteRange, LockKind)| *kind == LockKind::Write && held.overlaps(range);
        let common = |(held, _): &(ByteRange, LockKind)| ByteRange {
            first: held.first.max(range.first),
            last: held.last.min(range.last),
        };
        let written: Vec<_> = self.0.iter().filter(is_written).map(common).collect();
        written.into_iter().for_each(|range| self.set(range, Some(LockKind::Read)));
    }

    /// Where the locks differ from those of `other`, and the locks here, in order. Each range goes on as far
    /// as the lock here does.
    pub fn differences(&self, other: &Self) -> impl Iterator<Item = (ByteRange, Option<LockKind>)> {
        let ends = |range: &ByteRange| [Some(range.first), range.last.checked_add(1)];
        let all = self.0.iter().chain(&other.0).flat_map(|(range, _)| ends(range)).flatten();
        let mut firsts: Vec<_> = all.filter(|byte| self.at(*byte) != other.at(*byte)).collect();
        firsts.sort_unstable();
        firsts.into_iter().map(|first| (ByteRange { first, last: self.end(first) }, self.at(first)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 24;

    fn kind() -> impl Strategy<Value = Option<LockKind>> {
        prop_oneof![Just(None), Just(Some(LockKind::Read)), Just(Some(LockKind::Write))]
    }

    fn changes() -> impl Strategy<Value = Vec<(usize, usize, Option<LockKind>)>> {
        proptest::collection::vec((0..BYTES, 0..BYTES, kind()), 0..20)
    }

    /// The ranges and a table of bytes, both after some changes.
    fn made(changes: Vec<(usize, usize, Option<LockKind>)>) -> (LockRanges, [Option<LockKind>; BYTES]) {
        let (mut ranges, mut table) = (LockRanges::default(), [None; BYTES]);
        for (a, b, kind) in changes {
            let range = ByteRange { first: a.min(b) as u64, last: a.max(b) as u64 };
            ranges.set(range, kind);
            table[a.min(b)..=a.max(b)].fill(kind);
        }
        (ranges, table)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn ranges_are_what_a_table_of_bytes_says(
            one in changes(),
            two in changes(),
            a in 0..BYTES,
            b in 0..BYTES,
        ) {
            let ((ranges, table), (others, other)) = (made(one), made(two));
            for (byte, kind) in table.iter().enumerate() {
                prop_assert_eq!(ranges.at(byte as u64), *kind);
                let end = table[byte..].iter().position(|other| other != kind).map(|count| byte + count - 1);
                prop_assert_eq!(ranges.end(byte as u64), match (end, kind) {
                    (Some(end), _) => end as u64,
                    (None, Some(_)) => BYTES as u64 - 1,
                    (None, None) => u64::MAX,
                });
            }
            let range = ByteRange { first: a.min(b) as u64, last: a.max(b) as u64 };
            let bytes = &table[a.min(b)..=a.max(b)];
            prop_assert_eq!(ranges.covers(range, LockKind::Read), bytes.iter().all(Option::is_some));
            for kind in [LockKind::Read, LockKind::Write] {
                let is_set = bytes.iter().all(|byte| *byte == Some(kind));
                prop_assert_eq!(ranges.is_set(range, kind), is_set);
                let excludes = |held: &LockKind| *held == LockKind::Write || kind == LockKind::Write;
                prop_assert_eq!(ranges.conflicts(range, kind), bytes.iter().flatten().any(excludes));
                prop_assert!(kind == LockKind::Read || ranges.covers(range, kind) == is_set);
            }
            let (mut weakened, mut weaker) = (ranges.clone(), table);
            weakened.weaken(range);
            weaker[a.min(b)..=a.max(b)].iter_mut().flatten().for_each(|kind| *kind = LockKind::Read);
            prop_assert!(weaker.iter().enumerate().all(|(byte, kind)| weakened.at(byte as u64) == *kind));
            let first = table.iter().zip(&other).position(|(one, two)| one != two);
            let differences: Vec<_> = ranges.differences(&others).collect();
            prop_assert_eq!(differences.first().map(|(range, _)| range.first), first.map(|at| at as u64));
            for (range, kind) in &differences {
                prop_assert_eq!(*kind, ranges.at(range.first));
                prop_assert_ne!(*kind, others.at(range.first));
                prop_assert_eq!(range.last, ranges.end(range.first));
            }
            for (byte, (one, two)) in table.iter().zip(other).enumerate() {
                let within = |(range, _): &(ByteRange, _)| {
                    (range.first..=range.last).contains(&(byte as u64))
                };
                prop_assert!(*one == two || differences.iter().any(within));
            }
            prop_assert_eq!(ranges == others, differences.is_empty(), "merged");
        }
    }

    #[test]
    fn a_range_to_the_end_has_no_end() {
        let mut ranges = LockRanges::default();
        ranges.set(ByteRange { first: 5, last: u64::MAX }, Some(LockKind::Write));
        ranges.set(ByteRange { first: 0, last: 9 }, None);
        assert_eq!(ranges.0, [(ByteRange { first: 10, last: u64::MAX }, LockKind::Write)]);
        assert!(ranges.covers(ByteRange { first: 11, last: u64::MAX }, LockKind::Read));
        let none = LockRanges::default();
        let all = ByteRange { first: 10, last: u64::MAX };
        assert_eq!(ranges.differences(&none).collect::<Vec<_>>(), [(all, Some(LockKind::Write))]);
        assert_eq!(none.differences(&ranges).collect::<Vec<_>>(), [(all, None)]);
        ranges.set(ByteRange { first: u64::MAX, last: u64::MAX }, Some(LockKind::Read));
        assert_eq!(ranges.at(u64::MAX), Some(LockKind::Read));
    }
}
