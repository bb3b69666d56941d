//! A file's attributes, read with one statx(2).

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

pub use sys::{Attributes, FileKind, SetAttributes, SetTime, Timestamp};

use crate::error::Result;

/// An object's attributes before and after an operation that changes it (RFC 1813 section 2.6, weak cache
/// consistency).
///
/// The store fills it for failed operations, too, as far as they came. No other operation of this store on
/// the object's entries, size or data ran between the two; where one did, `before` is absent. A local process
/// may still have changed the object in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Before the operation.
    pub before: Option<Attributes>,
    /// After the operation.
    pub after: Option<Attributes>,
}

/// The result of one statx(2): the attributes, and fields that only the store needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileStatus {
    pub attributes: Attributes,
    /// Birth time, where the filesystem keeps one.
    pub birth: Option<Timestamp>,
    /// The inode is immutable (chattr +i).
    pub immutable: bool,
}

/// A status with the time just before the kernel was asked. Conclusions from a ctime need both.
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

    /// Whether every later change of the file gets another ctime.
    pub fn is_settled(&self) -> bool {
        self.status.attributes.ctime.is_settled(self.asked)
    }
}

/// The status of an open file; an `O_PATH` descriptor is enough. `fsid` is the store's number for the
/// filesystem.
pub(crate) fn status(file: impl AsFd, fsid: u64) -> Result<FileStatus> {
    status_at(file, c"", fsid)
}

/// As [`status`], for `name` in the directory `dir`. Follows no symbolic link and triggers no automount.
pub(crate) fn status_at(dir: impl AsFd, name: &CStr, fsid: u64) -> Result<FileStatus> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let (raw, attributes) =
        Attributes::examine(fsid, || rustix::fs::statx(dir.as_fd(), name, flags, wanted))?;
    Ok(FileStatus {
        attributes,
        birth: (raw.stx_mask & StatxFlags::BTIME.bits() != 0)
            .then_some(Timestamp { seconds: raw.stx_btime.tv_sec, nanoseconds: raw.stx_btime.tv_nsec }),
        immutable: raw.stx_attributes.contains(StatxAttributes::IMMUTABLE),
    })
}
