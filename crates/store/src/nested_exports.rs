//! Exports whose directories lie below the root of this store.
//!
//! A nested export on the same filesystem has rules of its own (other clients, read-only, no lane), so files
//! below its directory are reachable only by the nested export's handles:
//!
//! 1. A name that leads to the nested directory is [`Error::NestedExport`], and the server continues with the
//!    nested export's handle if its rules admit the client. This store follows no name below it.
//! 2. A handle of this store whose file lies below is `Stale`. Such a handle was made before the nested
//!    directory was exported, or a local process moved the file there. The check is made at the first use of
//!    a handle and when the exports have changed: for a directory by climbing to the root, for other files if
//!    the kernel knows a path. It may know none of a file that hasn't been looked up since the host booted.
//!    `subtree_check` walks the path each time.
//! 3. The nested directory and those on the way to it can't be renamed or removed. Otherwise another
//!    directory could be at the nested export's path at the next start of the server, and the outer export's
//!    rules would apply to the renamed one.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};

use crate::attributes::status;
use crate::error::{Error, Result};
use crate::handle::FileId;
use crate::node::Node;

/// The largest number of directories between a file and the root.
pub(crate) const MAX_DEPTH: usize = 4096;

/// An export below a store's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedExport {
    /// Its directory.
    pub path: PathBuf,
    /// The id in its handles; `None` if it isn't served now.
    pub id: Option<u32>,
}

/// Device and inode number.
pub(crate) type DeviceAndInode = (u64, u64);

/// A directory and the mount that it is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryPlace {
    pub identity: DeviceAndInode,
    mount: Option<u64>,
}

/// The directory of a nested export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nested {
    pub directory: DeviceAndInode,
    /// The same directory as located handles identify it.
    file: FileId,
    id: Option<u32>,
    /// The directories between it and the root, without the root.
    above: Vec<DeviceAndInode>,
}

/// The nested exports of a store.
#[derive(Debug)]
pub(crate) struct NestedExports {
    /// The exported directory on its original mount, before cloning.
    root: DirectoryPlace,
    fsid: u64,
    /// Incremented by every change; 0 while there have never been any.
    round: AtomicU32,
    now: RwLock<Arc<Vec<Nested>>>,
}

impl NestedExports {
    /// None yet, below the directory `root` of the filesystem with the id `fsid`.
    pub fn new(root: DirectoryPlace, fsid: u64) -> NestedExports {
        NestedExports { root, fsid, round: AtomicU32::new(0), now: RwLock::default() }
    }

    /// Replaces them, as [`crate::Store::set_nested_exports`] describes; returns whether they have changed.
    pub fn set(&self, exports: &[NestedExport]) -> Result<bool> {
        let located = exports.iter().map(|export| self.locate(export));
        let mut list: Vec<Nested> = located.filter_map(Result::transpose).collect::<Result<_>>()?;
        list.sort_by_key(|other| other.directory);
        let mut now = self.now.write();
        if **now == list {
            return Ok(false);
        }
        *now = Arc::new(list);
        self.round.fetch_add(1, Ordering::Release);
        Ok(true)
    }

    /// The nested directory, if it is reachable from the root on the same mount.
    fn locate(&self, export: &NestedExport) -> Result<Option<Nested>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat(CWD, &export.path, flags, Mode::empty()).map_err(Error::from) {
            // It doesn't exist, or the process may not search the way to it.
            Err(Error::NotFound | Error::NotDirectory | Error::Access) => return Ok(None),
            opened => opened?,
        };
        let place = DirectoryPlace::of(&directory)?;
        if !place.is_on_mount_of(&self.root) || place.identity == self.root.identity {
            return Ok(None);
        }
        let file = FileId::of(&directory, &status(&directory, self.fsid)?);
        let mut above = Vec::new();
        let mut at = directory;
        for _ in 0..MAX_DEPTH {
            at = openat(&at, c"..", flags, Mode::empty())?;
            let here = DirectoryPlace::of(&at)?.identity;
            if here == self.root.identity {
                return Ok(Some(Nested { directory: place.identity, file, id: export.id, above }));
            }
            if above.last() == Some(&here) {
                break;
            }
            above.push(here);
        }
        Ok(None)
    }

    /// The round that a node must have been checked in. The initial round of nodes suffices while there are
    /// no nested exports.
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    pub fn list(&self) -> Arc<Vec<Nested>> {
        Arc::clone(&self.now.read())
    }

    /// If `directory` belongs to a nested export: the id of that export, if it is served.
    pub fn at(&self, directory: impl AsFd) -> Option<Option<u32>> {
        if self.round() == 0 || self.list().is_empty() {
            return None;
        }
        let here = DirectoryPlace::of(directory).ok()?.identity;
        self.list().iter().find(|other| other.directory == here).map(|other| other.id)
    }

    /// The same for a node.
    pub fn at_node(&self, node: &Node) -> Option<Option<u32>> {
        let list = self.list();
        let likely = list.iter().any(|other| other.directory.1 == node.fileid());
        if likely { self.at(node.file()) } else { None }
    }

    /// Whether a file is the directory of a nested export.
    pub fn has(&self, file: FileId) -> bool {
        self.round() != 0 && self.list().iter().any(|other| other.file == file)
    }

    pub fn keeps_its_name(&self, found: DeviceAndInode) -> bool {
        self.list().iter().any(|other| other.directory == found || other.above.contains(&found))
    }
}

impl DirectoryPlace {
    /// For an open directory.
    pub fn of(directory: impl AsFd) -> Result<DirectoryPlace> {
        DirectoryPlace::at(directory, c"")
    }

    pub fn at(directory: impl AsFd, name: &CStr) -> Result<DirectoryPlace> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let raw = statx(directory, name, flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
        let device = rustix::fs::makedev(raw.stx_dev_major, raw.stx_dev_minor);
        let knows_mounts = raw.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(DirectoryPlace { identity: (device, raw.stx_ino), mount: knows_mounts.then_some(raw.stx_mnt_id) })
    }

    /// Whether both are on the same mount (before Linux 5.8, which doesn't report mounts: on the same
    /// filesystem).
    fn is_on_mount_of(&self, other: &DirectoryPlace) -> bool {
        match (self.mount, other.mount) {
            (Some(one), Some(two)) => one == two,
            _ => self.identity.0 == other.identity.0,
        }
    }
}
