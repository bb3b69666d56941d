//! The requests of a mount: read from the device, handled by a task each, replied to when it is done.
//!
//! 1. One task reads. It never waits for a server: a request that may is handled by a task of its own. With
//!    [`MAX_REQUESTS`] of them it stops reading until one is done; the kernel queues the rest.
//! 2. A request gets exactly one reply: from its task, or, if the task is aborted, from its [`ReplyGuard`].
//! 3. FORGET and RELEASE take effect before the next request is read, in the kernel's order.
//! 4. INTERRUPT says that the caller got a signal. As on a hard mount of the kernel's client, only a fatal
//!    signal counts: the task is aborted if the caller is dying, now or later, because the kernel sends
//!    INTERRUPT only once. The server may still execute the call, as with every kill between two machines.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, FutureExt as _};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::sync::Semaphore;

use crate::filesystem::{Filesystem, RequestContext};
use crate::fuse::request::{ControlOperation, DecodeError, FileOperation, FuseRequest, Header, Operation};
use crate::users;

/// Requests under way at once.
const MAX_REQUESTS: usize = 16_384;

/// Requests that are read in a row before other tasks run.
const MAX_BATCH: usize = 64;

/// The interval at which an interrupted caller is checked for a fatal signal.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The requests under way.
#[derive(Debug)]
pub(crate) struct Requests {
    filesystem: Arc<Filesystem>,
    permits: Arc<Semaphore>,
    /// By request number, with the caller's thread.
    under_way: Mutex<HashMap<u64, (AbortHandle, u32)>>,
    read: AtomicU64,
}

/// Ensures the reply to a request: `EINTR` if it is dropped without one.
struct ReplyGuard {
    requests: Arc<Requests>,
    unique: u64,
    is_sent: bool,
}

impl ReplyGuard {
    /// Sends the reply. An error of the device means that the kernel doesn't wait for it any more.
    fn send(&mut self, result: Result<&[u8], Errno>) -> Result<(), Errno> {
        self.is_sent = true;
        let device = self.requests.filesystem.device().get_ref();
        match result {
            Ok(body) => device.reply(self.unique, body),
            Err(errno) => device.reply_error(self.unique, errno),
        }
    }

    /// Sends the reply, whether or not the kernel still waits for it.
    fn send_and_forget(mut self, result: Result<&[u8], Errno>) {
        let _ = self.send(result);
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        self.requests.under_way.lock().remove(&self.unique);
        if !self.is_sent {
            let _ = self.send(Err(Errno::INTR));
        }
    }
}

impl Requests {
    pub(crate) fn new(filesystem: Arc<Filesystem>) -> Arc<Self> {
        Arc::new(Self {
            filesystem,
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            under_way: Mutex::default(),
            read: AtomicU64::new(0),
        })
    }

    /// The number of requests that were read, and of those that are under way.
    pub(crate) fn count(&self) -> (u64, usize) {
        (self.read.load(Relaxed), self.under_way.lock().len())
    }

    /// Reads requests, of up to `max_len` bytes, until the filesystem is unmounted.
    ///
    /// # Errors
    /// The device's.
    pub(crate) async fn serve(self: &Arc<Self>, max_len: usize) -> std::io::Result<()> {
        let device = self.filesystem.device().clone();
        let buffers = self.filesystem.buffers();
        let new_buffer = || vec![0; max_len];
        let mut buffer = new_buffer();
        loop {
            let mut ready = device.ready(Interest::READABLE | Interest::ERROR).await?;
            let mut batch = 0;
            loop {
                match device.get_ref().read(&mut buffer) {
                    Ok(len) => {
                        // A WRITE's data may be kept for long and shouldn't hold much more memory than its
                        // size.
                        let message = if len <= max_len / 2 {
                            Bytes::copy_from_slice(&buffer[..len])
                        } else {
                            let mut next = buffers.take();
                            if next.len() < max_len {
                                next = new_buffer();
                            }
                            buffers.share(std::mem::replace(&mut buffer, next), len)
                        };
                        self.begin(message).await;
                    }
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    // The kernel withdrew the request before it was read.
                    Err(Errno::INTR | Errno::NOENT) => {}
                    Err(Errno::NODEV) => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
                batch += 1;
                if batch == MAX_BATCH {
                    batch = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn begin(self: &Arc<Self>, message: Bytes) {
        self.read.fetch_add(1, Relaxed);
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
            ControlOperation::Interrupt { unique } => self.interrupt(header, unique),
            ControlOperation::Destroy => self.guard(header.unique).send_and_forget(Ok(&[])),
            // Only the first request can be INIT.
            ControlOperation::Init(_) => self.guard(header.unique).send_and_forget(Err(Errno::NOSYS)),
        }
    }

    fn guard(self: &Arc<Self>, unique: u64) -> ReplyGuard {
        ReplyGuard { requests: self.clone(), unique, is_sent: false }
    }

    async fn spawn(self: &Arc<Self>, header: Header, operation: FileOperation) {
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        let (abort, registration) = AbortHandle::new_pair();
        self.under_way.lock().insert(header.unique, (abort, header.pid));
        let mut guard = self.guard(header.unique);
        let filesystem = self.filesystem.clone();
        let work = async move {
            let request = RequestContext { header, received: Instant::now() };
            match filesystem.handle(&request, operation).await {
                Ok(outcome) => {
                    let sent = guard.send(Ok(&outcome.reply.0));
                    if let (Err(_), Some(opened)) = (sent, outcome.opened) {
                        // The kernel didn't take the reply and will send no RELEASE.
                        Box::pin(filesystem.undo_open(opened)).await;
                    }
                    filesystem.buffers().put(outcome.reply.0);
                }
                Err(errno) => drop(guard.send(Err(errno))),
            }
            drop(permit);
        };
        tokio::spawn(Abortable::new(work, registration));
    }

    /// Closes a file in the order of the kernel's requests, and leaves what may wait to another task. The
    /// kernel ignores the result, but limits the number of RELEASEs without a reply.
    async fn release(self: &Arc<Self>, header: &Header, fh: u64) {
        let released = self.filesystem.release(fh);
        self.guard(header.unique).send_and_forget(released.as_ref().map(|_| &[][..]).map_err(|errno| *errno));
        let Ok(Some(closing)) = released else { return };
        let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
        let filesystem = self.filesystem.clone();
        let mut finish = Box::pin(async move {
            filesystem.finish_close(closing).await;
            drop(permit);
        });
        // Mostly there is nothing to wait for, and no other thread has to wake up for it.
        if (&mut finish).now_or_never().is_none() {
            tokio::spawn(finish);
        }
    }

    /// After an unmount: closes what is open and waits until no request is under way.
    pub(crate) async fn finish(&self) {
        self.filesystem.close_all().await;
        let _ = self.permits.acquire_many(MAX_REQUESTS as u32).await;
    }

    /// The caller of a request got a signal.
    fn interrupt(self: &Arc<Self>, header: &Header, unique: u64) {
        let Some((abort, pid)) = self.under_way.lock().get(&unique).cloned() else {
            // The request isn't read yet, or done. With EAGAIN the kernel sends INTERRUPT again if it still
            // waits.
            let _ = self.filesystem.device().get_ref().reply_error(header.unique, Errno::AGAIN);
            return;
        };
        let requests = self.clone();
        tokio::spawn(async move {
            loop {
                // A caller outside of this PID namespace can't be checked.
                if pid == 0 || users::is_dying(pid) {
                    abort.abort();
                    return;
                }
                tokio::time::sleep(SIGNAL_CHECK_INTERVAL).await;
                if !requests.under_way.lock().contains_key(&unique) {
                    return;
                }
            }
        });
    }
}
