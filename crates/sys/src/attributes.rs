//! A file's attributes as statx(2) tells them: what the store serves, the lane carries and the client shows are the same
//! words, so that nothing is translated between the two ends of one kernel.

use rustix::fs::{FileType, Statx, StatxTimestamp};

/// What sort of object a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    #[default]
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    Block,
    /// A character device.
    Character,
    /// A symbolic link.
    Symlink,
    /// A Unix socket.
    Socket,
    /// A named pipe.
    Fifo,
}

impl Kind {
    /// The type in the upper bits of `st_mode`. The kernel knows these seven.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        match FileType::from_raw_mode(mode) {
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::BlockDevice => Self::Block,
            FileType::CharacterDevice => Self::Character,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::RegularFile | FileType::Unknown => Self::Regular,
        }
    }
}

/// A point in time as filesystems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds, 0..=999_999_999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// In nanoseconds, wrapping after 584 years: a change attribute, made of a ctime.
    #[must_use]
    pub const fn as_change(self) -> u64 {
        (self.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(self.nanoseconds as u64)
    }
}

impl From<StatxTimestamp> for Timestamp {
    fn from(time: StatxTimestamp) -> Self {
        Self { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
    }
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The filesystem, by the server's number for it: the same after a restart where the filesystem has an identity of its own.
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

impl Attributes {
    /// What a statx(2) of `STATX_BASIC_STATS` said of a file of the filesystem that is called `fsid`.
    #[must_use]
    pub fn of(raw: &Statx, fsid: u64) -> Self {
        let mode = u32::from(raw.stx_mode);
        let ctime = Timestamp::from(raw.stx_ctime);
        Self {
            kind: Kind::of_mode(mode),
            mode: mode & 0o7777,
            nlink: raw.stx_nlink,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            size: raw.stx_size,
            used: raw.stx_blocks.saturating_mul(512),
            rdev: (raw.stx_rdev_major, raw.stx_rdev_minor),
            fsid,
            fileid: raw.stx_ino,
            atime: raw.stx_atime.into(),
            mtime: raw.stx_mtime.into(),
            ctime,
            change: ctime.as_change(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustix::fs::{AtFlags, StatxFlags, statx};

    use super::*;

    #[test]
    fn a_file_is_told_as_the_standard_library_tells_it() {
        let file = tempfile::tempfile().expect("a scratch file");
        file.set_len(4321).expect("set");
        file.set_permissions(std::fs::Permissions::from_mode(0o4751)).expect("set");
        let raw = statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).expect("statx");
        let (told, known) = (Attributes::of(&raw, 7), file.metadata().expect("fstat"));
        assert_eq!((told.kind, told.mode, told.fsid), (Kind::Regular, 0o4751, 7));
        assert_eq!((told.size, told.used, told.fileid), (4321, known.blocks() * 512, known.ino()));
        assert_eq!((told.uid, told.gid, u64::from(told.nlink)), (known.uid(), known.gid(), known.nlink()));
        assert_eq!(
            (told.mtime.seconds, i64::from(told.mtime.nanoseconds)),
            (known.mtime(), known.mtime_nsec())
        );
        assert_eq!(told.change, told.ctime.as_change());
        for (path, kind) in
            [("/dev/null", Kind::Character), ("/proc", Kind::Directory), ("/proc/self", Kind::Symlink)]
        {
            let raw = statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
                .expect("statx");
            assert_eq!(Attributes::of(&raw, 0).kind, kind, "{path}");
        }
    }

    #[test]
    fn a_later_time_is_a_greater_change() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds }.as_change();
        assert!(at(1, 0) > at(0, 999_999_999) && at(5, 2) > at(5, 1));
        assert_eq!(at(-1, 999_999_999).wrapping_add(1), at(0, 0));
    }
}
