//! Directories below a store's root that are exports of their own.
//!
//! An export in an export on one filesystem has rules of its own: other clients, read-only, no lane. So what
//! lies below its directory is reached by handles of the inner export only:
//!
//! 1. A name that leads to the inner directory is [`Error::OtherExport`], and the server goes on with the
//!    inner export's handle if its rules let the client in. Nothing below has a name that this store follows.
//! 2. A handle of this store whose file lies below is `Stale`. Such handles were made before the inner
//!    directory was exported, or of a file that a local process has moved there. Where a file lies is looked
//!    at when the handle is first used, and again when the exports have changed: of a directory by climbing
//!    to the root, of other files if the kernel knows a path. It may know none of a file that nobody has
//!    looked up since the server's host was started; `subtree_check` walks the path each time.
//! 3. The inner directory, and those on the way to it, keep their names: moved away, another directory could
//!    stand at the inner export's path when the server starts next, and the outer export's rules would hold
//!    for the moved one.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, openat2, statx};
use rustix::path::DecInt;

use crate::acting::{Acting, ONE_STEP, PATH_ONLY};
use crate::attributes::{FileKind, status};
use crate::error::{Error, Result};
use crate::handle::FileId;
use crate::identity::as_process_user;
use crate::node::Node;
use crate::open::{Inner, Scheme, file_id};

/// How many directories lie between a file and the root at most, as far as we look.
const MAX_DEPTH: usize = 4096;

/// An export below a store's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherExport {
    /// Its directory.
    pub path: PathBuf,
    /// The number in its handles; none if it isn't served now.
    pub id: Option<u32>,
}

/// A file, as one process sees it: device and inode number.
type Identity = (u64, u64);

/// Where a directory is: which it is, and on which mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    identity: Identity,
    mount: Option<u64>,
}

/// The directory of another export.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Other {
    directory: Identity,
    /// The same as handles that are located in the tree have it.
    file: FileId,
    id: Option<u32>,
    /// The directories on the way to it, the root left out.
    above: Vec<Identity>,
}

/// The other exports below a store's root.
#[derive(Debug, Default)]
pub(crate) struct OtherExports {
    /// Goes up with every change; 0 while there have never been any.
    round: AtomicU32,
    now: RwLock<Arc<Vec<Other>>>,
}

impl OtherExports {
    /// What a node has to have been looked at in; the default one of nodes if nothing is to be looked at.
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    fn list(&self) -> Arc<Vec<Other>> {
        Arc::clone(&self.now.read())
    }

    /// Whether a directory is that of another export: which number it has, if any.
    pub fn at(&self, directory: impl AsFd) -> Option<Option<u32>> {
        if self.round() == 0 || self.list().is_empty() {
            return None;
        }
        let here = Place::of(directory).ok()?.identity;
        self.list().iter().find(|other| other.directory == here).map(|other| other.id)
    }

    /// The same of a directory in use.
    fn at_node(&self, node: &Node) -> Option<Option<u32>> {
        let list = self.list();
        let likely = list.iter().any(|other| other.directory.1 == node.fileid());
        if likely { self.at(node.file()) } else { None }
    }

    /// Whether a file is the directory of another export.
    pub fn has(&self, file: FileId) -> bool {
        self.round() != 0 && self.list().iter().any(|other| other.file == file)
    }

    fn keeps_its_name(&self, found: Identity) -> bool {
        self.list().iter().any(|other| other.directory == found || other.above.contains(&found))
    }
}

impl Place {
    /// Of an open directory.
    pub fn of(directory: impl AsFd) -> Result<Place> {
        Place::at(directory, c"")
    }

    fn at(directory: impl AsFd, name: &CStr) -> Result<Place> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let raw = statx(directory, name, flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
        let device = rustix::fs::makedev(raw.stx_dev_major, raw.stx_dev_minor);
        let knows_mounts = raw.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(Place { identity: (device, raw.stx_ino), mount: knows_mounts.then_some(raw.stx_mnt_id) })
    }

    /// Whether one leads to the other by names, without a mount between (before Linux 5.8 nobody says: then
    /// if both are on one filesystem).
    fn is_on_mount_of(&self, other: &Place) -> bool {
        match (self.mount, other.mount) {
            (Some(one), Some(two)) => one == two,
            _ => self.identity.0 == other.identity.0,
        }
    }
}

impl Inner {
    /// See [`crate::Store::set_other_exports`].
    pub fn set_other_exports(&self, exports: &[OtherExport]) -> Result<()> {
        let located = exports.iter().map(|export| self.locate_other(export));
        let mut list: Vec<Other> = located.filter_map(Result::transpose).collect::<Result<_>>()?;
        list.sort_by_key(|other| other.directory);
        let mut now = self.others.now.write();
        if **now == list {
            return Ok(());
        }
        *now = Arc::new(list);
        self.others.round.fetch_add(1, Ordering::Release);
        drop(now);
        if let Scheme::Located(places) = &self.scheme {
            places.forget_survey();
        }
        Ok(())
    }

    /// Where another export's directory is, if this store leads there.
    fn locate_other(&self, export: &OtherExport) -> Result<Option<Other>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat(CWD, &export.path, flags, Mode::empty()).map_err(Error::from) {
            // There is nothing to lead to, or not for this process.
            Err(Error::NotFound | Error::NotDirectory | Error::Access) => return Ok(None),
            opened => opened?,
        };
        let place = Place::of(&directory)?;
        if !place.is_on_mount_of(&self.place) || place.identity == self.place.identity {
            return Ok(None);
        }
        let file = file_id(&directory, &status(&directory, self.filesystem.fsid)?);
        let mut above = Vec::new();
        let mut at = directory;
        for _ in 0..MAX_DEPTH {
            at = openat(&at, c"..", flags, Mode::empty())?;
            let here = Place::of(&at)?.identity;
            if here == self.place.identity {
                return Ok(Some(Other { directory: place.identity, file, id: export.id, above }));
            }
            if above.last() == Some(&here) {
                break;
            }
            above.push(here);
        }
        Ok(None)
    }
}

impl Acting<'_> {
    /// Whether a file that a handle of this store names may be served by it.
    ///
    /// # Errors
    /// `Stale` if it lies in another export.
    pub(crate) fn check_export(&self, node: &Node) -> Result<()> {
        let others = &self.inner().others;
        let round = others.round();
        if node.looked_at_in() == round {
            return Ok(());
        }
        // What has no name left is in no directory.
        let is_named = || node.live(0).is_ok_and(|status| status.attributes.nlink > 0);
        if !others.list().is_empty() && is_named() {
            match &self.inner().scheme {
                Scheme::Kernel => as_process_user(|| self.check_by_climbing(node))?,
                Scheme::Located(_) => drop(self.locate(node.id(), node.handle(), None)?),
            }
        }
        node.look_at_in(round);
        Ok(())
    }

    /// What was found under a name that was followed in this store.
    ///
    /// # Errors
    /// `OtherExport`, or `Access` where that isn't served now.
    pub(crate) fn check_found(&self, node: &Node) -> Result<()> {
        let others = &self.inner().others;
        let round = others.round();
        if round == 0 {
            return Ok(());
        }
        if node.kind() == FileKind::Directory
            && let Some(id) = others.at_node(node)
        {
            return Err(id.map_or(Error::Access, Error::OtherExport));
        }
        node.look_at_in(round);
        Ok(())
    }

    /// Whether a name may be taken from what it is a name of.
    ///
    /// # Errors
    /// `TryLater`, as of a directory that something is mounted on.
    pub(crate) fn check_name_is_free(&self, dir: &Node, name: &CStr) -> Result<()> {
        let others = &self.inner().others;
        if others.round() == 0 {
            return Ok(());
        }
        match Place::at(dir.file(), name) {
            Ok(found) if others.keeps_its_name(found.identity) => Err(Error::TryLater),
            _ => Ok(()),
        }
    }

    fn check_by_climbing(&self, node: &Node) -> Result<()> {
        let directory = match node.kind() {
            FileKind::Directory => Some(node.file().try_clone_to_owned().map_err(Error::from)?),
            // One with several names may have some of them here and others there: then it is served by the
            // rules of both.
            _ if rustix::fs::fstat(node.file())?.st_nlink > 1 => None,
            _ => self.known_directory(node),
        };
        let Some(mut at) = directory else { return Ok(()) };
        let root = Place::of(self.inner().root.file())?.identity;
        let others = self.inner().others.list();
        let mut here = Place::of(&at)?.identity;
        for _ in 0..MAX_DEPTH {
            if others.iter().any(|other| other.directory == here) {
                return Err(Error::Stale);
            }
            if here == root {
                break;
            }
            // What was moved out of the export is served as before: that is what `no_subtree_check` says.
            let Ok(up) = openat(&at, c"..", PATH_ONLY | OFlags::DIRECTORY, Mode::empty()) else { break };
            at = up;
            let above = Place::of(&at)?.identity;
            if above == here {
                break;
            }
            here = above;
        }
        Ok(())
    }

    /// A directory in which a file has a name, if the kernel knows one.
    fn known_directory(&self, node: &Node) -> Option<OwnedFd> {
        let descriptor = DecInt::new(node.file().as_raw_fd());
        let path = rustix::fs::readlinkat(&self.inner().proc, descriptor, Vec::with_capacity(256)).ok()?;
        let path = Path::new(OsStr::from_bytes(path.as_bytes())).parent()?;
        let below = path.strip_prefix("/").ok()?;
        if self.inner().cloned {
            // A path within the clone.
            let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            openat2(self.inner().root.file(), below, PATH_ONLY | OFlags::DIRECTORY, Mode::empty(), ONE_STEP)
                .ok()
        } else {
            openat(CWD, path, PATH_ONLY | OFlags::DIRECTORY, Mode::empty()).ok()
        }
    }
}
