//! Disk quotas (quotactl_fd(2), Linux 5.14), which rustix doesn't wrap.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

/// The owner of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaOwner {
    /// A user id.
    User(u32),
    /// A group id.
    Group(u32),
}

/// An enforced limit and its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Hard limit in bytes; 0: none.
    pub hard: u64,
    /// Soft limit in bytes, which can be exceeded until [`Quota::grace_end`]; 0: none.
    pub soft: u64,
    /// Bytes in use.
    pub used: u64,
    /// End of the grace time, in seconds since 1970, after which allocations beyond the soft limit are
    /// refused; 0 while it isn't exceeded.
    pub grace_end: u64,
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

/// `Q_XGETQSTAT`, which needs no privilege and works on all types of filesystems.
const GET_STATE: u32 = 0x5805;
/// `Q_GETQUOTA`.
const GET_QUOTA: u32 = 0x0080_0007;
/// `FS_QUOTA_UDQ_ENFD` and `FS_QUOTA_GDQ_ENFD`: limits are enforced.
const ENFORCED: [u16; 2] = [1 << 1, 1 << 3];
/// `QIF_DQBLKSIZE`: the unit of limits in bytes.
const UNIT: u64 = 1024;

/// The quota of `holder` on the filesystem of `file` (any descriptor); `None` where no limits are enforced.
///
/// # Errors
/// The kernel's: `NOSYS` before Linux 5.14, where the filesystem has no quotas, and where they are off;
/// `SRCH` where those of this kind are off; `PERM` for another user's quota, without CAP_SYS_ADMIN.
pub fn quota(file: impl AsFd, holder: QuotaOwner) -> rustix::io::Result<Option<Quota>> {
    let (kind, id) = match holder {
        QuotaOwner::User(id) => (0, id),
        QuotaOwner::Group(id) => (1, id),
    };
    let call = |command: u32, to: *mut libc::c_void| {
        // SAFETY: the descriptor is open. `to` points to the structure that this command fills, which
        // outlives the call.
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
    // SAFETY: `dqblk` consists of integers, for which zeros are valid.
    let mut found: libc::dqblk = unsafe { std::mem::zeroed() };
    call(GET_QUOTA, (&raw mut found).cast())?;
    Ok(Some(Quota {
        hard: found.dqb_bhardlimit.saturating_mul(UNIT),
        soft: found.dqb_bsoftlimit.saturating_mul(UNIT),
        used: found.dqb_curspace,
        grace_end: found.dqb_btime,
    }))
}

/// Whether an error of [`quota`] means that there is no quota, or none that the caller may see.
#[must_use]
pub const fn is_unavailable(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::SRCH | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL)
}
