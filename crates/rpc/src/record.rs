//! Record marking (RFC 5531 section 11): the boundaries of records in a byte stream.
//!
//! A record is one or more fragments. Each follows a four-byte mark whose top bit means "last fragment of the
//! record" and whose other bits are the fragment's length. [`Framing`] takes one mark after another, returns
//! how many bytes follow, and rejects marks that exceed the bounds. It does no I/O and holds no bytes, so the
//! server can receive straight into a buffer of the record's size and the client straight into its caller's.
//! [`Reader`] is the simple way to use it: bytes in, whole records out.

use std::collections::VecDeque;

/// The length in bytes of a mark.
pub const MARK: usize = 4;

/// The longest fragment that a mark can announce, in bytes.
pub const MAX_FRAGMENT: usize = 0x7fff_ffff;

/// The most fragments of length zero in one record. The RFC sets no limit; no implementation needs them.
pub const MAX_EMPTY_FRAGMENTS: u32 = 8;

const LAST: u32 = 0x8000_0000;

/// An invalid stream. The next record can't be found in it, so the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The record would be longer than the limit.
    #[error("a record of {length} bytes or more, when {max} are accepted")]
    TooLong {
        /// What the marks so far announce, in bytes.
        length: usize,
        /// The bound.
        max: usize,
    },
    /// More than [`MAX_EMPTY_FRAGMENTS`] fragments without a byte in one record.
    #[error("a record with too many empty fragments")]
    EmptyFragments,
}

/// One fragment, as announced by its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Bytes that follow the mark.
    pub length: usize,
    /// Whether the record ends with this fragment.
    pub last: bool,
    /// Whether the record is this one fragment.
    pub only: bool,
}

/// The mark of a record of `length` bytes that is sent as one fragment.
///
/// # Errors
/// [`Error::TooLong`] above [`MAX_FRAGMENT`].
#[inline]
pub fn mark(length: usize) -> Result<u32, Error> {
    match u32::try_from(length) {
        Ok(word) if length <= MAX_FRAGMENT => Ok(LAST | word),
        _ => Err(Error::TooLong { length, max: MAX_FRAGMENT }),
    }
}

/// The state of a stream at its record marks.
#[derive(Debug, Clone)]
pub struct Framing {
    max_record: usize,
    /// Bytes announced by the current record's fragments before this mark.
    announced: usize,
    /// Whether the current record already has a fragment.
    within: bool,
    empty: u32,
}

impl Framing {
    /// The state between two records. A record may have at most `max_record` bytes, marks not counted.
    #[must_use]
    pub const fn new(max_record: usize) -> Self {
        Self { max_record, announced: 0, within: false, empty: 0 }
    }

    /// Accepts the next mark.
    ///
    /// # Errors
    /// Any [`Error`]; the stream can't be read any further.
    #[inline]
    pub fn mark(&mut self, mark: [u8; MARK]) -> Result<Fragment, Error> {
        let word = u32::from_be_bytes(mark);
        let (last, length) = (word & LAST != 0, (word & !LAST) as usize);
        let total = self.announced.saturating_add(length);
        if total > self.max_record {
            return Err(Error::TooLong { length: total, max: self.max_record });
        }
        if length == 0 {
            self.empty += 1;
            if self.empty > MAX_EMPTY_FRAGMENTS {
                return Err(Error::EmptyFragments);
            }
        }
        let only = last && !self.within;
        (self.announced, self.within) = if last { (0, false) } else { (total, true) };
        if last {
            self.empty = 0;
        }
        Ok(Fragment { length, last, only })
    }

    /// Bytes that the current record's fragments have announced so far; 0 between two records.
    #[must_use]
    pub const fn announced(&self) -> usize {
        self.announced
    }

    /// Whether the stream is within a record of which not all fragments have been announced.
    #[must_use]
    pub const fn within_record(&self) -> bool {
        self.within
    }
}

/// Assembles records from bytes in pieces of any size. It copies, and holds at most one unfinished record.
#[derive(Debug)]
pub struct Reader {
    framing: Framing,
    mark: [u8; MARK],
    mark_filled: usize,
    /// The fragment being received, and how many of its bytes are missing.
    fragment: Option<(Fragment, usize)>,
    record: Vec<u8>,
}

/// The least number of bytes by which an unfinished record grows.
const GROWTH: usize = 32 << 10;

impl Reader {
    /// Starts between two records of at most `max_record` bytes.
    #[must_use]
    pub const fn new(max_record: usize) -> Self {
        Self {
            framing: Framing::new(max_record),
            mark: [0; MARK],
            mark_filled: 0,
            fragment: None,
            record: Vec::new(),
        }
    }

    /// The number of bytes of the unfinished record that have arrived.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.record.len()
    }

    /// Takes the current record's bytes from the front of `bytes`, and returns the record when it is whole.
    /// `None` means that `bytes` is used up.
    ///
    /// # Errors
    /// Any [`Error`]; the stream can't be read any further.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let Some((fragment, missing)) = &mut self.fragment else {
                let some = bytes.len().min(MARK - self.mark_filled);
                let (head, rest) = bytes.split_at(some);
                self.mark[self.mark_filled..self.mark_filled + some].copy_from_slice(head);
                self.mark_filled += some;
                *bytes = rest;
                if self.mark_filled < MARK {
                    return Ok(None);
                }
                self.mark_filled = 0;
                let fragment = self.framing.mark(self.mark)?;
                self.fragment = Some((fragment, fragment.length));
                continue;
            };
            let some = bytes.len().min(*missing);
            let (head, rest) = bytes.split_at(some);
            // Memory grows with the bytes that arrive, not with the length that a mark announces, and doesn't
            // double.
            if self.record.capacity() - self.record.len() < some {
                self.record.reserve_exact(some.max(GROWTH));
            }
            self.record.extend_from_slice(head);
            *missing -= some;
            *bytes = rest;
            if *missing > 0 {
                return Ok(None);
            }
            let last = fragment.last;
            self.fragment = None;
            if last {
                return Ok(Some(std::mem::take(&mut self.record)));
            }
        }
    }
}

/// Reads `stream` in pieces of the lengths in `cuts` and then the rest at once. Returns the whole records
/// and, if the stream is invalid, the error. The result must not depend on the cuts. For fuzzing.
#[must_use]
pub fn read_in_pieces(stream: &[u8], cuts: &[u8], max_record: usize) -> (VecDeque<Vec<u8>>, Option<Error>) {
    let (mut reader, mut records, mut rest) = (Reader::new(max_record), VecDeque::new(), stream);
    for cut in cuts.iter().map(|cut| usize::from(*cut)).chain([usize::MAX]) {
        let (mut piece, behind) = rest.split_at(cut.min(rest.len()));
        rest = behind;
        loop {
            match reader.take(&mut piece) {
                Ok(Some(record)) => records.push_back(record),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
    }
    (records, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
        let word = u32::try_from(bytes.len()).unwrap() | if last { LAST } else { 0 };
        [&word.to_be_bytes(), bytes].concat()
    }

    #[test]
    fn fragments_make_a_record() {
        let stream =
            [fragment(b"ab", false), fragment(b"", false), fragment(b"c", true), fragment(b"", true)]
                .concat();
        let (records, error) = read_in_pieces(&stream, &[], 3);
        assert_eq!((records, error), (VecDeque::from([b"abc".to_vec(), vec![]]), None));
    }

    #[test]
    fn invalid_lengths_are_found_at_the_mark() {
        let too_long = Error::TooLong { length: 4, max: 3 };
        assert_eq!(Framing::new(3).mark([0x80, 0, 0, 4]), Err(too_long));
        let mut framing = Framing::new(3);
        framing.mark([0, 0, 0, 2]).unwrap();
        assert_eq!(framing.mark([0, 0, 0, 2]), Err(too_long), "the sum counts");
        let mut framing = Framing::new(3);
        for _ in 0..MAX_EMPTY_FRAGMENTS {
            framing.mark([0; 4]).unwrap();
        }
        assert_eq!(framing.mark([0; 4]), Err(Error::EmptyFragments));
        assert_eq!(mark(MAX_FRAGMENT), Ok(u32::MAX));
        assert!(mark(MAX_FRAGMENT + 1).is_err());
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            records in prop::collection::vec(
                prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 1..5),
                0..6,
            ),
            cuts in prop::collection::vec(0u8..20, 0..40),
        ) {
            let (mut stream, mut expected) = (Vec::new(), VecDeque::new());
            for fragments in &records {
                let (tail, heads) = fragments.split_last().unwrap();
                heads.iter().for_each(|(_, bytes)| stream.extend(fragment(bytes, false)));
                stream.extend(fragment(&tail.1, true));
                expected.push_back(fragments.iter().flat_map(|(_, bytes)| bytes.clone()).collect());
            }
            prop_assert_eq!(read_in_pieces(&stream, &cuts, 1 << 20), (expected, None));
        }

        #[test]
        fn garbage_gives_the_same_answer_in_any_pieces(
            stream in prop::collection::vec(prop_oneof![Just(0u8), Just(0x80), any::<u8>()], 0..200),
            cuts in prop::collection::vec(0u8..20, 0..40),
        ) {
            prop_assert_eq!(read_in_pieces(&stream, &cuts, 100), read_in_pieces(&stream, &[], 100));
        }
    }
}
