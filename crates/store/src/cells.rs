//! The cells of a store: mount namespaces from which clients get the exported directory itself.
//!
//! There is one in which files can be changed and one in which they can't. Each is made when the first client
//! needs it, and shared by all clients. When the export's rules or its mounts change, the server takes the
//! cells away ([`Store::take_cells`]) and the next client gets a new one. The server keeps what it took until
//! nothing can be changed in it any more.

use std::sync::Arc;

use parking_lot::Mutex;
use sys::cell::Cell;
use sys::mount::CloneAttributes;
use user_ids::{Privilege, as_process_user};

use crate::error::{Error, Result};
use crate::inner::HandleScheme;
use crate::mount::Mounts;
use crate::store::Store;

/// The cells that have been made and not taken away.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    writable: Mutex<Option<Arc<Cell>>>,
    read_only: Mutex<Option<Arc<Cell>>>,
}

impl Cells {
    /// Whether there is a cell.
    pub fn are_made(&self) -> bool {
        [false, true].into_iter().any(|read_only| self.slot(read_only).lock().is_some())
    }

    fn slot(&self, read_only: bool) -> &Mutex<Option<Arc<Cell>>> {
        if read_only { &self.read_only } else { &self.writable }
    }
}

impl Store {
    /// Whether this process has the privileges for [`Store::cell`], and the filesystem's handles lead to its
    /// files. Never with `subtree_check`.
    #[must_use]
    pub fn can_have_cells(&self) -> bool {
        let inner = self.inner();
        inner.cloned && inner.privilege == Privilege::Full && matches!(inner.scheme, HandleScheme::Kernel)
    }

    /// The cell of the exported directory in which files can be changed, or with `read_only` the other one.
    /// In a store that is read-only, or mounted so, both are read-only.
    ///
    /// # Errors
    /// `NotSupported` without [`Store::can_have_cells`], and where the kernel refuses to make a cell
    /// ([`Cell::new`]); `TryLater` without a thread.
    pub fn cell(&self, read_only: bool) -> Result<Arc<Cell>> {
        if !self.can_have_cells() {
            return Err(Error::NotSupported);
        }
        let inner = self.inner();
        let mut slot = inner.cells.slot(read_only).lock();
        if let Some(cell) = &*slot {
            return Ok(Arc::clone(cell));
        }
        let attributes = CloneAttributes {
            read_only: read_only || inner.is_read_only() || inner.attached.is_read_only(),
            no_devices: true,
            no_set_id: true,
        };
        let made = as_process_user(|| Ok::<_, Error>(Cell::new(inner.attached.directory(), attributes)))?;
        let cell = Arc::new(made.map_err(|errno| match errno {
            rustix::io::Errno::AGAIN | rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => Error::TryLater,
            errno => {
                tracing::warn!(%errno, "no cell can be made of an export: clients get files only");
                Error::NotSupported
            }
        })?);
        *slot = Some(Arc::clone(&cell));
        Ok(cell)
    }

    /// Whether [`Store::take_cells`] hasn't taken this one away.
    #[must_use]
    pub fn has_cell(&self, cell: &Arc<Cell>) -> bool {
        [false, true].into_iter().any(|read_only| {
            self.inner().cells.slot(read_only).lock().as_ref().is_some_and(|now| Arc::ptr_eq(now, cell))
        })
    }

    /// Takes the cells away: first the one in which files can be changed.
    #[must_use]
    pub fn take_cells(&self) -> [Option<Arc<Cell>>; 2] {
        [false, true].map(|read_only| self.inner().cells.slot(read_only).lock().take())
    }

    /// Whether anything is mounted below the exported directory.
    #[must_use]
    pub fn has_mounts_below(&self, mounts: &Mounts) -> bool {
        self.inner().attached.has_mounts_below(mounts)
    }
}
