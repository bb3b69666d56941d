//! Open files with locks that the server's last process has left with the service manager (see
//! [`super::lock_store`]).
//!
//! Their locks stay in force. Owners that reclaim their locks get them on the same open files. Locks that no
//! owner has reclaimed by the end of the grace period are released.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use super::lock_file::LockFile;
use super::lock_store::{LockStore, StoredLock};

/// Stands for all owners of a client that had a write delegation: they share one open file.
pub(super) const SHARED: u64 = 0;

/// A file: its filesystem's device number, and its inode number.
type FileId = (u64, u64);

/// The open files of one file, each with the owner of its locks.
type Inherited = Vec<(u64, Arc<LockFile>)>;

/// The service manager's store of open files, and those that it has passed on.
#[derive(Debug)]
pub(crate) struct KeptLocks {
    store: Arc<LockStore>,
    files: Mutex<HashMap<FileId, Inherited>>,
}

/// A lock owner's number, from the client's and the owner's names: the same after a restart.
pub(super) fn owner(client: &[u8], owner: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write_usize(client.len());
    hasher.write(client);
    hasher.write(owner);
    hasher.finish().max(SHARED + 1)
}

impl KeptLocks {
    pub(crate) fn new(store: Arc<LockStore>) -> Self {
        let mut files: HashMap<FileId, Inherited> = HashMap::new();
        for (owner, stored, file) in store.take_inherited() {
            match store::inherited_lock_file(&file) {
                Ok(found) => {
                    let file = LockFile::new(Arc::new(file), found.writable, Some(stored));
                    files.entry(found.place).or_default().push((owner, file));
                }
                Err(error) => {
                    tracing::warn!(%error, "an open file from the service manager can't be examined");
                    store.unmark();
                }
            }
        }
        Self { store, files: Mutex::new(files) }
    }

    /// Stores an open file.
    pub(crate) fn keep(&self, owner: u64, file: &OwnedFd) -> Option<StoredLock> {
        use std::os::fd::AsFd as _;
        self.store.keep(owner, file.as_fd())
    }

    /// Whether the next process will believe that all locks are kept.
    pub(crate) fn is_marked(&self) -> bool {
        self.store.is_marked()
    }

    /// Says to the next process that clients may reclaim nothing.
    pub(super) fn unmark(&self) {
        self.store.unmark();
    }

    /// The open files that may carry an owner's locks on a file, the most likely one first.
    pub(crate) fn of(&self, owner: u64, place: FileId) -> Vec<Arc<LockFile>> {
        let files = self.files.lock();
        let of_file = files.get(&place).map(Vec::as_slice).unwrap_or_default();
        let own = of_file.iter().filter(|(of, _)| *of == owner);
        let shared = of_file.iter().filter(|(of, _)| *of == SHARED);
        own.chain(shared).map(|(_, file)| Arc::clone(file)).collect()
    }

    /// Releases the locks that weren't reclaimed, at the end of the grace period.
    pub(super) fn release(&self) {
        let files = std::mem::take(&mut *self.files.lock());
        for (_, file) in files.into_values().flatten() {
            file.unlock_unowned();
        }
    }

    /// Leaves the stored files to the next process.
    pub(super) fn leave(&self) {
        self.store.leave();
    }
}
