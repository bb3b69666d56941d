//! Giving open files away.
//!
//! Whoever holds a descriptor can open its file again (/proc/self/fd) with ids and capabilities of his own,
//! or pass it to somebody who has more. The one thing that stops him is the mount that the descriptor belongs
//! to. So where the holder could do more with the file than the export lets him, what is granted for reading
//! comes from the read-only clone of the export's mount: opening it again for writing, and changing its mode
//! or owner, fails with EROFS, also for root.
//!
//! What open(2) would refuse the user isn't given away, for that is the promise (docs/lane.md). The wire
//! allows more, as NFS servers have to (RFC 1813 section 4.4): an owner may read and write whatever his
//! file's mode says, and who may execute a file may read it.
//!
//! The reading of a file in a directory is the common case and has a short way of its own: the name is opened
//! as the user in one step, and what was opened is compared with what was looked at. No node is made for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fcntl_setfl, fstat, openat2};
use sys::KernelHandle;

use super::context::UserContext;
use super::data::regular;
use super::types::{AccessMode, CreateHow, LookupResult};
use crate::attributes::{Attributes, FileKind, FileStatus, TimedStatus, Timestamp, Wcc, status, status_at};
use crate::error::{Error, Result};
use crate::export_tree::open_path_from;
use crate::export_tree::{PATH_ONLY, STRICT_RESOLVE};
use crate::handle::{FileHandle, HandleContents};
use crate::identity::as_process_user;
use crate::inner::HandleScheme;
use crate::name;
use crate::node::Node;

/// O_NONBLOCK so that a lease on the file can't make us wait; it is switched off before the file is given
/// away.
const TO_GIVE: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// What may stand behind a descriptor that is given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody who could do more with the file than he may do through the store.
    Equal,
    /// The holder couldn't, but a process to which he passes it might: root that is squashed when it asks
    /// itself. Granted for reading through the read-only clone where there is one.
    Backed,
    /// The holder himself could. Granted for reading through the read-only clone, or not at all.
    Stronger,
}

/// An open file to give away.
#[derive(Debug)]
pub struct Grant {
    /// A file description of its own, open for exactly what was asked. None of the flags that change how
    /// reads and writes work are set.
    pub file: OwnedFd,
    /// The file's handle.
    pub handle: FileHandle,
    /// The attributes.
    pub attributes: Attributes,
    /// As long as the file's ctime is that of the attributes nothing has changed since, so that an open of
    /// the same user would succeed again.
    pub lasts: bool,
}

/// A file that was to be made and given away.
#[derive(Debug)]
pub enum CreatedFile {
    /// New, and open for what was asked.
    Open(Arc<Node>, Grant),
    /// To be opened yet: it was there, or has to be opened another way.
    Closed(Arc<Node>),
}

const fn access(mode: AccessMode) -> OFlags {
    match mode {
        AccessMode::Read => OFlags::RDONLY,
        AccessMode::Write => OFlags::WRONLY,
        AccessMode::ReadWrite => OFlags::RDWR,
    }
}

impl UserContext<'_> {
    /// Opens a file as the user, with exactly the access asked, to hand it to another process.
    ///
    /// A client that may only read (see [`crate::Store::as_read_only_user`]) counts as [`Holder::Stronger`] than
    /// his rights, whoever he is.
    ///
    /// The kernel decides, when it opens the file.
    ///
    /// # Errors
    /// What [`UserContext::may`] says, `IsDirectory`, `Invalid` for other files that aren't regular,
    /// `NotSupported` when it has to come from a read-only mount and there is none, and for what
    /// [`UserContext::may`] allows and open(2) doesn't.
    pub fn grant(&self, node: &Node, mode: AccessMode, holder: Holder) -> Result<Grant> {
        regular(node)?;
        let look = self.look(node)?;
        self.grant_with(node, &look, mode, holder)
    }

    /// As [`UserContext::grant`], for what [`UserContext::find`] has just found.
    ///
    /// # Errors
    /// As for [`UserContext::grant`].
    pub fn grant_found(&self, found: &LookupResult, mode: AccessMode, holder: Holder) -> Result<Grant> {
        match &found.look {
            Some(look) => {
                regular(&found.node)?;
                self.grant_with(&found.node, look, mode, holder)
            }
            None => self.grant(&found.node, mode, holder),
        }
    }

    /// The short way to a grant for reading the file `name` in `dir`: five system calls, and nothing stays
    /// open here. `None` when it can't be gone or doesn't lead to a grant; [`UserContext::find`] and
    /// [`UserContext::grant_found`] then say why.
    #[must_use]
    pub fn grant_entry(&self, dir: &Node, name: &[u8], holder: Holder) -> Option<Grant> {
        let name = name::any(name).ok().filter(|name| !matches!(name.as_bytes(), b"." | b".."))?;
        // Elsewhere something may be mounted on the name, or a handle takes more than the file.
        if dir.kind() != FileKind::Directory
            || !self.store.cloned
            || !matches!(self.store.scheme, HandleScheme::Kernel)
        {
            return None;
        }
        let dir = match self.reader_for(AccessMode::Read, holder).ok()? {
            Some(reader) => self.reading_side(dir, reader)?,
            None => dir.file(),
        };
        self.assume_ids().ok()?;
        // Looked at before it is opened: opening a pipe wakes whoever waits for a reader.
        let asked = Timestamp::now();
        let before = status_at(dir, &name, self.fsid()).ok()?.attributes;
        if before.kind != FileKind::Regular {
            return None;
        }
        let flags = TO_GIVE | OFlags::RDONLY | OFlags::NOFOLLOW;
        let file = openat2(dir, &*name, flags, Mode::empty(), STRICT_RESOLVE).ok()?;
        let status = status(&file, self.fsid()).ok()?;
        let attributes = status.attributes;
        // If it changed meanwhile the kernel may have decided about what it was.
        if attributes.fileid != before.fileid || attributes.ctime != before.ctime || attributes.nlink == 0 {
            return None;
        }
        let handle = self.store.tree.sealer.kernel(&KernelHandle::of(&file, c"").ok()?)?;
        fcntl_setfl(&file, OFlags::empty()).ok()?;
        let lasts = self.is_proof(&TimedStatus { status, asked });
        Some(Grant { file, handle, attributes, lasts })
    }

    /// As [`UserContext::create`], to hand the file to another process: the descriptor that it was made with, as
    /// far as that is what is asked for; it does what its mode may forbid the next one. Otherwise, and where
    /// the file was there before, only the file.
    ///
    /// # Errors
    /// As for [`UserContext::create`]; `NotSupported` as for [`UserContext::grant`], with nothing made.
    pub fn create_to_give(
        &self,
        dir: &Node,
        name: &[u8],
        how: &CreateHow,
        (mode, holder): (AccessMode, Holder),
        wcc: &mut Wcc,
    ) -> Result<CreatedFile> {
        let on_clone = self.reader_for(mode, holder)?.is_some();
        let (node, file) = self.create_open(dir, name, how, access(mode), wcc)?;
        match file.filter(|_| !on_clone) {
            Some(file) => {
                let status = self.live(&node)?;
                // What made it may do what the file's mode forbids the next one.
                let (attributes, lasts) = (status.attributes, false);
                Ok(CreatedFile::Open(node.clone(), Grant { file, handle: *node.handle(), attributes, lasts }))
            }
            None => Ok(CreatedFile::Closed(node)),
        }
    }

    /// The read-only clone, where this grant has to come from it.
    fn reader_for(&self, mode: AccessMode, holder: Holder) -> Result<Option<&OwnedFd>> {
        let on_one =
            if self.store.cloned { self.store.read_only } else { self.store.attached.is_read_only() };
        if mode != AccessMode::Read || on_one {
            return Ok(None);
        }
        let reader = self.store.reader.as_ref();
        let must = self.read_only || holder == Holder::Stronger;
        if must && reader.is_none() {
            return Err(Error::NotSupported);
        }
        Ok(reader.filter(|_| must || holder == Holder::Backed))
    }

    /// The directory on the read-only clone; kept with the node.
    fn reading_side<'n>(&self, dir: &'n Node, reader: &OwnedFd) -> Option<BorrowedFd<'n>> {
        let kept = dir.reader();
        if kept.get().is_none() {
            let HandleContents::Kernel(kernel) = self.store.tree.sealer.open(dir.handle()).ok()? else {
                return None;
            };
            let there = self.open_by_handle(&kernel, Some(reader), PATH_ONLY).ok()?;
            // Another thread may have been faster.
            let _ = kept.set(there);
        }
        kept.get().map(AsFd::as_fd)
    }

    fn grant_with(&self, node: &Node, look: &TimedStatus, mode: AccessMode, holder: Holder) -> Result<Grant> {
        let status = &look.status;
        self.check_changeable(status, mode)?;
        let file = match self.reader_for(mode, holder)? {
            Some(reader) => self.open_on(reader, node, status)?,
            None => self.open_to_give(node.file(), node, status, mode)?,
        };
        // Of what can be switched, nothing else is on.
        fcntl_setfl(&file, OFlags::empty())?;
        let (attributes, lasts) = (status.attributes, self.is_proof(look));
        Ok(Grant { file, handle: *node.handle(), attributes, lasts })
    }

    /// Opens what the kernel opens for the user. When it refuses, the wire may allow more.
    fn open_to_give(
        &self,
        closed: BorrowedFd<'_>,
        node: &Node,
        status: &FileStatus,
        mode: AccessMode,
    ) -> Result<OwnedFd> {
        self.assume_ids()?;
        match self.open_again(closed, access(mode)) {
            Err(Error::Access) => {
                self.check(node, status, mode)?;
                Err(Error::NotSupported)
            }
            other => other,
        }
    }

    /// Opens the file for reading on the read-only clone.
    fn open_on(&self, reader: &OwnedFd, node: &Node, status: &FileStatus) -> Result<OwnedFd> {
        let closed = match (self.store.tree.sealer.open(node.handle())?, &self.store.scheme) {
            (HandleContents::Kernel(kernel), HandleScheme::Kernel) => {
                self.open_by_handle(&kernel, Some(reader), PATH_ONLY)?
            }
            _ => {
                let path = self.known_path(node.id()).ok_or(Error::NotSupported)?;
                let closed = as_process_user(|| open_path_from(reader, &path))?;
                if fstat(&closed)?.st_ino != node.fileid() {
                    return Err(Error::NotSupported);
                }
                closed
            }
        };
        self.open_to_give(closed.as_fd(), node, status, AccessMode::Read)
    }
}
