//! Constants of the FUSE protocol (include/uapi/linux/fuse.h) that this filesystem uses.

/// The protocol version of this filesystem; the kernel falls back to it. 7.40 is the first with passthrough.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 40;

/// The oldest minor version with the structures used here (Linux 4.2).
pub(crate) const OLDEST_MINOR: u32 = 23;

/// The root's node ID, `FUSE_ROOT_ID`.
pub(crate) const ROOT: u64 = 1;

/// Operation codes (`enum fuse_opcode`).
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    /// Linux 6.6.
    pub(crate) const STATX: u32 = 52;
}

/// INIT's flags.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const PASSTHROUGH: u64 = 1 << 37;
    pub(crate) const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of the reply to OPEN.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PASSTHROUGH: u32 = 1 << 7;
}

/// Bits of SETATTR's `valid`: the attributes that it sets.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Notifications, which the filesystem sends without a request.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    /// Linux 6.16.
    pub(crate) const INC_EPOCH: i32 = 8;
}

/// [`notify::INVAL_ENTRY`]: the kernel looks the name up again at its next use, and keeps the dentry (Linux
/// 6.2).
pub(crate) const EXPIRE_ONLY: u32 = 1;

/// The types of locks (fcntl(2)), as the kernel numbers them.
pub(crate) const F_RDLCK: u32 = 0;
pub(crate) const F_WRLCK: u32 = 1;
pub(crate) const F_UNLCK: u32 = 2;

/// The last byte of a lock to the end of the file (`OFFSET_MAX`).
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// GETATTR: the file handle is valid.
pub(crate) const GETATTR_FH: u32 = 1;

/// WRITE: the kernel writes back its page cache.
pub(crate) const WRITE_CACHE: u32 = 1;

/// WRITE: the write clears set-id bits, because the writer has no right to keep them.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// OPEN and CREATE: as [`WRITE_KILL_SUIDGID`], for truncation by the open.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;

/// LSEEK's `whence` for data.
pub(crate) const SEEK_DATA: u32 = 3;

/// LSEEK's `whence` for a hole.
pub(crate) const SEEK_HOLE: u32 = 4;

/// The file type bits of a mode.
pub(crate) const S_IFMT: u32 = 0o170_000;
