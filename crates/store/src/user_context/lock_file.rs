//! What a lock owner holds open on a file: a description of its own, for locks belong to descriptions.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use sys::locks::FileLock;

use super::context::UserContext;
use crate::error::{Error, Result};
use crate::node::Node;

impl UserContext<'_> {
    /// Opens a file for taking locks on it, not for data: nothing is checked, so whoever gets it must have
    /// been allowed to open the file. An `exclusive` lock needs a file that is open for writing, a shared one
    /// gets one that isn't: that is in nobody's way who has a lease against writers. Also whether it is open
    /// for writing: a file that can't be opened so is opened for reading.
    ///
    /// # Errors
    /// `Stale`, `Access` when an unprivileged process may not read the file, `TryLater` where there is a
    /// lease against it.
    pub fn lock_file(&self, node: &Node, exclusive: bool) -> Result<(OwnedFd, bool)> {
        let open = |access| self.reopen_for_locks(node, access);
        let reader = || Ok((open(OFlags::RDONLY)?, false));
        if !exclusive {
            return reader();
        }
        match open(OFlags::RDWR) {
            Ok(file) => Ok((file, true)),
            // Read-only mounts, running programs, and what an unprivileged process may only read.
            Err(Error::ReadOnly | Error::Access | Error::Permission | Error::Io(Errno::TXTBSY)) => reader(),
            Err(error) => Err(error),
        }
    }

    fn reopen_for_locks(&self, node: &Node, access: OFlags) -> Result<OwnedFd> {
        self.live(node)?;
        self.as_process(|| self.open_again(node.file(), access))
    }
}

/// An open file with locks that another process has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InheritedLockFile {
    /// Its filesystem's device number, and its inode number, as [`Node::place`].
    pub place: (u64, u64),
    /// Whether it is open for writing.
    pub writable: bool,
}

/// Says what an open file with locks is that another process has left. A kernel lease that it may have is
/// given back.
///
/// # Errors
/// `Invalid` if it isn't a regular file.
pub fn inherited_lock_file(file: &OwnedFd) -> Result<InheritedLockFile> {
    let found = rustix::fs::fstat(file)?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(Error::Invalid);
    }
    // Fails where there is none.
    let _ = sys::lease::release(file);
    let writable = rustix::fs::fcntl_getfl(file)?.contains(OFlags::RDWR);
    Ok(InheritedLockFile { place: (found.st_dev, found.st_ino), writable })
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
