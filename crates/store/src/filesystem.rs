//! What is particular about a filesystem: limits that no system call tells.

use std::os::fd::AsFd;

use rustix::fs::{StatVfsMountFlags, fstatfs, fstatvfs};

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
const CIFS: u64 = 0xFF53_4D42;
const SMB2: u64 = 0xFE53_4D42;

/// One filesystem's traits, read when the store opens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filesystem {
    /// The same after a restart where the filesystem has an identity of its own; else its device number.
    pub fsid: u64,
    /// The most links to one file.
    pub link_max: u32,
    /// The longest name in bytes.
    pub name_max: u32,
    /// The largest size of a file in bytes.
    pub max_file_size: u64,
    /// Hard links and symbolic links work, owners and modes are kept.
    pub posix: bool,
    /// Names that differ in case only are the same.
    pub case_insensitive: bool,
    /// A directory's cookies mean something to this process's open directory only.
    pub volatile_cookies: bool,
    /// The inode numbers in directories are those of the files (overlayfs shows the lower ones there).
    pub true_entry_ids: bool,
    /// The mount itself is read-only.
    pub read_only: bool,
}

impl Filesystem {
    pub fn of(root: impl AsFd) -> Result<Filesystem> {
        let root = root.as_fd();
        let magic = fstatfs(root)?.f_type as u64 & 0xFFFF_FFFF;
        let vfs = fstatvfs(root)?;
        let fsid = if vfs.f_fsid == 0 { rustix::fs::fstat(root)?.st_dev } else { vfs.f_fsid };
        let foreign = matches!(magic, MSDOS | EXFAT);
        Ok(Filesystem {
            fsid,
            link_max: match magic {
                EXT => 65_000,
                XFS => i32::MAX as u32,
                BTRFS => 65_535,
                F2FS => 0xFFFF_FFFF,
                MSDOS | EXFAT => 1,
                // tmpfs and others count in 32 bits without a limit of their own.
                TMPFS | RAMFS => u32::MAX,
                // What pathconf(3) says when it knows nothing (LINUX_LINK_MAX).
                _ => 127,
            },
            name_max: u32::try_from(vfs.f_namemax).unwrap_or(255),
            max_file_size: match magic {
                // 2^32 - 1 blocks with extents.
                EXT => vfs.f_bsize.saturating_mul(u64::from(u32::MAX)),
                MSDOS => u64::from(u32::MAX),
                _ => i64::MAX as u64,
            },
            posix: !foreign,
            case_insensitive: matches!(magic, MSDOS | EXFAT | NTFS3 | CIFS | SMB2),
            volatile_cookies: matches!(magic, OVERLAY | RAMFS),
            true_entry_ids: magic != OVERLAY,
            read_only: vfs.f_flag.contains(StatVfsMountFlags::RDONLY),
        })
    }
}
