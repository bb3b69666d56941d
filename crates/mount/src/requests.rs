//! The requests of a mount: received from the kernel, handled, and replied to.
//!
//! 1. One task reads /dev/fuse. It never waits for a server: a request that may is handled by a task of its
//!    own. With [`MAX_REQUESTS`] of them it stops reading until one is done; the kernel queues the rest. Over
//!    io_uring ([`crate::queues`]) a queue's thread begins the requests, and one becomes a task only if it
//!    has to wait. FORGET and INTERRUPT come by /dev/fuse in any case.
//! 2. A request gets exactly one reply: from its handler, or, if that is aborted, from its [`ReplyGuard`].
//! 3. FORGET and RELEASE take effect before the next request is read from /dev/fuse, or received by the same
//!    queue, in the kernel's order. A request that depends on RELEASEs of other queues waits for them
//!    ([`Filesystem::receive_releases`]).
//! 4. INTERRUPT says that the caller got a signal. It ends a wait for a lock (SETLKW). Otherwise, as on a
//!    hard mount of the kernel's client, only a fatal signal counts: the task is aborted if the caller is
//!    dying, now or later, because the kernel sends INTERRUPT only once. The server may still execute the
//!    call.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::disk_waits::{self, Polled};
use futures_util::future::{AbortHandle, Abortable};
use parking_lot::Mutex;
use rustix::io::Errno;
use sys::fuse_queue::FuseEntry;
use tokio::io::Interest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::disk_threads::DiskThreads;
use crate::filesystem::{ClosingFile, Filesystem, Outcome, RequestContext, UndeliveredOpen};
use crate::fuse::device::WatchedDevice;
use crate::fuse::request::{ControlOperation, DecodeError, FileOperation, FuseRequest, Header, Operation};
use crate::queues::Inbox;
use crate::users;

/// Requests under way at once.
const MAX_REQUESTS: usize = 16_384;

/// Requests that are read in a row before other tasks run.
const MAX_BATCH: usize = 64;

/// The interval at which an interrupted caller is checked for a fatal signal.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How long FORGETs are collected while other requests come through queues. INTERRUPT may wait as long.
const FORGET_INTERVAL: Duration = Duration::from_millis(5);

/// The interval at which the callers of waiting requests are checked that no INTERRUPT was sent for.
const CALLER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// INTERRUPTs that are kept until their requests are received.
const MAX_EARLY_INTERRUPTS: usize = 256;

/// Requests over io_uring of which at most this many bytes aren't a WRITE's data, or little of it.
const SMALL: usize = 64 << 10;

/// The requests of a mount.
#[derive(Debug)]
pub(crate) struct Requests {
    filesystem: Arc<Filesystem>,
    permits: Arc<Semaphore>,
    under_way: Mutex<UnderWay>,
    received: AtomicU64,
}

/// Reads /dev/fuse.
struct RequestReader {
    requests: Arc<Requests>,
    /// For the next request.
    buffer: Vec<u8>,
}

/// Why reading has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeviceState {
    Empty,
    Unmounted,
}

impl RequestReader {
    /// Begins all requests that the kernel has queued.
    ///
    /// # Errors
    /// The device's.
    async fn read_all(&mut self) -> io::Result<DeviceState> {
        let max_len = self.buffer.len();
        let mut batch = 0;
        loop {
            match self.requests.filesystem.device().read(&mut self.buffer) {
                Ok(len) => {
                    let message = self.take(len, max_len);
                    self.requests.begin(message).await;
                }
                Err(Errno::AGAIN) => return Ok(DeviceState::Empty),
                // The kernel withdrew the request before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(DeviceState::Unmounted),
                Err(errno) => return Err(errno.into()),
            }
            batch += 1;
            if batch == MAX_BATCH {
                batch = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// The first `len` bytes of the buffer. A WRITE's data may be kept for long and shouldn't hold much more
    /// memory than its size.
    fn take(&mut self, len: usize, max_len: usize) -> Bytes {
        if len <= max_len / 2 {
            return Bytes::copy_from_slice(&self.buffer[..len]);
        }
        let buffers = self.requests.filesystem.buffers();
        let mut next = buffers.take();
        if next.len() < max_len {
            next = vec![0; max_len];
        }
        buffers.share(std::mem::replace(&mut self.buffer, next), len)
    }
}

/// How a request is aborted.
#[derive(Debug, Clone)]
enum Abort {
    /// Its task ends, and with it the [`ReplyGuard`].
    Task(AbortHandle),
    /// The thread that waits for a disk goes on, without a reply to send.
    Reply(Arc<Mutex<Option<ReplyGuard>>>),
}

impl Abort {
    fn abort(&self) {
        match self {
            Self::Task(handle) => handle.abort(),
            Self::Reply(guard) => drop(guard.lock().take()),
        }
    }
}

/// A request that waits.
#[derive(Debug, Clone)]
struct WaitingRequest {
    abort: Abort,
    /// The caller's thread.
    pid: u32,
    /// Whether any signal aborts it, as it does in fcntl(2) and flock(2). Otherwise a fatal one does.
    by_any_signal: bool,
}

/// The requests that wait.
#[derive(Debug, Default)]
struct UnderWay {
    /// By request number.
    requests: HashMap<u64, WaitingRequest>,
    /// The numbers of interrupted requests that weren't under way then. INTERRUPT may overtake a request that
    /// comes through a queue, and for such a request the kernel doesn't repeat it.
    interrupted: VecDeque<u64>,
}

/// Where a reply goes.
#[derive(Debug)]
enum ReplyChannel {
    Device,
    Queue(FuseEntry, Arc<Inbox>),
}

/// Ensures the reply to a request: `EINTR` if it is dropped without one.
#[derive(Debug)]
struct ReplyGuard {
    requests: Arc<Requests>,
    unique: u64,
    /// `None`: the reply is sent.
    channel: Option<ReplyChannel>,
}

impl ReplyGuard {
    /// Sends the reply. An error means that the kernel doesn't wait for it any more. That isn't known for a
    /// queue: it ends with the whole connection, and then all files are closed.
    fn send(&mut self, result: Result<&[u8], Errno>) -> Result<(), Errno> {
        match self.channel.take() {
            None => Ok(()),
            Some(ReplyChannel::Device) => {
                let device = self.requests.filesystem.device();
                match result {
                    Ok(body) => device.reply(self.unique, body),
                    Err(errno) => device.reply_error(self.unique, errno),
                }
            }
            Some(ReplyChannel::Queue(mut entry, inbox)) => {
                set_reply(&mut entry, result);
                inbox.reply(entry);
                Ok(())
            }
        }
    }

    /// Sends the reply, whether or not the kernel still waits for it.
    fn send_and_forget(mut self, result: Result<&[u8], Errno>) {
        let _ = self.send(result);
    }

    /// As [`ReplyGuard::send`], on the queue's own thread: returns the entry with the reply.
    fn into_entry(mut self, result: Result<&[u8], Errno>) -> Option<FuseEntry> {
        match self.channel.take()? {
            ReplyChannel::Queue(mut entry, _) => {
                set_reply(&mut entry, result);
                Some(entry)
            }
            ReplyChannel::Device => None,
        }
    }
}

fn set_reply(entry: &mut FuseEntry, result: Result<&[u8], Errno>) {
    match result {
        Ok(body) if body.len() <= entry.capacity() => entry.set_reply(0, body),
        // The kernel asks for no more than INIT has negotiated.
        Ok(_) => entry.set_reply(-Errno::IO.raw_os_error(), &[]),
        Err(errno) => entry.set_reply(-errno.raw_os_error(), &[]),
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        if self.channel.is_some() {
            let _ = self.send(Err(Errno::INTR));
        }
    }
}

/// A handler, with the permit of its request.
type Handler = Pin<Box<dyn Future<Output = (Result<Outcome, Errno>, Option<OwnedSemaphorePermit>)> + Send>>;

/// What is known of a request that waits (see [`WaitingRequest`]).
#[derive(Debug, Clone, Copy)]
struct WaitingCaller {
    unique: u64,
    pid: u32,
    by_any_signal: bool,
}

impl WaitingCaller {
    const fn new(header: Header, operation: &FileOperation) -> Self {
        let by_any_signal = matches!(operation, FileOperation::SetLock { waits: true, .. });
        Self { unique: header.unique, pid: header.pid, by_any_signal }
    }
}

/// Removes a request from those under way.
struct UnderWayGuard {
    requests: Arc<Requests>,
    unique: u64,
}

impl Drop for UnderWayGuard {
    fn drop(&mut self) {
        self.requests.under_way.lock().requests.remove(&self.unique);
    }
}

impl Requests {
    pub(crate) fn new(filesystem: Arc<Filesystem>) -> Arc<Self> {
        Arc::new(Self {
            filesystem,
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            under_way: Mutex::default(),
            received: AtomicU64::new(0),
        })
    }

    /// The number of requests that were received, and of those that wait.
    pub(crate) fn count(&self) -> (u64, usize) {
        (self.received.load(Relaxed), self.under_way.lock().requests.len())
    }

    pub(crate) fn has_queues(&self) -> bool {
        self.filesystem.has_queues()
    }

    /// Reads requests, of up to `max_len` bytes, until the filesystem is unmounted.
    ///
    /// # Errors
    /// The device's.
    pub(crate) async fn serve(self: &Arc<Self>, device: WatchedDevice, max_len: usize) -> io::Result<()> {
        let mut reader = RequestReader { requests: self.clone(), buffer: vec![0; max_len] };
        let mut watched = device;
        loop {
            let mut ready = watched.ready(Interest::READABLE | Interest::ERROR).await?;
            if reader.read_all().await? == DeviceState::Unmounted {
                return Ok(());
            }
            ready.clear_ready();
            if self.has_queues() {
                // Each removed file causes a FORGET, which isn't urgent. Read together they wake this thread
                // less often.
                drop(watched);
                tokio::time::sleep(FORGET_INTERVAL).await;
                watched = self.filesystem.device().watch()?;
            }
        }
    }

    async fn begin(self: &Arc<Self>, message: Bytes) {
        self.received.fetch_add(1, Relaxed);
        match FuseRequest::decode(message) {
            Ok(FuseRequest { header, operation: Operation::File(operation) }) => {
                self.spawn(header, operation).await;
            }
            Ok(FuseRequest { header, operation: Operation::Control(operation) }) => {
                self.control(&header, operation).await;
            }
            Err(DecodeError::Refused { unique, errno, .. }) => {
                self.guard(unique).send_and_forget(Err(errno));
            }
            Err(error @ DecodeError::NoHeader(_)) => tracing::warn!(%error, "a malformed request"),
        }
    }

    async fn control(self: &Arc<Self>, header: &Header, operation: ControlOperation) {
        match operation {
            ControlOperation::Forget { count } => self.filesystem.forget(header.node, count),
            ControlOperation::BatchForget(nodes) => {
                nodes.iter().for_each(|(node, count)| self.filesystem.forget(*node, *count));
            }
            ControlOperation::Release { fh } => self.release(header, fh).await,
            ControlOperation::Interrupt { unique } => self.interrupt_requested(header, unique),
            ControlOperation::Destroy => self.guard(header.unique).send_and_forget(Ok(&[])),
            // Only the first request can be INIT.
            ControlOperation::Init(_) => self.guard(header.unique).send_and_forget(Err(Errno::NOSYS)),
        }
    }

    fn guard(self: &Arc<Self>, unique: u64) -> ReplyGuard {
        ReplyGuard { requests: self.clone(), unique, channel: Some(ReplyChannel::Device) }
    }

    async fn spawn(self: &Arc<Self>, header: Header, operation: FileOperation) {
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        let guard = self.guard(header.unique);
        let requests = self.clone();
        tokio::spawn(async move {
            let caller = WaitingCaller::new(header, &operation);
            let mut work = requests.handler(header, operation, Some(permit));
            match disk_waits::poll_nonblocking(&mut work) {
                Polled::Ready((result, _permit)) => requests.deliver(result, guard).await,
                Polled::Pending => requests.spawn_handler(caller, work, guard),
                Polled::WaitsForDisk => {
                    tokio::task::spawn_blocking(requests.disk_job(caller, work, guard));
                }
            }
        });
    }

    /// The handler of a request. Without a permit, it begins when there is one.
    fn handler(
        self: &Arc<Self>,
        header: Header,
        operation: FileOperation,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Handler {
        let requests = self.clone();
        Box::pin(async move {
            let permit = match permit {
                Some(permit) => Some(permit),
                None => requests.permits.clone().acquire_owned().await.ok(),
            };
            let request = RequestContext { header, received: Instant::now() };
            (requests.filesystem.handle(&request, operation).await, permit)
        })
    }

    /// Enters a request into those under way until the guard is dropped.
    fn enter_under_way(self: &Arc<Self>, caller: WaitingCaller, abort: Abort) -> UnderWayGuard {
        let WaitingCaller { unique, pid, by_any_signal } = caller;
        let is_interrupted = {
            let mut under_way = self.under_way.lock();
            under_way.requests.insert(unique, WaitingRequest { abort, pid, by_any_signal });
            let early = under_way.interrupted.iter().position(|early| *early == unique);
            early.and_then(|index| under_way.interrupted.remove(index)).is_some()
        };
        if is_interrupted {
            self.interrupt(unique);
        }
        UnderWayGuard { requests: self.clone(), unique }
    }

    /// Spawns the rest of a handler. INTERRUPT aborts it.
    fn spawn_handler(self: &Arc<Self>, caller: WaitingCaller, work: Handler, guard: ReplyGuard) {
        let (abort, registration) = AbortHandle::new_pair();
        let under_way = self.enter_under_way(caller, Abort::Task(abort));
        let requests = self.clone();
        let work = async move {
            let _under_way = under_way;
            let (result, _permit) = work.await;
            requests.deliver(result, guard).await;
        };
        tokio::spawn(Abortable::new(work, registration));
    }

    /// The rest of a handler that waits for a disk, for a thread that may. INTERRUPT makes the reply; the
    /// thread goes on.
    fn disk_job(
        self: &Arc<Self>,
        caller: WaitingCaller,
        mut work: Handler,
        guard: ReplyGuard,
    ) -> impl FnOnce() + Send + 'static {
        let requests = self.clone();
        let reply = Arc::new(Mutex::new(Some(guard)));
        let under_way = self.enter_under_way(caller, Abort::Reply(reply.clone()));
        move || {
            let result = catch_unwind(AssertUnwindSafe(|| disk_waits::poll_blocking(&mut work)));
            drop(under_way);
            let guard = reply.lock().take();
            match (result, guard) {
                (Ok(Some((result, _permit))), Some(guard)) => {
                    if let Some(unused) = requests.reply(result, guard) {
                        requests.spawn_undo_open(unused);
                    }
                }
                (Ok(Some((Ok(Outcome { opened: Some(opened), .. }), _permit))), None) => {
                    requests.spawn_undo_open(opened);
                }
                (Ok(None), Some(guard)) => requests.spawn_handler(caller, work, guard),
                // An aborted request, or as for a task that panics.
                (_, _) => {}
            }
        }
    }

    /// Sends the reply of a handler. Returns the file that it has opened if the kernel didn't take the reply.
    fn reply(&self, result: Result<Outcome, Errno>, mut guard: ReplyGuard) -> Option<UndeliveredOpen> {
        match result {
            Ok(outcome) => {
                let sent = guard.send(Ok(&outcome.reply.0));
                self.filesystem.buffers().put(outcome.reply.0);
                outcome.opened.filter(|_| sent.is_err())
            }
            Err(errno) => {
                let _ = guard.send(Err(errno));
                None
            }
        }
    }

    /// As [`Requests::reply`], and closes a file for which the kernel will send no RELEASE.
    async fn deliver(&self, result: Result<Outcome, Errno>, guard: ReplyGuard) {
        if let Some(opened) = self.reply(result, guard) {
            Box::pin(self.filesystem.undo_open(opened)).await;
        }
    }

    fn spawn_undo_open(&self, opened: UndeliveredOpen) {
        let filesystem = self.filesystem.clone();
        tokio::spawn(async move { filesystem.undo_open(opened).await });
    }

    /// Begins a request that a queue's thread has received. Returns the entry if it has the reply; otherwise
    /// the reply comes through the inbox. Runs on that thread, with the runtime's context.
    pub(crate) fn begin_queued(
        self: &Arc<Self>,
        entry: FuseEntry,
        inbox: &Arc<Inbox>,
        disk_threads: &Arc<DiskThreads>,
    ) -> Option<FuseEntry> {
        self.received.fetch_add(1, Relaxed);
        let decoded = FuseRequest::decode(self.message(&entry));
        let guard = |unique| ReplyGuard {
            requests: self.clone(),
            unique,
            channel: Some(ReplyChannel::Queue(entry, inbox.clone())),
        };
        match decoded {
            Ok(FuseRequest { header, operation: Operation::File(operation) }) => {
                self.handle_queued(header, operation, guard(header.unique), disk_threads)
            }
            Ok(FuseRequest { header, operation: Operation::Control(ControlOperation::Release { fh }) }) => {
                self.release_queued(fh, guard(header.unique))
            }
            // The kernel sends the others by /dev/fuse.
            Ok(FuseRequest { header, operation: Operation::Control(_) }) => {
                guard(header.unique).into_entry(Err(Errno::NOSYS))
            }
            Err(DecodeError::Refused { unique, errno, .. }) => guard(unique).into_entry(Err(errno)),
            Err(error @ DecodeError::NoHeader(_)) => {
                tracing::warn!(%error, "a malformed request");
                guard(0).into_entry(Err(Errno::IO))
            }
        }
    }

    /// The bytes of a request. They are copied: the server may get a WRITE's data again long after the reply,
    /// and the entry's memory belongs to the kernel then.
    fn message(&self, entry: &FuseEntry) -> Bytes {
        let parts = entry.request();
        let len = parts.iter().map(|part| part.len()).sum();
        let mut buffer = if len > SMALL { self.filesystem.buffers().take() } else { Vec::new() };
        buffer.clear();
        buffer.reserve(len);
        parts.iter().for_each(|part| buffer.extend_from_slice(part));
        if len > SMALL { self.filesystem.buffers().share(buffer, len) } else { buffer.into() }
    }

    fn handle_queued(
        self: &Arc<Self>,
        header: Header,
        operation: FileOperation,
        guard: ReplyGuard,
        disk_threads: &Arc<DiskThreads>,
    ) -> Option<FuseEntry> {
        let permit = self.permits.clone().try_acquire_owned().ok();
        let caller = WaitingCaller::new(header, &operation);
        let mut work = self.handler(header, operation, permit);
        // Mostly there is nothing to wait for, and no other thread has to wake up.
        match catch_unwind(AssertUnwindSafe(|| disk_waits::poll_nonblocking(&mut work))) {
            Ok(Polled::Ready((Ok(outcome), _permit))) => {
                let entry = guard.into_entry(Ok(&outcome.reply.0));
                self.filesystem.buffers().put(outcome.reply.0);
                entry
            }
            Ok(Polled::Ready((Err(errno), _permit))) => guard.into_entry(Err(errno)),
            Ok(Polled::Pending) => {
                self.spawn_handler(caller, work, guard);
                None
            }
            Ok(Polled::WaitsForDisk) => {
                disk_threads.run(self.disk_job(caller, work, guard));
                None
            }
            // As for a task that panics.
            Err(_) => guard.into_entry(Err(Errno::INTR)),
        }
    }

    /// Closes a file in the order of the kernel's requests, and leaves what may wait to another task. The
    /// kernel ignores the result, but limits the number of RELEASEs without a reply.
    async fn release(self: &Arc<Self>, header: &Header, fh: u64) {
        let released = self.filesystem.release(fh);
        self.guard(header.unique).send_and_forget(released.as_ref().map(|_| &[][..]).map_err(|errno| *errno));
        let Ok(Some(closing)) = released else { return };
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        self.finish_close(closing, permit, None);
    }

    /// As [`Requests::release`], on a queue's thread.
    fn release_queued(self: &Arc<Self>, fh: u64, guard: ReplyGuard) -> Option<FuseEntry> {
        let closing = match self.filesystem.release(fh) {
            Ok(Some(closing)) => closing,
            Ok(None) => return guard.into_entry(Ok(&[])),
            Err(errno) => return guard.into_entry(Err(errno)),
        };
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => {
                self.finish_close(closing, permit, None);
                guard.into_entry(Ok(&[]))
            }
            Err(_) => {
                // Without a reply the kernel sends fewer.
                let requests = self.clone();
                tokio::spawn(async move {
                    let Ok(permit) = requests.permits.clone().acquire_owned().await else { return };
                    requests.finish_close(closing, permit, Some(guard));
                });
                None
            }
        }
    }

    /// Does what is left of a close, and then replies if there is a guard.
    fn finish_close(
        self: &Arc<Self>,
        closing: ClosingFile,
        permit: OwnedSemaphorePermit,
        guard: Option<ReplyGuard>,
    ) {
        let filesystem = self.filesystem.clone();
        let mut finish = Box::pin(async move {
            filesystem.finish_close(closing).await;
            if let Some(guard) = guard {
                guard.send_and_forget(Ok(&[]));
            }
            drop(permit);
        });
        // Mostly there is nothing to wait for, and no other thread has to wake up for it.
        if disk_waits::poll_nonblocking(&mut finish) != Polled::Ready(()) {
            tokio::spawn(finish);
        }
    }

    /// After an unmount: closes what is open and waits until no request is under way.
    pub(crate) async fn finish(&self) {
        self.filesystem.close_all().await;
        let _ = self.permits.acquire_many(MAX_REQUESTS as u32).await;
        // A request may have opened a file meanwhile.
        self.filesystem.close_all().await;
    }

    /// The kernel's INTERRUPT.
    fn interrupt_requested(self: &Arc<Self>, header: &Header, unique: u64) {
        let is_under_way = {
            let mut under_way = self.under_way.lock();
            let is_under_way = under_way.requests.contains_key(&unique);
            if !is_under_way && self.filesystem.has_queues() {
                if under_way.interrupted.len() == MAX_EARLY_INTERRUPTS {
                    under_way.interrupted.pop_front();
                }
                under_way.interrupted.push_back(unique);
            }
            is_under_way
        };
        if is_under_way {
            self.interrupt(unique);
        } else {
            // The request isn't read yet, or done. With EAGAIN the kernel sends INTERRUPT again if it still
            // waits.
            let _ = self.filesystem.device().reply_error(header.unique, Errno::AGAIN);
        }
    }

    /// The caller of a request under way got a signal.
    fn interrupt(self: &Arc<Self>, unique: u64) {
        let requests = self.clone();
        tokio::spawn(async move {
            loop {
                let Some(waiting) = requests.under_way.lock().requests.get(&unique).cloned() else {
                    return;
                };
                // A caller outside of this PID namespace can't be checked.
                if waiting.by_any_signal || waiting.pid == 0 || users::is_dying(waiting.pid) {
                    waiting.abort.abort();
                    return;
                }
                tokio::time::sleep(SIGNAL_CHECK_INTERVAL).await;
            }
        });
    }

    /// Aborts requests of dying callers that came through queues, as long as this is polled. The kernel sends
    /// no INTERRUPT if the signal comes while a request is on its way to its queue's thread
    /// (fs/fuse/dev_uring.c, `fuse_uring_prepare_send`).
    pub(crate) async fn watch_callers(&self) -> Infallible {
        loop {
            tokio::time::sleep(CALLER_CHECK_INTERVAL).await;
            let waiting: Vec<WaitingRequest> = self.under_way.lock().requests.values().cloned().collect();
            for WaitingRequest { abort, pid, .. } in waiting {
                if pid != 0 && users::is_dying(pid) {
                    abort.abort();
                }
            }
        }
    }
}
