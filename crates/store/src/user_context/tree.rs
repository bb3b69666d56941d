//! Grants of directories with everything below.
//!
//! The descriptor leads into a cell ([`crate::Cell`]), so its holder stays below the export's root whatever
//! it does with the descriptor. What it may do with the files is decided by the kernel, by the ids of the
//! process that holds it, at every system call.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use sys::cell::Cell;
use user_ids::as_process_user;

use super::context::UserContext;
use super::grant::Grant;
use crate::attributes::FileKind;
use crate::error::{Error, Result};
use crate::export_tree::PATH_ONLY;
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
        let attributes = self.live(directory)?.attributes;
        let HandleContents::Kernel(kernel) = self.store.tree.sealer.open(directory.handle())? else {
            return Err(Error::NotSupported);
        };
        let closed = self.open_by_handle(&kernel, Some(cell.root()), PATH_ONLY | OFlags::DIRECTORY)?;
        // In a cell the kernel finds no parent of a directory that was moved out.
        as_process_user(|| self.is_below_root(&closed)).map_err(|error| match error {
            Error::NotFound => Error::Stale,
            other => other,
        })?;
        self.assume_ids()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = match self.with_room(|| openat(&closed, c".", flags, Mode::empty())) {
            Err(Errno::ACCESS) => closed,
            opened => opened?,
        };
        Ok(Grant { file, handle: *directory.handle(), attributes, lasts: false })
    }
}
