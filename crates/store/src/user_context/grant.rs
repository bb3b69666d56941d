//! Grants: open files that are passed to other processes.
//!
//! The holder of a descriptor can open its file again (/proc/self/fd) with its own ids and capabilities, or
//! pass it to a process with more rights. Only the mount of the descriptor limits that. So where the holder
//! could do more with the file than the export allows, a grant for reading comes from the read-only clone of
//! the export's mount: opening it again for writing, and changing its mode or owner, fails with EROFS, also
//! for root.
//!
//! A grant allows no more than open(2) would allow the user (docs/lane.md). The wire allows more, as NFS
//! servers must (RFC 1813 section 4.4): an owner may read and write a file whatever its mode says, and a user
//! who may execute a file may read it.
//!
//! Reading a file in a directory is the common case and has a short path: the name is opened as the user in
//! one step, and the opened file is compared with the one examined before. It needs no node.

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
use crate::inner::HandleScheme;
use crate::name;
use crate::node::Node;
use user_ids::as_process_user;

/// O_NONBLOCK keeps a lease on the file from blocking the open. It is cleared before the file is passed on.
const GRANT_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Which rights the receiver of a grant may have beyond those of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// None.
    Equal,
    /// None itself, but a process that it may pass the file to has: root that is squashed when it asks
    /// itself. Grants for reading come from the read-only clone where there is one.
    Backed,
    /// The receiver itself has more rights. Grants for reading come from the read-only clone or fail.
    Stronger,
}

/// An open file to pass on.
#[derive(Debug)]
pub struct Grant {
    /// A file description of its own, open for exactly the requested access, with no status flags set.
    pub file: OwnedFd,
    /// The file's handle.
    pub handle: FileHandle,
    /// The attributes.
    pub attributes: Attributes,
    /// As long as the file has the ctime in `attributes`, an open by the same user would succeed again.
    pub lasts: bool,
}

/// The result of creating a file to pass on.
#[derive(Debug)]
pub enum CreatedFile {
    /// New, and open for the requested access.
    Open(Arc<Node>, Grant),
    /// Still to be opened: the file existed, or its grant must come from the read-only clone.
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
    /// Opens a file as the user with exactly the requested access, to pass it to another process. The kernel
    /// checks permissions when it opens the file.
    ///
    /// A client with read-only access (see [`crate::Store::as_read_only_user`]) always counts as
    /// [`Holder::Stronger`].
    ///
    /// # Errors
    /// Those of [`UserContext::may`]; `IsDirectory`; `Invalid` for other files that aren't regular;
    /// `NotSupported` when it has to come from a read-only mount and there is none, and for access that
    /// [`UserContext::may`] allows and open(2) doesn't.
    pub fn grant(&self, node: &Node, mode: AccessMode, holder: Holder) -> Result<Grant> {
        regular(node)?;
        let timed_status = self.timed_status(node)?;
        self.grant_with(node, &timed_status, mode, holder)
    }

    /// As [`UserContext::grant`], for the result of [`UserContext::find`].
    ///
    /// # Errors
    /// As for [`UserContext::grant`].
    pub fn grant_found(&self, found: &LookupResult, mode: AccessMode, holder: Holder) -> Result<Grant> {
        match &found.status {
            Some(timed_status) => {
                regular(&found.node)?;
                self.grant_with(&found.node, timed_status, mode, holder)
            }
            None => self.grant(&found.node, mode, holder),
        }
    }

    /// The short path to a grant for reading `name` in `dir`: five system calls, and no descriptor stays open
    /// here. `None` when it isn't applicable or fails; [`UserContext::find`] and [`UserContext::grant_found`]
    /// then return the reason.
    #[must_use]
    pub fn grant_entry(&self, dir: &Node, name: &[u8], holder: Holder) -> Option<Grant> {
        let name = name::any(name).ok().filter(|name| !matches!(name.as_bytes(), b"." | b".."))?;
        // Otherwise a mount may cover the name, or the handle takes more than the file.
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
        // Checked before opening: opening a pipe wakes its writer.
        let asked = Timestamp::now();
        let before = status_at(dir, &name, self.fsid()).ok()?.attributes;
        if before.kind != FileKind::Regular {
            return None;
        }
        let flags = GRANT_FLAGS | OFlags::RDONLY | OFlags::NOFOLLOW;
        let file = openat2(dir, &*name, flags, Mode::empty(), STRICT_RESOLVE).ok()?;
        let status = status(&file, self.fsid()).ok()?;
        let attributes = status.attributes;
        // If the file changed meanwhile, the kernel may have decided by its earlier state.
        if attributes.fileid != before.fileid || attributes.ctime != before.ctime || attributes.nlink == 0 {
            return None;
        }
        let handle = self.store.tree.sealer.kernel(&KernelHandle::of(&file, c"").ok()?)?;
        fcntl_setfl(&file, OFlags::empty()).ok()?;
        let lasts = self.is_proof(&TimedStatus { status, asked });
        Some(Grant { file, handle, attributes, lasts })
    }

    /// As [`UserContext::create`], to pass the file to another process. Returns the descriptor that the file
    /// was created with, if it may be granted: that one is open even if the file's mode forbids a second
    /// open. Otherwise, and for an existing file, returns only the node.
    ///
    /// # Errors
    /// As for [`UserContext::create`]; `NotSupported` as for [`UserContext::grant`], with nothing created.
    pub fn create_granted(
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
                // The descriptor may allow what the mode forbids, so a later open could fail.
                let (attributes, lasts) = (status.attributes, false);
                Ok(CreatedFile::Open(node.clone(), Grant { file, handle: *node.handle(), attributes, lasts }))
            }
            None => Ok(CreatedFile::Closed(node)),
        }
    }

    /// The read-only clone, if this grant has to come from it.
    fn reader_for(&self, mode: AccessMode, holder: Holder) -> Result<Option<&OwnedFd>> {
        let on_one = !self.store.cloned && self.store.attached.is_read_only();
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

    /// The directory on the read-only clone, cached in the node.
    fn reading_side<'n>(&self, dir: &'n Node, reader: &OwnedFd) -> Option<BorrowedFd<'n>> {
        let kept = dir.reader();
        if kept.get().is_none() {
            let HandleContents::Kernel(kernel) = self.store.tree.sealer.open(dir.handle()).ok()? else {
                return None;
            };
            let there = self.open_by_handle(&kernel, Some(reader), PATH_ONLY).ok()?;
            // Another thread may have set it first.
            let _ = kept.set(there);
        }
        kept.get().map(AsFd::as_fd)
    }

    fn grant_with(
        &self,
        node: &Node,
        timed_status: &TimedStatus,
        mode: AccessMode,
        holder: Holder,
    ) -> Result<Grant> {
        let status = &timed_status.status;
        self.check_changeable(status, mode)?;
        let file = match self.reader_for(mode, holder)? {
            Some(reader) => self.open_on(reader, node, status)?,
            None => self.open_for_grant(node.file(), node, status, mode)?,
        };
        // Clears O_NONBLOCK, the only status flag that is set.
        fcntl_setfl(&file, OFlags::empty())?;
        let (attributes, lasts) = (status.attributes, self.is_proof(timed_status));
        Ok(Grant { file, handle: *node.handle(), attributes, lasts })
    }

    /// Opens the file as the user. Fails with `NotSupported` if only the wire's rules allow it.
    fn open_for_grant(
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
        self.open_for_grant(closed.as_fd(), node, status, AccessMode::Read)
    }
}
