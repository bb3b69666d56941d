//! Open files with locks that the last process of the server has left with the service manager (see
//! [`crate::lifecycle::lock_store`]).
//!
//! Their locks are in force all the time. Owners that reclaim theirs get them on the same open files. What
//! nobody has reclaimed by the end of the grace period is given back.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use super::lock_file::LockFile;
use crate::lifecycle::lock_store::{LockStore, Stored};

/// Stands for all owners of a client that had the file lent for writing: they share one open file.
pub(super) const SHARED: u64 = 0;

/// Which file: its filesystem's device number, and its own.
type Place = (u64, u64);

/// The open files of one file, and whose locks each has.
type Inherited = Vec<(u64, Arc<LockFile>)>;

/// The service manager, and what it has passed.
#[derive(Debug)]
pub(crate) struct KeptLocks {
    store: Arc<LockStore>,
    files: Mutex<HashMap<Place, Inherited>>,
}

/// An owner of locks, by what its client calls itself and the owner: the same after a restart.
pub(super) fn owner(client: &[u8], owner: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write_usize(client.len());
    hasher.write(client);
    hasher.write(owner);
    hasher.finish().max(SHARED + 1)
}

impl KeptLocks {
    pub(crate) fn new(store: Arc<LockStore>) -> Self {
        let mut files: HashMap<Place, Inherited> = HashMap::new();
        for (owner, stored, file) in store.take_inherited() {
            match store::inherited_lock_file(&file) {
                Ok(found) => {
                    let file = LockFile::new(Arc::new(file), found.writable, Some(stored));
                    files.entry(found.place).or_default().push((owner, file));
                }
                Err(error) => tracing::warn!(%error, "what the service manager passes can't be looked at"),
            }
        }
        Self { store, files: Mutex::new(files) }
    }

    /// Has an open file kept.
    pub(super) fn keep(&self, owner: u64, file: &OwnedFd) -> Option<Stored> {
        use std::os::fd::AsFd as _;
        self.store.keep(owner, file.as_fd())
    }

    /// The open files on which an owner may have had its locks on a file, the most likely one first.
    pub(super) fn of(&self, owner: u64, place: Place) -> Vec<Arc<LockFile>> {
        let files = self.files.lock();
        let of_file = files.get(&place).map(Vec::as_slice).unwrap_or_default();
        let own = of_file.iter().filter(|(of, _)| *of == owner);
        let shared = of_file.iter().filter(|(of, _)| *of == SHARED);
        own.chain(shared).map(|(_, file)| Arc::clone(file)).collect()
    }

    /// Nobody may reclaim any more: what hasn't been is given back.
    pub(super) fn release(&self) {
        let files = std::mem::take(&mut *self.files.lock());
        for (_, file) in files.into_values().flatten() {
            file.unlock_unowned();
        }
    }

    /// The next process is to find what is kept.
    pub(super) fn leave(&self) {
        self.store.leave();
    }
}
