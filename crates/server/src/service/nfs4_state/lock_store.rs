//! Locks that outlive the process, kept by the service manager with the open files that hold them.
//!
//! An open-file-description lock is released with the last descriptor of its description. If the server is
//! killed, all of them would be released, and a local process could take a lock before the NFS client that
//! held it can reclaim it. systemd keeps descriptors for a service (sd_notify(3), `FDSTORE=1`) and passes
//! them to the service's next process (sd_listen_fds(3)). Each open file with locks is therefore stored
//! there, under a name that identifies its owner, and removed when its locks are released.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The prefix of the names of all stored descriptors.
const NAME: &str = "nfs4-locks";

/// The name of a descriptor that says that the process which stored it has kept its locks. It has no owner.
/// On a server of a cluster it is a locked file (`lifecycle::cluster::session`).
const MARK: &str = "nfs4-locks-0-mark";

/// The service manager's store of open files with locks.
#[derive(Debug)]
pub struct LockStore {
    manager: SocketAddr,
    /// How many more descriptors it accepts.
    room: AtomicUsize,
    /// The descriptors that the previous process has left, by name.
    inherited: Mutex<Vec<(String, OwnedFd)>>,
    /// The previous process has kept its locks here.
    has_mark: bool,
    /// The mark: at first that of the previous process.
    mark: Mutex<Option<OwnedFd>>,
    /// This process says that it keeps its locks here.
    is_marked: AtomicBool,
    /// Whether this process leaves its descriptors to the next one.
    left: AtomicBool,
    /// What the manager was too busy to be told.
    removals: Mutex<Removals>,
    /// A random number, so that this process's names differ from those of other processes.
    process: u64,
    next: AtomicU64,
}

/// Descriptors that the manager is to remove. It keeps each of them in one of its places, so there are no
/// more of them than places.
#[derive(Debug, Default)]
struct Removals {
    names: VecDeque<String>,
    /// Whether a thread waits for the manager.
    is_waiting: bool,
}

/// Whether a descriptor passed by the service manager holds locks, by its name.
#[must_use]
pub fn is_lock(name: &str) -> bool {
    parse(name).is_some()
}

/// The owner of the locks, from a name.
fn parse(name: &str) -> Option<u64> {
    let owner = name.strip_prefix(NAME)?.strip_prefix('-')?.split('-').next()?;
    u64::from_str_radix(owner, 16).ok()
}

impl LockStore {
    /// The manager that listens at this address (`NOTIFY_SOCKET`) and accepts `most` descriptors
    /// (`FileDescriptorStoreMax=`). `inherited` are the descriptors that it has passed, by name; those for
    /// which [`is_lock`] is false are ignored.
    #[must_use]
    pub fn new(manager: SocketAddr, most: usize, inherited: Vec<(String, OwnedFd)>) -> Self {
        let (marks, inherited): (Vec<_>, Vec<_>) = inherited.into_iter().partition(|(name, _)| name == MARK);
        let mut process = [0; 8];
        // Without random numbers a name might repeat, and a wrong descriptor be removed.
        let _ = getrandom::fill(&mut process);
        Self {
            manager,
            room: AtomicUsize::new(most.saturating_sub(inherited.len() + marks.len())),
            inherited: Mutex::new(inherited),
            has_mark: !marks.is_empty(),
            is_marked: AtomicBool::new(!marks.is_empty()),
            mark: Mutex::new(marks.into_iter().next().map(|(_, mark)| mark)),
            left: AtomicBool::new(false),
            removals: Mutex::default(),
            process: u64::from_ne_bytes(process),
            next: AtomicU64::new(0),
        }
    }

    /// Whether the previous process has kept its locks here: all that aren't here were released.
    pub(crate) const fn has_mark(&self) -> bool {
        self.has_mark
    }

    /// Whether the next process will believe that all locks are here, by a mark for which `is_valid` holds.
    pub(crate) fn has_valid_mark(&self, is_valid: impl FnOnce(&OwnedFd) -> bool) -> bool {
        self.is_marked() && self.mark.lock().as_ref().is_some_and(is_valid)
    }

    /// Says to the next process, by storing `mark`, that this one keeps its locks here. From then on a lock
    /// that isn't kept must not be given.
    pub(crate) fn mark(&self, mark: OwnedFd) {
        if self.is_marked() {
            return;
        }
        let less = |room: usize| room.checked_sub(1);
        if self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_err() {
            tracing::warn!("the service manager has no room for locks: after a crash no client can reclaim");
            return;
        }
        let message = format!("FDSTORE=1\nFDNAME={MARK}\nFDPOLL=0");
        match self.send(&message, &[mark.as_fd()]) {
            Ok(()) => {
                *self.mark.lock() = Some(mark);
                self.is_marked.store(true, Ordering::Release);
            }
            Err(error) => {
                self.give_back();
                tracing::warn!(%error, "no locks are kept: after a crash no client can reclaim");
            }
        }
    }

    /// Whether the next process will believe that all locks of this one are here.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Acquire)
    }

    /// Says to the next process that clients may reclaim nothing. Other servers of a cluster see the mark
    /// unlocked when this returns: the service manager closes its copy some time later.
    pub(crate) fn unmark(&self) {
        if !self.is_marked() {
            return;
        }
        if let Some(mark) = self.mark.lock().take()
            && let Err(error) = store::unlock(&mark, 0, u64::MAX)
        {
            tracing::debug!(%error, "the mark stays locked until the service manager closes it");
        }
        match self.send(&removal(MARK), &[]) {
            Ok(()) => {
                self.is_marked.store(false, Ordering::Release);
                self.give_back();
            }
            Err(error) => tracing::error!(%error, "after a crash clients may reclaim what is another's"),
        }
    }

    /// Stores an open file whose locks belong to `owner`; `None` if there is no room.
    pub(crate) fn keep(self: &Arc<Self>, owner: u64, file: BorrowedFd<'_>) -> Option<StoredLock> {
        let less = |room: usize| room.checked_sub(1);
        self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).ok()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME}-{owner:016x}-{:016x}-{number}", self.process);
        // The manager need not poll it for hang-up.
        let message = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        match self.send(&message, &[file]) {
            Ok(()) => Some(StoredLock { store: Arc::clone(self), name }),
            Err(error) => {
                self.give_back();
                tracing::warn!(%error, "the service manager doesn't keep a lock: a local process may have it \
                                        after a crash");
                None
            }
        }
    }

    /// The descriptors that the previous process has left, each with its owner.
    pub(crate) fn take_inherited(self: &Arc<Self>) -> Vec<(u64, StoredLock, OwnedFd)> {
        let inherited = std::mem::take(&mut *self.inherited.lock());
        let known = inherited.into_iter().filter_map(|(name, file)| {
            let owner = parse(&name)?;
            Some((owner, StoredLock { store: Arc::clone(self), name }, file))
        });
        known.collect()
    }

    /// From now on stored descriptors are left to the next process.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// A place of the manager is free again.
    fn give_back(&self) {
        self.room.fetch_add(1, Ordering::AcqRel);
    }

    /// Has the manager remove a descriptor: at once, or as soon as it reads its messages.
    fn remove(self: &Arc<Self>, name: String) {
        match self.send(&removal(&name), &[]) {
            Ok(()) => self.give_back(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.remove_later(name),
            Err(error) => {
                tracing::warn!(%error, "the service manager keeps a file open whose locks have gone");
            }
        }
    }

    fn remove_later(self: &Arc<Self>, name: String) {
        let mut removals = self.removals.lock();
        removals.names.push_back(name);
        if removals.is_waiting {
            return;
        }
        let store = Arc::clone(self);
        let waiting = std::thread::Builder::new().name("lock-store".into()).spawn(move || store.remove_all());
        match waiting {
            Ok(_) => removals.is_waiting = true,
            Err(error) => tracing::warn!(%error, "the service manager keeps files open for now"),
        }
    }

    /// Waits for the manager until it has heard of all removals.
    fn remove_all(&self) {
        loop {
            let name = {
                let mut removals = self.removals.lock();
                let Some(name) = removals.names.pop_front() else {
                    removals.is_waiting = false;
                    return;
                };
                name
            };
            match self.send_with(&removal(&name), &[], SendFlags::empty()) {
                Ok(()) => self.give_back(),
                Err(error) => {
                    tracing::warn!(%error, "the service manager keeps a file open whose locks have gone");
                }
            }
        }
    }

    /// Sends without waiting: a busy manager must not delay locks.
    fn send(&self, message: &str, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, files, SendFlags::DONTWAIT)
    }

    fn send_with(&self, message: &str, files: &[BorrowedFd<'_>], flags: SendFlags) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&self.manager)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let bytes = [std::io::IoSlice::new(message.as_bytes())];
        sendmsg(socket.as_fd(), &bytes, &mut control, flags | SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// The message that has the manager remove the descriptors of this name.
fn removal(name: &str) -> String {
    format!("FDSTOREREMOVE=1\nFDNAME={name}")
}

/// An open file in the service manager's store. Dropping this removes it, unless it is left to the next
/// process.
#[derive(Debug)]
pub(crate) struct StoredLock {
    store: Arc<LockStore>,
    name: String,
}

impl StoredLock {
    /// Whether the file and its locks are left to the next process.
    pub(crate) fn is_left(&self) -> bool {
        self.store.left.load(Ordering::Acquire)
    }
}

impl Drop for StoredLock {
    fn drop(&mut self) {
        if self.is_left() {
            return;
        }
        self.store.remove(std::mem::take(&mut self.name));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_mark_takes_room_and_is_for_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        let message = || {
            let mut bytes = [0; 200];
            let length = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let store = |inherited| Arc::new(LockStore::new(socket.local_addr().unwrap(), 2, inherited));
        let file = File::open("/dev/null").unwrap();
        let first = store(Vec::new());
        assert!(!first.is_marked());
        first.unmark();
        first.mark(file.try_clone().unwrap().into());
        assert_eq!(message(), format!("FDSTORE=1\nFDNAME={MARK}\nFDPOLL=0"), "unmarked it says nothing");
        let kept = first.keep(7, file.as_fd()).unwrap();
        message();
        assert!(first.keep(8, file.as_fd()).is_none(), "there is room for two");
        assert!(first.is_marked() && !first.has_mark());
        drop(kept);
        assert!(message().starts_with("FDSTOREREMOVE=1\nFDNAME=nfs4-locks-0000000000000007"));

        let next = store(vec![(MARK.to_owned(), file.into())]);
        assert!(next.has_mark() && next.is_marked() && next.has_valid_mark(|_| true));
        assert!(!next.has_valid_mark(|_| false));
        next.unmark();
        assert_eq!(message(), format!("FDSTOREREMOVE=1\nFDNAME={MARK}"));
        assert!(next.has_mark() && !next.is_marked(), "what this process has found stays");
        assert!(!next.has_valid_mark(|_| true));
    }

    /// Such as systemd during the reload of its units.
    #[test]
    fn a_manager_that_is_busy_for_a_while_costs_no_place_and_keeps_nothing() {
        const PLACES: usize = 10_000;
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        let store = Arc::new(LockStore::new(socket.local_addr().unwrap(), PLACES, Vec::new()));
        let file = File::open("/dev/null").unwrap();
        // Until its queue is full (net.unix.max_dgram_qlen).
        let kept: Vec<_> = std::iter::from_fn(|| store.keep(7, file.as_fd())).collect();
        let count = kept.len();
        assert!(count < PLACES, "the queue has an end");
        store.mark(file.try_clone().unwrap().into());
        assert!(!store.is_marked());
        assert_eq!(store.room.load(Ordering::Acquire), PLACES - count, "what it doesn't have takes no place");
        drop(kept);
        let mut names = std::collections::HashSet::new();
        for _ in 0..2 * count {
            let mut bytes = [0; 200];
            let length = socket.recv(&mut bytes).unwrap();
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let name = message.lines().nth(1).unwrap().to_owned();
            match message.starts_with("FDSTORE=1\n") {
                true => assert!(names.insert(name)),
                false => assert!(names.remove(&name), "{message}"),
            }
        }
        assert!(names.is_empty(), "{names:?}");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while store.room.load(Ordering::Acquire) != PLACES {
            assert!(std::time::Instant::now() < until, "every place is free again");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_mark_is_unlocked_before_the_manager_has_closed_it() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("marks"), []).unwrap();
        let open = || OwnedFd::from(File::open(directory.path().join("marks")).unwrap());
        let lock = store::FileLock { first: 7, last: 7, exclusive: false };
        let is_locked = |file: &OwnedFd| {
            store::test_lock(file, &store::FileLock { exclusive: true, ..lock }).unwrap().is_some()
        };
        // It reads no message: the descriptors stay in its socket.
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        let store = LockStore::new(socket.local_addr().unwrap(), 2, Vec::new());
        let (mark, other) = (open(), open());
        assert!(store::lock(&mark, &lock).unwrap());
        store.mark(mark);
        assert!(is_locked(&other));
        store.unmark();
        assert!(!is_locked(&other));
    }
}
