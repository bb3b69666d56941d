//! The opens of one file: how many there are, which of them let the kernel write by itself, and the hidden
//! name that goes with the last one.

use std::sync::Arc;
use std::time::Instant;

use client::Handle;

use super::InodeState;
use super::io_mode::{IoHold, IoMode};
use crate::backing::Backing;
use crate::open_table::OpenFile;
use crate::users::User;

/// The opens of a file. All are counted by [`InodeState::open`] and [`InodeState::release`].
#[derive(Debug, Default)]
pub(crate) struct OpenState {
    /// The kernel's I/O mode of the inode.
    pub(crate) io_mode: IoMode<Arc<Backing>>,
    opens: u32,
    /// Counts the ends of opens.
    released: u32,
    /// Opens that need a name of the file ([`OpenFile::outlives_its_name`]).
    need_name: u32,
    /// Opens through which the kernel may write by itself: passed through, for writing.
    kernel_writers: u32,
    /// Opens for which [`OpenFile::mappable`] holds.
    mappable: u32,
    /// The last open with a grant, by its file handle; it may be released by now.
    last_granted: Option<u64>,
    /// The name of a file that was removed or replaced while it was open. Most files have none, so it takes
    /// no room in the inode.
    hidden: Option<Box<HiddenName>>,
}

/// The name of a file that was removed, or replaced by another, while it was open ("silly rename").
#[derive(Debug, Clone)]
pub(crate) struct HiddenName {
    pub(crate) directory: Handle,
    pub(crate) name: Vec<u8>,
    /// The user who removed the file.
    pub(crate) user: Arc<User>,
}

/// What the end of an open leaves behind.
#[derive(Debug)]
pub(crate) struct Released {
    /// The backing file, if this was the last open that named it.
    pub(crate) backing: Option<Arc<Backing>>,
    /// The hidden name, if this was the last open: it has to be removed.
    pub(crate) hidden: Option<HiddenName>,
}

impl OpenState {
    pub(crate) const fn is_open(&self) -> bool {
        self.opens > 0
    }

    /// Changes with each end of an open.
    pub(crate) const fn released(&self) -> u32 {
        self.released
    }

    /// Whether the file must keep a name.
    pub(crate) const fn needs_name(&self) -> bool {
        self.need_name > 0
    }

    /// Whether the kernel may write by itself.
    pub(crate) const fn has_kernel_writer(&self) -> bool {
        self.kernel_writers > 0
    }

    /// Whether an open can be mapped for writing through the kernel's page cache.
    pub(crate) const fn is_mappable(&self) -> bool {
        self.mappable > 0
    }

    /// The last open with a grant, by its file handle; it may be released by now.
    pub(crate) const fn last_granted(&self) -> Option<u64> {
        self.last_granted
    }

    pub(crate) fn set_last_granted(&mut self, fh: u64) {
        self.last_granted = Some(fh);
    }

    pub(crate) const fn is_hidden(&self) -> bool {
        self.hidden.is_some()
    }

    /// The file has a hidden name now.
    ///
    /// # Errors
    /// Returns the name if the file isn't open any more: it has to be removed at once.
    pub(crate) fn hide(&mut self, hidden: HiddenName) -> Result<(), HiddenName> {
        if !self.is_open() {
            return Err(hidden);
        }
        self.hidden = Some(Box::new(hidden));
        Ok(())
    }

    /// The hidden name, if there is one. It doesn't have to be removed any more.
    pub(crate) fn take_hidden(&mut self) -> Option<HiddenName> {
        self.hidden.take().map(|hidden| *hidden)
    }
}

impl InodeState {
    /// Counts an open. Its I/O mode has been taken already.
    pub(crate) fn open(&mut self, open: &OpenFile) {
        let opens = &mut self.opens;
        opens.opens += 1;
        opens.need_name += u32::from(!open.outlives_its_name);
        opens.mappable += u32::from(open.mappable);
        if open.write {
            self.attributes.open_writer();
            opens.kernel_writers += u32::from(open.hold == IoHold::Passed);
        }
    }

    /// Counts the end of an open.
    pub(crate) fn release(&mut self, open: &OpenFile, now: Instant) -> Released {
        let opens = &mut self.opens;
        let backing = opens.io_mode.release(open.hold);
        opens.mappable -= u32::from(open.mappable);
        if open.write {
            if open.hold == IoHold::Passed {
                opens.kernel_writers -= 1;
                // The kernel may have written without any request to this process.
                self.attributes.note_write(now);
            }
            self.attributes.close_writer();
        }
        opens.opens -= 1;
        opens.released = opens.released.wrapping_add(1);
        opens.need_name -= u32::from(!open.outlives_its_name);
        let hidden = if opens.opens == 0 { opens.take_hidden() } else { None };
        Released { backing, hidden }
    }
}
