//! Open files for byte-range locks. Each lock owner has a file description of its own, because locks belong
//! to descriptions.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use sys::locks::FileLock;

use super::context::UserContext;
use crate::error::{Error, Result};
use crate::node::Node;

impl UserContext<'_> {
    /// Opens a file for locking, not for data. Checks no permission: the client must have been allowed to
    /// open the file. An `exclusive` lock needs a file open for writing. A shared lock gets one open for
    /// reading only, which doesn't conflict with read leases. Also returns whether it is open for writing; a
    /// file that can't be opened for writing is opened for reading.
    ///
    /// # Errors
    /// `Stale`, `Access` when an unprivileged process may not read the file, `TryLater` when it conflicts
    /// with a lease.
    pub fn lock_file(&self, node: &Node, exclusive: bool) -> Result<(OwnedFd, bool)> {
        let open = |access| self.reopen_for_locks(node, access);
        let reader = || Ok((open(OFlags::RDONLY)?, false));
        if !exclusive {
            return reader();
        }
        match open(OFlags::RDWR) {
            Ok(file) => Ok((file, true)),
            // Read-only mounts, running programs, and files that an unprivileged process may only read.
            Err(Error::ReadOnly | Error::Access | Error::Permission | Error::Io(Errno::TXTBSY)) => reader(),
            Err(error) => Err(error),
        }
    }

    fn reopen_for_locks(&self, node: &Node, access: OFlags) -> Result<OwnedFd> {
        self.live(node)?;
        self.as_process(|| self.open_again(node.file(), access))
    }
}

/// An open file with locks, inherited from a previous process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InheritedLockFile {
    /// Device and inode number, as [`Node::place`].
    pub place: (u64, u64),
    /// Whether it is open for writing.
    pub writable: bool,
}

/// Identifies an inherited file with locks. Releases the kernel lease that it may have.
///
/// # Errors
/// `Invalid` if it isn't a regular file.
pub fn inherited_lock_file(file: &OwnedFd) -> Result<InheritedLockFile> {
    let found = rustix::fs::fstat(file)?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(Error::Invalid);
    }
    // Fails if there is no lease.
    let _ = sys::lease::release(file);
    let writable = rustix::fs::fcntl_getfl(file)?.contains(OFlags::RDWR);
    Ok(InheritedLockFile { place: (found.st_dev, found.st_ino), writable })
}

/// Takes a lock without waiting; `false` if it conflicts with another.
///
/// # Errors
/// `Access` when the lock is exclusive and the file could only be opened for reading.
pub fn lock(file: &OwnedFd, lock: &FileLock) -> Result<bool> {
    match sys::locks::lock(file, lock) {
        Err(Errno::BADF) => Err(Error::Access),
        other => other.map_err(Error::from),
    }
}

/// Releases the locks on a range.
///
/// # Errors
/// `TryLater`, `Io`.
pub fn unlock(file: &OwnedFd, first: u64, last: u64) -> Result<()> {
    Ok(sys::locks::unlock(file, first, last)?)
}

/// A lock that conflicts with `lock`, if there is one.
///
/// # Errors
/// `TryLater`, `Io`.
pub fn test_lock(file: &OwnedFd, lock: &FileLock) -> Result<Option<FileLock>> {
    Ok(sys::locks::test(file, lock)?)
}
