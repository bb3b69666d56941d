//! Grants of directories with everything below.
//!
//! The descriptor of a tree leads into a cell ([`crate::Cell`]), so its holder stays below the export's root
//! whatever it does with the descriptor. What it may do with the files is decided by the kernel, by the ids
//! of the process that holds it, at every system call. A mount has no such protection: its holder can attach
//! it and clear its flags.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use sys::cell::Cell;
use sys::mount::{CloneAttributes, clone_detached};
use user_ids::as_process_user;

use super::context::UserContext;
use super::grant::Grant;
use crate::attributes::{Attributes, FileKind};
use crate::error::{Error, Result};
use crate::export_tree::{PATH_ONLY, reopen_directory};
use crate::handle::HandleContents;
use crate::node::Node;

impl UserContext<'_> {
    /// Opens a directory in one of the store's cells, to pass it to another process. The descriptor is open
    /// for reading if the user may read the directory. Otherwise it is an `O_PATH` one: a descriptor that is
    /// open for reading lists the directory for whoever holds it, without another check.
    ///
    /// # Errors
    /// `NotDirectory`; `Stale` when the directory isn't below the export's root any more; `NotSupported`
    /// without handles of the filesystem.
    pub fn grant_tree(&self, directory: &Node, cell: &Cell) -> Result<Grant> {
        if directory.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let (closed, attributes) = self.directory_on(cell.root(), directory)?;
        self.assume_ids()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = match self.with_room(|| openat(&closed, c".", flags, Mode::empty())) {
            Err(Errno::ACCESS) => closed,
            opened => opened?,
        };
        Ok(Grant { file, handle: *directory.handle(), attributes, lasts: false })
    }

    /// Clones the mount that a directory is on, with the directory as its root, to pass the detached clone to
    /// root of this host. What is mounted below isn't in it.
    ///
    /// # Errors
    /// As for [`UserContext::grant_tree`]; `NotSupported` also when the mount can't be cloned.
    pub fn grant_mount(&self, directory: &Node, read_only: bool) -> Result<Grant> {
        if directory.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        // A clone can only be made of a mount of this process's namespace.
        let attached =
            as_process_user(|| Ok::<_, Error>(reopen_directory(self.store.attached.directory())?))?;
        let (closed, attributes) = self.directory_on(&attached, directory)?;
        let limits =
            CloneAttributes { read_only: read_only || self.read_only, no_devices: true, no_set_id: true };
        let file = clone_detached(&closed, limits).map_err(|_| Error::NotSupported)?;
        Ok(Grant { file, handle: *directory.handle(), attributes, lasts: false })
    }

    /// Opens a directory below the export's root (`O_PATH`) on the mount of `mount`.
    fn directory_on(&self, mount: &OwnedFd, directory: &Node) -> Result<(OwnedFd, Attributes)> {
        let attributes = self.live(directory)?.attributes;
        let HandleContents::Kernel(kernel) = self.store.tree.sealer.open(directory.handle())? else {
            return Err(Error::NotSupported);
        };
        let closed = self.open_by_handle(&kernel, Some(mount), PATH_ONLY | OFlags::DIRECTORY)?;
        // In a clone the kernel finds no parent of a directory that was moved out.
        as_process_user(|| self.is_below_root(&closed)).map_err(|error| match error {
            Error::NotFound => Error::Stale,
            other => other,
        })?;
        Ok((closed, attributes))
    }
}
