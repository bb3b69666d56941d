//! Sharing blocks between files (ioctl_ficlonerange(2)).

use std::os::fd::{AsFd, AsRawFd as _};

/// The kernel's `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    target_offset: u64,
}

/// `FICLONERANGE`: `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: libc::c_ulong = 0x4020_940d;

/// Makes `length` bytes (0: to the end) of `target` at `to` share the blocks of `source` at `from`.
///
/// # Errors
/// The kernel's: `OPNOTSUPP` where the filesystem doesn't support it, `INVAL` for ranges that aren't aligned
/// to its blocks, `XDEV`.
pub fn clone_range(
    target: impl AsFd,
    to: u64,
    source: impl AsFd,
    from: u64,
    length: u64,
) -> rustix::io::Result<()> {
    let range = CloneRange {
        source: source.as_fd().as_raw_fd().into(),
        source_offset: from,
        length,
        target_offset: to,
    };
    // SAFETY: both descriptors are open. `range` has the layout of the request and outlives the call.
    let done = unsafe { libc::ioctl(target.as_fd().as_raw_fd(), FICLONERANGE as _, &raw const range) };
    crate::check(done.into()).map(drop)
}
