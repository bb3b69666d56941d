//! The byte ranges that one lock owner has locked on one file, as NFSv4's server and client keep them.
//!
//! Invariant: the ranges of [`LockRanges`] are in order, disjoint, and merged where two of a kind touch.

/// Whether a lock is shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockKind {
    /// Shared: other owners may have read locks of the same bytes.
    Read,
    /// Exclusive.
    Write,
}

impl LockKind {
    /// Whether two owners can't have a lock of each kind on the same byte.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
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
    /// All bytes.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

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

/// The ranges that [`LockRanges::set`] has removed, and those that it has added.
#[derive(Debug)]
pub struct RangeChange {
    /// Held before, and not any more.
    pub removed: Vec<(ByteRange, LockKind)>,
    /// Held now, and not before.
    pub added: Vec<(ByteRange, LockKind)>,
}

/// One owner's locks on one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockRanges {
    /// In the order of their first bytes.
    held: Vec<(ByteRange, LockKind)>,
}

impl LockRanges {
    /// Whether no byte is locked.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The number of ranges.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.held.len()
    }

    /// The held ranges from the first that ends at `byte` or behind it.
    fn ending_from(&self, byte: u64) -> &[(ByteRange, LockKind)] {
        &self.held[self.held.partition_point(|(held, _)| held.last < byte)..]
    }

    /// The lock of a byte.
    #[must_use]
    pub fn at(&self, byte: u64) -> Option<LockKind> {
        self.ending_from(byte).first().filter(|(range, _)| range.first <= byte).map(|(_, kind)| *kind)
    }

    /// The last byte up to which all bytes from `byte` on have the same lock as it, or none as it.
    #[must_use]
    pub fn end(&self, byte: u64) -> u64 {
        match self.ending_from(byte).first() {
            Some((range, _)) if range.first <= byte => range.last,
            Some((range, _)) => range.first - 1,
            None => u64::MAX,
        }
    }

    /// The first of the ranges that keeps another owner from locking `range`.
    #[must_use]
    pub fn conflict(&self, range: ByteRange, kind: LockKind) -> Option<(ByteRange, LockKind)> {
        let overlapping =
            self.ending_from(range.first).iter().take_while(|(held, _)| held.first <= range.last);
        { overlapping }.find(|(_, held)| held.excludes(kind)).copied()
    }

    /// The parts of `range` that are held, in order.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, LockKind)> + '_ {
        let overlapping =
            self.ending_from(range.first).iter().take_while(move |(held, _)| held.first <= range.last);
        overlapping.map(move |(held, kind)| {
            (ByteRange { first: held.first.max(range.first), last: held.last.min(range.last) }, *kind)
        })
    }

    /// Whether all bytes of a range have a lock that serves for `kind`: a write lock serves for reading.
    #[must_use]
    pub fn covers(&self, range: ByteRange, kind: LockKind) -> bool {
        let mut byte = range.first;
        loop {
            if self.at(byte).is_none_or(|held| held < kind) {
                return false;
            }
            match self.end(byte) {
                end if end >= range.last => return true,
                end => byte = end + 1,
            }
        }
    }

    /// Whether the range is locked as `kind` exactly.
    #[must_use]
    pub fn is_set(&self, range: ByteRange, kind: LockKind) -> bool {
        self.at(range.first) == Some(kind) && self.end(range.first) >= range.last
    }

    /// Whether unlocking `range` would split a held range in two.
    #[must_use]
    pub fn splits(&self, range: ByteRange) -> bool {
        let held = self.ending_from(range.first).first();
        held.is_some_and(|(held, _)| held.first < range.first && held.last > range.last)
    }

    /// Where the locks differ from those of `other`, and the locks here, in order. Each range goes on as far
    /// as the lock here does.
    pub fn differences(&self, other: &Self) -> impl Iterator<Item = (ByteRange, Option<LockKind>)> {
        let ends = |range: &ByteRange| [Some(range.first), range.last.checked_add(1)];
        let all = self.held.iter().chain(&other.held).flat_map(|(range, _)| ends(range)).flatten();
        let mut firsts: Vec<_> = all.filter(|byte| self.at(*byte) != other.at(*byte)).collect();
        firsts.sort_unstable();
        firsts.into_iter().map(|first| (ByteRange { first, last: self.end(first) }, self.at(first)))
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

    /// Makes read locks of the write locks of a range.
    pub fn weaken(&mut self, range: ByteRange) {
        let written: Vec<_> = self.within(range).filter(|(_, kind)| *kind == LockKind::Write).collect();
        for (part, _) in written {
            self.set(part, Some(LockKind::Read));
        }
    }
}

#[cfg(test)]
mod tests;
