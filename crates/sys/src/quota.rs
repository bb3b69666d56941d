//! How much of a filesystem a user or group may have (quotactl_fd(2), Linux 5.14): rustix doesn't wrap it.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

/// Whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A user's, by its number.
    User(u32),
    /// A group's, by its number.
    Group(u32),
}

/// A limit that is in force, and what is used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Bytes that can't be exceeded; 0: no such limit.
    pub hard: u64,
    /// Bytes that can be exceeded until [`Quota::until`]; 0: no such limit.
    pub soft: u64,
    /// Bytes that are taken.
    pub used: u64,
    /// The second since 1970 after which what is beyond the soft limit is refused; 0 while nothing is.
    pub until: u64,
}

/// `struct fs_quota_stat` (linux/dqblk_xfs.h).
#[repr(C)]
#[derive(Default)]
struct Stat {
    version: i8,
    flags: u16,
    pad: i8,
    files: [QuotaFile; 2],
    in_core: u32,
    time_limits: [i32; 3],
    warnings: [u16; 2],
}

/// `struct fs_qfilestat`.
#[repr(C)]
#[derive(Default)]
struct QuotaFile {
    ino: u64,
    blocks: u64,
    extents: u32,
}

/// `Q_XGETQSTAT`, which asks for no right, and works on filesystems of every kind.
const GET_STATE: u32 = 0x5805;
/// `Q_GETQUOTA`.
const GET_QUOTA: u32 = 0x0080_0007;
/// `FS_QUOTA_UDQ_ENFD` and `FS_QUOTA_GDQ_ENFD`: limits are enforced.
const ENFORCED: [u16; 2] = [1 << 1, 1 << 3];
/// `QIF_DQBLKSIZE`: limits are counted in so many bytes.
const UNIT: u64 = 1024;

/// The quota of `holder` on the filesystem that `file` is on, O_PATH or not; `None` where no limits are
/// enforced.
///
/// # Errors
/// The kernel's: `NOSYS` before Linux 5.14, where the filesystem has no quotas, and where they are off;
/// `SRCH` where those of this kind are off; `PERM` for what is another's, without CAP_SYS_ADMIN.
pub fn quota(file: impl AsFd, holder: Holder) -> rustix::io::Result<Option<Quota>> {
    let (kind, id) = match holder {
        Holder::User(id) => (0, id),
        Holder::Group(id) => (1, id),
    };
    let call = |command: u32, to: *mut libc::c_void| {
        // SAFETY: the descriptor is open; `to` points to what this command fills in, which lives for as long
        // as the call.
        let done = unsafe {
            libc::syscall(libc::SYS_quotactl_fd, file.as_fd().as_raw_fd(), command << 8 | kind, id, to)
        };
        crate::check(done)
    };
    let mut state = Stat::default();
    call(GET_STATE, (&raw mut state).cast())?;
    if state.flags & ENFORCED[kind as usize] == 0 {
        return Ok(None);
    }
    // SAFETY: a struct of numbers.
    let mut found: libc::dqblk = unsafe { std::mem::zeroed() };
    call(GET_QUOTA, (&raw mut found).cast())?;
    Ok(Some(Quota {
        hard: found.dqb_bhardlimit.saturating_mul(UNIT),
        soft: found.dqb_bsoftlimit.saturating_mul(UNIT),
        used: found.dqb_curspace,
        until: found.dqb_btime,
    }))
}

/// Whether an error of [`quota`] says that there are none here, or none that may be told.
#[must_use]
pub const fn has_none(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::SRCH | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL)
}
