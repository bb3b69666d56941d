//! A file's attributes as statx(2) reports them. The store, the lane and the client share these types, so
//! that nothing is converted between two processes on one host.

use std::time::Duration;

use rustix::fs::{FileType, Stat, Statx, StatxTimestamp, major, minor};
use rustix::io;

/// The type of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileKind {
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

impl FileKind {
    /// The type in the upper bits of `st_mode`. The kernel has these seven.
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

    /// Its name for people, such as "regular file".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::Block => "block device",
            Self::Character => "character device",
            Self::Symlink => "symbolic link",
            Self::Socket => "socket",
            Self::Fifo => "named pipe",
        }
    }
}

/// A time stamp of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds, 0..=999_999_999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The current time of the clock that time stamps are taken from (`CLOCK_REALTIME`).
    #[must_use]
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Self { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }

    /// In nanoseconds, wrapping after 584 years: a ctime as a change attribute.
    const fn as_change(self) -> u64 {
        (self.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(self.nanoseconds as u64)
    }

    /// For how long after this ctime the file can change again without a new ctime, in nanoseconds.
    ///
    /// A filesystem rounds ctimes down to its granularity, which no system call reports. Most store
    /// nanoseconds, and then the kernel's clock tick is the limit (1 to 10 ms; exFAT: 10 ms more). ext4 with
    /// inodes of 128 bytes, ext2 and HFS+ store seconds, FAT two seconds. These are recognised by a stamp
    /// without nanoseconds. (One in a thousand million of the other stamps looks the same, and is treated
    /// with unneeded care.)
    const fn granularity(self) -> u64 {
        if self.is_coarse() { TWO_SECONDS + TICKS } else { TICKS }
    }

    /// Whether every change of the file after `now` gives it a ctime other than this one, which it had at
    /// `now`.
    ///
    /// A precondition for concluding from an unchanged ctime that the file hasn't changed. Valid where this
    /// kernel makes the time stamps, by the clock that `now` was read from.
    #[must_use]
    pub fn is_settled(self, now: Self) -> bool {
        let nanoseconds =
            |time: Self| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
        nanoseconds(now) - nanoseconds(self) > i128::from(self.granularity())
    }

    /// Whether the filesystem seems to store whole seconds: see [`Timestamp::change`].
    const fn is_coarse(self) -> bool {
        self.nanoseconds == 0
    }

    /// The change attribute of a file whose ctime is [settled](Self::is_settled).
    #[must_use]
    pub const fn settled_change(self) -> u64 {
        self.as_change().wrapping_add(if self.is_coarse() { self.granularity() } else { 0 })
    }

    /// The change attribute of a file that had this ctime when it was examined; `now` is a time before that.
    ///
    /// It is the ctime if that has nanoseconds. On other filesystems two states of a file within two seconds
    /// may have the same ctime, but must not have the same change attribute: clients would keep outdated data
    /// in their caches for good. There it increases with the clock until the ctime is
    /// [settled](Self::is_settled), and then stays the same. So it never decreases, and differs before and
    /// after a change. Clients revalidate a recently changed file once more than necessary.
    fn change(self, now: Self) -> u64 {
        if !self.is_coarse() || self.is_settled(now) {
            self.settled_change()
        } else {
            now.max(self).as_change()
        }
    }
}

/// The coarsest granularity of ctimes (FAT), in nanoseconds.
const TWO_SECONDS: u64 = 2_000_000_000;
/// More than a clock tick and exFAT's granularity together, in nanoseconds.
const TICKS: u64 = 50_000_000;

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The type.
    pub kind: FileKind,
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
    /// The server's id for the filesystem. It survives restarts where the filesystem has an identity of its
    /// own.
    pub fsid: u64,
    /// The file within the filesystem (inode number).
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the data or the attributes.
    pub ctime: Timestamp,
    /// The change attribute: another one whenever data or attributes have changed. NFSv4 servers send it
    /// (RFC 8881 section 5.8.1.4). NFSv3 has none, and it is [`Timestamp::settled_change`].
    ///
    /// Of local files it is made of the ctime ([`Attributes::examine`]), because the kernel doesn't report
    /// its own change cookie (`STATX_CHANGE_COOKIE`). With the kernel's multigrain time stamps (Linux 6.13,
    /// on ext4, xfs, btrfs and tmpfs) two states that were both examined have different values. On older
    /// kernels ctime advances in clock ticks (1 to 10 ms).
    pub change: u64,
}

impl Attributes {
    /// Asks the kernel for the status of a file, by fstat(2) or by statx(2) with `STATX_BASIC_STATS`. Returns
    /// the status and the attributes in it; the file is in the filesystem with this id.
    ///
    /// Whoever examines a file gets the same change attribute, be it the server or a client on its host:
    /// otherwise a client that asks now one and now the other would take the file for changed each time.
    ///
    /// # Errors
    /// Those of `ask`.
    #[doc(hidden)] // The client library exports this type, but not rustix's.
    pub fn examine<S: FileStatus>(fsid: u64, ask: impl Fn() -> io::Result<S>) -> io::Result<(S, Self)> {
        let status = ask()?;
        let attributes = status.attributes(fsid);
        if !attributes.ctime.is_coarse() {
            return Ok((status, attributes));
        }
        // The change attribute depends on a time from before the kernel is asked.
        let asked = Timestamp::now();
        let status = ask()?;
        let attributes = status.attributes(fsid);
        Ok((status, Self { change: attributes.ctime.change(asked), ..attributes }))
    }

    /// For how long the file may change again without another change attribute, from the time on when this
    /// one was first seen. Zero if the change attribute is more than the ctime.
    #[must_use]
    pub fn settling_time(&self) -> Duration {
        let of_ctime = [self.ctime.as_change(), self.ctime.settled_change()];
        if of_ctime.contains(&self.change) {
            Duration::from_nanos(self.ctime.granularity())
        } else {
            Duration::ZERO
        }
    }
}

/// What the kernel tells of a file.
pub trait FileStatus {
    /// The attributes, for a file of the filesystem with this id whose ctime is settled.
    fn attributes(&self, fsid: u64) -> Attributes;
}

impl FileStatus for Statx {
    fn attributes(&self, fsid: u64) -> Attributes {
        let (mode, ctime) = (u32::from(self.stx_mode), timestamp(self.stx_ctime));
        Attributes {
            kind: FileKind::of_mode(mode),
            mode: mode & 0o7777,
            nlink: self.stx_nlink,
            uid: self.stx_uid,
            gid: self.stx_gid,
            size: self.stx_size,
            used: self.stx_blocks.saturating_mul(512),
            rdev: (self.stx_rdev_major, self.stx_rdev_minor),
            fsid,
            fileid: self.stx_ino,
            atime: timestamp(self.stx_atime),
            mtime: timestamp(self.stx_mtime),
            ctime,
            change: ctime.settled_change(),
        }
    }
}

/// fstat(2) takes three quarters of statx(2)'s time.
impl FileStatus for Stat {
    fn attributes(&self, fsid: u64) -> Attributes {
        let time = |seconds, nanoseconds| Timestamp {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
        };
        let ctime = time(self.st_ctime, self.st_ctime_nsec);
        Attributes {
            kind: FileKind::of_mode(self.st_mode),
            mode: self.st_mode & 0o7777,
            nlink: u32::try_from(self.st_nlink).unwrap_or(u32::MAX),
            uid: self.st_uid,
            gid: self.st_gid,
            size: u64::try_from(self.st_size).unwrap_or(0),
            used: u64::try_from(self.st_blocks).unwrap_or(0).saturating_mul(512),
            rdev: (major(self.st_rdev), minor(self.st_rdev)),
            fsid,
            fileid: self.st_ino,
            atime: time(self.st_atime, self.st_atime_nsec),
            mtime: time(self.st_mtime, self.st_mtime_nsec),
            ctime,
            change: ctime.settled_change(),
        }
    }
}

/// A time stamp to set (utimensat(2); RFC 1813 section 2.6, `set_atime` and `set_mtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The clock of the host that has the file. Write permission is enough.
    Now,
    /// This time. The caller must own the file.
    To(Timestamp),
}

/// Attributes to set; `None` leaves an attribute as it is, and the default sets nothing (RFC 1813 section
/// 2.6, `sattr3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The twelve permission bits; higher bits are ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncates the file, or extends it with zeros.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last modification.
    pub mtime: Option<SetTime>,
}

impl SetAttributes {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustix::fs::{AtFlags, StatxFlags, statx};

    use super::*;

    #[test]
    fn attributes_agree_with_the_standard_library() {
        let file = tempfile::tempfile().expect("a scratch file");
        file.set_len(4321).expect("set");
        file.set_permissions(std::fs::Permissions::from_mode(0o4751)).expect("set");
        let ask = || statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let (_, told) = Attributes::examine(7, ask).expect("statx");
        let known = file.metadata().expect("fstat");
        assert_eq!((told.kind, told.mode, told.fsid), (FileKind::Regular, 0o4751, 7));
        assert_eq!((told.size, told.used, told.fileid), (4321, known.blocks() * 512, known.ino()));
        assert_eq!((told.uid, told.gid, u64::from(told.nlink)), (known.uid(), known.gid(), known.nlink()));
        assert_eq!(
            (told.mtime.seconds, i64::from(told.mtime.nanoseconds)),
            (known.mtime(), known.mtime_nsec())
        );
        assert_eq!(told.change, told.ctime.as_change());
        assert_eq!(told, Attributes::examine(7, || rustix::fs::fstat(&file)).expect("fstat").1);
        for (path, kind) in [
            ("/dev/null", FileKind::Character),
            ("/proc", FileKind::Directory),
            ("/proc/self", FileKind::Symlink),
        ] {
            let raw = statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
                .expect("statx");
            assert_eq!(raw.attributes(0).kind, kind, "{path}");
            let stat = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).expect("fstat");
            let (of_statx, of_stat) = (raw.attributes(0), stat.attributes(0));
            assert_eq!((of_stat.kind, of_stat.rdev), (of_statx.kind, of_statx.rdev), "{path}");
        }
    }

    #[test]
    fn a_later_time_is_a_greater_change() {
        let change = |seconds, nanoseconds| at(seconds, nanoseconds).as_change();
        assert!(change(1, 0) > change(0, 999_999_999) && change(5, 2) > change(5, 1));
        assert_eq!(change(-1, 999_999_999).wrapping_add(1), change(0, 0));
    }

    const fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    #[test]
    fn a_ctime_is_settled_when_no_further_change_can_get_it() {
        // With nanoseconds the clock tick decides.
        let fine = at(100, 7);
        assert!(!fine.is_settled(at(100, 7)) && !fine.is_settled(at(100, 20_000_000)));
        assert!(fine.is_settled(at(100, 60_000_000)));
        // Without them it is whole seconds, or two of them on FAT.
        let coarse = at(100, 0);
        for early in [at(100, 0), at(100, 60_000_000), at(101, 999_999_999), at(102, 10_000_000)] {
            assert!(!coarse.is_settled(early), "{early:?}");
        }
        assert!(coarse.is_settled(at(102, 60_000_000)));
        // A ctime in the future, after the clock was set back.
        assert!(!at(200, 5).is_settled(at(100, 0)));
    }

    #[test]
    fn a_change_attribute_grows_with_every_change_whatever_the_granularity() {
        assert_eq!(at(100, 7).change(at(100, 8)), at(100, 7).as_change());
        // A file on a filesystem that stores whole seconds, examined before and after each of its changes.
        let (mut last, mut changed_at) = (0, at(0, 0));
        for step in 0..200_u32 {
            let now = at(100 + i64::from(step / 10), step % 10 * 100_000_000 + 1);
            let seen = changed_at.change(now);
            assert!(seen >= last, "it never goes back");
            last = seen;
            if step % 7 == 0 || step % 7 == 1 {
                changed_at = at(now.seconds, 0);
                let later = Timestamp { nanoseconds: now.nanoseconds + 1, ..now };
                let after = changed_at.change(later);
                assert!(after > last, "{step}: the change shows");
                last = after;
            }
        }
        assert_eq!(at(100, 0).change(at(200, 0)), at(100, 0).settled_change(), "it stands still");
    }

    #[test]
    fn a_file_with_whole_seconds_is_examined_alike_by_all() {
        // No filesystem at hand stores seconds; the status is what fstat(2) would answer there.
        let file = tempfile::tempfile().expect("a scratch file");
        let mut stat = rustix::fs::fstat(&file).expect("fstat");
        stat.st_ctime_nsec = 0;
        let change = || Attributes::examine(7, || Ok(stat)).expect("a status").1.change;
        let (before, first, second) = (Timestamp::now().as_change(), change(), change());
        assert!(before <= first && first <= second, "it may have changed again in this second");
        stat.st_ctime -= 10;
        let (_, settled) = Attributes::examine(7, || Ok(stat)).expect("a status");
        assert_eq!(settled.change, settled.ctime.settled_change());
        assert!(settled.change < first);
    }

    #[test]
    fn a_change_attribute_that_is_more_than_the_ctime_needs_no_time_to_settle() {
        let file = |ctime: Timestamp, change| Attributes { ctime, change, ..Attributes::default() };
        let (fine, coarse) = (at(100, 7), at(100, 0));
        assert_eq!(file(fine, fine.settled_change()).settling_time(), Duration::from_millis(50));
        for change in [coarse.as_change(), coarse.settled_change()] {
            assert_eq!(file(coarse, change).settling_time(), Duration::from_millis(2050));
        }
        assert_eq!(file(coarse, coarse.change(at(101, 5))).settling_time(), Duration::ZERO, "by the clock");
        assert_eq!(file(fine, 12).settling_time(), Duration::ZERO, "a counter");
    }
}
