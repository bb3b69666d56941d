//! The ways in which bytes can reach a file, and what a file asks of memory and offsets for the direct one.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags};

/// How bytes travel between memory and a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Through the page cache, and they stay there.
    #[default]
    Buffered,
    /// Through the page cache, which lets go of them when they are on the disk (writes) or have been copied
    /// out (reads): `RWF_DONTCACHE`, Linux 6.14.
    DontCache,
    /// Past the page cache (`O_DIRECT`), as far as the alignment allows.
    Direct,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::DontCache => "dontcache",
            Self::Direct => "direct",
        })
    }
}

/// A mode for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modes {
    /// For reads.
    pub read: Mode,
    /// For writes.
    pub write: Mode,
}

/// What direct I/O asks of a file's offsets and lengths, and of memory addresses (statx(2),
/// `STATX_DIOALIGN`). Both are powers of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alignment {
    memory: u32,
    offset: u32,
}

impl Alignment {
    /// `None` unless both are powers of two: a 0 is the kernel's way to say that this file can't be read or
    /// written directly.
    #[must_use]
    pub const fn new(memory: u32, offset: u32) -> Option<Self> {
        if memory.is_power_of_two() && offset.is_power_of_two() {
            Some(Self { memory, offset })
        } else {
            None
        }
    }

    /// What the kernel says of `file`; `None` when it doesn't say: before Linux 6.1, of filesystems that have
    /// no word for it (tmpfs), and of files that can't be read or written directly.
    #[must_use]
    pub fn of(file: impl AsFd) -> Option<Self> {
        let says = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if says.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return None;
        }
        Self::new(says.stx_dio_mem_align, says.stx_dio_offset_align)
    }

    /// Addresses must be multiples of this.
    #[must_use]
    pub const fn memory(self) -> usize {
        self.memory as usize
    }

    /// Offsets and lengths must be multiples of this.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_powers_of_two_or_unknown() {
        assert!(Alignment::new(4, 4096).is_some());
        for (memory, offset) in [(0, 512), (512, 0), (0, 0), (511, 512), (512, 1536)] {
            assert_eq!(Alignment::new(memory, offset), None, "{memory} {offset}");
        }
    }
}
