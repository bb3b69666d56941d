//! What was written over the wire and is not yet durable: kept until the server says that it is, to be
//! written again should the server forget it (RFC 1813 section 3.3.21).
//!
//! Extents don't overlap: a later write takes the place of what it covers. So they may be written again in
//! any order and any number at a time.
//!
//! An extent's life:
//! 1. [`Unstable::note`]: a WRITE was answered UNSTABLE with a verifier;
//! 2. a COMMIT goes out; [`Unstable::mark`] says what it can cover;
//! 3. [`Unstable::committed`]: the COMMIT was answered. An extent from before the mark with the same verifier
//!    is durable and goes. One with another verifier was forgotten by a server that restarted: it is handed
//!    out to be written again, and comes back through `note`.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

/// A write verifier.
pub(crate) type Verifier = [u8; 8];

#[derive(Debug, Clone)]
struct Extent<W> {
    data: Bytes,
    /// Bytes of the memory that holds it.
    held: usize,
    verifier: Verifier,
    number: u64,
    writer: W,
}

impl<W: Clone> Extent<W> {
    /// A part of it. It doesn't hold memory of more than twice its size.
    fn part(&self, range: Range<usize>) -> Self {
        let mut part = Self { data: self.data.slice(range), ..self.clone() };
        if part.data.len() < self.held / 2 {
            part.data = Bytes::copy_from_slice(&part.data);
            part.held = part.data.len();
        }
        part
    }
}

/// A file's unstable data; `W` says who wrote it.
#[derive(Debug)]
pub(crate) struct Unstable<W> {
    extents: BTreeMap<u64, Extent<W>>,
    bytes: usize,
    next: u64,
}

impl<W> Default for Unstable<W> {
    fn default() -> Self {
        Self { extents: BTreeMap::new(), bytes: 0, next: 0 }
    }
}

/// Data with where it belongs and who wrote it.
type Piece<W> = (u64, Bytes, W);

impl<W: Clone> Unstable<W> {
    /// Bytes kept.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Pieces kept.
    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// Nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// One of those who wrote what is kept.
    pub(crate) fn writer(&self) -> Option<&W> {
        self.extents.values().next().map(|extent| &extent.writer)
    }

    /// `data` was written at `offset`, and the server answered UNSTABLE with `verifier`.
    pub(crate) fn note(&mut self, offset: u64, data: Bytes, verifier: Verifier, writer: W) {
        let Some(end) = offset.checked_add(data.len() as u64).filter(|end| *end > offset) else { return };
        self.cut(offset, end);
        self.bytes += data.len();
        let number = self.next;
        self.next += 1;
        let held = data.len();
        self.extents.insert(offset, Extent { data, held, verifier, number, writer });
    }

    /// Forgets what is kept of `from..to`: it was written over, or cut off.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        // The extent that begins before `from`, and then those that begin inside.
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

    /// Everything noted so far lies before this mark.
    pub(crate) const fn mark(&self) -> u64 {
        self.next
    }

    /// A COMMIT that was sent after `mark` was answered with `verifier`. What is durable is forgotten; what
    /// the server has forgotten is handed out.
    pub(crate) fn committed(&mut self, mark: u64, verifier: Verifier) -> Vec<Piece<W>> {
        let mut again = Vec::new();
        let bytes = &mut self.bytes;
        self.extents.retain(|offset, extent| {
            if extent.number >= mark {
                return true;
            }
            if extent.verifier == verifier {
                *bytes -= extent.data.len();
                return false;
            }
            again.push((*offset, extent.data.clone(), extent.writer.clone()));
            true
        });
        again
    }

    /// Everything that is kept, to be written by another road.
    pub(crate) fn all(&self) -> Vec<Piece<W>> {
        let all = self.extents.iter();
        all.map(|(offset, extent)| (*offset, extent.data.clone(), extent.writer.clone())).collect()
    }

    /// Whether everything kept was written under this verifier.
    pub(crate) fn all_under(&self, verifier: Verifier) -> bool {
        self.extents.values().all(|extent| extent.verifier == verifier)
    }

    /// Everything has become durable.
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

    /// The kept data as a picture, one character a byte.
    fn picture(kept: &Unstable<()>, len: usize) -> String {
        let mut picture = vec![b'.'; len];
        for (offset, data, ()) in kept.all() {
            for (index, byte) in data.iter().enumerate() {
                assert_eq!(picture[offset as usize + index], b'.', "extents overlap");
                picture[offset as usize + index] = *byte;
            }
        }
        assert_eq!(kept.bytes(), picture.iter().filter(|byte| **byte != b'.').count());
        String::from_utf8(picture).unwrap()
    }

    #[test]
    fn later_writes_take_the_place_of_earlier_ones() {
        let mut kept = Unstable::default();
        kept.note(2, bytes(6, b'a'), V1, ());
        kept.note(4, bytes(2, b'b'), V1, ());
        assert_eq!(picture(&kept, 10), "..aabbaa..");
        kept.note(0, bytes(3, b'c'), V1, ());
        kept.note(7, bytes(3, b'd'), V1, ());
        assert_eq!(picture(&kept, 10), "cccabbaddd");
        kept.note(0, bytes(10, b'e'), V1, ());
        assert_eq!(picture(&kept, 10), "eeeeeeeeee");
        assert_eq!(kept.len(), 1);
        kept.cut(5, u64::MAX);
        assert_eq!(picture(&kept, 10), "eeeee.....");
        kept.note(3, Bytes::new(), V1, ());
        kept.note(u64::MAX, bytes(2, b'x'), V1, ());
        assert_eq!(picture(&kept, 10), "eeeee.....");
    }

    #[test]
    fn random_writes_agree_with_a_plain_array() {
        let mut kept = Unstable::default();
        let mut plain = vec![b'.'; 64];
        let mut seed = 12345_u32;
        for round in 0..2000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (at, len) = ((seed >> 8) as usize % 60, (seed >> 20) as usize % 20 + 1);
            let len = len.min(64 - at);
            let fill = b'a' + (round % 26) as u8;
            if round % 7 == 0 {
                kept.cut(at as u64, (at + len) as u64);
                plain[at..at + len].fill(b'.');
            } else {
                kept.note(at as u64, bytes(len, fill), V1, ());
                plain[at..at + len].fill(fill);
            }
            assert_eq!(picture(&kept, 64).as_bytes(), plain);
        }
    }

    #[test]
    fn the_same_verifier_makes_durable_what_came_before_the_mark() {
        let mut kept = Unstable::default();
        kept.note(0, bytes(4, b'a'), V1, ());
        let mark = kept.mark();
        kept.note(4, bytes(4, b'b'), V1, ());
        assert!(kept.committed(mark, V1).is_empty());
        assert_eq!(picture(&kept, 8), "....bbbb");
    }

    #[test]
    fn another_verifier_hands_out_what_was_forgotten_and_keeps_it_until_it_is_written() {
        let mut kept = Unstable::default();
        kept.note(0, bytes(4, b'a'), V1, ());
        kept.note(4, bytes(4, b'b'), V2, ());
        let again = kept.committed(kept.mark(), V2);
        assert_eq!(again, [(0, bytes(4, b'a'), ())]);
        assert_eq!(picture(&kept, 8), "aaaa....");
        for (offset, data, ()) in again {
            kept.note(offset, data, V2, ());
        }
        assert!(kept.committed(kept.mark(), V2).is_empty());
        assert!(kept.is_empty());
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn a_cut_keeps_the_verifier_and_the_age_of_what_is_left() {
        let mut kept = Unstable::default();
        kept.note(0, bytes(8, b'a'), V1, ());
        let mark = kept.mark();
        kept.note(2, bytes(2, b'b'), V2, ());
        assert!(!kept.all_under(V1));
        assert_eq!(kept.committed(mark, V2), [(0, bytes(2, b'a'), ()), (4, bytes(4, b'a'), ())]);
    }

    #[test]
    fn what_is_left_of_a_large_piece_doesnt_hold_all_of_its_memory() {
        let mut kept = Unstable::default();
        let whole = bytes(1000, b'a');
        kept.note(0, whole.clone(), V1, ());
        kept.cut(0, 400);
        assert_eq!(kept.all()[0].1.as_ptr(), whole[400..].as_ptr(), "more than half is left where it is");
        kept.cut(500, 950);
        let all = kept.all();
        assert_eq!((all[0].1.len(), all[1].1.len()), (100, 50));
        assert!(all.iter().all(|(_, data, ())| !whole.as_ptr_range().contains(&data.as_ptr())));
    }
}
