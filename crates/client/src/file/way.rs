//! How the bytes of a granted file travel: by the I/O modes that the server has for the export, with the
//! planner that the server uses.
//!
//! A file that is to be read or written directly needs two file descriptions, one with `O_DIRECT` for whole
//! blocks and one without for what is left at the ends. The flag belongs to the description, and a
//! description can't be had twice from one descriptor, so the lane is asked for the file a second time and
//! the flag set on that grant. Where the second isn't given, or the filesystem tells no alignment, all goes
//! through the page cache.

use std::os::fd::AsFd as _;
use std::sync::OnceLock;

use io::{Alignment, Files, IoMode, IoModes};
use lane::Grant;
use rustix::fs::{OFlags, fcntl_setfl};

/// The modes, and what direct I/O takes.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) modes: IoModes,
    direct: OnceLock<(Grant, Alignment)>,
}

impl Way {
    pub(super) const fn new(modes: IoModes) -> Self {
        Self { modes, direct: OnceLock::new() }
    }

    /// Whether a second grant should be asked for.
    pub(super) fn wants_direct(&self, read: bool, write: bool) -> bool {
        let wants = read && self.modes.read == IoMode::Direct || write && self.modes.write == IoMode::Direct;
        wants && self.direct.get().is_none()
    }

    /// Takes a second grant of the file into use.
    pub(super) fn take_direct(&self, grant: Grant, alignment: Alignment) {
        // Without the flag it is of no use, and released.
        if fcntl_setfl(&grant, OFlags::DIRECT).is_ok() {
            let _ = self.direct.set((grant, alignment));
        }
    }

    /// The descriptors as the engine wants them.
    pub(super) fn files<'a>(&'a self, grant: &'a Grant, handle: &'a [u8]) -> Files<'a> {
        let direct = self.direct.get().map(|(grant, alignment)| (grant.as_fd(), *alignment));
        Files { buffered: grant.as_fd(), direct, handle }
    }
}
