//! Locks that outlive the process: the service manager keeps the open files on which they were made.
//!
//! An open-file-description lock goes with the last descriptor of its description. When the server is killed
//! all of them would go, and a local process could have what an NFS client holds, before the client can
//! reclaim it. systemd keeps descriptors for a service (sd_notify(3), `FDSTORE=1`) and passes them to the
//! next process that it starts for it (sd_listen_fds(3)). So each open file with locks is sent there, under a
//! name that says whose it is, and taken back when its locks have gone.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// What the names of all our descriptors begin with.
const NAME: &str = "nfs4-locks";

/// The service manager, as far as it keeps open files with locks.
#[derive(Debug)]
pub struct LockStore {
    manager: SocketAddr,
    /// How many more it takes.
    room: AtomicUsize,
    /// What the last process has left, by its names.
    inherited: Mutex<Vec<(String, OwnedFd)>>,
    /// This process leaves them to the next one.
    left: AtomicBool,
    /// Tells this process's names from others', and from each other.
    process: u64,
    next: AtomicU64,
}

/// Whether a descriptor that the service manager passes is one with locks, by its name.
#[must_use]
pub fn is_lock(name: &str) -> bool {
    parse(name).is_some()
}

/// Whose locks they are, out of a name.
fn parse(name: &str) -> Option<u64> {
    let owner = name.strip_prefix(NAME)?.strip_prefix('-')?.split('-').next()?;
    u64::from_str_radix(owner, 16).ok()
}

impl LockStore {
    /// The manager that listens at that address (`NOTIFY_SOCKET`), and takes that many descriptors
    /// (`FileDescriptorStoreMax=`). `inherited` is what it has passed, by its names; only those of which
    /// [`is_lock`] is true are looked at.
    #[must_use]
    pub fn new(manager: SocketAddr, most: usize, inherited: Vec<(String, OwnedFd)>) -> Self {
        let mut process = [0; 8];
        // Without random numbers names might come again, and one too many be taken back.
        let _ = getrandom::fill(&mut process);
        Self {
            manager,
            room: AtomicUsize::new(most.saturating_sub(inherited.len())),
            inherited: Mutex::new(inherited),
            left: AtomicBool::new(false),
            process: u64::from_ne_bytes(process),
            next: AtomicU64::new(0),
        }
    }

    /// Has an open file kept whose locks belong to `owner`; none if there is no room.
    pub(crate) fn keep(self: &Arc<Self>, owner: u64, file: BorrowedFd<'_>) -> Option<Stored> {
        let less = |room: usize| room.checked_sub(1);
        self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).ok()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME}-{owner:016x}-{:016x}-{number}", self.process);
        // Nobody has to watch whether it hangs up.
        let message = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        let stored = Stored { store: Arc::clone(self), name };
        match self.send(&message, &[file]) {
            Ok(()) => Some(stored),
            Err(error) => {
                tracing::warn!(%error, "the service manager doesn't keep a lock: a local process may have it \
                                        after a crash");
                None
            }
        }
    }

    /// What the last process has left, whose they are first.
    pub(crate) fn take_inherited(self: &Arc<Self>) -> Vec<(u64, Stored, OwnedFd)> {
        let inherited = std::mem::take(&mut *self.inherited.lock());
        let known = inherited.into_iter().filter_map(|(name, file)| {
            let owner = parse(&name)?;
            Some((owner, Stored { store: Arc::clone(self), name }, file))
        });
        known.collect()
    }

    /// From now on nothing is taken back: the next process is to find it.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    fn send(&self, message: &str, files: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&self.manager)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let bytes = [std::io::IoSlice::new(message.as_bytes())];
        // A manager that is busy for long mustn't hold up locks.
        sendmsg(socket.as_fd(), &bytes, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// An open file that the service manager keeps; until this is dropped, or for the next process.
#[derive(Debug)]
pub(crate) struct Stored {
    store: Arc<LockStore>,
    name: String,
}

impl Stored {
    /// Whether it is left to the next process, with its locks.
    pub(crate) fn is_left(&self) -> bool {
        self.store.left.load(Ordering::Acquire)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.is_left() {
            return;
        }
        if let Err(error) = self.store.send(&format!("FDSTOREREMOVE=1\nFDNAME={}", self.name), &[]) {
            tracing::warn!(%error, "the service manager keeps a file open whose locks have gone");
        }
        self.store.room.fetch_add(1, Ordering::AcqRel);
    }
}
