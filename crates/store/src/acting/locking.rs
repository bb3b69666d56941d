//! What a lock owner holds open on a file: a description of its own, for locks belong to descriptions.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use sys::locks::FileLock;

use super::Acting;
use crate::error::{Error, Result};
use crate::identity::as_process_user;
use crate::node::Node;

impl Acting<'_> {
    /// Opens a file for taking locks on it, not for data: nothing is checked, so whoever gets it must have been
    /// allowed to open the file. Open for writing where that can be, for an `exclusive` lock needs it.
    ///
    /// # Errors
    /// `Stale`, `Access` when an unprivileged process may not read the file, `TryLater`.
    pub fn lock_file(&self, node: &Node, exclusive: bool) -> Result<OwnedFd> {
        let open = |access| self.reopen_for_locks(node, access);
        match open(OFlags::RDWR) {
            // Read-only mounts, running programs, and what an unprivileged process may only read.
            Err(Error::ReadOnly | Error::Access | Error::Permission | Error::Io(Errno::TXTBSY)) => {
                open(OFlags::RDONLY)
            }
            // Somebody has a lease against writers: who only wants to read may lock all the same.
            Err(Error::TryLater) if !exclusive => open(OFlags::RDONLY),
            other => other,
        }
    }

    fn reopen_for_locks(&self, node: &Node, access: OFlags) -> Result<OwnedFd> {
        self.live(node)?;
        if self.is_privileged() {
            as_process_user(|| self.open_again(node.file(), access))
        } else {
            self.open_again(node.file(), access)
        }
    }
}

/// Takes a lock without waiting; false if somebody else's is in the way.
///
/// # Errors
/// `Access` when the file could only be opened for reading and the lock is exclusive.
pub fn lock(file: &OwnedFd, lock: &FileLock) -> Result<bool> {
    match sys::locks::lock(file, lock) {
        Err(Errno::BADF) => Err(Error::Access),
        other => other.map_err(Error::from),
    }
}

/// Gives locks on a range back.
///
/// # Errors
/// `TryLater`, `Io`.
pub fn unlock(file: &OwnedFd, first: u64, last: u64) -> Result<()> {
    Ok(sys::locks::unlock(file, first, last)?)
}

/// The lock that is in the way of `lock`, if there is one.
///
/// # Errors
/// `TryLater`, `Io`.
pub fn test_lock(file: &OwnedFd, lock: &FileLock) -> Result<Option<FileLock>> {
    Ok(sys::locks::test(file, lock)?)
}
