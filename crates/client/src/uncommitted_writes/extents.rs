//! The extents of one file's uncommitted writes, until the server says that they are durable (RFC 1813
//! section 3.3.21).
//!
//! Extents don't overlap, because a write replaces what it covers. So they can be written again in any order
//! and in parallel.
//!
//! The life of an extent:
//! 1. [`UncommittedExtents::insert`] adds the data of a WRITE that was answered UNSTABLE with a verifier.
//! 2. Before a COMMIT is sent, [`UncommittedExtents::mark`] says which extents it covers.
//! 3. [`UncommittedExtents::committed`] takes the reply. An extent from before the mark with the same
//!    verifier is durable and removed. One with another verifier was lost in a restart of the server: it is
//!    returned to be written again, which replaces it by `insert`.
//! 4. After a COMMIT that failed, [`UncommittedExtents::commit_failed`] lets no verifier fit the extents that
//!    it covered. A server whose fsync(2) has failed has lost the data. The next one succeeds, because the
//!    kernel reports an error once, and not every server changes its verifier in between.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

/// A write verifier (RFC 1813, `writeverf3`).
pub(crate) type Verifier = [u8; 8];

#[derive(Debug, Clone)]
struct Extent<W> {
    data: Bytes,
    /// The size of the allocation behind `data`, in bytes.
    allocated: usize,
    /// `None` after a COMMIT that failed.
    verifier: Option<Verifier>,
    number: u64,
    writer: W,
}

impl<W: Clone> Extent<W> {
    /// Returns a part of it. The part is copied if it is less than half of the allocation, which it would
    /// keep alive otherwise.
    fn part(&self, range: Range<usize>) -> Self {
        let mut part = Self { data: self.data.slice(range), ..self.clone() };
        if part.data.len() < self.allocated / 2 {
            part.data = Bytes::copy_from_slice(&part.data);
            part.allocated = part.data.len();
        }
        part
    }
}

/// A file's uncommitted writes. `W` identifies a writer.
#[derive(Debug)]
pub(crate) struct UncommittedExtents<W> {
    extents: BTreeMap<u64, Extent<W>>,
    bytes: usize,
    /// The number of the next extent.
    next: u64,
}

impl<W> Default for UncommittedExtents<W> {
    fn default() -> Self {
        Self { extents: BTreeMap::new(), bytes: 0, next: 0 }
    }
}

/// An offset, the data written there, and its writer.
type UncommittedPiece<W> = (u64, Bytes, W);

impl<W: Clone> UncommittedExtents<W> {
    /// The bytes in all extents.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of extents.
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// One of the writers, if there are extents.
    pub(crate) fn any_writer(&self) -> Option<&W> {
        self.extents.values().next().map(|extent| &extent.writer)
    }

    /// Adds `data`, which was written at `offset` and answered UNSTABLE with `verifier`.
    pub(crate) fn insert(&mut self, offset: u64, data: Bytes, verifier: Verifier, writer: W) {
        let Some(end) = offset.checked_add(data.len() as u64).filter(|end| *end > offset) else { return };
        let (number, len) = (self.next, data.len());
        self.next += 1;
        let extent = Extent { data, allocated: len, verifier: Some(verifier), number, writer };
        match self.extents.get_mut(&offset) {
            // One search instead of five, where a file is written again in blocks of one size.
            Some(covered) if covered.data.len() == len => *covered = extent,
            _ => {
                self.discard(offset, end);
                self.bytes += len;
                self.extents.insert(offset, extent);
            }
        }
    }

    /// Removes the data in `from..to`, which was written over or truncated.
    pub(crate) fn discard(&mut self, from: u64, to: u64) {
        // The extent that begins before `from` may overlap, and those that begin inside do.
        let before = self.extents.range(..from).next_back().map(|(at, _)| *at);
        let inside: Vec<u64> = self.extents.range(from..to).map(|(at, _)| *at).collect();
        for at in before.into_iter().chain(inside) {
            let end = at + self.extents.get(&at).map_or(0, |extent| extent.data.len() as u64);
            if end <= from {
                continue;
            }
            let Some(extent) = self.extents.remove(&at) else { continue };
            self.bytes -= extent.data.len();
            if at < from {
                let head = extent.part(0..(from - at) as usize);
                self.bytes += head.data.len();
                self.extents.insert(at, head);
            }
            if end > to {
                let tail = extent.part((to - at) as usize..extent.data.len());
                self.bytes += tail.data.len();
                self.extents.insert(to, tail);
            }
        }
    }

    /// All extents inserted so far are before this mark.
    pub(crate) const fn mark(&self) -> u64 {
        self.next
    }

    /// Takes the `verifier` in the reply to a COMMIT that was sent after `mark`. Removes the extents that are
    /// durable, and returns those that the server has lost, which remain until they are written again.
    pub(crate) fn committed(&mut self, mark: u64, verifier: Verifier) -> Vec<UncommittedPiece<W>> {
        let mut lost = Vec::new();
        let bytes = &mut self.bytes;
        self.extents.retain(|offset, extent| {
            if extent.number >= mark {
                return true;
            }
            if extent.verifier == Some(verifier) {
                *bytes -= extent.data.len();
                return false;
            }
            lost.push((*offset, extent.data.clone(), extent.writer.clone()));
            true
        });
        lost
    }

    /// Notes that a COMMIT failed that was sent after `mark`.
    pub(crate) fn commit_failed(&mut self, mark: u64) {
        for extent in self.extents.values_mut().filter(|extent| extent.number < mark) {
            extent.verifier = None;
        }
    }

    /// All extents.
    pub(crate) fn all(&self) -> Vec<UncommittedPiece<W>> {
        let all = self.extents.iter();
        all.map(|(offset, extent)| (*offset, extent.data.clone(), extent.writer.clone())).collect()
    }

    /// Whether all extents have this verifier.
    pub(crate) fn all_have(&self, verifier: Verifier) -> bool {
        self.extents.values().all(|extent| extent.verifier == Some(verifier))
    }

    /// Removes all extents, which have become durable.
    pub(crate) fn clear(&mut self) {
        self.extents.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: Verifier = [1; 8];
    const V2: Verifier = [2; 8];

    fn bytes(len: usize, fill: u8) -> Bytes {
        Bytes::from(vec![fill; len])
    }

    /// The data with one character for each byte, and a dot where there is none.
    fn image(extents: &UncommittedExtents<()>, len: usize) -> String {
        let mut image = vec![b'.'; len];
        for (offset, data, ()) in extents.all() {
            for (index, byte) in data.iter().enumerate() {
                assert_eq!(image[offset as usize + index], b'.', "extents overlap");
                image[offset as usize + index] = *byte;
            }
        }
        assert_eq!(extents.bytes(), image.iter().filter(|byte| **byte != b'.').count());
        String::from_utf8(image).unwrap()
    }

    #[test]
    fn later_writes_replace_earlier_ones() {
        let mut extents = UncommittedExtents::default();
        extents.insert(2, bytes(6, b'a'), V1, ());
        extents.insert(4, bytes(2, b'b'), V1, ());
        assert_eq!(image(&extents, 10), "..aabbaa..");
        extents.insert(0, bytes(3, b'c'), V1, ());
        extents.insert(7, bytes(3, b'd'), V1, ());
        assert_eq!(image(&extents, 10), "cccabbaddd");
        extents.insert(7, bytes(3, b'f'), V1, ());
        assert_eq!(image(&extents, 10), "cccabbafff");
        extents.insert(0, bytes(10, b'e'), V1, ());
        assert_eq!(image(&extents, 10), "eeeeeeeeee");
        assert_eq!(extents.len(), 1);
        extents.discard(5, u64::MAX);
        assert_eq!(image(&extents, 10), "eeeee.....");
        extents.insert(3, Bytes::new(), V1, ());
        extents.insert(u64::MAX, bytes(2, b'x'), V1, ());
        assert_eq!(image(&extents, 10), "eeeee.....");
    }

    #[test]
    fn random_writes_agree_with_a_plain_array() {
        let mut extents = UncommittedExtents::default();
        let mut plain = vec![b'.'; 64];
        let mut seed = 12345_u32;
        for round in 0..2000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (at, len) = ((seed >> 8) as usize % 60, (seed >> 20) as usize % 20 + 1);
            let len = len.min(64 - at);
            let fill = b'a' + (round % 26) as u8;
            if round % 7 == 0 {
                extents.discard(at as u64, (at + len) as u64);
                plain[at..at + len].fill(b'.');
            } else {
                extents.insert(at as u64, bytes(len, fill), V1, ());
                plain[at..at + len].fill(fill);
            }
            assert_eq!(image(&extents, 64).as_bytes(), plain);
        }
    }

    #[test]
    fn the_same_verifier_removes_extents_before_the_mark() {
        let mut extents = UncommittedExtents::default();
        extents.insert(0, bytes(4, b'a'), V1, ());
        extents.insert(8, bytes(4, b'a'), V1, ());
        let mark = extents.mark();
        extents.insert(4, bytes(4, b'b'), V1, ());
        extents.insert(8, bytes(4, b'b'), V1, ());
        assert!(extents.committed(mark, V1).is_empty());
        assert_eq!(image(&extents, 12), "....bbbbbbbb");
    }

    #[test]
    fn another_verifier_returns_lost_extents_which_remain_until_written() {
        let mut extents = UncommittedExtents::default();
        extents.insert(0, bytes(4, b'a'), V1, ());
        extents.insert(4, bytes(4, b'b'), V2, ());
        let lost = extents.committed(extents.mark(), V2);
        assert_eq!(lost, [(0, bytes(4, b'a'), ())]);
        assert_eq!(image(&extents, 8), "aaaa....");
        for (offset, data, ()) in lost {
            extents.insert(offset, data, V2, ());
        }
        assert!(extents.committed(extents.mark(), V2).is_empty());
        assert!(extents.is_empty());
        assert_eq!(extents.bytes(), 0);
    }

    #[test]
    fn a_remaining_part_keeps_its_verifier_and_number() {
        let mut extents = UncommittedExtents::default();
        extents.insert(0, bytes(8, b'a'), V1, ());
        let mark = extents.mark();
        extents.insert(2, bytes(2, b'b'), V2, ());
        assert!(!extents.all_have(V1));
        assert_eq!(extents.committed(mark, V2), [(0, bytes(2, b'a'), ()), (4, bytes(4, b'a'), ())]);
    }

    #[test]
    fn a_small_remaining_part_does_not_keep_a_large_allocation() {
        let mut extents = UncommittedExtents::default();
        let whole = bytes(1000, b'a');
        extents.insert(0, whole.clone(), V1, ());
        extents.discard(0, 400);
        assert_eq!(extents.all()[0].1.as_ptr(), whole[400..].as_ptr(), "more than half is not copied");
        extents.discard(500, 950);
        let all = extents.all();
        assert_eq!((all[0].1.len(), all[1].1.len()), (100, 50));
        assert!(all.iter().all(|(_, data, ())| !whole.as_ptr_range().contains(&data.as_ptr())));
    }
}
