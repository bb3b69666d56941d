//! The state that a lane, its grants and its tasks share: the socket, the interlock, and the requests in
//! flight.
//!
//! Their types are recursive: a grant keeps its lane alive, and a lane's pending requests produce grants.

use super::outbox::Outbox;
use crate::attributes::{DirectoryChange, GrantAttributes};
use crate::interlock::{ClientSide, ControlState, IoCount};
use crate::memory::InterlockMemory;
use crate::message::{self, LaneRequest, MAX_RELEASES};
use crate::nonce::Instance;
use crate::request::OpenStatus;
use crate::socket;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, Semaphore, oneshot, watch};

/// Why an Open returned no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server refused it.
    #[error("{0}")]
    Refused(OpenStatus),
    /// The lane has ended (or is draining): use the wire, and probe again.
    #[error("the lane is gone")]
    Gone,
    /// This process has no room for another descriptor (RLIMIT_NOFILE). The last few are reserved for other
    /// uses.
    #[error("too many open files in this process")]
    NoDescriptor,
    /// A handle, name or group list is longer than the lane carries.
    #[error("longer than the lane carries")]
    TooLong,
    /// The server's version of the lane doesn't support it.
    #[error("the server is too old for that")]
    TooOld,
    /// A directory or a mount of a server that is trusted only because its user was named
    /// ([`RendezvousOptions::trusted_uids`](crate::RendezvousOptions::trusted_uids)). An open file has the
    /// server's rights. In a directory this process would use its own, and anyone can get a descriptor of
    /// any directory.
    #[error(
        "the server is neither root's nor this user's: with --trust-uid it is trusted with files, not with \
         directories"
    )]
    FilesOnly,
}

/// Receives the prefetched files, each with its index in the request, on the receiving task. Dropped instead
/// if they will never come.
pub type PrefetchSink = Box<dyn FnOnce(Vec<(usize, OpenedGrant)>) + Send>;

/// The state of a lane, as known to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// It works.
    Live,
    /// The server is about to stop: no new I/O, no new grants.
    Draining,
    /// It has ended.
    Gone,
}

/// What waits for a reply.
pub(super) enum Waiter {
    Open(oneshot::Sender<Result<OpenedGrant, OpenError>>),
    CallSocket(oneshot::Sender<Result<OwnedFd, OpenError>>),
    Prefetch(PrefetchSink),
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open(_) => "Open",
            Self::CallSocket(_) => "CallSocket",
            Self::Prefetch(_) => "Prefetch",
        })
    }
}

/// The handle that a lane and its grants share. Dropping the last one ends the lane.
#[derive(Debug)]
pub(super) struct LaneHandle {
    pub(super) shared: Arc<ClientShared>,
}

/// The state shared with the lane's tasks.
#[derive(Debug)]
pub(super) struct ClientShared {
    pub(super) socket: AsyncFd<OwnedFd>,
    pub(super) interlock: ClientSide<InterlockMemory>,
    pub(super) outbox: Mutex<Outbox<Waiter>>,
    /// One permit for each Open that may be in flight.
    pub(super) permits: Semaphore,
    pub(super) state: watch::Sender<LaneState>,
    pub(super) flush: Notify,
    /// The last generation announced by the server.
    pub(super) generation: AtomicU64,
    pub(super) version: u32,
    /// A file with a higher descriptor number is released.
    pub(super) highest_descriptor: i32,
    pub(super) instance: Instance,
    pub(super) through: String,
    /// Directories and mounts aren't requested of this server.
    pub(super) files_only: bool,
}

impl ClientShared {
    /// Whether every request is answered and the server has nothing else to say: it writes into the interlock
    /// before it sends an unsolicited message.
    pub(super) fn has_all_answers(&self) -> bool {
        let control = self.interlock.control();
        let news = control.state != ControlState::Live || control.generation != self.generation.load(Relaxed);
        !news && self.outbox.lock().expects_nothing()
    }

    /// The state, from the interlock and from the socket.
    pub(super) fn state(&self) -> LaneState {
        match *self.state.borrow() {
            LaneState::Gone => LaneState::Gone,
            told => match self.interlock.control().state {
                ControlState::Live => told,
                ControlState::Draining => LaneState::Draining,
                ControlState::Gone => LaneState::Gone,
            },
        }
    }

    /// Waits until the interlock's control word isn't `expected` any more. The server writes it before it
    /// sends the message that wakes this.
    pub(super) async fn changed(&self, expected: u64) {
        let mut state = self.state.subscribe();
        while self.interlock.is(expected) {
            if state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends all pending releases. Releases that can't be sent now are sent later.
    pub(super) fn flush_now(&self) {
        loop {
            let releases = self.outbox.lock().take_releases();
            if releases.is_empty() {
                return;
            }
            let more = releases.len() == MAX_RELEASES;
            let release = LaneRequest::Release(releases);
            let sent = socket::send(&self.socket, &message::encode(&release), &[]);
            if let (Err(Errno::AGAIN), LaneRequest::Release(mut releases)) = (sent, release) {
                self.outbox.lock().releases.append(&mut releases);
                self.flush.notify_one();
                return;
            }
            if !more {
                return;
            }
        }
    }

    /// Releases a grant.
    pub(super) fn release(&self, grant: u64) {
        let (first, full) = {
            let mut outbox = self.outbox.lock();
            outbox.releases.push(grant);
            (outbox.releases.len() == 1, outbox.releases.len() >= MAX_RELEASES / 4)
        };
        if full {
            self.flush_now();
        } else if first {
            self.flush.notify_one();
        }
    }

    /// Notes that the server is about to stop.
    pub(super) fn draining(&self) {
        self.state.send_if_modified(|state| {
            let news = *state == LaneState::Live;
            if news {
                *state = LaneState::Draining;
            }
            news
        });
    }

    /// Ends the lane: every request in flight ends, and no I/O begins.
    pub(super) fn hung_up(&self) {
        self.interlock.mark_gone();
        self.state.send_replace(LaneState::Gone);
        self.permits.close();
        let waiters = self.outbox.lock().hang_up();
        drop(waiters);
        // The other end must notice, too, and so must this lane's tasks.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.flush.notify_one();
    }
}

impl Drop for LaneHandle {
    fn drop(&mut self) {
        // The last releases go before the hang-up, which implies them.
        self.shared.flush_now();
        self.shared.hung_up();
    }
}

/// The result of a successful Open.
#[derive(Debug)]
pub struct OpenedGrant {
    /// The open file.
    pub grant: Grant,
    /// The file's NFS handle.
    pub handle: Vec<u8>,
    /// The file's attributes and I/O modes.
    pub attributes: GrantAttributes,
    /// The change of its directory, for [`crate::Target::New`].
    pub directory: Option<Box<DirectoryChange>>,
    /// The server's write verifier.
    pub verifier: [u8; 8],
}

/// An open file granted by the server. Dropping it releases the grant.
#[derive(Debug)]
pub struct Grant {
    /// Closed by `Drop` before the release is sent.
    file: Option<OwnedFd>,
    id: u64,
    /// Opened by this process through a granted tree, of which the server knows nothing.
    is_derived: bool,
    /// The control word with which I/O may begin: live, in the generation of this grant.
    expected: u64,
    owner: Arc<LaneHandle>,
    modes: io::IoModes,
}

/// A grant whose descriptor has been taken out ([`Grant::without_file`]). Dropping it releases the grant.
#[derive(Debug)]
pub struct GrantWithoutFile(Grant);

impl GrantWithoutFile {
    /// As [`Grant::ended`].
    pub async fn ended(&self) {
        self.0.ended().await;
    }
}

/// One I/O in flight, on the thread that began it. Dropping it ends it.
#[derive(Debug)]
pub struct InFlight<'a> {
    grant: &'a Grant,
    counted: IoCount,
    /// The count belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl Grant {
    pub(super) const fn new(
        file: OwnedFd,
        id: u64,
        expected: u64,
        owner: Arc<LaneHandle>,
        modes: io::IoModes,
    ) -> Self {
        Self { file: Some(file), id, is_derived: false, expected, owner, modes }
    }

    /// A grant of a file that this process has opened through a granted tree ([`crate::Target::Tree`]). It
    /// ends with the tree's, and counts as one I/O with it; dropping it sends no release. Its file's I/O
    /// modes are the tree's.
    ///
    /// # Errors
    /// [`OpenError::NoDescriptor`] if the file's descriptor is one of the reserved ones.
    pub fn derive(&self, file: OwnedFd) -> Result<Self, OpenError> {
        if file.as_raw_fd() >= self.owner.shared.highest_descriptor {
            return Err(OpenError::NoDescriptor);
        }
        let mut derived = Self::new(file, self.id, self.expected, Arc::clone(&self.owner), self.modes);
        derived.is_derived = true;
        Ok(derived)
    }

    /// Whether the server is trusted with its own rights to files only, because its user was named
    /// ([`crate::RendezvousOptions::trusted_uids`]): the kernel, which opens a passed-through file again with
    /// this process's rights, must not get this one.
    #[must_use]
    pub fn is_files_only(&self) -> bool {
        self.owner.shared.files_only
    }

    /// Whether this process has opened the file itself ([`Grant::derive`]). One from the server may be of a
    /// mount on which nothing can be changed, though the export is writable.
    #[must_use]
    pub const fn is_derived(&self) -> bool {
        self.is_derived
    }

    /// Begins one I/O on the file: hold the guard around each read, write or sync. `None` means that the
    /// server has recalled the grant or is stopping: use the wire (ENXIO inside the client). No system call
    /// and, on most threads, no locked instruction.
    #[inline]
    #[must_use]
    pub fn try_get(&self) -> Option<InFlight<'_>> {
        self.try_get_at(sys::thread_slot::current())
    }

    /// As [`Grant::try_get`], on a thread whose [`sys::thread_slot`] is known; `None` if it isn't, or there
    /// is none.
    #[inline]
    #[must_use]
    pub fn try_get_at(&self, slot: Option<usize>) -> Option<InFlight<'_>> {
        let counted = self.owner.shared.interlock.try_get(slot, self.expected)?;
        Some(InFlight { grant: self, counted, _thread: PhantomData })
    }

    /// Whether `try_get` would succeed, for choosing between lane and wire without beginning.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.owner.shared.interlock.is(self.expected)
    }

    /// Waits until the server recalls the grant or the lane ends: until [`Grant::is_live`] is false.
    pub async fn ended(&self) {
        self.owner.shared.changed(self.expected).await;
    }

    /// Takes the descriptor out, for a file that the kernel shall close: an attached mount. The grant goes on
    /// without it.
    #[must_use]
    pub fn without_file(mut self) -> (Option<OwnedFd>, GrantWithoutFile) {
        (self.file.take(), GrantWithoutFile(self))
    }

    /// The I/O modes of the file on the server.
    #[must_use]
    pub const fn modes(&self) -> io::IoModes {
        self.modes
    }

    /// The grant's number on its lane; of a derived one that of the tree.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for Grant {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some(file) => file.as_fd(),
            None => unreachable!("a grant without its file is a `GrantWithoutFile`, or being dropped"),
        }
    }
}

impl AsFd for InFlight<'_> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.grant.as_fd()
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.grant.owner.shared.interlock.put(self.counted);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        drop(self.file.take());
        if !self.is_derived {
            self.owner.shared.release(self.id);
        }
    }
}
