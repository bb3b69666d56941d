//! From handles and names to nodes.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat, openat2};
use rustix::io::Errno;
use sys::KernelHandle;

use super::context::UserContext;
use super::types::LookupResult;
use crate::attributes::{FileKind, TimedStatus, status};
use crate::error::{Error, Result};
use crate::export_tree::{PATH_ONLY, STRICT_RESOLVE};
use crate::handle::{FileHandle, FileId, HandleContents};
use crate::inner::HandleScheme;
use crate::name;
use crate::nested_exports::MAX_DEPTH;
use crate::node::Node;
use user_ids::as_process_user;

/// Maximum number of attempts to open by handle while the filesystem makes a file with the same inode number.
const OPEN_ATTEMPTS: usize = 10;

impl UserContext<'_> {
    /// The file of a handle.
    ///
    /// # Errors
    /// `BadHandle` for bytes that aren't a handle of this store, `Stale` when the file is gone (or, with
    /// `subtree_check`, isn't below the export any more).
    pub fn node(&self, handle: &[u8]) -> Result<Arc<Node>> {
        let handle = FileHandle::unchecked(handle).ok_or(Error::BadHandle)?;
        if handle == *self.store.tree.root.handle() {
            return Ok(Arc::clone(&self.store.tree.root));
        }
        if let Some(node) = self.store.nodes.get(&handle) {
            if self.store.subtree_check {
                self.resolve_located(node.id(), &handle, None)?;
            }
            self.check_export(&node)?;
            return Ok(node);
        }
        match (self.store.tree.sealer.open(&handle)?, &self.store.scheme) {
            (HandleContents::Kernel(kernel), HandleScheme::Kernel) => {
                let file = self.open_by_handle(&kernel, self.store.mount.as_ref(), PATH_ONLY)?;
                let node = self.keep(handle, None, file)?;
                self.check_export(&node)?;
                Ok(node)
            }
            (HandleContents::Located { id, hints }, HandleScheme::Located(_)) => {
                if id == self.store.tree.root.id() {
                    return Ok(Arc::clone(&self.store.tree.root));
                }
                let (canonical, file) = self.resolve_located(id, &handle, Some(&hints))?;
                let node = self.keep(canonical, Some(id), file)?;
                // Resolution doesn't enter nested exports.
                node.set_checked_in_round(self.store.tree.nested.round());
                Ok(node)
            }
            // Genuine, but made before an option or the filesystem changed.
            _ => Err(Error::Stale),
        }
    }

    /// The file `name` in `dir`. "." is the directory itself, ".." its parent, or the root for the root.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `Access` (also for mount points), `NestedExport`, `InvalidName`,
    /// `NameTooLong`, `Stale`.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Arc<Node>> {
        self.find(dir, name).map(|found| found.node)
    }

    /// As [`UserContext::lookup`]; also returns the status if the kernel was asked, for an immediate
    /// [`UserContext::grant_found`].
    ///
    /// # Errors
    /// As for [`UserContext::lookup`].
    pub fn find(&self, dir: &Node, name: &[u8]) -> Result<LookupResult> {
        let name = name::any(name)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.assume_ids()?;
        match name.as_bytes() {
            b"." => self.node(dir.handle().as_bytes()).map(LookupResult::from),
            b".." => self.parent(dir).map(LookupResult::from),
            _ => self.gone_or(dir, self.entry(dir, &name)),
        }
    }

    /// The entry with a valid name. The caller has assumed the user's ids.
    pub(super) fn child(&self, dir: &Node, name: &CStr) -> Result<Arc<Node>> {
        self.entry(dir, name).map(|found| found.node)
    }

    fn entry(&self, dir: &Node, name: &CStr) -> Result<LookupResult> {
        let found = self.entry_anywhere(dir, name)?;
        self.check_found(&found.node)?;
        Ok(found)
    }

    /// As `entry`, without checking for nested exports.
    fn entry_anywhere(&self, dir: &Node, name: &CStr) -> Result<LookupResult> {
        if let HandleScheme::Kernel = self.store.scheme {
            // Finding a node in the cache costs one system call. Not possible where a mount may cover the
            // name.
            if self.store.cloned {
                let kernel = KernelHandle::of(dir.file(), name)?;
                if let Some(node) =
                    self.store.tree.sealer.kernel(&kernel).and_then(|handle| self.store.nodes.get(&handle))
                {
                    return Ok(node.into());
                }
            }
        }
        let file = self
            .with_room(|| openat2(dir.file(), name, PATH_ONLY, Mode::empty(), STRICT_RESOLVE))
            .map_err(mount_point_error)?;
        self.adopt(dir, name, file)
    }

    /// The node of a file that was opened as `name` in `dir`.
    pub(super) fn adopt(&self, dir: &Node, name: &CStr, file: OwnedFd) -> Result<LookupResult> {
        match &self.store.scheme {
            HandleScheme::Kernel => {
                let kernel = KernelHandle::of(&file, c"")?;
                let handle = self.store.tree.sealer.kernel(&kernel).ok_or(Error::NotSupported)?;
                let cached = self.store.nodes.get(&handle).map(LookupResult::from);
                cached.map_or_else(
                    || self.keep_found(handle, None, TimedStatus::at(&file, self.fsid())?, file),
                    Ok,
                )
            }
            HandleScheme::Located(paths) => {
                let timed_status = TimedStatus::at(&file, self.fsid())?;
                let id = FileId::of(&file, &timed_status.status);
                if id == self.store.tree.root.id() {
                    return Ok(Arc::clone(&self.store.tree.root).into());
                }
                let handle = paths.note(&self.store.tree, dir.id(), name, id);
                let cached = self.store.nodes.get(&handle).map(LookupResult::from);
                cached.map_or_else(|| self.keep_found(handle, Some(id), timed_status, file), Ok)
            }
        }
    }

    /// Puts an opened file in the cache.
    fn keep(&self, handle: FileHandle, id: Option<FileId>, file: OwnedFd) -> Result<Arc<Node>> {
        let timed_status = TimedStatus::at(&file, self.fsid())?;
        self.keep_found(handle, id, timed_status, file).map(|found| found.node)
    }

    /// As `keep`, with the status known.
    fn keep_found(
        &self,
        handle: FileHandle,
        id: Option<FileId>,
        timed_status: TimedStatus,
        file: OwnedFd,
    ) -> Result<LookupResult> {
        let status = &timed_status.status;
        if status.attributes.nlink == 0 {
            return Err(Error::Stale);
        }
        let id = id.unwrap_or(FileId { fileid: status.attributes.fileid, generation: 0 });
        let node = self.store.nodes.put(Node::new(handle, id, status.attributes.kind, file));
        Ok(LookupResult { node, status: Some(timed_status) })
    }

    /// The cached node of `name`, if there is one, to be checked after a removal.
    pub(super) fn cached(&self, dir: &Node, name: &CStr) -> Option<Arc<Node>> {
        match &self.store.scheme {
            HandleScheme::Kernel => {
                let kernel = KernelHandle::of(dir.file(), name).ok()?;
                self.store.nodes.get(&self.store.tree.sealer.kernel(&kernel)?)
            }
            HandleScheme::Located(paths) => {
                let file = openat2(dir.file(), name, PATH_ONLY, Mode::empty(), STRICT_RESOLVE).ok()?;
                let id = FileId::of(&file, &status(&file, self.fsid()).ok()?);
                self.store.nodes.get(&paths.handle(id)?)
            }
        }
    }

    /// Opening by handle needs a capability that users don't have.
    pub(super) fn open_by_handle(
        &self,
        kernel: &KernelHandle,
        mount: Option<&OwnedFd>,
        flags: OFlags,
    ) -> Result<OwnedFd> {
        let mount = mount.ok_or(Error::NotSupported)?;
        as_process_user(|| {
            self.with_room(|| open_when_made(kernel, mount, flags)).map_err(|errno| {
                match Error::from(errno) {
                    Error::NotFound | Error::Invalid => Error::Stale,
                    other => other,
                }
            })
        })
    }

    fn parent(&self, dir: &Node) -> Result<Arc<Node>> {
        if dir.handle() == self.store.tree.root.handle() {
            return Ok(Arc::clone(&self.store.tree.root));
        }
        self.live(dir)?;
        let up = openat(dir.file(), c"..", PATH_ONLY | OFlags::DIRECTORY, Mode::empty());
        // In a clone the kernel refuses to leave through a directory that was moved outside.
        let up = up.map_err(|errno| if errno == Errno::NOENT { Error::Stale } else { errno.into() })?;
        match &self.store.scheme {
            HandleScheme::Kernel => {
                let handle =
                    self.store.tree.sealer.kernel(&KernelHandle::of(&up, c"")?).ok_or(Error::NotSupported)?;
                if handle == *self.store.tree.root.handle() {
                    return Ok(Arc::clone(&self.store.tree.root));
                }
                if !self.store.cloned {
                    as_process_user(|| self.is_below_root(&up))?;
                }
                self.store.nodes.get(&handle).map_or_else(|| self.keep(handle, None, up), Ok)
            }
            HandleScheme::Located(paths) => {
                let id = FileId::of(&up, &status(&up, self.fsid())?);
                if id == self.store.tree.root.id() {
                    return Ok(Arc::clone(&self.store.tree.root));
                }
                // Only what is found from the root is below the root.
                let handle = paths.handle(id).unwrap_or_else(|| self.store.tree.sealer.located(id, &[]));
                let (canonical, file) = self.resolve_located(id, &handle, Some(&[]))?;
                self.keep(canonical, Some(id), file)
            }
        }
    }

    /// Climbs from `dir` to the export's root; `Stale` when it isn't reached.
    pub(super) fn is_below_root(&self, dir: &OwnedFd) -> Result<()> {
        let identity = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        let root = rustix::fs::fstat(self.store.tree.root.file()).map(|stat| (stat.st_dev, stat.st_ino))?;
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

/// A mount on the name belongs to another filesystem, which isn't exported.
fn mount_point_error(errno: Errno) -> Error {
    match Error::from(errno) {
        Error::CrossDevice => Error::Access,
        other => other,
    }
}

/// Opens by handle. ext4 returns `ENOMEM` instead of `ESTALE` for a removed file while another process makes
/// one with the same inode number, which takes microseconds.
fn open_when_made(kernel: &KernelHandle, mount: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut attempts = 1;
    loop {
        match kernel.open(mount, flags) {
            Err(Errno::NOMEM) if attempts < OPEN_ATTEMPTS => std::thread::yield_now(),
            opened => return opened,
        }
        attempts += 1;
    }
}
