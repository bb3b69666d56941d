//! Plans: which bytes of a request use which I/O mode. Pure arithmetic.
//!
//! O_DIRECT transfers only whole blocks, at addresses that suit the device, and clients' requests rarely are.
//!
//! - A **read** is extended to whole blocks at both ends, and the requested part is returned from the middle.
//! - A **write** can't be extended: the rest of the block would have to be read first, while another process
//!   may be writing it. So it is divided into at most three segments. Whole blocks are written directly. What
//!   is left at either end, less than a block each, goes through the page cache, where the kernel reads the
//!   block and excludes other writers.
//!
//! A direct segment at an unsuitable address is marked to be copied first. The server avoids that by
//! receiving payloads at suitable addresses.

use crate::IoMode;
use crate::MAX_OFFSET;
use crate::alignment::Alignment;

/// The mode for the edges of a direct write. The Linux server's documentation says buffered and its code says
/// DONTCACHE.
///
/// Measured with streaming writes of 47,008 bytes, where each edge is completed by the next write
/// (`cargo run --release -p samehost-io --example edges DIR`; ext4 and xfs on a loop device): the device made
/// 1.94 writes for each of ours with buffered edges and 2.88 with DONTCACHE, which starts to write a page
/// back as soon as half of it is there.
pub const EDGES: IoMode = IoMode::Buffered;

/// A range of bytes with one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The mode.
    pub mode: IoMode,
    /// The first byte, relative to the beginning of the request.
    pub start: usize,
    /// The number of bytes; not 0.
    pub length: usize,
    /// The bytes must be copied to aligned memory first.
    pub copy: bool,
}

/// The segments of a write, in the order of their offsets, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    segments: [Segment; 3],
    count: usize,
}

impl WritePlan {
    /// The segments: one, two or three; none for a write of no bytes.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments[..self.count]
    }

    const fn whole(mode: IoMode, length: usize) -> Self {
        let all = Segment { mode, start: 0, length, copy: false };
        Self { segments: [all; 3], count: if length == 0 { 0 } else { 1 } }
    }
}

/// Plans a write of `length` bytes at `offset` from memory at `address`.
///
/// One buffered segment if the file's alignment isn't known, the write is shorter than the alignment, or it
/// contains no whole block.
#[must_use]
pub fn write(
    offset: u64,
    length: usize,
    address: usize,
    mode: IoMode,
    alignment: Option<Alignment>,
) -> WritePlan {
    if mode != IoMode::Direct {
        return WritePlan::whole(mode, length);
    }
    let Some(alignment) = alignment else { return WritePlan::whole(IoMode::Buffered, length) };
    let block = alignment.offset();
    let (Some(end), Some(first)) =
        (offset.checked_add(length as u64), offset.checked_next_multiple_of(block))
    else {
        return WritePlan::whole(IoMode::Buffered, length);
    };
    let last = end - end % block;
    if length < alignment.memory() || first >= last {
        return WritePlan::whole(IoMode::Buffered, length);
    }
    // No difference is larger than `length`.
    let (prefix, middle) = ((first - offset) as usize, (last - first) as usize);
    let suffix = length - prefix - middle;
    let copy = !address.wrapping_add(prefix).is_multiple_of(alignment.memory());
    let mut plan = WritePlan { segments: WritePlan::whole(IoMode::Direct, length).segments, count: 0 };
    let parts = [(EDGES, prefix, false), (IoMode::Direct, middle, copy), (EDGES, suffix, false)];
    let mut start = 0;
    for (mode, length, copy) in parts {
        if length > 0 {
            plan.segments[plan.count] = Segment { mode, start, length, copy };
            plan.count += 1;
            start += length;
        }
    }
    plan
}

/// The range to read for a request, and the part of it to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// The mode.
    pub mode: IoMode,
    /// The first byte: at or before the request's offset.
    pub offset: u64,
    /// The number of bytes: a multiple of the alignment if `mode` is direct.
    pub length: usize,
    /// Bytes to skip at the front: less than a block.
    pub skip: usize,
    /// The number of requested bytes.
    pub want: usize,
}

impl ReadPlan {
    /// How many bytes of the request were read, when `got` bytes of the plan were read before the end of the
    /// file.
    #[must_use]
    pub fn of_use(&self, got: usize) -> usize {
        got.saturating_sub(self.skip).min(self.want)
    }
}

/// Plans a read of `length` bytes at `offset`.
#[must_use]
pub fn read(offset: u64, length: usize, mode: IoMode, alignment: Option<Alignment>) -> ReadPlan {
    let plain = |mode| ReadPlan { mode, offset, length, skip: 0, want: length };
    if mode != IoMode::Direct {
        return plain(mode);
    }
    let Some(alignment) = alignment else { return plain(IoMode::Buffered) };
    let block = alignment.offset();
    let end = offset.checked_add(length as u64).and_then(|end| end.checked_next_multiple_of(block));
    match end.filter(|end| *end <= MAX_OFFSET && length > 0) {
        Some(end) => {
            let first = offset - offset % block;
            let (skip, length) = ((offset - first) as usize, (end - first) as usize);
            ReadPlan { mode, offset: first, length, skip, want: plain(mode).want }
        }
        // Beyond any file; nothing is read there.
        None => plain(IoMode::Buffered),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alignment() -> impl Strategy<Value = Option<Alignment>> {
        prop_oneof![
            1 => Just(None),
            9 => (0u32..=12, 0u32..=16).prop_map(|(memory, offset)| Alignment::new(1 << memory, 1 << offset)),
        ]
    }

    fn offset() -> impl Strategy<Value = u64> {
        prop_oneof![
            (0u64..200_000),
            (0u64..300).prop_map(|block| block * 512),
            any::<u64>(),
            (u64::MAX - 200_000..=u64::MAX)
        ]
    }

    fn mode() -> impl Strategy<Value = IoMode> {
        prop_oneof![Just(IoMode::Buffered), Just(IoMode::DontCache), Just(IoMode::Direct)]
    }

    proptest! {
        #[test]
        fn write_plans_cover_the_request_with_valid_segments(
            offset in offset(), length in 0usize..200_000, address in any::<u16>(),
            mode in mode(), alignment in alignment(),
        ) {
            let address = usize::from(address);
            let plan = write(offset, length, address, mode, alignment);
            let segments = plan.segments();
            let mut at = 0;
            for segment in segments {
                prop_assert_eq!(segment.start, at, "in order, without a gap");
                prop_assert!(segment.length > 0);
                at += segment.length;
            }
            prop_assert_eq!(at, length, "to the last byte");
            prop_assert!(segments.len() <= 3);
            let direct: Vec<_> = segments.iter().filter(|segment| segment.mode == IoMode::Direct).collect();
            if mode != IoMode::Direct || alignment.is_none() {
                prop_assert!(direct.is_empty() && segments.len() <= 1);
                return Ok(());
            }
            let alignment = alignment.unwrap();
            prop_assert!(direct.len() <= 1);
            for segment in &direct {
                let at = offset + segment.start as u64;
                prop_assert!(at.is_multiple_of(alignment.offset()));
                prop_assert!((segment.length as u64).is_multiple_of(alignment.offset()));
                prop_assert_eq!(segment.copy, !(address + segment.start).is_multiple_of(alignment.memory()));
            }
            if direct.is_empty() {
                prop_assert!(segments.len() <= 1, "nothing is cut for nothing");
            } else {
                for edge in segments.iter().filter(|segment| segment.mode != IoMode::Direct) {
                    prop_assert!((edge.length as u64) < alignment.offset(), "an edge is less than a block");
                    prop_assert!(!edge.copy);
                }
            }
            // Every range that contains a whole block is written directly.
            let block = alignment.offset();
            let whole = offset.checked_next_multiple_of(block).and_then(|first| first.checked_add(block));
            let end = offset.checked_add(length as u64);
            let has_block = end.is_some_and(|end| whole.is_some_and(|whole| whole <= end));
            prop_assert_eq!(!direct.is_empty(), has_block && length >= alignment.memory());
        }

        #[test]
        fn read_plans_cover_the_request_with_whole_blocks(
            offset in offset(), length in 0usize..200_000, mode in mode(),
            alignment in alignment(), size in 0u64..400_000,
        ) {
            let plan = read(offset, length, mode, alignment);
            prop_assert_eq!(plan.want, length);
            if plan.mode == IoMode::Direct {
                let block = alignment.unwrap().offset();
                prop_assert!(plan.offset.is_multiple_of(block) && (plan.length as u64).is_multiple_of(block));
                let behind = (plan.length - plan.skip - length) as u64;
                prop_assert!((plan.skip as u64) < block && behind < block);
                prop_assert_eq!(plan.offset + plan.skip as u64, offset);
            } else {
                prop_assert_eq!((plan.offset, plan.length, plan.skip), (offset, length, 0));
            }
            // The result for a file of `size` bytes.
            let got = size.saturating_sub(plan.offset).min(plan.length as u64) as usize;
            let expected = size.saturating_sub(offset).min(length as u64) as usize;
            prop_assert_eq!(plan.of_use(got), expected);
        }
    }

    #[test]
    fn the_three_segments_of_a_misaligned_write() {
        // At an address where the middle is aligned, and at another.
        for (address, copy) in [(0x1000 - 24, false), (0x1000, true)] {
            let plan = write(1000, 47_008, address, IoMode::Direct, Alignment::new(512, 512));
            let shape: Vec<_> = plan.segments().iter().map(|s| (s.mode, s.start, s.length, s.copy)).collect();
            let middle = (IoMode::Direct, 24, 46_592, copy);
            assert_eq!(shape, [(EDGES, 0, 24, false), middle, (EDGES, 46_616, 392, false)]);
        }
    }
}
