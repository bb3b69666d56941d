//! The client's end of the lane: opening files, using them, releasing them.
//!
//! Runs on tokio (either kind of runtime): one task of a lane receives, another sends releases that no Open
//! carried. An Open is one sendmsg(2) and one recvmsg(2) on each side. The receipt is an addition in shared
//! memory, and the release is sent with a later Open. No lock is held across a system call.

mod outbox;
mod shared;
mod task;

pub use shared::{Grant, GrantWithoutFile, InFlight, LaneState, OpenError, OpenedGrant, PrefetchSink};

use crate::interlock::{ClientSide, Control, ControlState};
use crate::memory::InterlockMemory;
use crate::message::{self, LaneRequest};
use crate::nonce::Instance;
use crate::request::{LaneCredential, OpenRequest, PrefetchTargets, Target};
use crate::socket;
use parking_lot::Mutex;
use rustix::io::Errno;
use shared::{ClientShared, LaneHandle, Waiter};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::io::Interest;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use xdr::Encoder;

/// The first protocol version with call sockets.
const CALL_SOCKETS_SINCE: u32 = 5;

/// A lane to one server. Clones are the same lane, which ends when the last clone and the last grant are
/// dropped.
#[derive(Debug, Clone)]
pub struct Lane {
    owner: Arc<LaneHandle>,
}

/// The result of the handshake.
pub(crate) struct Established {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: InterlockMemory,
    /// The highest version of both.
    pub(crate) version: u32,
    pub(crate) outstanding: u32,
    /// The number of interlock slots that the server reads.
    pub(crate) slots: u32,
    pub(crate) instance: Instance,
    pub(crate) through: String,
    /// The server isn't trusted with directories and mounts.
    pub(crate) files_only: bool,
}

impl Lane {
    /// Begins a lane, within a runtime.
    pub(crate) fn begin(established: Established) -> std::io::Result<Self> {
        let Established { socket, memory, version, outstanding, slots, instance, through, files_only } =
            established;
        let shared = Arc::new(ClientShared {
            socket: socket::watch(socket, Interest::READABLE)?,
            interlock: ClientSide::new(memory, slots as usize),
            outbox: Mutex::default(),
            // More than that has no use; 0 would be no lane.
            permits: Semaphore::new(outstanding.clamp(1, 1024) as usize),
            state: watch::Sender::new(LaneState::Live),
            flush: Notify::new(),
            generation: AtomicU64::new(Control::FIRST.generation),
            version,
            highest_descriptor: task::highest_descriptor(),
            instance,
            through,
            files_only,
        });
        let owner = Arc::new(LaneHandle { shared: Arc::clone(&shared) });
        tokio::spawn(task::receive(Arc::clone(&shared), Arc::downgrade(&owner)));
        tokio::spawn(task::flush(shared));
        Ok(Self { owner })
    }

    /// Opens a file or a tree. Any number of Opens may be in flight. Dropping the future releases the grant
    /// that it would have returned.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, request: OpenRequest<'_>) -> Result<OpenedGrant, OpenError> {
        let shared = &*self.owner.shared;
        if !request.fits() {
            return Err(OpenError::TooLong);
        }
        if shared.files_only && matches!(request.target, Target::Tree(_) | Target::Mount(_)) {
            return Err(OpenError::FilesOnly);
        }
        if shared.version < request.target.since() {
            return Err(OpenError::TooOld);
        }
        if self.state() != LaneState::Live {
            return Err(OpenError::Gone);
        }
        let _permit = shared.permits.acquire().await.map_err(|_| OpenError::Gone)?;
        let (sender, answer) = oneshot::channel();
        let encode = |to: &mut Encoder, serial, releases: &[u64]| {
            message::encode_open(to, serial, releases, &request);
        };
        shared.prepare(Waiter::Open(sender), encode).send().await?;
        answer.await.unwrap_or(Err(OpenError::Gone))
    }

    /// Requests a call socket: a connected Unix stream socket on which calls of the NFS connection can be
    /// made (RFC 5531 with record marking, as on the connection). It ends with the lane, and when another one
    /// is requested.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn call_socket(&self) -> Result<OwnedFd, OpenError> {
        let shared = &*self.owner.shared;
        if shared.version < CALL_SOCKETS_SINCE {
            return Err(OpenError::TooOld);
        }
        if self.state() != LaneState::Live {
            return Err(OpenError::Gone);
        }
        let (sender, answer) = oneshot::channel();
        shared.prepare(Waiter::CallSocket(sender), message::encode_calls).send().await?;
        answer.await.unwrap_or(Err(OpenError::Gone))
    }

    /// Prefetches files that will probably be opened next, for reading. Doesn't wait: `then` receives the
    /// files that the server has granted, which may be fewer than requested, or none. Prefetches don't count
    /// against the Opens in flight; the server bounds what it grants.
    ///
    /// A prefetched file equals one opened now, as long as its permissions haven't changed: its ctime (and
    /// link count) is still that of its attributes, and its grant is live.
    ///
    /// # Errors
    /// `TooLong` for a request that doesn't fit; `Gone`, also while the server's socket is full. `then` is
    /// dropped.
    pub fn prefetch(
        &self,
        targets: &PrefetchTargets<'_>,
        credential: &LaneCredential,
        then: PrefetchSink,
    ) -> Result<(), OpenError> {
        let shared = &*self.owner.shared;
        if !targets.fits() || credential.gids.len() > crate::request::MAX_GIDS {
            return Err(OpenError::TooLong);
        }
        if self.state() != LaneState::Live {
            return Err(OpenError::Gone);
        }
        let encode = |to: &mut Encoder, serial, releases: &[u64]| {
            message::encode_prefetch(to, serial, releases, targets, credential);
        };
        let room = shared.prepare(Waiter::Prefetch(then), encode).try_send()?;
        if room { Ok(()) } else { Err(OpenError::Gone) }
    }

    /// Tells the server that changes of names and attributes by the NFS connection's calls needn't be durable
    /// when they are answered, since this client will sync what must be. Best effort: the server may ignore
    /// it.
    pub fn go_async(&self) {
        let _ = socket::send(&self.owner.shared.socket, &message::encode(&LaneRequest::Async), &[]);
    }

    /// The current state. No system call.
    #[must_use]
    pub fn state(&self) -> LaneState {
        self.owner.shared.state()
    }

    /// The generation in which the server grants now: it changes when the server recalls its grants. No
    /// system call.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.owner.shared.interlock.control().generation
    }

    /// Waits until the lane is draining or gone.
    pub async fn gone(&self) {
        let mut state = self.owner.shared.state.subscribe();
        // An error means that the sender is gone, and with it the lane.
        let _ = state.wait_for(|state| *state != LaneState::Live).await;
    }

    /// Waits until the lane isn't live, or isn't in this generation any more: until the server may answer an
    /// Open in another way.
    pub async fn changed(&self, generation: u64) {
        let expected = Control { state: ControlState::Live, generation }.word();
        self.owner.shared.changed(expected).await;
    }

    /// Ends the lane now, with all its grants: for a server that doesn't answer. Opens in flight end with
    /// [`OpenError::Gone`].
    pub fn end(&self) {
        self.owner.shared.hung_up();
    }

    /// The server instance at the other end.
    #[must_use]
    pub fn instance(&self) -> Instance {
        self.owner.shared.instance
    }

    /// How the server was found, for reports.
    #[must_use]
    pub fn through(&self) -> &str {
        &self.owner.shared.through
    }

    /// Sends pending releases. Without this call they go with the next Open, or when there are many, or after
    /// a few milliseconds if the runtime is driven; a blocking caller whose runtime sleeps between calls
    /// needs this call. Never blocks.
    pub fn flush(&self) {
        self.owner.shared.flush_now();
    }
}

/// A request that isn't sent yet. Dropping it before that removes it from the outbox.
struct Unsent<'a> {
    shared: &'a ClientShared,
    serial: u32,
    releases: Vec<u64>,
    bytes: Vec<u8>,
    sent: bool,
}

impl Unsent<'_> {
    /// Sends the request when the socket has room for it.
    async fn send(mut self) -> Result<(), OpenError> {
        while !self.try_send()? {
            socket::writable(&self.shared.socket).await.map_err(|_| OpenError::Gone)?;
        }
        Ok(())
    }

    /// Sends the request if the socket has room for it. Returns whether it had.
    fn try_send(&mut self) -> Result<bool, OpenError> {
        match socket::send(&self.shared.socket, &self.bytes, &[]) {
            Ok(()) => {
                self.sent = true;
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(_) => {
                self.shared.hung_up();
                Err(OpenError::Gone)
            }
        }
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        let mut outbox = self.shared.outbox.lock();
        let mut waiter = None;
        if !self.sent {
            waiter = outbox.forget(self.serial);
            outbox.releases.append(&mut self.releases);
        }
        outbox.recycle(std::mem::take(&mut self.bytes), std::mem::take(&mut self.releases));
        drop(outbox);
        drop(waiter);
    }
}

impl ClientShared {
    /// Numbers and encodes a request, with pending releases. `encode` gets its serial and the releases.
    fn prepare(&self, waiter: Waiter, encode: impl FnOnce(&mut Encoder, u32, &[u64])) -> Unsent<'_> {
        let (serial, releases, bytes) = {
            let mut outbox = self.outbox.lock();
            (outbox.wait(waiter), outbox.take_releases(), outbox.buffer())
        };
        let mut encoder = Encoder::from_vec(bytes);
        encode(&mut encoder, serial, &releases);
        Unsent { shared: self, serial, releases, bytes: encoder.into_vec(), sent: false }
    }
}
