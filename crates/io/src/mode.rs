//! The ways in which bytes can reach a file, what a file asks of memory and offsets for the direct one, and what a
//! filesystem turned out not to do.
//!
//! A mode is a wish. Filesystems differ in what they can do, and say so only when they are asked: whoever runs a plan
//! remembers the answer in the filesystem's [`Fallbacks`], so that it is asked once, and so that an admin can see it.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::fs::{AtFlags, StatxFlags};

/// How bytes travel between memory and a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Through the page cache, and they stay there.
    #[default]
    Buffered,
    /// Through the page cache, which lets go of them when they are on the disk (writes) or have been copied out
    /// (reads): `RWF_DONTCACHE`, Linux 6.14.
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

/// What direct I/O asks of a file's offsets and lengths, and of memory addresses (statx(2), `STATX_DIOALIGN`). Both are
/// powers of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alignment {
    memory: u32,
    offset: u32,
}

impl Alignment {
    /// `None` unless both are powers of two: a 0 is the kernel's way to say that this file can't be read or written directly.
    #[must_use]
    pub const fn new(memory: u32, offset: u32) -> Option<Self> {
        if memory.is_power_of_two() && offset.is_power_of_two() {
            Some(Self { memory, offset })
        } else {
            None
        }
    }

    /// What the kernel says of `file`; `None` when it doesn't say: before Linux 6.1, of filesystems that have no word for
    /// it (tmpfs), and of files that can't be read or written directly.
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

/// What one filesystem turned out not to do, and how often something was done instead.
#[derive(Debug, Default)]
pub struct Fallbacks {
    no_dontcache: AtomicBool,
    no_alignment: AtomicBool,
    no_direct: AtomicBool,
    copies: AtomicU64,
}

impl Fallbacks {
    /// `mode`, unless the filesystem is known not to do it.
    #[must_use]
    pub fn instead_of(&self, mode: Mode) -> Mode {
        let refused = match mode {
            Mode::Buffered => false,
            Mode::DontCache => self.no_dontcache.load(Relaxed),
            Mode::Direct => self.no_direct.load(Relaxed),
        };
        if refused { Mode::Buffered } else { mode }
    }

    /// It has answered that it doesn't do `mode`.
    pub fn refused(&self, mode: Mode) {
        match mode {
            Mode::Buffered => {}
            Mode::DontCache => self.no_dontcache.store(true, Relaxed),
            Mode::Direct => self.no_direct.store(true, Relaxed),
        }
    }

    /// It doesn't say how direct I/O with one of its files must be aligned.
    pub fn tells_no_alignment(&self) {
        self.no_alignment.store(true, Relaxed);
    }

    pub(crate) fn copied(&self) {
        self.copies.fetch_add(1, Relaxed);
    }

    /// How many writes had their aligned part copied because the memory it came in wasn't aligned.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies.load(Relaxed)
    }

    /// What is done instead of what was asked, in words for an admin; empty as long as nothing was refused.
    #[must_use]
    pub fn notes(&self) -> Vec<&'static str> {
        let known = [
            (
                &self.no_dontcache,
                "dontcache falls back to buffered: this filesystem or kernel has no RWF_DONTCACHE",
            ),
            (
                &self.no_alignment,
                "direct falls back to buffered: the filesystem tells no alignment for some of its files",
            ),
            (&self.no_direct, "direct falls back to buffered: the filesystem refused aligned I/O"),
        ];
        known.into_iter().filter(|(happened, _)| happened.load(Relaxed)).map(|(_, note)| note).collect()
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

    #[test]
    fn what_was_refused_is_not_asked_for_again_and_is_said() {
        let fallbacks = Fallbacks::default();
        assert_eq!(fallbacks.instead_of(Mode::DontCache), Mode::DontCache);
        assert!(fallbacks.notes().is_empty());
        fallbacks.refused(Mode::DontCache);
        assert_eq!(fallbacks.instead_of(Mode::DontCache), Mode::Buffered);
        assert_eq!(fallbacks.instead_of(Mode::Direct), Mode::Direct);
        assert_eq!(fallbacks.notes().len(), 1);
    }
}
