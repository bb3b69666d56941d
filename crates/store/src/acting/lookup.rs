//! From handles and names to nodes.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use sys::KernelHandle;

use super::{Acting, Found};
use crate::attributes::{FileKind, Look, status};
use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId, Meaning};
use crate::identity::as_process_user;
use crate::name;
use crate::node::Node;
use crate::open::{Scheme, file_id};

/// No symbolic link is followed, no mount entered, nothing above reached.
pub(crate) const ONE_STEP: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

pub(crate) const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How many directories lie between any file and the root at most, as far as we look.
const MAX_DEPTH: usize = 4096;

impl Acting<'_> {
    /// The file that a handle names.
    ///
    /// # Errors
    /// `BadHandle` for bytes that this store never gave out, `Stale` when the file is gone (or isn't below
    /// the export any more, where `subtree_check` asks).
    pub fn node(&self, handle: &[u8]) -> Result<Arc<Node>> {
        let handle = FileHandle::unchecked(handle).ok_or(Error::BadHandle)?;
        if handle == *self.store.root.handle() {
            return Ok(Arc::clone(&self.store.root));
        }
        if let Some(node) = self.store.nodes.get(&handle) {
            if self.store.subtree_check {
                self.locate(node.id(), &handle, None)?;
            }
            self.check_export(&node)?;
            return Ok(node);
        }
        match (self.store.sealer.open(&handle)?, &self.store.scheme) {
            (Meaning::Kernel(kernel), Scheme::Kernel) => {
                let file = self.open_by_handle(&kernel, self.store.mount.as_ref(), PATH_ONLY)?;
                let node = self.keep(handle, None, file)?;
                self.check_export(&node)?;
                Ok(node)
            }
            (Meaning::Located { id, hints }, Scheme::Located(_)) => {
                if id == self.store.root.id() {
                    return Ok(Arc::clone(&self.store.root));
                }
                let (canonical, file) = self.locate(id, &handle, Some(&hints))?;
                let node = self.keep(canonical, Some(id), file)?;
                // `locate` finds nothing in other exports.
                node.look_at_in(self.store.others.round());
                Ok(node)
            }
            // Genuine, but made before an option or the filesystem changed.
            _ => Err(Error::Stale),
        }
    }

    /// The file `name` in `dir`. "." is the directory itself, ".." the one above, which for the root is the
    /// root.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `Access` (also for what is mounted there), `OtherExport`, `InvalidName`,
    /// `NameTooLong`, `Stale`.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Arc<Node>> {
        self.find(dir, name).map(|found| found.node)
    }

    /// As [`Acting::lookup`], with what was learned on the way, for a [`Acting::grant_found`] at once.
    ///
    /// # Errors
    /// As for [`Acting::lookup`].
    pub fn find(&self, dir: &Node, name: &[u8]) -> Result<Found> {
        let name = name::any(name)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.wear()?;
        match name.as_bytes() {
            b"." => self.node(dir.handle().as_bytes()).map(Found::from),
            b".." => self.parent(dir).map(Found::from),
            _ => self.gone_or(dir, self.entry(dir, &name)),
        }
    }

    /// A name proper, already checked, with the user's ids worn.
    pub(super) fn child(&self, dir: &Node, name: &CStr) -> Result<Arc<Node>> {
        self.entry(dir, name).map(|found| found.node)
    }

    fn entry(&self, dir: &Node, name: &CStr) -> Result<Found> {
        let found = self.entry_anywhere(dir, name)?;
        self.check_found(&found.node)?;
        Ok(found)
    }

    /// As `entry`, also what belongs to another export.
    fn entry_anywhere(&self, dir: &Node, name: &CStr) -> Result<Found> {
        if let Scheme::Kernel = self.store.scheme {
            // A file in use costs one system call. Not where something may be mounted on the name.
            if self.store.cloned {
                let kernel = KernelHandle::of(dir.file(), name)?;
                if let Some(node) =
                    self.store.sealer.kernel(&kernel).and_then(|handle| self.store.nodes.get(&handle))
                {
                    return Ok(node.into());
                }
            }
        }
        let file = self
            .with_room(|| openat2(dir.file(), name, PATH_ONLY, Mode::empty(), ONE_STEP))
            .map_err(mounted_is_closed)?;
        self.adopt(dir, name, file)
    }

    /// The node of a file that was opened as `name` in `dir`.
    pub(super) fn adopt(&self, dir: &Node, name: &CStr, file: OwnedFd) -> Result<Found> {
        match &self.store.scheme {
            Scheme::Kernel => {
                let kernel = KernelHandle::of(&file, c"")?;
                let handle = self.store.sealer.kernel(&kernel).ok_or(Error::NotSupported)?;
                let cached = self.store.nodes.get(&handle).map(Found::from);
                cached.map_or_else(|| self.keep_found(handle, None, Look::at(&file, self.fsid())?, file), Ok)
            }
            Scheme::Located(places) => {
                let look = Look::at(&file, self.fsid())?;
                let id = file_id(&file, &look.status);
                if id == self.store.root.id() {
                    return Ok(Arc::clone(&self.store.root).into());
                }
                let handle = places.note(self.store, dir.id(), name, id);
                let cached = self.store.nodes.get(&handle).map(Found::from);
                cached.map_or_else(|| self.keep_found(handle, Some(id), look, file), Ok)
            }
        }
    }

    /// Puts an opened file in the cache.
    fn keep(&self, handle: FileHandle, id: Option<FileId>, file: OwnedFd) -> Result<Arc<Node>> {
        let look = Look::at(&file, self.fsid())?;
        self.keep_found(handle, id, look, file).map(|found| found.node)
    }

    /// As `keep`; the kernel has been asked about the file.
    fn keep_found(&self, handle: FileHandle, id: Option<FileId>, look: Look, file: OwnedFd) -> Result<Found> {
        let status = &look.status;
        if status.attributes.nlink == 0 {
            return Err(Error::Stale);
        }
        let id = id.unwrap_or(FileId { fileid: status.attributes.fileid, generation: 0 });
        let node = self.store.nodes.put(Node::new(handle, id, status.attributes.kind, file));
        Ok(Found { node, look: Some(look) })
    }

    /// The handle under which `name` is cached, if it is: what a removal makes worth looking at.
    pub(super) fn cached(&self, dir: &Node, name: &CStr) -> Option<Arc<Node>> {
        match &self.store.scheme {
            Scheme::Kernel => {
                let kernel = KernelHandle::of(dir.file(), name).ok()?;
                self.store.nodes.get(&self.store.sealer.kernel(&kernel)?)
            }
            Scheme::Located(places) => {
                let file = openat2(dir.file(), name, PATH_ONLY, Mode::empty(), ONE_STEP).ok()?;
                let id = file_id(&file, &status(&file, self.fsid()).ok()?);
                self.store.nodes.get(&places.handle(id)?)
            }
        }
    }

    /// Opening by handle needs a capability that no user has.
    pub(super) fn open_by_handle(
        &self,
        kernel: &KernelHandle,
        mount: Option<&OwnedFd>,
        flags: OFlags,
    ) -> Result<OwnedFd> {
        let mount = mount.ok_or(Error::NotSupported)?;
        as_process_user(|| {
            self.with_room(|| kernel.open(mount, flags)).map_err(|errno| match Error::from(errno) {
                Error::NotFound | Error::Invalid => Error::Stale,
                other => other,
            })
        })
    }

    fn parent(&self, dir: &Node) -> Result<Arc<Node>> {
        if dir.handle() == self.store.root.handle() {
            return Ok(Arc::clone(&self.store.root));
        }
        self.live(dir)?;
        let up = openat(dir.file(), c"..", PATH_ONLY | OFlags::DIRECTORY, Mode::empty());
        // In a clone the kernel itself refuses to leave through a directory that was moved outside.
        let up =
            up.map_err(|errno| if errno == rustix::io::Errno::NOENT { Error::Stale } else { errno.into() })?;
        match &self.store.scheme {
            Scheme::Kernel => {
                let handle =
                    self.store.sealer.kernel(&KernelHandle::of(&up, c"")?).ok_or(Error::NotSupported)?;
                if handle == *self.store.root.handle() {
                    return Ok(Arc::clone(&self.store.root));
                }
                if !self.store.cloned {
                    as_process_user(|| self.is_below_root(&up))?;
                }
                self.store.nodes.get(&handle).map_or_else(|| self.keep(handle, None, up), Ok)
            }
            Scheme::Located(places) => {
                let id = file_id(&up, &status(&up, self.fsid())?);
                if id == self.store.root.id() {
                    return Ok(Arc::clone(&self.store.root));
                }
                // Only what is found from the root is below the root.
                let handle = places.handle(id).unwrap_or_else(|| self.store.sealer.located(id, &[]));
                let (canonical, file) = self.locate(id, &handle, Some(&[]))?;
                self.keep(canonical, Some(id), file)
            }
        }
    }

    /// Climbs from `dir` to the root of the export; `Stale` when it isn't met on the way.
    fn is_below_root(&self, dir: &OwnedFd) -> Result<()> {
        let identity = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        let root = rustix::fs::fstat(self.store.root.file()).map(|stat| (stat.st_dev, stat.st_ino))?;
        let mut at = dir.try_clone()?;
        let mut here = identity(&at)?;
        for _ in 0..MAX_DEPTH {
            if here == root {
                return Ok(());
            }
            at = openat(&at, c"..", PATH_ONLY | OFlags::DIRECTORY, Mode::empty())?;
            let above = identity(&at)?;
            if above == here {
                break;
            }
            here = above;
        }
        Err(Error::Stale)
    }
}

/// Something is mounted on the name: it belongs to another filesystem, which isn't exported.
fn mounted_is_closed(errno: rustix::io::Errno) -> Error {
    match Error::from(errno) {
        Error::CrossDevice => Error::Access,
        other => other,
    }
}
