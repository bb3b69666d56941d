//! Properties of a filesystem that the kernel knows (`s_time_gran`, `s_maxbytes`, `s_max_links`) and no
//! system call reports.
//!
//! They are derived from the filesystem's magic number. Where that isn't conclusive the value is one that
//! doesn't harm a client that relies on it. A maximum file size that is too small would prevent possible
//! writes; one that is too large costs an `NFS3ERR_FBIG`. So it is the largest possible value, which
//! overstates ext3, ext4 without extents, and ntfs3 with small clusters. A time granularity that is too fine
//! makes a client see its own times changed, so it is the coarsest. Nothing is known of what lies behind
//! overlayfs, FUSE and the network filesystems.

use std::hash::Hasher as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::fs::{fstatfs, fstatvfs};
use siphasher::sip::SipHasher13;

use crate::attributes::status;
use crate::error::Result;

const EXT: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683E;
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58F6;
const OVERLAY: u64 = 0x794C_7630;
const F2FS: u64 = 0xF2F5_2010;
const MSDOS: u64 = 0x4D44;
const EXFAT: u64 = 0x2011_BAB0;
const NTFS3: u64 = 0x7366_746E;
const ZFS: u64 = 0x2FC1_2FC1;
const BCACHEFS: u64 = 0xCA45_1A4E;
const JFS: u64 = 0x3153_464A;
const NILFS: u64 = 0x3434;
const HFSPLUS: u64 = 0x482B;
const CIFS: u64 = 0xFF53_4D42;
const SMB2: u64 = 0xFE53_4D42;
const NFS: u64 = 0x6969;

const SECOND: u32 = 1_000_000_000;

/// The properties of one filesystem, read when the store opens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filesystem {
    /// The filesystem's id. It survives restarts where the filesystem has an identity of its own; else it is
    /// the device number.
    pub fsid: u64,
    /// Maximum number of links to a file.
    pub link_max: u32,
    /// Maximum length of a name in bytes.
    pub name_max: u32,
    /// Maximum size of a file in bytes.
    pub max_file_size: u64,
    /// Granularity of the times that SETATTR sets, in nanoseconds.
    pub time_delta: u32,
    /// Hard and symbolic links work, and owners and modes are stored.
    pub posix: bool,
    /// Names that differ only in case are the same.
    pub case_insensitive: bool,
    /// A directory cookie is valid only for the open directory that returned it, or is a position that moves
    /// when earlier entries are removed.
    pub volatile_cookies: bool,
    /// The inode numbers in directory entries are those of the files. (overlayfs reports those of the lower
    /// layers.)
    pub true_entry_ids: bool,
    /// Files can share blocks (`FICLONERANGE`). On xfs, unless it was made without reflinks.
    pub clones: bool,
    /// This kernel makes the time stamps, by this host's clock. On network filesystems and FUSE another host
    /// does, and changes may arrive late. Nothing is known of what lies behind overlayfs.
    pub stamps_itself: bool,
    /// A write with `RWF_DSYNC` or `RWF_SYNC` is equivalent to a write followed by fdatasync(2) or fsync(2)
    /// of its range. Certain for filesystems that use the kernel's `generic_write_sync`; network filesystems
    /// and FUSE behaved differently for years.
    pub syncs_in_writes: bool,
    /// A write may return the error of an earlier write-back, `ENOSPC`, `EDQUOT` or `EFBIG`, which no sync
    /// returns then. (The kernel's NFS client: fs/nfs/file.c, `nfs_file_write`.)
    pub reports_write_back_in_writes: bool,
}

impl Filesystem {
    pub fn of(root: impl AsFd, export: u32) -> Result<Filesystem> {
        let root = root.as_fd();
        let magic = fstatfs(root)?.f_type as u64 & 0xFFFF_FFFF;
        // Inodes of 128 bytes, as in ext2 and most ext3, have no room for birth times or for fractions of a
        // second.
        let old_ext = magic == EXT && status(root, 0)?.birth.is_none();
        let vfs = fstatvfs(root)?;
        let fsid = match (vfs.f_fsid, ceph_fsid(root, export)) {
            (0, Some(fsid)) => fsid,
            (0, None) => rustix::fs::fstat(root)?.st_dev,
            (fsid, _) => fsid,
        };
        let foreign = matches!(magic, MSDOS | EXFAT);
        Ok(Filesystem {
            fsid,
            link_max: match magic {
                EXT if old_ext => 32_000,
                EXT => 65_000,
                XFS => i32::MAX as u32,
                BTRFS => 65_535,
                F2FS => 0xFFFF_FFFF,
                MSDOS | EXFAT => 1,
                // tmpfs and others have a 32-bit counter and no limit of their own.
                TMPFS | RAMFS => u32::MAX,
                // What pathconf(3) returns for an unknown filesystem (LINUX_LINK_MAX).
                _ => 127,
            },
            name_max: u32::try_from(vfs.f_namemax).unwrap_or(255),
            max_file_size: match magic {
                // 2^32 - 1 blocks with extents.
                EXT => vfs.f_bsize.saturating_mul(u64::from(u32::MAX)),
                MSDOS => u64::from(u32::MAX),
                // The maximum number of 4 KiB blocks of an inode.
                F2FS => 4_329_690_886_144,
                _ => i64::MAX as u64,
            },
            time_delta: time_delta(magic, !old_ext),
            posix: !foreign,
            case_insensitive: matches!(magic, MSDOS | EXFAT | NTFS3 | CIFS | SMB2),
            volatile_cookies: match magic {
                OVERLAY | RAMFS => true,
                TMPFS => !tmpfs_keeps_cookies(rustix::system::uname().release().to_bytes()),
                _ => false,
            },
            true_entry_ids: magic != OVERLAY,
            clones: matches!(magic, XFS | BTRFS),
            stamps_itself: matches!(
                magic,
                EXT | XFS
                    | BTRFS
                    | TMPFS
                    | RAMFS
                    | F2FS
                    | MSDOS
                    | EXFAT
                    | NTFS3
                    | ZFS
                    | BCACHEFS
                    | JFS
                    | NILFS
                    | HFSPLUS
            ),
            syncs_in_writes: matches!(magic, EXT | XFS | BTRFS | F2FS | TMPFS),
            reports_write_back_in_writes: magic == NFS,
        })
    }
}

/// In nanoseconds; `births`: the inodes have room for birth times.
fn time_delta(magic: u64, births: bool) -> u32 {
    match magic {
        EXT if !births => SECOND,
        // FAT's modification times, exFAT's access times. (FAT's access times are days.)
        MSDOS | EXFAT => 2 * SECOND,
        NTFS3 | CIFS | SMB2 => 100,
        _ => 1,
    }
}

/// Since Linux 6.6 each entry of a tmpfs directory has a number that stays; before, cookies were positions.
/// What can't be read is taken for older.
fn tmpfs_keeps_cookies(release: &[u8]) -> bool {
    let mut numbers = release
        .split(|byte| !byte.is_ascii_digit())
        .map(|digits| std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok()));
    let version = (numbers.next().flatten(), numbers.next().flatten());
    matches!(version, (Some(major), Some(minor)) if (major, minor) >= (6, 6))
}

/// A number for an export of a filesystem that is mounted by ceph-fuse, which has none of its own: the same
/// on every mount. A Ceph cluster may have several filesystems, whose files may have the same inode numbers.
fn ceph_fsid(root: BorrowedFd<'_>, export: u32) -> Option<u64> {
    let mut value = [0; 64];
    // Works for O_PATH descriptors, too.
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    let length = rustix::fs::getxattr(path, "ceph.cluster_fsid", &mut value[..]).ok()?;
    let mut hasher = SipHasher13::new();
    hasher.write(&value[..length]);
    hasher.write_u32(export);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_granularity_is_that_of_the_filesystem() {
        assert_eq!((time_delta(EXT, true), time_delta(EXT, false)), (1, 1_000_000_000));
        assert_eq!((time_delta(MSDOS, true), time_delta(EXFAT, true)), (2_000_000_000, 2_000_000_000));
        assert_eq!((time_delta(NTFS3, true), time_delta(XFS, true), time_delta(XFS, false)), (100, 1, 1));
    }

    #[test]
    fn tmpfs_has_stable_cookies_since_linux_6_6() {
        for release in ["6.6.0", "6.6", "6.12.9+deb13-amd64", "7.0.0-rc1", "10.1"] {
            assert!(tmpfs_keeps_cookies(release.as_bytes()), "{release}");
        }
        for release in ["6.5.13", "6.1.0-25-amd64", "5.15.0", "4.18.0-553.el8", "6", "", "linux", "6.x"] {
            assert!(!tmpfs_keeps_cookies(release.as_bytes()), "{release}");
        }
    }
}
