//! The client's end of the lane: asking for files, using them, giving them back.
//!
//! Runs on tokio (either kind of runtime): one task a lane receives, one more sends releases that found no
//! company. An Open is one sendmsg(2) and one recvmsg(2) here and there; the receipt is an addition in shared
//! memory, and the release rides on a later Open. No lock is held across a system call.

mod grant;
mod outbox;
mod task;

pub use grant::{Grant, InFlight, Opened};

use crate::interlock::{ClientSide, Control, State};
use crate::memory::Memory;
use crate::message::{self, MAX_RELEASES, Request};
use crate::nonce::Instance;
use crate::request::{Credential, OpenRequest, Soon, Status, Target};
use crate::socket;
use outbox::{Outbox, Waiter};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, Semaphore, watch};
use xdr::Encoder;

/// Why an Open gave no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server said no.
    #[error("{0}")]
    Refused(Status),
    /// The lane is gone (or draining): use the wire, and probe again.
    #[error("the lane is gone")]
    Gone,
    /// This process has no room for another descriptor (RLIMIT_NOFILE): the last few are left to other uses.
    #[error("too many open files in this process")]
    NoDescriptor,
    /// A handle, name or group list is longer than the lane carries.
    #[error("longer than the lane carries")]
    TooLong,
    /// The server's version of the lane has no word for it.
    #[error("the server is too old for that")]
    TooOld,
}

/// Takes the files that were asked for ahead, each with its place in the request, on the task that receives.
/// Dropped instead when they will never come.
pub type Then = Box<dyn FnOnce(Vec<(usize, Opened)>) + Send>;

/// What the client knows of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// It works.
    Live,
    /// The server is about to stop: no new I/O, no new grants.
    Draining,
    /// It has ended.
    Gone,
}

/// A lane to one server. Clones are the same lane; it ends when the last clone and the last grant are
/// dropped.
#[derive(Debug, Clone)]
pub struct Lane {
    owner: Arc<Owner>,
}

/// What a lane and its grants have in common; the last one of them ends the lane.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

/// What the lane's tasks have, too.
#[derive(Debug)]
struct Shared {
    socket: AsyncFd<OwnedFd>,
    interlock: ClientSide<Memory>,
    outbox: Mutex<Outbox>,
    /// As many as the server lets us have under way.
    permits: Semaphore,
    state: watch::Sender<LaneState>,
    flush: Notify,
    /// The generation that the server has told us of.
    generation: AtomicU64,
    version: u32,
    /// A file that comes with a higher descriptor is given back.
    highest_descriptor: i32,
    instance: Instance,
    through: String,
}

/// What the handshake has found out.
pub(crate) struct Established {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: Memory,
    /// The highest that both speak.
    pub(crate) version: u32,
    pub(crate) outstanding: u32,
    /// How many of the interlock's slots the server looks at.
    pub(crate) slots: u32,
    pub(crate) instance: Instance,
    pub(crate) through: String,
}

impl Lane {
    /// Begins a lane; in a runtime.
    pub(crate) fn begin(established: Established) -> std::io::Result<Self> {
        let Established { socket, memory, version, outstanding, slots, instance, through } = established;
        let shared = Arc::new(Shared {
            socket: socket::watch(socket, Interest::READABLE)?,
            interlock: ClientSide::new(memory, slots as usize),
            outbox: Mutex::default(),
            // More than that is nobody's good; none at all would be no lane.
            permits: Semaphore::new(outstanding.clamp(1, 1024) as usize),
            state: watch::Sender::new(LaneState::Live),
            flush: Notify::new(),
            generation: AtomicU64::new(Control::FIRST.generation),
            version,
            highest_descriptor: task::highest_descriptor(),
            instance,
            through,
        });
        let owner = Arc::new(Owner { shared: Arc::clone(&shared) });
        tokio::spawn(task::receive(Arc::clone(&shared), Arc::downgrade(&owner)));
        tokio::spawn(task::flush(shared));
        Ok(Self { owner })
    }

    /// Asks for a file. Any number may be under way at once. Dropping the future gives back what it would
    /// have got.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, request: OpenRequest<'_>) -> Result<Opened, OpenError> {
        let shared = &*self.owner.shared;
        if !request.fits() {
            return Err(OpenError::TooLong);
        }
        if matches!(request.target, Target::New(_)) && shared.version < message::MAKES {
            return Err(OpenError::TooOld);
        }
        if self.state() != LaneState::Live {
            return Err(OpenError::Gone);
        }
        let _permit = shared.permits.acquire().await.map_err(|_| OpenError::Gone)?;
        let (mut unsent, answer) = shared.prepare(&request);
        loop {
            match socket::send(&shared.socket, &unsent.bytes, &[]) {
                Ok(()) => break,
                Err(Errno::AGAIN) => socket::writable(&shared.socket).await.map_err(|_| OpenError::Gone)?,
                Err(_) => {
                    shared.hung_up();
                    return Err(OpenError::Gone);
                }
            }
        }
        unsent.sent();
        answer.await.unwrap_or(Err(OpenError::Gone))
    }

    /// Asks for files that will most likely be opened next, to read them. Waits for nothing: `then` gets what
    /// the server saw fit to give, which may be less than was asked, or nothing. Beside the Opens under way;
    /// the server bounds what it gives.
    ///
    /// Each file is as good as one that was opened now, for as long as nobody has changed who may read it: a
    /// file whose ctime (and link count) is still that of its attributes, and whose grant is still live.
    ///
    /// # Errors
    /// `TooLong` for a request that doesn't fit; `Gone`, also when the server reads nothing just now. `then`
    /// is dropped.
    pub fn ahead(&self, soon: &Soon<'_>, credential: &Credential, then: Then) -> Result<(), OpenError> {
        let shared = &*self.owner.shared;
        if !soon.fits() || credential.gids.len() > crate::request::MAX_GIDS {
            return Err(OpenError::TooLong);
        }
        if self.state() != LaneState::Live {
            return Err(OpenError::Gone);
        }
        let (serial, releases, bytes) = {
            let mut outbox = shared.outbox.lock();
            (outbox.wait(Waiter::Ahead(then)), outbox.take_releases(), outbox.buffer())
        };
        let mut encoder = Encoder::from_vec(bytes);
        message::encode_ahead(&mut encoder, serial, &releases, soon, credential);
        let mut unsent = Unsent { shared, serial, releases, bytes: encoder.into_vec(), sent: false };
        match socket::send(&shared.socket, &unsent.bytes, &[]) {
            Ok(()) => {
                unsent.sent();
                Ok(())
            }
            Err(Errno::AGAIN) => Err(OpenError::Gone),
            Err(_) => {
                shared.hung_up();
                Err(OpenError::Gone)
            }
        }
    }

    /// Tells the server that what the NFS connection's calls change of names and attributes needn't be
    /// durable when they are answered: this client will sync what must be. Best effort, for the server may go
    /// on as before.
    pub fn go_async(&self) {
        let _ = socket::send(&self.owner.shared.socket, &message::encode(&Request::Async), &[]);
    }

    /// The state now. No system call.
    #[must_use]
    pub fn state(&self) -> LaneState {
        self.owner.shared.state()
    }

    /// Waits until the lane is draining or gone.
    pub async fn gone(&self) {
        let mut state = self.owner.shared.state.subscribe();
        // An error means that the sender is gone, which is as gone as can be.
        let _ = state.wait_for(|state| *state != LaneState::Live).await;
    }

    /// Ends the lane now, with everything that was granted through it: for a server that doesn't answer.
    /// Opens under way end with [`OpenError::Gone`].
    pub fn end(&self) {
        self.owner.shared.hung_up();
    }

    /// The server instance at the other end.
    #[must_use]
    pub fn instance(&self) -> Instance {
        self.owner.shared.instance
    }

    /// The way by which the server was found, for reports.
    #[must_use]
    pub fn through(&self) -> &str {
        &self.owner.shared.through
    }

    /// Sends the releases that wait for company. Without this they go with the next Open, or when there are
    /// many, or after a few milliseconds if the runtime is driven; a blocking caller whose runtime sleeps
    /// between calls calls this. Never blocks.
    pub fn flush(&self) {
        self.owner.shared.flush_now();
    }
}

/// A request that is not yet sent. Dropped before that, it takes itself back.
struct Unsent<'a> {
    shared: &'a Shared,
    serial: u32,
    releases: Vec<u64>,
    bytes: Vec<u8>,
    sent: bool,
}

impl Unsent<'_> {
    fn sent(&mut self) {
        self.sent = true;
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

impl Shared {
    /// Numbers and encodes an Open; what waits for company comes along.
    fn prepare(&self, request: &OpenRequest<'_>) -> (Unsent<'_>, outbox::Answer) {
        let mut outbox = self.outbox.lock();
        let (serial, answer) = outbox.expect();
        let releases = outbox.take_releases();
        let bytes = outbox.buffer();
        drop(outbox);
        let mut encoder = Encoder::from_vec(bytes);
        message::encode_open(&mut encoder, serial, &releases, request);
        (Unsent { shared: self, serial, releases, bytes: encoder.into_vec(), sent: false }, answer)
    }

    /// Whether every Open has been answered and the server has nothing else to say: it writes into the
    /// interlock before it says anything unasked.
    fn has_all_answers(&self) -> bool {
        let control = self.interlock.control();
        let news = control.state != State::Live || control.generation != self.generation.load(Relaxed);
        !news && self.outbox.lock().expects_nothing()
    }

    /// The state, by what the server last wrote and by what the socket last told.
    fn state(&self) -> LaneState {
        match *self.state.borrow() {
            LaneState::Gone => LaneState::Gone,
            told => match self.interlock.control().state {
                State::Live => told,
                State::Draining => LaneState::Draining,
                State::Gone => LaneState::Gone,
            },
        }
    }

    /// Sends all releases. What can't be sent now is sent later.
    fn flush_now(&self) {
        loop {
            let releases = self.outbox.lock().take_releases();
            if releases.is_empty() {
                return;
            }
            let more = releases.len() == MAX_RELEASES;
            let release = Request::Release(releases);
            let sent = socket::send(&self.socket, &message::encode(&release), &[]);
            if let (Err(Errno::AGAIN), Request::Release(mut releases)) = (sent, release) {
                self.outbox.lock().releases.append(&mut releases);
                self.flush.notify_one();
                return;
            }
            if !more {
                return;
            }
        }
    }

    /// A grant has been closed here.
    fn release(&self, grant: u64) {
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

    /// The server is about to stop.
    fn draining(&self) {
        self.state.send_if_modified(|state| {
            let news = *state == LaneState::Live;
            if news {
                *state = LaneState::Draining;
            }
            news
        });
    }

    /// There's nobody at the other end any more: every Open under way ends, and no I/O begins.
    fn hung_up(&self) {
        self.interlock.mark_gone();
        self.state.send_replace(LaneState::Gone);
        self.permits.close();
        let waiters = self.outbox.lock().hang_up();
        drop(waiters);
        // Whoever still listens there shall know, too; and our own tasks.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.flush.notify_one();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The last release goes before the hang-up, which would say the same.
        self.shared.flush_now();
        self.shared.hung_up();
    }
}
