//! READ, WRITE and COMMIT, and the descriptors that they keep open.
//!
//! System calls per operation when the node and its descriptor are cached: READ is statx and pread (preadv2
//! where reads without waiting are supported, see `cached_reads`). WRITE is statx and pwrite, a further statx
//! for NFSv3, whose replies have the attributes, and a faccessat2 for users other than the owner and root,
//! because each write changes the ctime that cached permissions depend on.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ::io::{Stability, trace};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::context::UserContext;
use super::io_modes::files;
use super::types::{AccessMode, ReadResult, WriteResult};
use crate::attributes::{Attributes, FileKind, FileStatus, Wcc};
use crate::error::{Error, Result};
use crate::node::{Node, is_program};
use user_ids::as_process_user;

impl UserContext<'_> {
    /// Reads at `offset` into `buffer`. At or beyond the end of the file it returns 0 bytes and `eof`. The
    /// attributes are from before the read, unless the file's size changed meanwhile.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for other files that aren't regular, those of [`UserContext::may`], `Io`.
    pub fn read(&self, node: &Node, offset: u64, buffer: &mut [u8]) -> Result<ReadResult> {
        self.read_or_wait(node, offset, buffer, || {})
    }

    /// As [`UserContext::read`], and calls `will_wait` before waiting for a disk, where the filesystem
    /// supports reads without waiting.
    ///
    /// # Errors
    /// As for [`UserContext::read`].
    pub fn read_or_wait(
        &self,
        node: &Node,
        offset: u64,
        buffer: &mut [u8],
        will_wait: impl FnOnce(),
    ) -> Result<ReadResult> {
        let (file, attributes) = self.read_file(node)?;
        self.read_from(node, &file, attributes, offset, buffer, will_wait)
    }

    /// As [`UserContext::read_or_wait`], from the open file that [`UserContext::read_file`] has returned with
    /// these attributes.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_from(
        &self,
        node: &Node,
        file: &OwnedFd,
        mut attributes: Attributes,
        offset: u64,
        buffer: &mut [u8],
        will_wait: impl FnOnce(),
    ) -> Result<ReadResult> {
        let handle = node.handle().as_bytes();
        trace::read_vector(handle, offset, buffer.len() as u64);
        let count = self.fill(file, offset, buffer, attributes.size, will_wait)?;
        trace::read_io_done(handle, offset, count as u64);
        let end = offset.saturating_add(count as u64);
        if count < buffer.len() && end < attributes.size {
            attributes = self.live(node)?.attributes;
        }
        // Not every short read ends at the end: an error may follow, which the next READ returns. A client
        // takes what is behind the end for zeros.
        let eof = end >= attributes.size || count == 0 && !buffer.is_empty();
        Ok(ReadResult { count, eof, attributes })
    }

    /// The open file, for sending from it without a copy if [`UserContext::can_send`] says so, and its
    /// attributes. Checks permission as [`UserContext::read`] does.
    ///
    /// # Errors
    /// As for [`UserContext::read`].
    pub fn read_file(&self, node: &Node) -> Result<(Arc<OwnedFd>, Attributes)> {
        regular(node)?;
        let status = self.live(node)?;
        self.check(node, &status, AccessMode::Read)?;
        Ok((self.data_file(node, false)?, status.attributes))
    }

    /// Writes `data` at `offset`, at least as durably as requested; [`WriteResult::committed`] is the actual
    /// durability.
    ///
    /// An I/O error or a failed sync changes the write verifier, and the caller replies with the one from
    /// before the call. Writes to one file run concurrently; those that overlap with another change
    /// leave `wcc.before` out.
    ///
    /// # Errors
    /// `FileTooLarge` for an end beyond the largest offset, `NoSpace`, `Quota`, `IsDirectory`, `Invalid` for
    /// other files that aren't regular, those of [`UserContext::may`], `Io`.
    pub fn write(
        &self,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
        stability: Stability,
        wcc: &mut Wcc,
    ) -> Result<WriteResult> {
        // Without the lock: a device that hangs would block a worker for each write to its file.
        self.overlapping(node, wcc, |before| self.write_as_permitted(node, before, offset, data, stability))
    }

    /// As [`UserContext::write`], without the attributes from before and after.
    ///
    /// # Errors
    /// As for [`UserContext::write`].
    pub fn write_without_wcc(
        &self,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteResult> {
        // Changes that overlap with this one have to know that.
        let _turn = self.store.locks.enter(node.fileid());
        let before = self.live(node)?;
        self.change_from(&before, |before| self.write_as_permitted(node, before, offset, data, stability))
    }

    /// The permissions are checked with the status from before the write.
    fn write_as_permitted(
        &self,
        node: &Arc<Node>,
        before: &FileStatus,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteResult> {
        regular(node)?;
        self.check(node, before, AccessMode::Write)?;
        let file = self.data_file(node, true)?;
        let handle = node.handle().as_bytes();
        trace::write_opened(handle, offset, data.len() as u64);
        let written = self.write_to(node, &file, offset, data, stability)?;
        trace::write_io_done(handle, offset, written.count as u64);
        if written.committed != Stability::Unstable {
            self.close_if_program(node, before.attributes.mode);
        }
        Ok(written)
    }

    fn write_to(
        &self,
        node: &Arc<Node>,
        file: &Arc<OwnedFd>,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<WriteResult> {
        let mode = self.store.fallbacks.instead_of(self.modes.write);
        let direct = self.direct_file(node, true, mode)?;
        let write_by = |file: &Arc<OwnedFd>, stability| {
            let files = files(node, file, direct.as_ref());
            ::io::write(files, mode, data, offset, stability, &self.store.fallbacks)
                .map_err(|error| self.failed(node, error, stability))
        };
        let write = |stability| write_by(file, stability);
        if stability == Stability::Unstable {
            if !self.promises {
                return Ok(WriteResult { count: write(stability)?, committed: stability });
            }
            if let Some(_writing) = self.store.nodes.pins.promise(node, file) {
                return Ok(WriteResult { count: write(stability)?, committed: stability });
            }
        }
        // There is no room for a promise, so the data is made durable.
        let committed = stability.max(Stability::DataSync);
        let syncs = node.syncs();
        let sync = || self.store.sync_whole(node, file, committed);
        // Of a call that does both, `ENOSPC` may be the write's error, which loses nothing, or the sync's,
        // which would lose what was promised.
        let at_once = self.store.tree.filesystem.syncs_in_writes && !node.uncommitted().is_pinned();
        let count = if !at_once {
            syncs.write_and_sync(committed, || write(Stability::Unstable), sync)
        } else if let Some(written) = syncs.try_alone(|| write(committed)) {
            written
        } else if let Some(own) = self.own_file(node) {
            write_by(&own, committed).inspect_err(|_| {
                // The shared descriptor has the same error, which isn't that of the next write.
                let _ = syncs.whole(committed, sync);
            })
        } else {
            syncs.alone(|| write(committed))
        };
        Ok(WriteResult { count: count?, committed })
    }

    /// A descriptor for writing of the caller's own, opened now. `None` where it isn't possible: the file is
    /// leased, its mode has changed, or there are too many descriptors.
    fn own_file(&self, node: &Node) -> Option<Arc<OwnedFd>> {
        if node.is_leased() {
            return None;
        }
        self.reopen(node.file(), OFlags::WRONLY).ok().map(Arc::new)
    }

    /// Makes all data written to the file durable. `offset` and `count` (0: to the end) are the range that
    /// the client asked for; the kernel syncs whole files. The attributes before and after are the same,
    /// because a COMMIT changes none.
    ///
    /// # Errors
    /// As for [`UserContext::write`]. When the sync failed the write verifier has changed, and the caller
    /// replies with the one from after the call.
    pub fn commit(&self, node: &Node, offset: u64, count: u64, wcc: &mut Wcc) -> Result<()> {
        let _ = (offset, count);
        let status = self.live(node)?;
        *wcc = Wcc { before: Some(status.attributes), after: Some(status.attributes) };
        regular(node)?;
        self.check(node, &status, AccessMode::Write)?;
        let file = match self.data_file(node, true) {
            // The program is running; a descriptor for reading syncs as well.
            Err(Error::Io(Errno::TXTBSY)) => self.data_file(node, false)?,
            other => other?,
        };
        let all = Stability::FileSync;
        node.syncs().whole(all, || self.store.sync_whole(node, &file, all))?;
        self.close_if_program(node, status.attributes.mode);
        Ok(())
    }

    /// Closes the descriptor for writing of a program whose data is durable. A program can't be executed
    /// while a process has it open for writing (execve(2), `ETXTBSY`), and a client that closed it expects to
    /// execute it. A descriptor that couldn't be opened again stays open.
    pub(super) fn close_if_program(&self, node: &Node, mode: u32) {
        if is_program(mode, self.is_privileged()) {
            self.store.nodes.pins.close_unless_pinned(node);
        }
    }

    /// Converts the error of a write that was to be as durable as `stability`, and changes the write verifier
    /// if uncommitted data may be lost (docs/decisions/enospc-keeps-verifier.md).
    fn failed(&self, node: &Node, error: std::io::Error, stability: Stability) -> Error {
        let error = Error::from(error);
        let reports_write_back = self.store.tree.filesystem.reports_write_back_in_writes;
        let is_refusal = match error {
            Error::Invalid => true,
            Error::FileTooLarge => !reports_write_back,
            Error::NoSpace | Error::Quota => !reports_write_back && stability == Stability::Unstable,
            _ => {
                self.store.write_lost(node, error);
                return error;
            }
        };
        // It may be the error of an earlier write-back, of which no other call will tell. It concerns data of
        // this file: without a promise nothing of that can be lost.
        if !is_refusal && node.uncommitted().is_pinned() {
            self.store.write_lost(node, error);
        }
        error
    }

    /// The node's descriptor for reading or writing. The caller has checked permission.
    pub(super) fn data_file(&self, node: &Node, for_writing: bool) -> Result<Arc<OwnedFd>> {
        let slot = node.data_file(for_writing);
        if let Some(file) = slot.get() {
            return Ok(file);
        }
        let access = if for_writing { OFlags::WRONLY } else { OFlags::RDONLY };
        let file = Arc::new(self.reopen(node.file(), access)?);
        slot.keep(&file, self.store.limits.data);
        Ok(file)
    }

    /// A descriptor for reading something other than data. Under a write lease (see `leases`) it is the
    /// lease's own, because another would break it.
    pub(super) fn open_for_inspection(&self, node: &Node) -> Result<Arc<OwnedFd>> {
        let leased = if node.is_leased() { node.data_file(true).get() } else { None };
        leased.map_or_else(|| self.reopen(node.file(), OFlags::RDONLY).map(Arc::new), Ok)
    }

    /// Opens a file as the user, given an `O_PATH` descriptor. Where the kernel refuses what our check
    /// allowed (an owner against the mode, execute permission for reading) it is opened as the process.
    pub(super) fn reopen(&self, file: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd> {
        let open = || self.open_again(file, access);
        self.assume_ids()?;
        match open() {
            Err(Error::Access) if self.is_privileged() => as_process_user(open),
            result => result,
        }
    }

    /// Opens a file with the thread's current ids, given an `O_PATH` descriptor.
    pub(crate) fn open_again(&self, file: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd> {
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = || openat(&self.store.proc, DecInt::new(file.as_raw_fd()), flags, Mode::empty());
        Ok(self.with_room(open)?)
    }
}

pub(super) fn regular(node: &Node) -> Result<()> {
    match node.kind() {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, SetAttributes};

    /// The lock and the turn simulate a change that hangs in the filesystem.
    #[test]
    fn a_hanging_change_does_not_block_writers() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
        std::fs::write(dir.path().join("f"), b"").expect("writes");
        let store = crate::testing::store(dir.path());
        let context = store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("acts");
        let root = context.node(store.root().as_bytes()).expect("there");
        let node = context.lookup(&root, b"f").expect("there");
        let locks = &store.inner().locks;
        let hangs = (locks.one(node.fileid()), locks.enter(node.fileid()));
        let mut wcc = Wcc::default();
        context.write(&node, 0, b"x", Stability::Unstable, &mut wcc).expect("writes");
        assert_eq!((wcc.before, wcc.after.map(|after| after.size)), (None, Some(1)));
        drop(hangs);
        context.set_attributes(&node, &SetAttributes::default(), None, &mut wcc).expect("sets");
        assert_eq!(wcc.before.map(|before| before.size), Some(1));
    }
}
