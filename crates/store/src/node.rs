//! One file.
//!
//! A node preservations an `O_PATH` descriptor of its file, which is the file whatever happens to its names, and,
//! opened when first needed, one descriptor for reading and one for writing.

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
    /// The same on the read-only clone of the mount, for a directory through which files are granted for
    /// reading.
    reader: OnceLock<OwnedFd>,
    read: DataFile,
    write: DataFile,
    direct: DirectFiles,
    permissions: Mutex<PermissionCache>,
    /// The cache's tick when it was last used.
    used: AtomicU32,
    uncommitted: UncommittedState,
    syncs: FileSyncs,
    /// There is a lease against everybody on the descriptor that is kept.
    leased: AtomicBool,
    /// How often it is held.
    preservations: AtomicUsize,
    /// The round of `other_exports` in which it was found in none of them.
    looked_at_in: AtomicU32,
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
            used: AtomicU32::new(0),
            uncommitted: UncommittedState::default(),
            syncs: FileSyncs::default(),
            leased: AtomicBool::new(false),
            preservations: AtomicUsize::new(0),
            looked_at_in: AtomicU32::new(0),
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

    /// What the kernel says of the file; `Stale` when its last name is gone and nobody preservations it.
    pub(crate) fn live(&self, fsid: u64) -> Result<FileStatus> {
        let status = status(&self.file, fsid)?;
        let gone = status.attributes.nlink == 0 && self.preservations.load(Ordering::Acquire) == 0;
        if gone { Err(Error::Stale) } else { Ok(status) }
    }

    pub(crate) fn preservations(&self) -> &AtomicUsize {
        &self.preservations
    }

    pub(crate) fn looked_at_in(&self) -> u32 {
        self.looked_at_in.load(Ordering::Relaxed)
    }

    pub(crate) fn look_at_in(&self, round: u32) {
        self.looked_at_in.store(round, Ordering::Relaxed);
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

    /// Whether what is kept open must stay so (see `leases`).
    pub(crate) fn is_leased(&self) -> bool {
        self.leased.load(Ordering::Acquire)
    }

    pub(crate) fn set_leased(&self, leased: bool) {
        self.leased.store(leased, Ordering::Release);
    }

    pub(crate) fn touch(&self, tick: u32) {
        self.used.store(tick, Ordering::Relaxed);
    }

    /// Ticks since it was last used.
    pub(crate) fn idle(&self, now: u32) -> u32 {
        now.wrapping_sub(self.used.load(Ordering::Relaxed))
    }
}

/// Whether a file with this mode may be one that somebody wants to start, and can be opened for writing again
/// after it was closed: without privileges an owner who has taken his own write permission away can't.
pub(crate) fn is_program(mode: u32, privileged: bool) -> bool {
    mode & 0o111 != 0 && (privileged || mode & 0o200 != 0)
}
