//! The filesystem ids of a thread.
//!
//! In the kernel credentials belong to a thread. The C library's wrappers change all threads of the process
//! (setgroups) or can't report failure (setfsuid); these functions do neither. For supplementary groups see
//! [`rustix::thread::set_thread_groups`].

use rustix::io::Errno;

/// The id that setfsuid(2) and setfsgid(2) never set; they return the current one.
const NO_ID: u32 = u32::MAX;

/// This thread's filesystem user id.
#[must_use]
pub fn fsuid() -> u32 {
    exchange_fsuid(NO_ID)
}

/// This thread's filesystem group id.
#[must_use]
pub fn fsgid() -> u32 {
    exchange_fsgid(NO_ID)
}

/// Sets this thread's filesystem user id. A change from 0 removes the filesystem capabilities
/// (`CAP_DAC_OVERRIDE`, `CAP_CHOWN` ...) from the thread's effective set, and a change to 0 restores them
/// (capabilities(7)).
///
/// # Errors
/// `EPERM` when the thread may not, `EINVAL` for `u32::MAX`, which is no id.
pub fn set_fsuid(uid: u32) -> rustix::io::Result<()> {
    if uid == NO_ID {
        return Err(Errno::INVAL);
    }
    exchange_fsuid(uid);
    // The system call doesn't report failure, so the id is read back.
    if fsuid() == uid { Ok(()) } else { Err(Errno::PERM) }
}

/// Sets this thread's filesystem group id.
///
/// # Errors
/// `EPERM` when the thread may not, `EINVAL` for `u32::MAX`, which is no id.
pub fn set_fsgid(gid: u32) -> rustix::io::Result<()> {
    if gid == NO_ID {
        return Err(Errno::INVAL);
    }
    exchange_fsgid(gid);
    if fsgid() == gid { Ok(()) } else { Err(Errno::PERM) }
}

/// setfsuid(2): sets the id and returns the previous one.
fn exchange_fsuid(uid: u32) -> u32 {
    // SAFETY: the call takes a number and accesses no memory.
    (unsafe { libc::syscall(libc::SYS_setfsuid, libc::c_ulong::from(uid)) }) as u32
}

/// setfsgid(2): sets the id and returns the previous one.
fn exchange_fsgid(gid: u32) -> u32 {
    // SAFETY: the call takes a number and accesses no memory.
    (unsafe { libc::syscall(libc::SYS_setfsgid, libc::c_ulong::from(gid)) }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_belong_to_the_thread() {
        if fsuid() != 0 {
            return;
        }
        std::thread::spawn(|| {
            set_fsgid(2000).expect("root may");
            set_fsuid(1000).expect("root may");
            assert_eq!((fsuid(), fsgid()), (1000, 2000));
            set_fsuid(0).expect("the real id is still root");
        })
        .join()
        .expect("ran");
        assert_eq!((fsuid(), fsgid()), (0, 0));
        assert_eq!(set_fsuid(u32::MAX), Err(Errno::INVAL));
    }
}
