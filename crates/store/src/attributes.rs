//! A file's attributes, read with one statx(2).

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

pub use sys::{Attributes, FileKind, SetAttributes, SetTime, Timestamp};

use crate::error::Result;

/// An object's attributes before and after an operation that changes it (RFC 1813 section 2.6, weak cache
/// consistency).
///
/// Filled by the store for failed operations, too, as far as it came. No other operation through this store
/// that changes the object's entries, size or data fell between the two (where one did, `before` is left
/// out); a local process on the server may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Before the operation.
    pub before: Option<Attributes>,
    /// After the operation.
    pub after: Option<Attributes>,
}

/// What one statx(2) said: attributes, and what the store itself wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileStatus {
    pub attributes: Attributes,
    /// Birth time, where the filesystem keeps one.
    pub birth: Option<Timestamp>,
    /// chattr +i.
    pub immutable: bool,
}

/// A status, and when the kernel was about to be asked for it: what is concluded from a ctime depends on
/// both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedStatus {
    pub status: FileStatus,
    pub asked: Timestamp,
}

impl TimedStatus {
    /// Asks the kernel about an open file.
    pub fn at(file: impl AsFd, fsid: u64) -> Result<TimedStatus> {
        let asked = Timestamp::now();
        Ok(TimedStatus { status: status(file, fsid)?, asked })
    }

    /// Whether every change after it shows in the ctime.
    pub fn is_settled(&self) -> bool {
        self.status.attributes.ctime.is_settled(self.asked)
    }
}

/// Asks the kernel about an open file (`O_PATH` will do). `fsid` is the store's number for the filesystem.
pub(crate) fn status(file: impl AsFd, fsid: u64) -> Result<FileStatus> {
    status_at(file, c"", fsid)
}

/// As [`status`], of the file `name` in the directory `dir`; nothing is followed, nothing mounted.
pub(crate) fn status_at(dir: impl AsFd, name: &CStr, fsid: u64) -> Result<FileStatus> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let look = || rustix::fs::statx(dir.as_fd(), name, flags, wanted);
    let mut raw = look()?;
    let mut attributes = Attributes::of(&raw, fsid);
    if attributes.ctime.is_coarse() {
        // What it says of changes depends on the time before it was looked at. Once more costs such
        // filesystems only.
        let asked = Timestamp::now();
        raw = look()?;
        attributes = Attributes::of(&raw, fsid);
        attributes.change = attributes.ctime.change(asked);
    }
    Ok(FileStatus {
        attributes,
        birth: (raw.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| raw.stx_btime.into()),
        immutable: raw.stx_attributes.contains(StatxAttributes::IMMUTABLE),
    })
}
