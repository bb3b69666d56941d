//! [`Node`]: one file in use.
//!
//! A node holds an `O_PATH` descriptor, which refers to the file whatever happens to its names. Descriptors
//! for reading and writing are opened when first needed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::attributes::{FileKind, FileStatus, status};
use crate::data_file::{DataFile, DirectFiles};
use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId};
use crate::permission_cache::PermissionCache;
use crate::uncommitted::{FileSyncs, UncommittedState};

/// One file of a store.
#[derive(Debug)]
pub struct Node {
    handle: FileHandle,
    kind: FileKind,
    id: FileId,
    /// `O_PATH`.
    file: OwnedFd,
    /// The same directory on the read-only clone of the mount, through which files are granted for reading.
    reader: OnceLock<OwnedFd>,
    read: DataFile,
    write: DataFile,
    direct: DirectFiles,
    permissions: Mutex<PermissionCache>,
    /// See [`Node::set_unsendable`].
    unsendable: AtomicBool,
    /// The tick of the cache at the last use.
    used: AtomicU32,
    uncommitted: UncommittedState,
    syncs: FileSyncs,
    /// There is a write lease on the kept descriptor.
    leased: AtomicBool,
    /// Number of [`crate::PreservedFile`]s.
    preservations: AtomicUsize,
    /// The round of `nested_exports` in which it was found to be in none of them.
    checked_in_round: AtomicU32,
}

impl Node {
    pub(crate) fn new(handle: FileHandle, id: FileId, kind: FileKind, file: OwnedFd) -> Node {
        Node {
            handle,
            kind,
            id,
            file,
            reader: OnceLock::new(),
            read: DataFile::default(),
            write: DataFile::default(),
            direct: DirectFiles::default(),
            permissions: Mutex::default(),
            unsendable: AtomicBool::new(false),
            used: AtomicU32::new(0),
            uncommitted: UncommittedState::default(),
            syncs: FileSyncs::default(),
            leased: AtomicBool::new(false),
            preservations: AtomicUsize::new(0),
            checked_in_round: AtomicU32::new(0),
        }
    }

    /// The handle.
    #[must_use]
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// The type; it never changes.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// The inode number.
    #[must_use]
    pub fn fileid(&self) -> u64 {
        self.id.fileid
    }

    /// The device number of the filesystem, and the inode number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn place(&self) -> Result<(u64, u64)> {
        let found = rustix::fs::fstat(&self.file)?;
        Ok((found.st_dev, found.st_ino))
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn reader(&self) -> &OnceLock<OwnedFd> {
        &self.reader
    }

    /// The file's status; `Stale` when its last name is gone and it isn't preserved.
    pub(crate) fn live(&self, fsid: u64) -> Result<FileStatus> {
        let status = status(&self.file, fsid)?;
        let gone = status.attributes.nlink == 0 && self.preservations.load(Ordering::Acquire) == 0;
        if gone { Err(Error::Stale) } else { Ok(status) }
    }

    pub(crate) fn preservations(&self) -> &AtomicUsize {
        &self.preservations
    }

    pub(crate) fn checked_in_round(&self) -> u32 {
        self.checked_in_round.load(Ordering::Relaxed)
    }

    pub(crate) fn set_checked_in_round(&self, round: u32) {
        self.checked_in_round.store(round, Ordering::Relaxed);
    }

    pub(crate) fn data_file(&self, for_writing: bool) -> &DataFile {
        if for_writing { &self.write } else { &self.read }
    }

    pub(crate) fn direct(&self) -> &DirectFiles {
        &self.direct
    }

    pub(crate) fn permissions(&self) -> &Mutex<PermissionCache> {
        &self.permissions
    }

    pub(crate) fn uncommitted(&self) -> &UncommittedState {
        &self.uncommitted
    }

    pub(crate) fn syncs(&self) -> &FileSyncs {
        &self.syncs
    }

    /// Whether the data descriptors must stay open (see `leases`).
    pub(crate) fn is_leased(&self) -> bool {
        self.leased.load(Ordering::Acquire)
    }

    pub(crate) fn set_leased(&self, leased: bool) {
        self.leased.store(leased, Ordering::Release);
    }

    /// The file couldn't be read while it was sent without a copy, in the middle of a reply. Until the node
    /// leaves the cache the file isn't sent so any more ([`UserContext::can_send`]).
    ///
    /// [`UserContext::can_send`]: crate::UserContext::can_send
    pub fn set_unsendable(&self) {
        if !self.unsendable.swap(true, Ordering::Relaxed) {
            tracing::warn!(handle = ?self.handle, "reading failed: the file isn't sent by sendfile any more");
        }
    }

    pub(crate) fn is_unsendable(&self) -> bool {
        self.unsendable.load(Ordering::Relaxed)
    }

    pub(crate) fn touch(&self, tick: u32) {
        self.used.store(tick, Ordering::Relaxed);
    }

    /// Ticks since the last use.
    pub(crate) fn idle(&self, now: u32) -> u32 {
        now.wrapping_sub(self.used.load(Ordering::Relaxed))
    }
}

/// Whether a file with this mode may be a program, and can be opened for writing again after closing. Without
/// privileges an owner without write permission can't do that.
pub(crate) fn is_program(mode: u32, privileged: bool) -> bool {
    mode & 0o111 != 0 && (privileged || mode & 0o200 != 0)
}
