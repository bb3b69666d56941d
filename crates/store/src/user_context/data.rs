//! Reading, writing, committing: everything that needs a file open for data and keeps it. Giving it away is
//! `grant`'s.
//!
//! What the hot calls cost when the node and its descriptor are there: READ is statx and pread (preadv2 where
//! the filesystem can be asked not to wait, see `cold`). WRITE is statx, pwrite, statx, and a faccessat2 for
//! users other than the owner and root, because each write moves the ctime that the kept answers hang on.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ::io::{Stability, trace};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::context::UserContext;
use super::io_modes::files;
use super::types::{AccessMode, ReadResult, WriteResult};
use crate::attributes::{Attributes, FileKind, Wcc};
use crate::error::{Error, Result};
use crate::identity::as_process_user;
use crate::node::{Node, is_program};

impl UserContext<'_> {
    /// Reads at `offset` into `buffer`. Beyond the end of the file, however far, 0 bytes and `eof`. The
    /// attributes are from before the read, unless the file changed its size meanwhile.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` for other files that aren't regular, what [`UserContext::may`] says, `Io`.
    pub fn read(&self, node: &Node, offset: u64, buffer: &mut [u8]) -> Result<ReadResult> {
        self.read_or_wait(node, offset, buffer, || {})
    }

    /// As [`UserContext::read`], and calls `will_wait` before it waits for a disk. Where the filesystem can't be
    /// asked whether it would wait it isn't called.
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
        let (file, mut attributes) = self.read_file(node)?;
        let handle = node.handle().as_bytes();
        trace::read_vector(handle, offset, buffer.len() as u64);
        let count = self.fill(&file, offset, buffer, attributes.size, will_wait)?;
        trace::read_io_done(handle, offset, count as u64);
        let end = offset.saturating_add(count as u64);
        if count < buffer.len() && end < attributes.size {
            attributes = self.live(node)?.attributes;
        }
        Ok(ReadResult { count, eof: count < buffer.len() || end >= attributes.size, attributes })
    }

    /// The open file, for sending from it without a copy (see [`UserContext::warm`]), and its attributes, after
    /// the same check as [`UserContext::read`] makes.
    ///
    /// # Errors
    /// As for [`UserContext::read`].
    pub fn read_file(&self, node: &Node) -> Result<(Arc<OwnedFd>, Attributes)> {
        regular(node)?;
        let status = self.live(node)?;
        self.check(node, &status, AccessMode::Read)?;
        Ok((self.data_file(node, false)?, status.attributes))
    }

    /// Writes `data` at `offset`, as durable as asked or more: [`WriteResult::committed`] says which.
    ///
    /// A failure of the device or of the sync changes the write verifier; the caller answers with the one
    /// from before the call. Writes to one file go on side by side; those that overlapped with another change
    /// leave `wcc.before` out.
    ///
    /// # Errors
    /// `FileTooLarge` for an end beyond the largest offset, `NoSpace`, `Quota`, `IsDirectory`, `Invalid` for
    /// other files that aren't regular, what [`UserContext::may`] says, `Io`.
    pub fn write(
        &self,
        node: &Arc<Node>,
        offset: u64,
        data: &[u8],
        stability: Stability,
        wcc: &mut Wcc,
    ) -> Result<WriteResult> {
        // Not under the lock: one device that hangs would take as many workers as there are writes to its
        // file.
        let written = self.overlapping(node, wcc, |before| {
            regular(node)?;
            self.check(node, before, AccessMode::Write)?;
            let file = self.data_file(node, true)?;
            trace::write_opened(node.handle().as_bytes(), offset, data.len() as u64);
            self.write_to(node, &file, offset, data, stability)
        })?;
        trace::write_io_done(node.handle().as_bytes(), offset, written.count as u64);
        if written.committed != Stability::Unstable
            && let Some(after) = &wcc.after
        {
            self.let_run(node, after.mode);
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
        let write = |stability| {
            let at_once =
                if self.store.tree.filesystem.syncs_in_writes { stability } else { Stability::Unstable };
            ::io::write(
                files(node, file, direct.as_ref()),
                mode,
                data,
                offset,
                at_once,
                &self.store.fallbacks,
            )
            .map_err(|error| self.failed(node, error, stability))
        };
        if stability == Stability::Unstable {
            if !self.promises {
                return Ok(WriteResult { count: write(stability)?, committed: stability });
            }
            if let Some(_writing) = self.store.nodes.pins.promise(node, file) {
                return Ok(WriteResult { count: write(stability)?, committed: stability });
            }
        }
        // What can't be promised is done.
        let committed = stability.max(Stability::DataSync);
        let count = node.syncs().in_write(|| write(committed))?;
        if !self.store.tree.filesystem.syncs_in_writes {
            node.syncs().whole(committed, || self.store.sync_whole(node, file, committed))?;
        }
        Ok(WriteResult { count, committed })
    }

    /// Makes all that was written to the file durable. `offset` and `count` (0: to the end) say which part
    /// the client means; the kernel syncs whole files. The attributes before and after are the same: a COMMIT
    /// changes none.
    ///
    /// # Errors
    /// As for [`UserContext::write`]. When the sync failed the write verifier has changed; the caller answers with
    /// the one from after the call.
    pub fn commit(&self, node: &Node, offset: u64, count: u64, wcc: &mut Wcc) -> Result<()> {
        let _ = (offset, count);
        let status = self.live(node)?;
        *wcc = Wcc { before: Some(status.attributes), after: Some(status.attributes) };
        regular(node)?;
        self.check(node, &status, AccessMode::Write)?;
        let file = match self.data_file(node, true) {
            // It runs already; a descriptor for reading syncs as well.
            Err(Error::Io(Errno::TXTBSY)) => self.data_file(node, false)?,
            other => other?,
        };
        let all = Stability::FileSync;
        node.syncs().whole(all, || self.store.sync_whole(node, &file, all))?;
        self.let_run(node, status.attributes.mode);
        Ok(())
    }

    /// A program can't be started while anybody has it open for writing (execve(2), `ETXTBSY`), and a client
    /// that has closed it expects that it can. So what was written through the kept descriptor being safe, it
    /// is closed. What can't be opened again stays.
    pub(super) fn let_run(&self, node: &Node, mode: u32) {
        if is_program(mode, self.is_privileged()) {
            self.store.nodes.pins.close_unless_pinned(node);
        }
    }

    /// A write's error in words. What failed in the device, or in the sync that was part of the write, may
    /// have been somebody's unstable data; a full disk that says so at once has lost none.
    fn failed(&self, node: &Node, error: std::io::Error, stability: Stability) -> Error {
        let error = Error::from(error);
        let refused = matches!(error, Error::NoSpace | Error::Quota) && stability == Stability::Unstable;
        if !refused && !matches!(error, Error::FileTooLarge | Error::Invalid) {
            self.store.write_lost(node, error);
        }
        error
    }

    /// The node's descriptor for reading or for writing. The check has been made.
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

    /// A file open for reading, for something other than data: where there is a lease against everybody (see
    /// `leases`), the descriptor that it is on, for another would break it.
    pub(super) fn open_to_look(&self, node: &Node) -> Result<Arc<OwnedFd>> {
        let leased = if node.is_leased() { node.data_file(true).get() } else { None };
        leased.map_or_else(|| self.reopen(node.file(), OFlags::RDONLY).map(Arc::new), Ok)
    }

    /// Opens a file of which we have an `O_PATH` descriptor, as the user. Where the kernel refuses what our
    /// check allowed (an owner against his mode, execute permission for reading) as the process.
    pub(super) fn reopen(&self, file: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd> {
        let open = || self.open_again(file, access);
        self.assume_ids()?;
        match open() {
            Err(Error::Access) if self.is_privileged() => as_process_user(open),
            result => result,
        }
    }

    /// Opens a file of which we have an `O_PATH` descriptor, as whoever the thread is.
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

    /// The lock and the turn stand for a change that hangs in the filesystem.
    #[test]
    fn a_change_that_hangs_keeps_no_writer_waiting() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
        std::fs::write(dir.path().join("f"), b"").expect("writes");
        let store = crate::testing::store(dir.path());
        let acting = store.as_user(&Identity { uid: 0, gid: 0, groups: vec![] }).expect("acts");
        let root = acting.node(store.root().as_bytes()).expect("there");
        let node = acting.lookup(&root, b"f").expect("there");
        let locks = &store.inner().locks;
        let hangs = (locks.one(node.fileid()), locks.enter(node.fileid()));
        let mut wcc = Wcc::default();
        acting.write(&node, 0, b"x", Stability::Unstable, &mut wcc).expect("writes");
        assert_eq!((wcc.before, wcc.after.map(|after| after.size)), (None, Some(1)));
        drop(hangs);
        acting.set_attributes(&node, &SetAttributes::default(), None, &mut wcc).expect("sets");
        assert_eq!(wcc.before.map(|before| before.size), Some(1));
    }
}
