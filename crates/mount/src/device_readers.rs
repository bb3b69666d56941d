//! The readers of /dev/fuse: a task of the runtime, and threads.
//!
//! With a tree, requests are system calls of this process. Threads then read them, handle them and reply, and
//! one thread wakes up for a request. Without a tree most requests wait for a server, whose replies wake the
//! runtime: a task there reads them, so that no thread wakes up besides. Each of them changes over when it
//! notices that a tree has come or gone. A request that another reader gets meanwhile is handled as well as
//! any.
//!
//! The threads wait in a line (EPOLLEXCLUSIVE): the kernel wakes the first one that isn't busy, and one that
//! has handled a request goes to the end. A thread that always woke up would do so on another CPU than the
//! caller's most of the time, which takes longer.
//!
//! A thread makes calls that may wait for a disk itself, as long as enough others are left for further
//! requests.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::fuse::device::WatchedDevice;
use crate::replies::ReplyChannel;
use crate::requests::{Accepted, AcceptedRequest, Requests};
use crate::runtime::prepare_thread;

/// The threads. Two are as fast as more while none waits for a disk.
const THREADS: usize = 8;

/// Threads that wait for a disk at once. The others serve further requests.
const MAX_DISK_WAITS: usize = THREADS - 2;

/// Requests that the task reads in a row before other tasks run.
const MAX_BATCH: usize = 64;

/// How long FORGETs are collected while other requests come through queues. INTERRUPT may wait as long.
const FORGET_INTERVAL: Duration = Duration::from_millis(5);

/// What a thread's epoll instance tells of.
const DEVICE: u64 = 0;
const STOP: u64 = 1;

/// Who is to read.
#[derive(Debug)]
enum Mode {
    Task,
    Threads,
    /// Nobody: the filesystem is unmounted, the device has failed, or the task has ended.
    Ended(io::Result<()>),
}

/// The readers of a mount's device.
struct Readers {
    requests: Arc<Requests>,
    /// Bytes of the largest request.
    max_len: usize,
    mode: Mutex<Mode>,
    /// The mode has changed: for threads, and for the task.
    changed: Condvar,
    notice: Notify,
    /// Held while a request is read and accepted, so that FORGET and RELEASE take effect in order.
    reading: Mutex<()>,
    /// Threads that handle a request, and may wait for a disk.
    may_wait: AtomicUsize,
    /// Whether threads can read: without memory or descriptors for them, the task does for good.
    has_threads: AtomicBool,
    /// Readable at the end.
    stop: OwnedFd,
}

/// The result of a read.
#[expect(clippy::large_enum_variant, reason = "it is moved once")]
enum Read {
    Request(AcceptedRequest),
    /// A request that has taken effect, or was withdrawn.
    Nothing,
    Empty,
    Unmounted,
}

/// Memory for the next request.
struct ReadBuffer(Vec<u8>);

/// Ends the threads with the task.
struct EndOnDrop(Arc<Readers>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Ok(()));
    }
}

/// Serves the requests of up to `max_len` bytes that come by /dev/fuse until the filesystem is unmounted.
///
/// # Errors
/// The device's.
pub(crate) async fn serve(requests: &Arc<Requests>, device: WatchedDevice, max_len: usize) -> io::Result<()> {
    let readers = Arc::new(Readers {
        requests: requests.clone(),
        max_len,
        mode: Mutex::new(Mode::Task),
        changed: Condvar::new(),
        notice: Notify::new(),
        reading: Mutex::new(()),
        may_wait: AtomicUsize::new(0),
        has_threads: AtomicBool::new(true),
        stop: eventfd(0, EventfdFlags::CLOEXEC)?,
    });
    let _ended = EndOnDrop(readers.clone());
    let mut has_started = false;
    let mut device = device;
    loop {
        if readers.read_by_task(device).await? == TaskEnd::Unmounted {
            return Ok(());
        }
        if !std::mem::replace(&mut has_started, true)
            && let Err(error) = (0..THREADS).try_for_each(|number| readers.start_thread(number))
        {
            readers.give_up_threads(&error);
        }
        if let Some(ended) = readers.read_by_threads().await {
            return ended;
        }
        device = readers.requests.filesystem().device().watch()?;
    }
}

/// Why the task has stopped reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskEnd {
    /// Requests are local now.
    Local,
    Unmounted,
}

impl Readers {
    /// Whether requests don't wait for a server.
    fn is_local(&self) -> bool {
        let filesystem = self.requests.filesystem();
        self.has_threads.load(Relaxed) && !filesystem.has_queues() && filesystem.session().has_tree()
    }

    /// Reads on the runtime until there is a tree, or the filesystem is unmounted.
    async fn read_by_task(self: &Arc<Self>, device: WatchedDevice) -> io::Result<TaskEnd> {
        let mut buffer = ReadBuffer::new(self.max_len);
        let mut watched = device;
        loop {
            let mut ready = watched.ready(Interest::READABLE | Interest::ERROR).await?;
            let mut batch = 0;
            loop {
                match self.read(&mut buffer)? {
                    Read::Request(request) => self.spawn(request).await,
                    Read::Nothing => {}
                    Read::Empty => break,
                    Read::Unmounted => return Ok(TaskEnd::Unmounted),
                }
                batch += 1;
                if batch == MAX_BATCH {
                    batch = 0;
                    tokio::task::yield_now().await;
                }
            }
            ready.clear_ready();
            if self.is_local() {
                return Ok(TaskEnd::Local);
            }
            if self.requests.filesystem().has_queues() {
                // Each removed file causes a FORGET, which isn't urgent. Read together they wake this thread
                // less often.
                drop(watched);
                tokio::time::sleep(FORGET_INTERVAL).await;
                watched = self.requests.filesystem().device().watch()?;
            }
        }
    }

    /// Handles a request in a task of its own.
    async fn spawn(&self, request: AcceptedRequest) {
        let Some(permit) = self.requests.permit().await else { return };
        let requests = self.requests.clone();
        tokio::spawn(async move {
            requests.handle(request, Some(permit), |job| {
                drop(tokio::task::spawn_blocking(|| job.run()));
                None
            });
        });
    }

    /// Lets the threads read until there is no tree. Returns the result at the end of the mount.
    async fn read_by_threads(&self) -> Option<io::Result<()>> {
        self.change(Mode::Threads);
        if !self.has_threads.load(Relaxed) {
            self.change(Mode::Task);
        }
        loop {
            let changed = self.notice.notified();
            {
                let mut mode = self.mode.lock();
                match &mut *mode {
                    Mode::Threads => {}
                    Mode::Task => return None,
                    Mode::Ended(result) => return Some(std::mem::replace(result, Ok(()))),
                }
            }
            changed.await;
        }
    }

    fn start_thread(self: &Arc<Self>, number: usize) -> io::Result<()> {
        let line = WaitingLine::new(self)?;
        let (readers, runtime) = (self.clone(), Handle::current());
        let run = move || {
            prepare_thread();
            let _context = runtime.enter();
            if let Err(error) = readers.read_on_thread(&line, &runtime) {
                readers.end(Err(error));
            }
        };
        Builder::new().name(format!("fuse-device-{number}")).spawn(run).map(drop)
    }

    /// Reads on this thread whenever threads are to read, until the end.
    fn read_on_thread(self: &Arc<Self>, line: &WaitingLine, runtime: &Handle) -> io::Result<()> {
        let mut buffer = ReadBuffer::new(self.max_len);
        while self.wait_for_threads() {
            if line.wait()? == Wake::Stop {
                return Ok(());
            }
            match self.read(&mut buffer)? {
                Read::Request(request) => {
                    let permit =
                        self.requests.permit_now().or_else(|| runtime.block_on(self.requests.permit()));
                    self.handle(request, permit);
                }
                Read::Nothing => {}
                Read::Empty => continue,
                Read::Unmounted => {
                    self.end(Ok(()));
                    return Ok(());
                }
            }
            if let Err(error) = line.go_to_end() {
                // It isn't woken any more.
                self.give_up_threads(&error);
                return Ok(());
            }
            if !self.is_local() {
                self.change(Mode::Task);
            }
        }
        Ok(())
    }

    /// Waits until threads are to read. Returns false at the end.
    fn wait_for_threads(&self) -> bool {
        let mut mode = self.mode.lock();
        loop {
            match *mode {
                Mode::Task => self.changed.wait(&mut mode),
                Mode::Threads => return true,
                Mode::Ended(_) => return false,
            }
        }
    }

    /// Handles a request on this thread. It waits for a disk on one of the runtime's if too few threads are
    /// left.
    fn handle(&self, request: AcceptedRequest, permit: Option<OwnedSemaphorePermit>) {
        if self.may_wait.fetch_add(1, Relaxed) < MAX_DISK_WAITS {
            self.requests.handle_blocking(request, permit);
        } else {
            self.requests.handle(request, permit, |job| {
                drop(tokio::task::spawn_blocking(|| job.run()));
                None
            });
        }
        self.may_wait.fetch_sub(1, Relaxed);
    }

    /// From now on the task reads.
    fn give_up_threads(&self, error: &io::Error) {
        tracing::warn!(%error, "requests by /dev/fuse take longer: no threads can wait for them");
        self.has_threads.store(false, Relaxed);
        self.change(Mode::Task);
    }

    /// Changes the mode, unless that is the end.
    fn change(&self, to: Mode) {
        {
            let mut mode = self.mode.lock();
            if matches!(*mode, Mode::Ended(_)) {
                return;
            }
            *mode = to;
        }
        self.changed.notify_all();
        self.notice.notify_one();
    }

    /// Ends all readers.
    fn end(&self, result: io::Result<()>) {
        self.change(Mode::Ended(result));
        // A counter that is full is readable, too.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Reads and accepts a request, if there is one.
    fn read(&self, buffer: &mut ReadBuffer) -> io::Result<Read> {
        let _reading = self.reading.lock();
        match self.requests.filesystem().device().read(&mut buffer.0) {
            Ok(len) => {
                let message = buffer.take(len, self);
                Ok(match self.requests.accept(message, ReplyChannel::Device) {
                    Accepted::Request(request) => Read::Request(request),
                    Accepted::Done(_) => Read::Nothing,
                })
            }
            Err(Errno::AGAIN) => Ok(Read::Empty),
            // The kernel withdrew the request before it was read.
            Err(Errno::INTR | Errno::NOENT) => Ok(Read::Nothing),
            Err(Errno::NODEV) => Ok(Read::Unmounted),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl ReadBuffer {
    fn new(max_len: usize) -> Self {
        Self(vec![0; max_len])
    }

    /// The first `len` bytes. A WRITE's data may be kept for long and shouldn't hold much more memory than
    /// its size.
    fn take(&mut self, len: usize, readers: &Readers) -> bytes::Bytes {
        let max_len = readers.max_len;
        if len <= max_len / 2 {
            return bytes::Bytes::copy_from_slice(&self.0[..len]);
        }
        let buffers = readers.requests.filesystem().buffers();
        let mut next = buffers.take();
        if next.len() < max_len {
            next = vec![0; max_len];
        }
        buffers.share(std::mem::replace(&mut self.0, next), len)
    }
}

/// Why a thread in the line has been woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Request,
    Stop,
}

/// A thread's place in the line of those that wait for requests.
struct WaitingLine {
    epoll: OwnedFd,
    readers: Arc<Readers>,
}

impl WaitingLine {
    fn new(readers: &Arc<Readers>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &readers.stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let line = Self { epoll, readers: readers.clone() };
        line.enter()?;
        Ok(line)
    }

    /// Enters the line at its end.
    fn enter(&self) -> io::Result<()> {
        let device = self.readers.requests.filesystem().device().as_fd();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, device, epoll::EventData::new_u64(DEVICE), flags)?)
    }

    fn go_to_end(&self) -> io::Result<()> {
        epoll::delete(&self.epoll, self.readers.requests.filesystem().device().as_fd())?;
        self.enter()
    }

    /// Waits for a request, which another thread may read first, or for the end.
    fn wait(&self) -> io::Result<Wake> {
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(DEVICE) };
        let mut events = [none; 2];
        let count = match epoll::wait(&self.epoll, &mut events[..], None) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let is_end = events[..count].iter().any(|event| event.data.u64() == STOP);
        Ok(if is_end { Wake::Stop } else { Wake::Request })
    }
}
