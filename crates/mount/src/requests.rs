//! The requests of a mount: accepted from the kernel, handled, and replied to.
//!
//! 1. Requests come by /dev/fuse ([`crate::device_readers`]) or through io_uring queues ([`crate::queues`]).
//!    FORGET and INTERRUPT come by /dev/fuse in any case.
//! 2. The thread that has received a request begins it. One that has to wait for a server becomes a task, one
//!    that has to wait for a disk a job for a thread that may.
//! 3. A request gets exactly one reply: from its handler, or, if that is aborted, from its [`ReplyGuard`].
//! 4. FORGET and RELEASE take effect when they are accepted: before the next request is read from /dev/fuse,
//!    or received by the same thread of a queue, in the kernel's order. A request that depends on RELEASEs
//!    that other threads receive waits for them ([`Filesystem::receive_releases`]).
//! 5. With [`MAX_REQUESTS`] under way no more are read from /dev/fuse until one is done; the kernel queues
//!    the rest.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use client::disk_waits::{self, Polled};
use futures_util::future::{AbortHandle, Abortable};
use parking_lot::Mutex;
use rustix::io::Errno;
use sys::fuse_queue::FuseEntry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::filesystem::{ClosingFile, Filesystem, Outcome, RequestContext, UndeliveredOpen};
use crate::fuse::request::{ControlOperation, DecodeError, FileOperation, FuseRequest, Header, Operation};
use crate::replies::{ReplyChannel, ReplyGuard};
use crate::waiting::{Abort, WaitingCaller, WaitingGuard, WaitingRequests};

/// Requests under way at once.
const MAX_REQUESTS: usize = 16_384;

/// The requests of a mount.
#[derive(Debug)]
pub(crate) struct Requests {
    filesystem: Arc<Filesystem>,
    permits: Arc<Semaphore>,
    waiting: Arc<WaitingRequests>,
    received: AtomicU64,
}

/// A request that is to be handled.
#[derive(Debug)]
pub(crate) struct AcceptedRequest {
    work: Work,
    guard: ReplyGuard,
}

/// What is to be done for a request.
#[derive(Debug)]
enum Work {
    Operation(Header, FileOperation),
    /// A RELEASE has taken effect. This is the rest.
    Close(ClosingFile),
}

/// A message of the kernel.
#[derive(Debug)]
pub(crate) enum Accepted {
    Request(AcceptedRequest),
    /// It is done. A queue's thread commits the entry.
    Done(Option<FuseEntry>),
}

/// A handler, with the permit of its request.
type Handler = Pin<Box<dyn Future<Output = (Result<Outcome, Errno>, Option<OwnedSemaphorePermit>)> + Send>>;

/// The rest of a request, for a thread that may wait for a disk. INTERRUPT makes the reply; the thread goes
/// on.
pub(crate) struct DiskJob {
    requests: Arc<Requests>,
    caller: WaitingCaller,
    work: Handler,
    reply: Arc<Mutex<Option<ReplyGuard>>>,
    waiting: WaitingGuard,
}

impl DiskJob {
    /// Runs it on this thread, and returns the entry if a queue's thread has to commit it. Doesn't panic.
    /// Within a tokio runtime.
    pub(crate) fn run(self) -> Option<FuseEntry> {
        let Self { requests, caller, mut work, reply, waiting } = self;
        let result = catch_unwind(AssertUnwindSafe(|| disk_waits::poll_blocking(&mut work)));
        if let Ok(None) = result {
            if caller.must_finish {
                Requests::spawn_finishing(work, reply, waiting);
                return None;
            }
            let guard = reply.lock().take();
            if let Some(guard) = guard {
                requests.spawn_abortable(work, guard, |abort| {
                    waiting.set_abort(abort);
                    waiting
                });
            }
            return None;
        }
        drop(waiting);
        let guard = reply.lock().take();
        match (result, guard) {
            (Ok(Some((result, _permit))), Some(guard)) => requests.reply_here(guard, result),
            // It was aborted.
            (Ok(Some((Ok(outcome), _permit))), None) => {
                requests.filesystem.return_references(&outcome);
                if let Some(opened) = outcome.opened {
                    requests.spawn_undo_open(opened);
                }
                None
            }
            // As for a task that panics.
            (Err(_), Some(guard)) => guard.send_here(Err(Errno::INTR)),
            _ => None,
        }
    }
}

impl Requests {
    pub(crate) fn new(filesystem: Arc<Filesystem>) -> Arc<Self> {
        Arc::new(Self {
            waiting: WaitingRequests::new(filesystem.granted_locks().clone()),
            filesystem,
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            received: AtomicU64::new(0),
        })
    }

    pub(crate) const fn filesystem(&self) -> &Arc<Filesystem> {
        &self.filesystem
    }

    /// The number of requests that were received, and of those that wait.
    pub(crate) fn count(&self) -> (u64, usize) {
        (self.received.load(Relaxed), self.waiting.len())
    }

    /// A permit for one request: waits while there are too many. `None` at the mount's end.
    pub(crate) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().acquire_owned().await.ok()
    }

    /// As [`Requests::permit`], without waiting.
    pub(crate) fn permit_now(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Accepts a message of the kernel. Doesn't wait. Within a tokio runtime.
    pub(crate) fn accept(self: &Arc<Self>, message: Bytes, channel: ReplyChannel) -> Accepted {
        self.received.fetch_add(1, Relaxed);
        let guard = |unique| ReplyGuard::new(self.filesystem.clone(), unique, channel);
        match FuseRequest::decode(message) {
            Ok(FuseRequest { header, operation: Operation::File(operation) }) => {
                let guard = guard(header.unique);
                Accepted::Request(AcceptedRequest { work: Work::Operation(header, operation), guard })
            }
            Ok(FuseRequest { header, operation: Operation::Control(operation) }) => {
                self.control(&header, operation, guard(header.unique))
            }
            Err(DecodeError::Refused { unique, errno, .. }) => {
                Accepted::Done(guard(unique).send_here(Err(errno)))
            }
            Err(error @ DecodeError::NoHeader(_)) => {
                tracing::warn!(%error, "a malformed request");
                let guard = guard(0);
                if guard.is_queued() {
                    return Accepted::Done(guard.send_here(Err(Errno::IO)));
                }
                guard.without_reply();
                Accepted::Done(None)
            }
        }
    }

    fn control(
        self: &Arc<Self>,
        header: &Header,
        operation: ControlOperation,
        guard: ReplyGuard,
    ) -> Accepted {
        let done = |guard: ReplyGuard, result| Accepted::Done(guard.send_here(result));
        match operation {
            ControlOperation::Release { fh } => {
                return match self.filesystem.release(fh) {
                    Ok(Some(closing)) => {
                        Accepted::Request(AcceptedRequest { work: Work::Close(closing), guard })
                    }
                    Ok(None) => done(guard, Ok(&[])),
                    Err(errno) => done(guard, Err(errno)),
                };
            }
            // Only the first request can be INIT, and the others come by /dev/fuse.
            ControlOperation::Init(_) => return done(guard, Err(Errno::NOSYS)),
            _ if guard.is_queued() => return done(guard, Err(Errno::NOSYS)),
            ControlOperation::Destroy => return done(guard, Ok(&[])),
            ControlOperation::Forget { count } => self.filesystem.forget(header.node, count),
            ControlOperation::BatchForget(nodes) => {
                nodes.iter().for_each(|(node, count)| self.filesystem.forget(*node, *count));
            }
            ControlOperation::Interrupt { unique } => {
                if !self.waiting.interrupted(unique, self.filesystem.has_queues()) {
                    // With EAGAIN the kernel sends INTERRUPT again if it still waits for the request.
                    return done(guard, Err(Errno::AGAIN));
                }
            }
        }
        guard.without_reply();
        Accepted::Done(None)
    }

    /// Handles a request on this thread as far as that waits neither for a server nor for a disk. `run_job`
    /// gets what waits for a disk. Returns the entry if a queue's thread has to commit it, or what `run_job`
    /// returns. Within a tokio runtime.
    ///
    /// Without a permit, it begins when there is one.
    pub(crate) fn handle(
        self: &Arc<Self>,
        request: AcceptedRequest,
        permit: Option<OwnedSemaphorePermit>,
        run_job: impl FnOnce(DiskJob) -> Option<FuseEntry>,
    ) -> Option<FuseEntry> {
        let AcceptedRequest { work, guard } = request;
        match work {
            Work::Operation(header, operation) => {
                self.handle_operation(header, operation, guard, permit, run_job)
            }
            Work::Close(closing) => self.close(closing, guard, permit),
        }
    }

    /// As [`Requests::handle`], on a thread that may wait for a disk. Calls that may have to aren't tried
    /// without waiting first.
    pub(crate) fn handle_blocking(
        self: &Arc<Self>,
        request: AcceptedRequest,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Option<FuseEntry> {
        let AcceptedRequest { work, guard } = request;
        match work {
            Work::Operation(header, operation) => {
                let caller = WaitingCaller::new(header, &operation);
                let work = self.handler(header, operation, permit);
                self.disk_job(caller, work, guard).run()
            }
            Work::Close(closing) => self.close(closing, guard, permit),
        }
    }

    fn handle_operation(
        self: &Arc<Self>,
        header: Header,
        operation: FileOperation,
        guard: ReplyGuard,
        permit: Option<OwnedSemaphorePermit>,
        run_job: impl FnOnce(DiskJob) -> Option<FuseEntry>,
    ) -> Option<FuseEntry> {
        let caller = WaitingCaller::new(header, &operation);
        let mut work = self.handler(header, operation, permit);
        // Mostly there is nothing to wait for, and no other thread has to wake up.
        match catch_unwind(AssertUnwindSafe(|| disk_waits::poll_nonblocking(&mut work))) {
            Ok(Polled::Ready((result, _permit))) => self.reply_here(guard, result),
            Ok(Polled::Pending) => {
                self.spawn_handler(caller, work, guard);
                None
            }
            Ok(Polled::WaitsForDisk) => run_job(self.disk_job(caller, work, guard)),
            // As for a task that panics.
            Err(_) => guard.send_here(Err(Errno::INTR)),
        }
    }

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
                None => requests.permit().await,
            };
            let request = RequestContext { header, received: Instant::now() };
            (requests.filesystem.handle(&request, operation).await, permit)
        })
    }

    /// Spawns the rest of a handler. INTERRUPT aborts it, or, if it must finish, makes the reply.
    fn spawn_handler(self: &Arc<Self>, caller: WaitingCaller, work: Handler, guard: ReplyGuard) {
        if caller.must_finish {
            let reply = Arc::new(Mutex::new(Some(guard)));
            let waiting = self.waiting.enter(caller, Abort::Reply(reply.clone()));
            Self::spawn_finishing(work, reply, waiting);
        } else {
            self.spawn_abortable(work, guard, |abort| self.waiting.enter(caller, abort));
        }
    }

    /// Spawns the rest of a handler, which ends also if the reply has been made.
    fn spawn_finishing(work: Handler, reply: Arc<Mutex<Option<ReplyGuard>>>, waiting: WaitingGuard) {
        tokio::spawn(async move {
            let (result, _permit) = work.await;
            drop(waiting);
            let guard = reply.lock().take();
            if let Some(guard) = guard {
                // FLUSH opens nothing.
                let _ = guard.deliver(result);
            }
        });
    }

    /// Spawns the rest of a handler, which is dropped when it is aborted. `enter` registers it.
    fn spawn_abortable(
        self: &Arc<Self>,
        work: Handler,
        guard: ReplyGuard,
        enter: impl FnOnce(Abort) -> WaitingGuard,
    ) {
        let (abort, registration) = AbortHandle::new_pair();
        let waiting = enter(Abort::Task(abort));
        let requests = self.clone();
        let work = async move {
            let _waiting = waiting;
            let (result, _permit) = work.await;
            if let Some(unused) = guard.deliver(result) {
                // The kernel will send no RELEASE.
                Box::pin(requests.filesystem.undo_open(unused)).await;
            }
        };
        tokio::spawn(Abortable::new(work, registration));
    }

    fn disk_job(self: &Arc<Self>, caller: WaitingCaller, work: Handler, guard: ReplyGuard) -> DiskJob {
        let reply = Arc::new(Mutex::new(Some(guard)));
        let waiting = self.waiting.enter(caller, Abort::Reply(reply.clone()));
        DiskJob { requests: self.clone(), caller, work, reply, waiting }
    }

    /// Sends the result of a handler from the thread that has received the request, or runs its rest.
    fn reply_here(&self, guard: ReplyGuard, result: Result<Outcome, Errno>) -> Option<FuseEntry> {
        if !guard.is_queued() {
            if let Some(unused) = guard.deliver(result) {
                self.spawn_undo_open(unused);
            }
            return None;
        }
        match result {
            Ok(outcome) => {
                let entry = guard.send_here(Ok(&outcome.reply.0));
                self.filesystem.buffers().put(outcome.reply.0);
                entry
            }
            Err(errno) => guard.send_here(Err(errno)),
        }
    }

    /// Closes a file for which the kernel will send no RELEASE.
    fn spawn_undo_open(&self, opened: UndeliveredOpen) {
        let filesystem = self.filesystem.clone();
        tokio::spawn(async move { filesystem.undo_open(opened).await });
    }

    /// Does what is left of a close. The kernel ignores the result, but limits the number of RELEASEs without
    /// a reply.
    fn close(
        self: &Arc<Self>,
        closing: ClosingFile,
        guard: ReplyGuard,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Option<FuseEntry> {
        let requests = self.clone();
        let Some(permit) = permit else {
            // Without a reply the kernel sends fewer.
            tokio::spawn(async move {
                let _permit = requests.permit().await;
                requests.filesystem.finish_close(closing).await;
                guard.send_and_forget(Ok(&[]));
            });
            return None;
        };
        let entry = guard.send_here(Ok(&[]));
        let mut finish = Box::pin(async move {
            requests.filesystem.finish_close(closing).await;
            drop(permit);
        });
        // Mostly there is nothing to wait for, and no other thread has to wake up for it.
        if disk_waits::poll_nonblocking(&mut finish) != Polled::Ready(()) {
            tokio::spawn(finish);
        }
        entry
    }

    /// After an unmount: closes what is open and waits until no request is under way.
    pub(crate) async fn finish(&self) {
        self.filesystem.close_all().await;
        let _ = self.permits.acquire_many(MAX_REQUESTS as u32).await;
        // A request may have opened a file meanwhile.
        self.filesystem.close_all().await;
    }

    /// Aborts requests of dying callers that came through queues, as long as this is polled.
    pub(crate) async fn watch_callers(&self) -> Infallible {
        self.waiting.watch_callers().await
    }
}
