//! One file, and the cache of those in use.
//!
//! A node holds an `O_PATH` descriptor of its file, which is the file whatever happens to its names, and, opened when first
//! needed, one descriptor for reading and one for writing. A deleted file's space stays taken while any of them is open, so
//! nodes don't live on their own account:
//!
//! 1. A node is made by a look-up or from a handle, and stays in the cache under its handle.
//! 2. Any operation that finds the link count at 0 takes it out and answers `Stale`.
//! 3. The tidying thread (see `tidy`) closes data descriptors idle for some seconds (those that keep a program from being
//!    started sooner), takes out nodes whose file is gone and those idle for longer.
//! 4. What is in use when its node leaves the cache is closed with the last use.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::attributes::{Kind, Status, status};
use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId};

/// One file of a store.
#[derive(Debug)]
pub struct Node {
    handle: FileHandle,
    kind: Kind,
    id: FileId,
    /// `O_PATH`.
    file: OwnedFd,
    read: DataFile,
    write: DataFile,
    decisions: Mutex<Decisions>,
    used: AtomicU32,
    /// Unstable data may be in the page cache: the descriptor for writing must live to see an error of the write-back.
    dirty: AtomicBool,
}

impl Node {
    pub(crate) fn new(handle: FileHandle, id: FileId, kind: Kind, file: OwnedFd) -> Node {
        Node {
            handle,
            kind,
            id,
            file,
            read: DataFile::default(),
            write: DataFile::default(),
            decisions: Mutex::default(),
            used: AtomicU32::new(0),
            dirty: AtomicBool::new(false),
        }
    }

    /// The handle.
    #[must_use]
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// The type; it never changes.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The inode number.
    #[must_use]
    pub fn fileid(&self) -> u64 {
        self.id.fileid
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What the kernel says of the file; `Stale` when its last name is gone.
    pub(crate) fn live(&self, fsid: u64) -> Result<Status> {
        let status = status(&self.file, fsid)?;
        if status.attributes.nlink == 0 { Err(Error::Stale) } else { Ok(status) }
    }

    pub(crate) fn data_file(&self, for_writing: bool) -> &DataFile {
        if for_writing { &self.write } else { &self.read }
    }

    pub(crate) fn decisions(&self) -> &Mutex<Decisions> {
        &self.decisions
    }

    pub(crate) fn set_dirty(&self, dirty: bool) {
        self.dirty.store(dirty, Ordering::Release);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }
}

/// How many data descriptors all stores of the process hold.
static DATA_FILES: AtomicUsize = AtomicUsize::new(0);

/// A slot for one descriptor that was opened for data.
#[derive(Debug, Default)]
pub(crate) struct DataFile(Mutex<Option<Arc<OwnedFd>>>);

impl DataFile {
    pub fn get(&self) -> Option<Arc<OwnedFd>> {
        self.0.lock().clone()
    }

    pub fn is_kept(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Keeps `file` for the next time, unless the process keeps `limit` already.
    pub fn keep(&self, file: &Arc<OwnedFd>, limit: usize) {
        let mut slot = self.0.lock();
        if slot.is_none() && DATA_FILES.fetch_add(1, Ordering::Relaxed) < limit {
            *slot = Some(Arc::clone(file));
        } else if slot.is_none() {
            DATA_FILES.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn take(&self) -> Option<Arc<OwnedFd>> {
        let taken = self.0.lock().take();
        if taken.is_some() {
            DATA_FILES.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        self.take();
    }
}

/// What the kernel said about users' permissions, true while the file's ctime stands still.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// ctime, as [`crate::Attributes::change`], for which all of them hold.
    change: u64,
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
    pub fn get(&self, change: u64, fingerprint: u64, bit: u32) -> Option<bool> {
        if self.change != change {
            return None;
        }
        let decision = self.entries.iter().find(|entry| entry.fingerprint == fingerprint)?;
        (decision.known & bit != 0).then_some(decision.allowed & bit != 0)
    }

    pub fn put(&mut self, change: u64, fingerprint: u64, bit: u32, allowed: bool) {
        if self.change != change {
            *self = Decisions { change, ..Decisions::default() };
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

/// The nodes in use, at most as many as it was made for.
#[derive(Debug)]
pub(crate) struct NodeCache {
    nodes: Cache<FileHandle, Arc<Node>>,
    /// Goes up with every round of tidying.
    tick: AtomicU32,
}

/// Rounds (seconds) for which an idle data descriptor is kept.
const DATA_IDLE: u32 = 3;
/// The same for one through which unstable data went: the kernel writes back within 30 s.
const DIRTY_IDLE: u32 = 45;
/// The same for one that keeps a program from being started; 2 is at least one second.
const PROGRAM_IDLE: u32 = 2;
/// Rounds for which an idle node is kept.
const NODE_IDLE: u32 = 60;
/// Every so many rounds all nodes are asked whether their file still exists.
const GONE_EVERY: u32 = 4;

impl NodeCache {
    pub fn new(capacity: usize) -> NodeCache {
        NodeCache { nodes: Cache::new(capacity.max(8)), tick: AtomicU32::new(0) }
    }

    pub fn get(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        let node = self.nodes.get(handle)?;
        node.used.store(self.tick.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(node)
    }

    /// The node for its handle: the one that is there already, or this.
    pub fn put(&self, node: Node) -> Arc<Node> {
        if let Some(existing) = self.get(&node.handle) {
            return existing;
        }
        node.used.store(self.tick.load(Ordering::Relaxed), Ordering::Relaxed);
        let node = Arc::new(node);
        self.nodes.insert(*node.handle(), Arc::clone(&node));
        node
    }

    pub fn remove(&self, handle: &FileHandle) {
        self.nodes.remove(handle);
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// One round of tidying; `sync_failed` is told when unstable data turned out to be lost.
    pub fn tidy(&self, privileged: bool, sync_failed: &dyn Fn()) {
        if self.nodes.is_empty() {
            return;
        }
        let now = self.tick.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut syncs = Vec::new();
        let mut out = Vec::new();
        for (handle, node) in self.nodes.iter() {
            let idle = now.wrapping_sub(node.used.load(Ordering::Relaxed));
            let dirty = node.is_dirty();
            if idle >= NODE_IDLE || (now.is_multiple_of(GONE_EVERY) && is_gone(&node)) {
                out.push(handle);
            }
            if idle >= DATA_IDLE {
                node.read.take();
            }
            let program = || node.live(0).is_ok_and(|status| is_program(status.attributes.mode, privileged));
            if idle >= if dirty { DIRTY_IDLE } else { DATA_IDLE }
                || (idle >= PROGRAM_IDLE && node.write.is_kept() && program())
            {
                let file = node.write.take();
                if dirty {
                    node.set_dirty(false);
                    syncs.extend(file);
                }
            }
        }
        for handle in out {
            self.nodes.remove(&handle);
        }
        for file in syncs {
            if ::io::sync(&*file, ::io::Stability::DataSync).is_err() {
                sync_failed();
            }
        }
    }
}

/// Whether a file with this mode may be one that somebody wants to start, and can be opened for writing again after it was closed: without
/// privileges an owner who has taken his own write permission away can't.
pub(crate) fn is_program(mode: u32, privileged: bool) -> bool {
    mode & 0o111 != 0 && (privileged || mode & 0o200 != 0)
}

fn is_gone(node: &Node) -> bool {
    node.live(0).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_holds_for_its_user_and_its_ctime() {
        let mut decisions = Decisions::default();
        decisions.put(5, 1, 4, true);
        decisions.put(5, 1, 2, false);
        assert_eq!(decisions.get(5, 1, 4), Some(true));
        assert_eq!(decisions.get(5, 1, 2), Some(false));
        assert_eq!(decisions.get(5, 1, 1), None);
        assert_eq!(decisions.get(5, 2, 4), None);
        assert_eq!(decisions.get(6, 1, 4), None);
        for user in 2..6 {
            decisions.put(5, user, 4, true);
        }
        assert_eq!(decisions.get(5, 1, 4), None, "the oldest made room");
        decisions.put(6, 9, 4, true);
        assert_eq!(decisions.get(6, 5, 4), None, "another ctime, nothing is known");
    }
}
