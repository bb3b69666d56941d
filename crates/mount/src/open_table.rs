//! The open files and directories, by the file handle that the kernel was given for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ahash::HashMap;
use client::File;
use parking_lot::{Mutex, RwLock};

use crate::filesystem::{ContentAtOpen, InFlightGuard};
use crate::inode::{Inode, IoHold};
use crate::listing::Listing;
use crate::users::User;

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    pub(crate) file: File,
    /// Its part in the inode's I/O mode.
    pub(crate) hold: IoHold,
    /// What open(2) asked for.
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// It can be mapped for writing through the kernel's page cache. The kernel writes a mapping's data when
    /// it chooses to.
    pub(crate) mappable: bool,
    /// The server keeps the file while this open lasts, also without a name.
    pub(crate) outlives_its_name: bool,
    /// What its open has read, until the first READ.
    pub(crate) content: Mutex<Option<ContentAtOpen>>,
    /// A lock was asked for through it.
    pub(crate) had_lock: AtomicBool,
    /// Set at the RELEASE of an open with locks, until they are released. Dropped after `file`, whose end
    /// releases them: a handler whose reply was sent may still hold the open for a moment.
    pub(crate) closing: Mutex<Option<InFlightGuard<u64>>>,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) inode: Arc<Inode>,
    pub(crate) user: Arc<User>,
    pub(crate) listing: tokio::sync::Mutex<Listing>,
}

/// Open objects by file handle. Handles aren't reused. The kernel bounds the table by what its processes may
/// have open.
#[derive(Debug)]
pub(crate) struct OpenTable<T> {
    table: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Default for OpenTable<T> {
    fn default() -> Self {
        Self { table: RwLock::default(), next: AtomicU64::new(1) }
    }
}

impl<T> OpenTable<T> {
    /// Enters an open object and returns its file handle.
    pub(crate) fn insert(&self, opened: T) -> u64 {
        let fh = self.next.fetch_add(1, Relaxed);
        self.table.write().insert(fh, Arc::new(opened));
        fh
    }

    pub(crate) fn get(&self, fh: u64) -> Option<Arc<T>> {
        self.table.read().get(&fh).cloned()
    }

    pub(crate) fn remove(&self, fh: u64) -> Option<Arc<T>> {
        self.table.write().remove(&fh)
    }

    pub(crate) fn list(&self) -> Vec<Arc<T>> {
        self.table.read().values().cloned().collect()
    }

    pub(crate) fn handles(&self) -> Vec<u64> {
        self.table.read().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.read().len()
    }
}
