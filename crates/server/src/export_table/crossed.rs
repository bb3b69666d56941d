//! Filesystems that are mounted below exports with `crossmnt`.
//!
//! Each is an export of its own in the table: it has a number, so its files have handles of their own, and a
//! store. Clients, their options and I/O modes are those of the export that it is mounted below, except for
//! options about the directory itself (`fsid=`, `mountpoint=`, `refer=`, `replicas=`). The number is a hash
//! of the path, the filesystem's identity and that of its root. The handles stay valid when the filesystem is
//! unmounted and mounted again, and another filesystem at the same path has other handles.
//!
//! The store opens when a client first uses the filesystem, and closes when it has been out of use for some
//! time. While it is open the mount is busy, as it is for a local process; while it is closed the server
//! holds nothing of it, so that umount(8) succeeds and the device is free afterwards.
//!
//! A line of its own wins: the nearest configured export around a mount point decides, and a mount point with
//! a line isn't here. Filesystems of the kernel (proc, sysfs), of other processes (FUSE, autofs) and of other
//! hosts are never crossed, as with knfsd, which can't identify them without `fsid=`.

use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use exports::Export;
use parking_lot::Mutex;
use store::{DirectoryId, MountBelow, Mounts, NestedExport, Store, restore_process_ids};

use super::{ExportEntry, ExportTable, HASHED, StoreSettings, mounts, open};

/// How many filesystems below exports are served.
const MAX_CROSSED: usize = 256;
/// How many of them share half of the files that stores keep open.
const MAX_SHARES: usize = 64;
/// How long a store must be out of use before it closes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The clock of [`CrossedFilesystem::used`].
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A filesystem that is mounted below an export.
#[derive(Debug)]
pub(crate) struct CrossedFilesystem {
    /// The number of the export.
    outer: u32,
    mount: MountBelow,
    directory: DirectoryId,
    export: Export,
    id: u32,
    settings: StoreSettings,
    store: ArcSwapOption<Store>,
    /// Whether no client may write. The export may have changed since this was made.
    is_read_only: AtomicBool,
    /// The exports that lie in it, for the store. Held while that opens.
    nested: Mutex<Vec<NestedExport>>,
    /// The seconds after [`START`] of the last use.
    used: AtomicU64,
}

impl CrossedFilesystem {
    /// The store, which opens unless it is open.
    ///
    /// # Errors
    /// `Stale` where the filesystem isn't mounted any more, `TryLater` where it can't be opened.
    pub(crate) fn store(&self) -> store::Result<Arc<Store>> {
        self.used.store(START.elapsed().as_secs(), Ordering::Relaxed);
        if let Some(store) = self.opened() {
            return Ok(store);
        }
        let nested = self.nested.lock();
        if let Some(store) = self.opened() {
            return Ok(store);
        }
        restore_process_ids();
        let mounts = mounts::read().map_err(|_| store::Error::TryLater)?;
        let store =
            open(&self.export, self.id, &self.settings, self.settings.limits, &mounts).map_err(|why| {
                tracing::warn!("{}: {why}", self.export.path().display());
                if self.is_mounted(&mounts) { store::Error::TryLater } else { store::Error::Stale }
            })?;
        if store.mount_id() != Some(self.mount.id) || store.directory_id() != self.directory {
            return Err(store::Error::Stale);
        }
        store.set_read_only(self.is_read_only.load(Ordering::Acquire));
        store.set_nested_exports(&nested)?;
        self.store.store(Some(Arc::clone(&store)));
        Ok(store)
    }

    /// The store, if it is open.
    pub(crate) fn opened(&self) -> Option<Arc<Store>> {
        self.store.load_full()
    }

    /// Where it is mounted.
    pub(super) fn location(&self) -> &Path {
        &self.mount.path
    }

    /// Sets the exports that lie in it. Where the store can't look at them it closes: it would expose their
    /// files.
    pub(super) fn set_nested_exports(&self, exports: &[NestedExport]) {
        let mut nested = self.nested.lock();
        exports.clone_into(&mut nested);
        if self.opened().is_some_and(|store| store.set_nested_exports(exports).is_err()) {
            self.store.store(None);
        }
    }

    fn set_read_only(&self, read_only: bool) {
        let _no_opening = self.nested.lock();
        self.is_read_only.store(read_only, Ordering::Release);
        if let Some(store) = self.opened() {
            store.set_read_only(read_only);
        }
    }

    /// Closes the store, unless a file is open or it was used in the last seconds. `has_grants` says whether
    /// a local client may have files of it open.
    pub(crate) fn close_if_idle(&self, has_grants: impl FnOnce() -> bool) {
        let used = Duration::from_secs(self.used.load(Ordering::Relaxed));
        let is_recent = START.elapsed().saturating_sub(used) < IDLE_TIMEOUT;
        let is_unused = |store: &Store| !is_recent && !store.is_in_use() && !has_grants();
        if self.opened().is_some_and(|store| is_unused(&store)) {
            self.store.store(None);
        }
    }

    fn is_mounted(&self, mounts: &Mounts) -> bool {
        mounts.is_visible(&self.mount)
    }

    /// Whether the same mount is to be served in the same way.
    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.outer == other.outer
            && self.mount == other.mount
            && self.directory == other.directory
            && self.export.subtree_check() == other.export.subtree_check()
    }
}

impl ExportTable {
    /// Adds the filesystems that are mounted below the configured exports, and takes over those that
    /// `previous` has. The configured exports are in the table.
    pub(super) fn add_crossed(&mut self, mounts: &Mounts, opening: &StoreSettings, previous: &Self) {
        let configured = self.entries.clone();
        let crosses = |outer: &&Arc<ExportEntry>| {
            outer.store.is_ok() && outer.export.clients().iter().any(|client| client.options.crossmnt)
        };
        let mut found: Vec<(Arc<ExportEntry>, MountBelow, Export)> = Vec::new();
        for outer in configured.iter().filter(crosses) {
            let Ok(store) = &outer.store else { continue };
            let below = mounts.below(store.directory());
            // Nothing is reached through a mount that isn't crossed.
            let is_barred = |mount: &MountBelow| {
                let bars = |other: &&MountBelow| !other.is_crossable && mount.path.starts_with(&other.path);
                below.iter().any(|other| bars(&other))
            };
            for mount in below.iter().filter(|mount| !is_barred(mount)) {
                let Ok(suffix) = mount.path.strip_prefix(store.directory()) else { continue };
                let around = configured.iter().map(|entry| entry.location());
                let nearest = around
                    .filter(|path| mount.path.starts_with(path))
                    .max_by_key(|path| path.components().count());
                if nearest == Some(outer.location()) {
                    let export = outer.export.below(outer.export.path().join(suffix));
                    found.push((Arc::clone(outer), mount.clone(), export));
                }
            }
        }
        if found.len() > MAX_CROSSED {
            self.more_crossed = found.len() - MAX_CROSSED;
            found.truncate(MAX_CROSSED);
        }
        let mut limits = opening.limits;
        if !found.is_empty() {
            limits.nodes = (limits.nodes / 2 / found.len().min(MAX_SHARES)).min(super::MAX_STORE_NODES);
        }
        for (outer, mount, export) in found {
            let Ok(directory) = DirectoryId::of(&mount.path) else { continue };
            let crossed = CrossedFilesystem {
                outer: outer.id,
                id: number(&export, directory),
                mount,
                directory,
                export: export.clone(),
                settings: StoreSettings { limits, ..opening.clone() },
                store: ArcSwapOption::empty(),
                is_read_only: export.read_only().into(),
                nested: Mutex::default(),
                used: AtomicU64::new(0),
            };
            if self.get(crossed.id).is_some() || !mounts.is_visible(&crossed.mount) {
                continue;
            }
            let kept = previous.get(crossed.id).and_then(|entry| entry.crossed.clone());
            let crossed = kept.filter(|kept| kept.is_same(&crossed)).unwrap_or_else(|| Arc::new(crossed));
            crossed.set_read_only(export.read_only());
            self.add(Arc::new(ExportEntry {
                export,
                id: crossed.id,
                store: Err("no client uses it".to_owned()),
                slot: outer.slot,
                io: Arc::clone(&outer.io),
                resolved: None,
                lost: None,
                crossed: Some(crossed),
            }));
        }
    }

    /// Whether any export shows the filesystems below it.
    pub(super) fn crosses(&self) -> bool {
        let mut clients = self.configured().flat_map(|entry| entry.export.clients());
        clients.any(|client| client.options.crossmnt)
    }

    /// The exports that have lines of their own, in the order of the configuration.
    pub(crate) fn configured(&self) -> impl Iterator<Item = &Arc<ExportEntry>> {
        self.entries.iter().filter(|entry| entry.crossed.is_none())
    }

    /// The filesystems below exports.
    pub(crate) fn crossed(&self) -> impl Iterator<Item = &Arc<CrossedFilesystem>> {
        self.entries.iter().filter_map(|entry| entry.crossed.as_ref())
    }

    /// Follows the options of the mounts whose stores are open; whether any have changed.
    pub(super) fn follow_crossed(&self, mounts: &Mounts) -> bool {
        let stores = self.crossed().filter_map(|crossed| crossed.opened());
        // All of them, not only the first.
        stores.filter(|store| store.follow_mount(mounts) == store::MountChange::OptionsChanged).count() > 0
    }

    /// The paths of the filesystems below exports that `other` doesn't have.
    pub(super) fn crossed_beside(&self, other: &Self) -> Vec<String> {
        let is_new =
            |crossed: &&Arc<CrossedFilesystem>| !other.crossed().any(|known| Arc::ptr_eq(known, crossed));
        self.crossed().filter(is_new).map(|crossed| crossed.export.path().display().to_string()).collect()
    }
}

/// The number of a filesystem at a path, in handles.
fn number(export: &Export, directory: DirectoryId) -> u32 {
    // A fixed key, as for exports: the number must be the same in the next run.
    let mut hasher = siphasher::sip::SipHasher24::new();
    hasher.write(export.path().as_os_str().as_bytes());
    hasher.write(&directory.to_bytes());
    hasher.finish() as u32 | HASHED
}
