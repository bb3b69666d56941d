//! The alignment that direct I/O needs, as statx(2) reports it (`STATX_DIOALIGN`).

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags};

/// What direct I/O requires of offsets and lengths, and of memory addresses. Both are powers of two, in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alignment {
    memory: u32,
    offset: u32,
}

impl Alignment {
    /// `None` unless both are powers of two: the kernel reports 0 for a file without direct I/O.
    #[must_use]
    pub const fn new(memory: u32, offset: u32) -> Option<Self> {
        if memory.is_power_of_two() && offset.is_power_of_two() {
            Some(Self { memory, offset })
        } else {
            None
        }
    }

    /// The alignment that the kernel reports for `file`. `None` before Linux 6.1, on filesystems that don't
    /// report it (tmpfs), and for files without direct I/O.
    #[must_use]
    pub fn of(file: impl AsFd) -> Option<Self> {
        let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if found.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return None;
        }
        Self::new(found.stx_dio_mem_align, found.stx_dio_offset_align)
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
