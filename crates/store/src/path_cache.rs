//! The last known names of a store's files: a bounded cache for located handles (see
//! `user_context::handle_resolver`).

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache;

use crate::error::{Error, Result};
use crate::export_tree::ExportTree;
use crate::handle::{FileHandle, FileId};
use crate::tree_scan::TreeScan;

/// Files whose names are cached.
const MAX_NAMES: usize = 65_536;
/// Maximum depth of a cached path.
const MAX_DEPTH: usize = 2048;
/// Maximum number of files known to be missing.
const MAX_MISSING: usize = 4096;
/// For how long a missing file isn't searched for again, and a scan is valid.
const ENTRY_LIFETIME: Duration = Duration::from_secs(30);

/// The name under which a file was last seen.
#[derive(Debug)]
struct CachedName {
    handle: FileHandle,
    parent: FileId,
    name: CString,
    /// The number of scans begun before that.
    tree_scans: u64,
}

/// The cached names of the files of one tree.
#[derive(Debug)]
pub(crate) struct PathCache {
    known: Cache<FileId, Arc<CachedName>>,
    missing: Mutex<HashMap<FileId, Instant>>,
    tree_scans: AtomicU64,
    last: Mutex<Option<(Instant, Arc<TreeScan>)>>,
    searching: Mutex<()>,
}

impl PathCache {
    pub fn new() -> PathCache {
        PathCache {
            known: Cache::new(MAX_NAMES),
            missing: Mutex::default(),
            tree_scans: AtomicU64::new(0),
            last: Mutex::default(),
            searching: Mutex::default(),
        }
    }

    /// The handle that was given out for a file.
    pub fn handle(&self, id: FileId) -> Option<FileHandle> {
        self.known.get(&id).map(|entry| entry.handle)
    }

    /// Records that the file was seen as `name` in `parent`. Returns its handle: the existing one, or a new
    /// one.
    pub fn note(&self, tree: &ExportTree, parent: FileId, name: &CStr, id: FileId) -> FileHandle {
        if let Some(entry) = self.known.get(&id) {
            if entry.parent != parent || entry.name.as_c_str() != name {
                self.put(id, entry.handle, parent, name);
            }
            return entry.handle;
        }
        let mut hints: Vec<u16> = self
            .path(tree, parent)
            .map(|path| path.iter().map(|name| tree.sealer.hint(name.to_bytes())).collect())
            .unwrap_or_default();
        hints.push(tree.sealer.hint(name.to_bytes()));
        let handle = tree.sealer.located(id, &hints);
        self.put(id, handle, parent, name);
        handle
    }

    pub fn put(&self, id: FileId, handle: FileHandle, parent: FileId, name: &CStr) {
        self.missing.lock().remove(&id);
        let entry = CachedName { handle, parent, name: name.to_owned(), tree_scans: self.tree_scans() };
        self.known.insert(id, Arc::new(entry));
    }

    /// The cached path from the root.
    pub fn path(&self, tree: &ExportTree, id: FileId) -> Option<Vec<CString>> {
        let mut path = Vec::new();
        let mut at = id;
        while at != tree.root.id() {
            if path.len() >= MAX_DEPTH {
                return None;
            }
            let entry = self.known.get(&at)?;
            path.push(entry.name.clone());
            at = entry.parent;
        }
        path.reverse();
        Some(path)
    }

    /// Whether the cached path leads through the directory of a nested export.
    pub fn is_in_another_export(&self, tree: &ExportTree, id: FileId) -> bool {
        let mut at = id;
        if tree.nested.round() == 0 {
            return false;
        }
        for _ in 0..MAX_DEPTH {
            if tree.nested.has(at) {
                return true;
            }
            match self.known.get(&at) {
                Some(entry) if at != tree.root.id() => at = entry.parent,
                _ => return false,
            }
        }
        false
    }

    /// Whether the file was recently found to be missing.
    pub fn is_missing(&self, id: FileId) -> bool {
        self.missing.lock().get(&id).is_some_and(|since| since.elapsed() < ENTRY_LIFETIME)
    }

    /// Records that the file is missing.
    pub fn miss(&self, id: FileId) {
        let mut missing = self.missing.lock();
        if missing.len() >= MAX_MISSING {
            missing.retain(|_, since| since.elapsed() < ENTRY_LIFETIME);
            if missing.len() >= MAX_MISSING {
                return;
            }
        }
        missing.insert(id, Instant::now());
    }

    /// Invalidates the last scan.
    pub fn forget_scan(&self) {
        *self.last.lock() = None;
    }

    /// The last scan of the tree, if it is still valid.
    pub fn scan(&self) -> Option<Arc<TreeScan>> {
        let last = self.last.lock();
        last.as_ref().filter(|(since, _)| since.elapsed() < ENTRY_LIFETIME).map(|(_, scan)| Arc::clone(scan))
    }

    /// Whether the file was seen after `scan` began, so that its absence from the scan proves nothing.
    pub fn is_newer(&self, id: FileId, scan: &TreeScan) -> bool {
        self.known.get(&id).is_some_and(|entry| entry.tree_scans >= scan.number())
    }

    /// The lock for scanning the tree. It fails at once when another thread has it, because waiting would
    /// block a worker.
    ///
    /// # Errors
    /// `TryLater`.
    pub fn only_searcher(&self) -> Result<MutexGuard<'_, ()>> {
        self.searching.try_lock().ok_or(Error::TryLater)
    }

    /// Counts a new scan; the count is its number.
    pub fn begin_scan(&self) -> u64 {
        self.tree_scans.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn keep_scan(&self, scan: TreeScan) -> Arc<TreeScan> {
        let scan = Arc::new(scan);
        *self.last.lock() = Some((Instant::now(), Arc::clone(&scan)));
        scan
    }

    /// How many scans were begun.
    pub fn tree_scans(&self) -> u64 {
        self.tree_scans.load(Ordering::Relaxed)
    }

    /// Removes expired entries.
    pub fn reap(&self) {
        let old = self.last.lock().take_if(|(since, _)| since.elapsed() >= ENTRY_LIFETIME);
        drop(old);
        self.missing.lock().retain(|_, since| since.elapsed() < ENTRY_LIFETIME);
    }
}
