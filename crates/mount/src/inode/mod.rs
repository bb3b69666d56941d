//! A file that the kernel knows: its node ID, its server handle, and the state that the mount keeps for it.
//!
//! One lock, [`Inode::lock`], holds the state that changes together. Each field of [`InodeState`] is a type
//! that keeps its own invariant.
//!
//! | module | contents |
//! |---|---|
//! | `table` | all inodes, by node ID and by handle |
//! | `attributes` | the attribute cache |
//! | `listing` | the listing that the kernel may have cached |
//! | `access` | the rights of users |
//! | `search` | whether everybody may search a directory |
//! | `names` | the names under which the kernel knows the file |
//! | `opens` | the open files |
//! | `io_mode` | the kernel's I/O mode: cached or passed through |
//! | `number` | the numbers that applications see |
//! | `pages` | whether the kernel may have cached data |

mod access;
mod attributes;
mod io_mode;
mod listing;
mod names;
mod number;
mod opens;
mod pages;
mod search;
mod table;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use client::{AttributeUpdate, Attributes, FileKind, Handle, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::settings::AttributeTimes;
use access::AccessCache;
use attributes::{AttributeCache, Change};
pub(crate) use io_mode::{BackingFile, IoHold, IoPlan, IoWish};
pub(crate) use listing::CachedListing;
pub(crate) use names::{InodeNames, NameRef};
pub(crate) use number::InodeNumbers;
pub(crate) use opens::{HiddenName, OpenState};
use pages::CachedPages;
pub(crate) use search::AclResult;
use search::SearchPermission;
pub(crate) use table::InodeTable;

/// A file that the kernel knows.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    pub(crate) handle: Handle,
    state: Mutex<InodeState>,
    /// Whether the kernel may have cached data of the file.
    pub(crate) pages: CachedPages,
    /// The kernel was told a mode with set-id bits, and must be told when they are gone.
    set_id_reported: AtomicBool,
    /// The file was read since its attributes were fetched, so its atime may have changed.
    atime_stale: AtomicBool,
    /// The birth time, which doesn't change, once the server has told it or that it has none.
    pub(crate) birth: OnceLock<Option<Timestamp>>,
}

/// The state of an inode.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// References that the kernel holds: replies with this inode less FORGETs.
    lookups: u64,
    pub(crate) attributes: AttributeCache,
    pub(crate) access: AccessCache,
    /// Of a directory.
    pub(crate) search: SearchPermission,
    /// Of a directory.
    pub(crate) listing: Option<CachedListing>,
    pub(crate) names: InodeNames,
    pub(crate) opens: OpenState,
}

impl InodeState {
    /// Whether the cached attributes show set-id bits.
    pub(crate) fn has_set_id(&self) -> bool {
        self.attributes
            .get()
            .is_some_and(|attributes| attributes.kind == FileKind::Regular && attributes.mode & 0o6000 != 0)
    }

    /// Whether the cached mode lets every class of users search the directory.
    pub(crate) fn is_searchable_by_mode(&self) -> bool {
        self.attributes.get().is_some_and(|attributes| attributes.mode & 0o111 == 0o111)
    }
}

impl Inode {
    fn new(number: u64, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            number,
            handle,
            state: Mutex::default(),
            pages: CachedPages::default(),
            set_id_reported: AtomicBool::new(false),
            atime_stale: AtomicBool::new(false),
            birth: OnceLock::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// The cached attributes, however old.
    pub(crate) fn attributes(&self) -> Option<Attributes> {
        self.lock().attributes.get().copied()
    }

    /// The cached type of the file.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        self.attributes().map(|attributes| attributes.kind)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// The attribute cache's version. While a directory's version is the same, there was no foreign change of
    /// its names.
    pub(crate) fn version(&self) -> u64 {
        self.lock().attributes.version()
    }

    /// Enters the attributes of a reply that arrived at `now`.
    pub(crate) fn update(&self, update: &AttributeUpdate, now: Instant, times: &AttributeTimes) {
        let mut state = self.lock();
        let permissions = |attributes: &Attributes| (attributes.mode, attributes.uid, attributes.gid);
        let before = state.attributes.get().map(permissions);
        let change = state.attributes.update(update, now, times);
        if change == Change::Foreign || state.attributes.get().map(permissions) != before {
            // The owner, the mode or an access control list may have changed. A list shows in the ctime only.
            state.access.clear();
        }
    }

    /// The kernel is told a mode with set-id bits.
    pub(crate) fn report_set_id(&self) {
        self.set_id_reported.store(true, SeqCst);
    }

    /// Whether the kernel was told a mode with set-id bits; resets that.
    pub(crate) fn take_reported_set_id(&self) -> bool {
        self.set_id_reported.load(SeqCst) && self.set_id_reported.swap(false, SeqCst)
    }

    pub(crate) fn is_atime_stale(&self) -> bool {
        self.atime_stale.load(Relaxed)
    }

    pub(crate) fn set_atime_stale(&self, stale: bool) {
        self.atime_stale.store(stale, Relaxed);
    }
}
