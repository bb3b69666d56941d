//! Ranges are compared with a table of bytes.

use proptest::prelude::*;

use super::*;

const BYTES: usize = 24;

type ByteTable = [Option<LockKind>; BYTES];
type Change = (usize, usize, Option<LockKind>);

fn range_of(a: usize, b: usize) -> ByteRange {
    ByteRange { first: a.min(b) as u64, last: a.max(b) as u64 }
}

fn kind() -> impl Strategy<Value = Option<LockKind>> {
    prop_oneof![Just(None), Just(Some(LockKind::Read)), Just(Some(LockKind::Write))]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    proptest::collection::vec((0..BYTES, 0..BYTES, kind()), 0..20)
}

/// The ranges and a table of bytes, both after some changes.
fn made(changes: Vec<Change>) -> (LockRanges, ByteTable) {
    let (mut ranges, mut table) = (LockRanges::default(), [None; BYTES]);
    for (a, b, kind) in changes {
        ranges.set(range_of(a, b), kind);
        table[a.min(b)..=a.max(b)].fill(kind);
    }
    (ranges, table)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn changes_are_what_a_table_of_bytes_says(changes in changes()) {
        let (mut ranges, mut table) = (LockRanges::default(), [None; BYTES]);
        for (a, b, kind) in changes {
            let mut replaced = ranges.held.clone();
            let RangeChange { removed, added } = ranges.set(range_of(a, b), kind);
            replaced.retain(|held| !removed.contains(held));
            replaced.extend(added);
            replaced.sort_unstable_by_key(|(held, _)| held.first);
            prop_assert_eq!(&ranges.held, &replaced);
            table[a.min(b)..=a.max(b)].fill(kind);
            let mut again = [None; BYTES];
            for (held, kind) in &ranges.held {
                let bytes = &mut again[held.first as usize..=held.last as usize];
                prop_assert!(bytes.iter().all(Option::is_none));
                bytes.fill(Some(*kind));
            }
            prop_assert_eq!(table, again);
            let is_apart = |two: &[(ByteRange, LockKind)]| {
                two[0].0.last + 1 < two[1].0.first || two[0].1 != two[1].1
            };
            let merged = ranges.held.windows(2).all(is_apart);
            prop_assert!(merged, "{:?}", ranges);
        }
    }

    #[test]
    fn ranges_are_what_a_table_of_bytes_says(changes in changes(), a in 0..BYTES, b in 0..BYTES) {
        let (ranges, table) = made(changes);
        for (byte, kind) in table.iter().enumerate() {
            prop_assert_eq!(ranges.at(byte as u64), *kind);
            let end = table[byte..].iter().position(|other| other != kind).map(|count| byte + count - 1);
            prop_assert_eq!(ranges.end(byte as u64), match (end, kind) {
                (Some(end), _) => end as u64,
                (None, Some(_)) => BYTES as u64 - 1,
                (None, None) => u64::MAX,
            });
        }
        let (range, bytes) = (range_of(a, b), &table[a.min(b)..=a.max(b)]);
        prop_assert_eq!(ranges.covers(range, LockKind::Read), bytes.iter().all(Option::is_some));
        for kind in [LockKind::Read, LockKind::Write] {
            let is_set = bytes.iter().all(|byte| *byte == Some(kind));
            prop_assert_eq!(ranges.is_set(range, kind), is_set);
            prop_assert!(kind == LockKind::Read || ranges.covers(range, kind) == is_set);
            let excludes = |held: &Option<LockKind>| {
                held.is_some_and(|held| held == LockKind::Write || kind == LockKind::Write)
            };
            let first = bytes.iter().position(excludes).map(|index| range.first + index as u64);
            let conflict = ranges.conflict(range, kind);
            prop_assert_eq!(conflict.map(|(held, _)| held.first.max(range.first)), first);
        }
        let mut parts = [None; BYTES];
        for (part, kind) in ranges.within(range) {
            prop_assert!(range.first <= part.first && part.first <= part.last && part.last <= range.last);
            parts[part.first as usize..=part.last as usize].fill(Some(kind));
        }
        prop_assert_eq!(&parts[a.min(b)..=a.max(b)], bytes);
        let mut unlocked = ranges.clone();
        unlocked.set(range, None);
        prop_assert_eq!(ranges.splits(range), unlocked.len() > ranges.len());
        let (mut weakened, mut weaker) = (ranges.clone(), table);
        weakened.weaken(range);
        weaker[a.min(b)..=a.max(b)].iter_mut().flatten().for_each(|kind| *kind = LockKind::Read);
        prop_assert!(weaker.iter().enumerate().all(|(byte, kind)| weakened.at(byte as u64) == *kind));
    }

    #[test]
    fn differences_are_what_a_table_of_bytes_says(one in changes(), two in changes()) {
        let ((ranges, table), (others, other)) = (made(one), made(two));
        let first = table.iter().zip(&other).position(|(one, two)| one != two);
        let differences: Vec<_> = ranges.differences(&others).collect();
        prop_assert_eq!(differences.first().map(|(range, _)| range.first), first.map(|at| at as u64));
        for (range, kind) in &differences {
            prop_assert_eq!(*kind, ranges.at(range.first));
            prop_assert_ne!(*kind, others.at(range.first));
            prop_assert_eq!(range.last, ranges.end(range.first));
        }
        for (byte, (one, two)) in table.iter().zip(other).enumerate() {
            let includes = |(range, _): &(ByteRange, _)| {
                (range.first..=range.last).contains(&(byte as u64))
            };
            prop_assert!(*one == two || differences.iter().any(includes));
        }
        prop_assert_eq!(ranges == others, differences.is_empty(), "merged");
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
    assert!(ranges.covers(ByteRange { first: 11, last: u64::MAX }, LockKind::Read));
    let (none, all) = (LockRanges::default(), ByteRange { first: 10, last: u64::MAX });
    assert_eq!(ranges.differences(&none).collect::<Vec<_>>(), [(all, Some(LockKind::Write))]);
    assert_eq!(none.differences(&ranges).collect::<Vec<_>>(), [(all, None)]);
    ranges.set(ByteRange { first: u64::MAX, last: u64::MAX }, Some(LockKind::Read));
    assert_eq!(ranges.at(u64::MAX), Some(LockKind::Read));
}
