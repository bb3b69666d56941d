//! A file's attributes, read with one statx(2) and kept in protocol-neutral words.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

use crate::error::Result;

/// What sort of object a file is (RFC 1813 section 2.5.5, `ftype3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block special file.
    BlockDevice,
    /// A character special file.
    CharacterDevice,
    /// A symbolic link.
    Symlink,
    /// A Unix domain socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// A point in time as filesystems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds, 0..=999_999_999.
    pub nanoseconds: u32,
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The type.
    pub kind: Kind,
    /// The twelve permission bits: set-uid, set-gid, sticky, and rwx for owner, group and others.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of disk space used.
    pub used: u64,
    /// Major and minor number of a device file; zeros otherwise.
    pub rdev: (u32, u32),
    /// The filesystem, the same after a restart where the filesystem has an identity of its own.
    pub fsid: u64,
    /// The file within the filesystem (inode number).
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the data or the attributes.
    pub ctime: Timestamp,
    /// Changes whenever data or attributes change: ctime in nanoseconds. With the kernel's multigrain time stamps (Linux
    /// 6.13, on ext4, xfs, btrfs and tmpfs) two states that were both looked at don't share a value, as far as the filesystem
    /// itself keeps to that; on older kernels ctime moves in steps of a clock tick (1 to 10 ms). The kernel keeps its
    /// own change cookie (`STATX_CHANGE_COOKIE`) to itself.
    pub change: u64,
}

/// How SETATTR sets a time stamp (RFC 1813 section 2.5.8, `set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// To the server's clock. Needs only write permission.
    Now,
    /// To the given time. Needs to be the owner.
    To(Timestamp),
}

/// Which attributes to set; the default sets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits; those above the twelve are ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl SetAttributes {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == SetAttributes::default()
    }
}

/// An object's attributes before and after an operation that changes it (RFC 1813 section 2.6, weak cache consistency).
///
/// Filled by the store for failed operations, too, as far as it came. No other operation through this store that changes
/// the object's entries, size or data fell between the two (where one did, `before` is left out); a local process on the server may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Before the operation.
    pub before: Option<Attributes>,
    /// After the operation.
    pub after: Option<Attributes>,
}

/// What one statx(2) said: attributes, and what the store itself wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    pub attributes: Attributes,
    /// Birth time, where the filesystem keeps one.
    pub birth: Option<Timestamp>,
    /// chattr +i.
    pub immutable: bool,
}

/// Asks the kernel about an open file (`O_PATH` will do). `fsid` is the store's number for the filesystem.
pub(crate) fn status(file: impl AsFd, fsid: u64) -> Result<Status> {
    status_at(file, c"", fsid)
}

/// As [`status`], of the file `name` in the directory `dir`; nothing is followed, nothing mounted.
pub(crate) fn status_at(dir: impl AsFd, name: &CStr, fsid: u64) -> Result<Status> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let raw = rustix::fs::statx(dir, name, flags, wanted)?;
    let time = |t: rustix::fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanoseconds: t.tv_nsec };
    let mode = u32::from(raw.stx_mode);
    let ctime = time(raw.stx_ctime);
    let attributes = Attributes {
        kind: kind_of(mode),
        mode: mode & 0o7777,
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        size: raw.stx_size,
        used: raw.stx_blocks.saturating_mul(512),
        rdev: (raw.stx_rdev_major, raw.stx_rdev_minor),
        fsid,
        fileid: raw.stx_ino,
        atime: time(raw.stx_atime),
        mtime: time(raw.stx_mtime),
        ctime,
        change: (ctime.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(ctime.nanoseconds)),
    };
    Ok(Status {
        attributes,
        birth: (raw.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(raw.stx_btime)),
        immutable: raw.stx_attributes.contains(StatxAttributes::IMMUTABLE),
    })
}

/// The type in the upper bits of `st_mode`. The kernel knows seven types.
fn kind_of(mode: u32) -> Kind {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::CharacterDevice => Kind::CharacterDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::RegularFile | FileType::Unknown => Kind::Regular,
    }
}
