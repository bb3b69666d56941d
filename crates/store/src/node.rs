//! One file.
//!
//! A node holds an `O_PATH` descriptor of its file, which is the file whatever happens to its names, and,
//! opened when first needed, one descriptor for reading and one for writing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::attributes::{FileKind, Status, Timestamp, status};
use crate::direct::Direct;
use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId};
use crate::unsynced::{Syncs, Unsynced};

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
    direct: Direct,
    decisions: Mutex<Decisions>,
    /// The cache's tick when it was last used.
    used: AtomicU32,
    unsynced: Unsynced,
    syncs: Syncs,
    /// There is a lease against everybody on the descriptor that is kept.
    leased: AtomicBool,
    /// How often it is held.
    holds: AtomicUsize,
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
            direct: Direct::default(),
            decisions: Mutex::default(),
            used: AtomicU32::new(0),
            unsynced: Unsynced::default(),
            syncs: Syncs::default(),
            leased: AtomicBool::new(false),
            holds: AtomicUsize::new(0),
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

    /// What the kernel says of the file; `Stale` when its last name is gone and nobody holds it.
    pub(crate) fn live(&self, fsid: u64) -> Result<Status> {
        let status = status(&self.file, fsid)?;
        let gone = status.attributes.nlink == 0 && self.holds.load(Ordering::Acquire) == 0;
        if gone { Err(Error::Stale) } else { Ok(status) }
    }

    pub(crate) fn holds(&self) -> &AtomicUsize {
        &self.holds
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

    pub(crate) fn direct(&self) -> &Direct {
        &self.direct
    }

    pub(crate) fn decisions(&self) -> &Mutex<Decisions> {
        &self.decisions
    }

    pub(crate) fn unsynced(&self) -> &Unsynced {
        &self.unsynced
    }

    pub(crate) fn syncs(&self) -> &Syncs {
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

/// How many data descriptors all stores of the process hold.
static DATA_FILES: AtomicUsize = AtomicUsize::new(0);

/// One of the data descriptors that the process may keep, for as long as this lives.
#[derive(Debug)]
pub(crate) struct DataShare(());

impl DataShare {
    /// `None` when the process keeps `limit` already.
    pub fn take(limit: usize) -> Option<DataShare> {
        let before = DATA_FILES.fetch_add(1, Ordering::Relaxed);
        // From here on it is given back.
        let share = DataShare(());
        (before < limit).then_some(share)
    }

    /// Beyond any limit.
    fn insist() -> DataShare {
        DATA_FILES.fetch_add(1, Ordering::Relaxed);
        DataShare(())
    }
}

impl Drop for DataShare {
    fn drop(&mut self) {
        DATA_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot for one descriptor that was opened for data.
#[derive(Debug, Default)]
pub(crate) struct DataFile(Mutex<Option<(Arc<OwnedFd>, DataShare)>>);

impl DataFile {
    pub fn get(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().as_ref().map(|(file, _)| Arc::clone(file))
    }

    pub fn is_kept(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Keeps `file` for the next time, unless the process keeps `limit` already.
    pub fn keep(&self, file: &Arc<OwnedFd>, limit: usize) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = DataShare::take(limit).map(|share| (Arc::clone(file), share));
        }
    }

    /// Keeps `file` unless there is another, whatever the limit.
    pub fn hold(&self, file: &Arc<OwnedFd>) {
        let mut slot = self.0.lock();
        if slot.is_none() {
            *slot = Some((Arc::clone(file), DataShare::insist()));
        }
    }

    pub fn take(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().take().map(|(file, _)| file)
    }
}

/// What the kernel said about users' permissions, true while the file's ctime stands still.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// The ctime for which all of them hold.
    ctime: Timestamp,
    entries: [Decision; 4],
    next: usize,
}

/// One user's permissions as far as they were asked for: bits of `rustix::fs::Access`.
#[derive(Clone, Copy, Debug, Default)]
struct Decision {
    fingerprint: u64,
    known: u32,
    allowed: u32,
}

impl Decisions {
    /// Whether the kernel allowed `bit` to the user; `None` when it wasn't asked.
    pub fn get(&self, ctime: Timestamp, fingerprint: u64, bit: u32) -> Option<bool> {
        if self.ctime != ctime {
            return None;
        }
        let decision = self.entries.iter().find(|entry| entry.fingerprint == fingerprint)?;
        (decision.known & bit != 0).then_some(decision.allowed & bit != 0)
    }

    pub fn put(&mut self, ctime: Timestamp, fingerprint: u64, bit: u32, allowed: bool) {
        if self.ctime != ctime {
            *self = Decisions { ctime, ..Decisions::default() };
        }
        let index =
            self.entries.iter().position(|entry| entry.fingerprint == fingerprint).unwrap_or_else(|| {
                let index = self.next;
                self.next = (index + 1) % self.entries.len();
                self.entries[index] = Decision { fingerprint, known: 0, allowed: 0 };
                index
            });
        let entry = &mut self.entries[index];
        entry.known |= bit;
        if allowed {
            entry.allowed |= bit;
        } else {
            entry.allowed &= !bit;
        }
    }
}

/// Whether a file with this mode may be one that somebody wants to start, and can be opened for writing again
/// after it was closed: without privileges an owner who has taken his own write permission away can't.
pub(crate) fn is_program(mode: u32, privileged: bool) -> bool {
    mode & 0o111 != 0 && (privileged || mode & 0o200 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_holds_for_its_user_and_its_ctime() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 1 };
        let mut decisions = Decisions::default();
        decisions.put(at(5), 1, 4, true);
        decisions.put(at(5), 1, 2, false);
        assert_eq!(decisions.get(at(5), 1, 4), Some(true));
        assert_eq!(decisions.get(at(5), 1, 2), Some(false));
        assert_eq!(decisions.get(at(5), 1, 1), None);
        assert_eq!(decisions.get(at(5), 2, 4), None);
        assert_eq!(decisions.get(at(6), 1, 4), None);
        for user in 2..6 {
            decisions.put(at(5), user, 4, true);
        }
        assert_eq!(decisions.get(at(5), 1, 4), None, "the oldest made room");
        decisions.put(at(6), 9, 4, true);
        assert_eq!(decisions.get(at(6), 5, 4), None, "another ctime, nothing is known");
    }
}
