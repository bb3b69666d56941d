//! Directories below a store's root that are exports of their own.
//!
//! An export in an export on one filesystem has rules of its own: other clients, read-only, no lane. So what
//! lies below its directory is reached by handles of the inner export only:
//!
//! 1. A name that leads to the inner directory is [`Error::NestedExport`], and the server goes on with the
//!    inner export's handle if its rules let the client in. Nothing below has a name that this store follows.
//! 2. A handle of this store whose file lies below is `Stale`. Such handles were made before the inner
//!    directory was exported, or of a file that a local process has moved there. Where a file lies is looked
//!    at when the handle is first used, and again when the exports have changed: of a directory by climbing
//!    to the root, of other files if the kernel knows a path. It may know none of a file that nobody has
//!    looked up since the server's host was started; `subtree_check` walks the path each time.
//! 3. The inner directory, and those on the way to it, keep their names: moved away, another directory could
//!    stand at the inner export's path when the server starts next, and the outer export's rules would hold
//!    for the moved one.

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

/// How many directories lie between a file and the root at most, as far as we look.
const MAX_DEPTH: usize = 4096;

/// An export below a store's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedExport {
    /// Its directory.
    pub path: PathBuf,
    /// The number in its handles; none if it isn't served now.
    pub id: Option<u32>,
}

/// A file, as one process sees it: device and inode number.
pub(crate) type DeviceAndInode = (u64, u64);

/// Where a directory is: which it is, and on which mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryPlace {
    pub identity: DeviceAndInode,
    mount: Option<u64>,
}

/// The directory of another export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nested {
    pub directory: DeviceAndInode,
    /// The same as handles that are located in the tree have it.
    file: FileId,
    id: Option<u32>,
    /// The directories on the way to it, the root left out.
    above: Vec<DeviceAndInode>,
}

/// The other exports below a store's root.
#[derive(Debug)]
pub(crate) struct NestedExports {
    /// Where the exported directory is, before its mount was cloned.
    root: DirectoryPlace,
    fsid: u64,
    /// Goes up with every change; 0 while there have never been any.
    round: AtomicU32,
    now: RwLock<Arc<Vec<Nested>>>,
}

impl NestedExports {
    /// None yet, below the directory `root` of the filesystem that is called `fsid`.
    pub fn new(root: DirectoryPlace, fsid: u64) -> NestedExports {
        NestedExports { root, fsid, round: AtomicU32::new(0), now: RwLock::default() }
    }

    /// See [`crate::Store::set_nested_exports`]. Whether they have changed.
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

    /// Where another export's directory is, if this store leads there.
    fn locate(&self, export: &NestedExport) -> Result<Option<Nested>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat(CWD, &export.path, flags, Mode::empty()).map_err(Error::from) {
            // There is nothing to lead to, or not for this process.
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

    /// What a node has to have been looked at in; the default one of nodes if nothing is to be looked at.
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    pub fn list(&self) -> Arc<Vec<Nested>> {
        Arc::clone(&self.now.read())
    }

    /// Whether a directory is that of another export: which number it has, if any.
    pub fn at(&self, directory: impl AsFd) -> Option<Option<u32>> {
        if self.round() == 0 || self.list().is_empty() {
            return None;
        }
        let here = DirectoryPlace::of(directory).ok()?.identity;
        self.list().iter().find(|other| other.directory == here).map(|other| other.id)
    }

    /// The same of a directory in use.
    pub fn at_node(&self, node: &Node) -> Option<Option<u32>> {
        let list = self.list();
        let likely = list.iter().any(|other| other.directory.1 == node.fileid());
        if likely { self.at(node.file()) } else { None }
    }

    /// Whether a file is the directory of another export.
    pub fn has(&self, file: FileId) -> bool {
        self.round() != 0 && self.list().iter().any(|other| other.file == file)
    }

    pub fn keeps_its_name(&self, found: DeviceAndInode) -> bool {
        self.list().iter().any(|other| other.directory == found || other.above.contains(&found))
    }
}

impl DirectoryPlace {
    /// Of an open directory.
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

    /// Whether one leads to the other by names, without a mount between (before Linux 5.8 nobody says: then
    /// if both are on one filesystem).
    fn is_on_mount_of(&self, other: &DirectoryPlace) -> bool {
        match (self.mount, other.mount) {
            (Some(one), Some(two)) => one == two,
            _ => self.identity.0 == other.identity.0,
        }
    }
}
