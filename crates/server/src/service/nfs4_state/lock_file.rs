//! The open files that carry lock owners' locks in the kernel.
//!
//! The kernel's locks belong to open file descriptions. A lock owner has a description of its own for each
//! file in which it has locked something, with one exception: while a client has a write delegation, the
//! kernel doesn't let any process open the file, so all owners of that client share the description that the
//! lease is on. They share it after the delegation was returned, too: the kernel can't move a lock from one
//! description to another, and between an unlock here and a lock there a local process could take it.
//!
//! A description without locks is closed: it would keep the client from getting a write delegation.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use state::{ByteRange, DescriptionLocks, LockKind};
use store::{FileLock, Result};

use super::lock_store::StoredLock;

/// A lock as the kernel represents it.
pub(crate) fn file_lock(range: ByteRange, kind: LockKind) -> FileLock {
    FileLock { first: range.first, last: range.last, exclusive: kind == LockKind::Write }
}

/// An open file for locks.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: Arc<OwnedFd>,
    /// It is open for writing, which exclusive locks need.
    writable: bool,
    /// The copy that the service manager keeps.
    stored: OnceLock<StoredLock>,
    /// The ranges of each owner. Locked during the system call, so that two owners can't both get the same
    /// range.
    locks: Mutex<DescriptionLocks>,
}

impl LockFile {
    pub(crate) fn new(file: Arc<OwnedFd>, writable: bool, stored: Option<StoredLock>) -> Arc<Self> {
        let stored = stored.map(OnceLock::from).unwrap_or_default();
        Arc::new(Self { file, writable, stored, locks: Mutex::default() })
    }

    /// Has the service manager keep a copy, which `keep` sends, unless it does already.
    ///
    /// # Errors
    /// Those of `keep`.
    pub(crate) fn keep_with(&self, keep: impl FnOnce(&OwnedFd) -> Result<Option<StoredLock>>) -> Result<()> {
        if self.stored.get().is_none()
            && let Some(stored) = keep(&self.file)?
        {
            // Another owner of a shared file may have been quicker: its copy stays.
            let _ = self.stored.set(stored);
        }
        Ok(())
    }

    /// Releases the locks that came with the open file and that no owner has reclaimed.
    pub(crate) fn unlock_unowned(&self) {
        let locks = self.locks.lock();
        for ByteRange { first, last } in locks.unlocked_ranges() {
            if let Err(error) = store::unlock(&self.file, first, last) {
                tracing::warn!(%error, "locks that no client has reclaimed stay until the file is closed");
            }
        }
    }

    /// A lock on another description that conflicts with `lock`.
    ///
    /// # Errors
    /// As for [`store::test_lock`].
    pub(crate) fn test(&self, lock: &FileLock) -> Result<Option<FileLock>> {
        store::test_lock(&self.file, lock)
    }
}

/// The locks of one owner on one file. They go when it is dropped.
#[derive(Debug)]
pub(crate) struct OwnerLocks {
    on: Arc<LockFile>,
    number: u64,
    /// They aren't released one by one.
    stays: bool,
}

impl OwnerLocks {
    /// No locks yet, on an open file that other owners may share.
    pub(crate) fn new(on: Arc<LockFile>) -> Self {
        let number = on.locks.lock().add_owner();
        Self { on, number, stays: false }
    }

    pub(crate) fn file(&self) -> &LockFile {
        &self.on
    }

    /// Whether the owner can have exclusive locks.
    pub(crate) fn is_writable(&self) -> bool {
        self.on.writable
    }

    /// Whether the owner has no locks.
    pub(crate) fn is_empty(&self) -> bool {
        self.on.locks.lock().locks_of(self.number).is_empty()
    }

    /// Takes a lock without waiting; the conflicting lock, if there is one.
    ///
    /// # Errors
    /// As for [`store::lock`].
    pub(crate) fn lock(&self, range: ByteRange, kind: LockKind) -> Result<Option<FileLock>> {
        let mut locks = self.on.locks.lock();
        if let Some((range, kind)) = locks.conflict(self.number, range, kind) {
            return Ok(Some(file_lock(range, kind)));
        }
        let lock = file_lock(range, kind);
        if store::lock(&self.on.file, &lock)? {
            locks.lock(self.number, range, kind);
            return Ok(None);
        }
        // It may be gone by now: the client tries again.
        Ok(Some(self.on.test(&lock)?.unwrap_or(lock)))
    }

    /// The open file that they are on.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.on.file.as_raw_fd()
    }

    /// Drops them without releasing each: all other owners of the open file are dropped, too, which closes
    /// it. The service manager closes its copy some time later, so nothing waits for that.
    pub(crate) fn leave_to_close(mut self) {
        self.stays = true;
        if self.on.stored.get().is_some_and(|stored| !stored.is_left())
            && let Err(error) = store::unlock(&self.on.file, 0, u64::MAX)
        {
            tracing::warn!(%error, "locks that have ended stay until the service manager closes their file");
        }
    }

    /// Releases a range.
    ///
    /// # Errors
    /// As for [`store::unlock`].
    pub(crate) fn unlock(&self, range: ByteRange) -> Result<()> {
        let mut locks = self.on.locks.lock();
        for ByteRange { first, last } in locks.exclusive_ranges(self.number, range) {
            store::unlock(&self.on.file, first, last)?;
        }
        locks.unlock(self.number, range);
        Ok(())
    }

    /// The same locks on another open file, where the owner can have exclusive ones. All of them are shared
    /// ones, so that both files can have them for a moment: no other process gets them in between.
    ///
    /// # Errors
    /// As for [`store::lock`]; `TryLater` if there is a conflict all the same.
    pub(crate) fn moved_to(&self, file: OwnedFd, stored: Option<StoredLock>) -> Result<Self> {
        let to = Self::new(LockFile::new(Arc::new(file), true, stored));
        for (range, kind) in self.on.locks.lock().locks_of(self.number) {
            if to.lock(range, kind)?.is_some() {
                return Err(store::Error::TryLater);
            }
        }
        Ok(to)
    }
}

impl Drop for OwnerLocks {
    fn drop(&mut self) {
        if self.stays || self.on.stored.get().is_some_and(StoredLock::is_left) {
            return;
        }
        let mut locks = self.on.locks.lock();
        for ByteRange { first, last } in locks.remove_owner(self.number) {
            if let Err(error) = store::unlock(&self.on.file, first, last) {
                tracing::warn!(%error, "a lock that its owner has given back stays until the file is closed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const fn range(first: u64, last: u64) -> ByteRange {
        ByteRange { first, last }
    }

    fn open(path: &std::path::Path, writable: bool) -> OwnedFd {
        File::options().read(true).write(writable).open(path).unwrap().into()
    }

    /// Whether another process could lock a byte.
    fn is_free(other: &OwnedFd, byte: u64, kind: LockKind) -> bool {
        store::test_lock(other, &file_lock(range(byte, byte), kind)).unwrap().is_none()
    }

    #[test]
    fn owners_that_share_a_description_exclude_each_other_and_others() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let file = LockFile::new(Arc::new(open(scratch.path(), true)), true, None);
        let other = open(scratch.path(), true);
        let [one, two] = [(); 2].map(|()| OwnerLocks::new(Arc::clone(&file)));
        assert_eq!(one.lock(range(0, 9), LockKind::Write), Ok(None));
        assert!(two.lock(range(9, 9), LockKind::Read).unwrap().is_some());
        assert_eq!(two.lock(range(10, 19), LockKind::Read), Ok(None));
        assert_eq!(one.lock(range(10, 14), LockKind::Read), Ok(None));
        two.unlock(range(0, 12)).unwrap();
        assert!(!is_free(&other, 9, LockKind::Read), "it wasn't its own");
        assert!(!is_free(&other, 12, LockKind::Write), "the other has it, too");
        one.unlock(range(0, u64::MAX)).unwrap();
        assert!(is_free(&other, 12, LockKind::Write));
        assert!(!is_free(&other, 13, LockKind::Write), "two has it still");
        drop(two);
        assert!(is_free(&other, 13, LockKind::Write), "without the file having been closed");
        assert!(store::lock(&other, &file_lock(range(5, 5), LockKind::Write)).unwrap());
        assert_eq!(
            one.lock(range(0, 9), LockKind::Read).unwrap(),
            Some(file_lock(range(5, 5), LockKind::Write))
        );
    }

    #[test]
    fn an_owner_that_has_locked_for_reading_may_lock_for_writing() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let other = open(scratch.path(), true);
        let reader = OwnerLocks::new(LockFile::new(Arc::new(open(scratch.path(), false)), false, None));
        assert_eq!(reader.lock(range(0, 9), LockKind::Read), Ok(None));
        assert!(reader.lock(range(0, 9), LockKind::Write).is_err() && !reader.is_writable());
        let writer = reader.moved_to(open(scratch.path(), true), None).unwrap();
        drop(reader);
        assert!(!is_free(&other, 9, LockKind::Write) && is_free(&other, 9, LockKind::Read));
        assert_eq!(writer.lock(range(0, 4), LockKind::Write), Ok(None));
        assert!(!is_free(&other, 4, LockKind::Read) && is_free(&other, 5, LockKind::Read));
    }
}
