//! The threads that serve a mount's io_uring queues: one for each possible CPU, on that CPU.
//!
//! 1. A thread handles what completes without waiting by itself and commits the reply at once: no other
//!    thread wakes up for such a request. What has to wait for a disk continues on one of the queue's
//!    [`DiskThreads`], what has to wait for a server on the runtime. The reply comes back through the queue's
//!    [`Inbox`].
//! 2. A disk thread may commit the reply itself, and then gets the entry's next request
//!    ([`crate::entry_keeper`]).
//! 3. The kernel uses the queues once each of them has an entry, and sends no request before. So all threads
//!    and rings exist before INIT is replied to. If the kernel refuses an entry after that, it uses /dev/fuse
//!    instead, for good.
//! 4. Requests of different queues are handled in any order. [`Queues::drain`] gives the order that RELEASE
//!    needs.

use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::{fs, io};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::thread::CpuSet;
use sys::fuse_queue::{FuseEntry, FuseQueue, FuseQueueEvent, FuseQueueWaker};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::buffers::Buffers;
use crate::disk_threads::DiskThreads;
use crate::entry_keeper::Keepers;
use crate::replies::ReplyChannel;
use crate::requests::{Accepted, Requests};
use crate::runtime::prepare_serving_thread;

/// The CPUs that the kernel has queues for.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// The switch for FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Entries of all queues together, at first and at most.
const INITIAL_ENTRIES: usize = 1024;
const MAX_ENTRIES: usize = 16_384;

/// Entries of one queue, at first and at most.
const INITIAL_QUEUE_ENTRIES: RangeInclusive<usize> = 8..=64;
const MAX_QUEUE_ENTRIES: RangeInclusive<usize> = 64..=1024;

/// Entries that may keep the memory of a large transfer, of all queues together and of one.
const LARGE_ENTRIES: usize = 64;
const LARGE_QUEUE_ENTRIES: RangeInclusive<usize> = 1..=8;

/// Requests of which at most this many bytes aren't a WRITE's data, or little of it.
const SMALL: usize = 64 << 10;

/// Something for the thread of a queue.
#[derive(Debug)]
enum Message {
    /// An entry with its reply.
    Reply(FuseEntry),
    /// Handle what the kernel has sent until now, and then say so.
    Drain(oneshot::Sender<()>),
    Stop,
}

/// The messages for the thread of a queue. There is a reply at most for each entry.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// `None`: the thread has ended.
    messages: Mutex<Option<Vec<Message>>>,
    waker: FuseQueueWaker,
    keepers: Keepers,
}

impl Inbox {
    /// Sends the reply that an entry has.
    pub(crate) fn reply(&self, entry: FuseEntry) {
        self.push(Message::Reply(entry));
    }

    fn push(&self, message: Message) {
        let mut messages = self.messages.lock();
        let Some(waiting) = &mut *messages else { return };
        waiting.push(message);
        let is_first = waiting.len() == 1;
        drop(messages);
        if is_first {
            self.waker.wake();
        }
    }

    fn take(&self) -> Vec<Message> {
        self.messages.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The disk threads that keep entries of this queue.
    pub(crate) const fn keepers(&self) -> &Keepers {
        &self.keepers
    }
}

/// Ends the inbox with its thread.
struct InboxOwner(Arc<Inbox>);

impl Drop for InboxOwner {
    fn drop(&mut self) {
        drop(self.0.messages.lock().take());
        self.0.keepers.end();
    }
}

/// The queues of a mount. Their threads end when this is dropped.
#[derive(Debug)]
pub(crate) struct Queues {
    inboxes: Vec<Arc<Inbox>>,
    max_entries: usize,
}

impl Queues {
    /// The requests that a queue has room for.
    pub(crate) const fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// Waits until every request that the kernel has sent to a queue before this call has been begun. A
    /// RELEASE has then taken effect.
    ///
    /// close(2) doesn't wait for RELEASE, and the process may make its next request on another CPU.
    pub(crate) async fn drain(&self) {
        let mut all = Vec::new();
        for inbox in &self.inboxes {
            let (done, drained) = oneshot::channel();
            inbox.push(Message::Drain(done));
            all.push(drained);
            inbox.keepers.drain(&mut all);
        }
        for drained in all {
            // An error means that the thread has ended.
            let _ = drained.await;
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.inboxes.iter().for_each(|inbox| inbox.push(Message::Stop));
    }
}

/// What a thread needs to begin.
#[derive(Clone)]
struct Start {
    requests: Arc<Requests>,
    runtime: Handle,
    /// Gets the result of the registration.
    registered: mpsc::SyncSender<Result<(), Errno>>,
}

/// Queues whose threads wait for [`PreparedQueues::start`]. They end if this is dropped.
pub(crate) struct PreparedQueues {
    pub(crate) queues: Arc<Queues>,
    threads: Vec<mpsc::SyncSender<Start>>,
}

/// The share of one of `count` queues in the entries of all, within what one may have.
fn share(all: usize, count: u16, one: RangeInclusive<usize>) -> usize {
    (all / usize::from(count)).clamp(*one.start(), *one.end())
}

impl PreparedQueues {
    /// Makes the threads and rings for the connection of `device`. `payload_len`: bytes of the largest READ
    /// and WRITE.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn new(device: &impl AsFd, payload_len: usize) -> Result<Self, String> {
        let count = possible_cpus().map_err(|error| format!("{POSSIBLE_CPUS}: {error}"))?;
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let max_entries = share(MAX_ENTRIES, count, MAX_QUEUE_ENTRIES);
        for number in 0..count {
            let device = device.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            let (send_inbox, inbox) = mpsc::sync_channel(1);
            let (start, started) = mpsc::sync_channel::<Start>(1);
            let initial = share(INITIAL_ENTRIES, count, INITIAL_QUEUE_ENTRIES);
            let large = share(LARGE_ENTRIES, count, LARGE_QUEUE_ENTRIES);
            let run = move || {
                pin(usize::from(number));
                prepare_serving_thread();
                let queue = match FuseQueue::new(device.as_fd(), number, payload_len, large) {
                    Ok(queue) => queue,
                    Err(error) => return drop(send_inbox.send(Err(error))),
                };
                // The ring keeps the device open.
                drop(device);
                let messages = Mutex::new(Some(Vec::new()));
                let inbox = Arc::new(Inbox { messages, waker: queue.waker(), keepers: Keepers::default() });
                let owner = InboxOwner(inbox.clone());
                if send_inbox.send(Ok(inbox)).is_ok()
                    && let Ok(start) = started.recv()
                {
                    let Start { requests, runtime, .. } = &start;
                    let disk_threads = DiskThreads::new(number, requests, runtime, &owner.0);
                    QueueThread {
                        queue,
                        inbox: owner,
                        entries: (initial, max_entries),
                        events: Vec::new(),
                        disk_threads,
                        can_grow: true,
                    }
                    .run(start);
                }
            };
            let spawned: io::Result<JoinHandle<()>> =
                Builder::new().name(format!("fuse-queue-{number}")).spawn(run);
            drop(spawned.map_err(|error| error.to_string())?);
            match inbox.recv() {
                Ok(Ok(inbox)) => inboxes.push(inbox),
                Ok(Err(error)) => return Err(refusal(&error)),
                Err(_) => return Err("a thread ended".to_owned()),
            }
            threads.push(start);
        }
        Ok(Self { queues: Arc::new(Queues { inboxes, max_entries }), threads })
    }

    /// Registers entries in all queues, whereupon the kernel uses them. INIT must have been replied to.
    ///
    /// # Errors
    /// The kernel has refused an entry, and serves the connection by /dev/fuse.
    pub(crate) fn start(self, requests: &Arc<Requests>, runtime: &Handle) -> Result<Arc<Queues>, Errno> {
        let (registered, results) = mpsc::sync_channel(self.threads.len());
        let start = Start { requests: requests.clone(), runtime: runtime.clone(), registered };
        for thread in &self.threads {
            // The result shows whether the thread has ended.
            let _ = thread.send(start.clone());
        }
        drop(start);
        for _ in &self.threads {
            results.recv().unwrap_or(Err(Errno::IO))?;
        }
        Ok(self.queues)
    }
}

/// Why there can be no FUSE over io_uring, if the kernel hasn't offered it.
pub(crate) fn not_offered() -> String {
    match fs::read_to_string(SWITCH) {
        Ok(value) if value.trim() == "N" => {
            format!(
                "FUSE over io_uring is switched off on this host. As root: echo Y > {SWITCH}; then mount \
                 again"
            )
        }
        Ok(_) => "the kernel didn't offer FUSE over io_uring to this mount. Mount again".to_owned(),
        Err(_) => "this kernel has no FUSE over io_uring (Linux 6.14 with CONFIG_FUSE_IO_URING)".to_owned(),
    }
}

/// Why a ring can't be made.
fn refusal(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::NOSYS) => format!(
            "io_uring isn't permitted to this process ({error}): see the sysctl kernel.io_uring_disabled, \
             and in a container its seccomp profile"
        ),
        _ => format!("io_uring: {error}"),
    }
}

/// The number of CPUs that there may ever be, which is the number of queues.
fn possible_cpus() -> io::Result<u16> {
    parse_cpus(&fs::read_to_string(POSSIBLE_CPUS)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The number of CPUs in a list such as `0-3,8`.
fn parse_cpus(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// Binds this thread to a CPU, unless the process isn't allowed there or the CPU is offline.
pub(crate) fn pin(cpu: usize) {
    let is_allowed = rustix::thread::sched_getaffinity(None).is_ok_and(|allowed| allowed.is_set(cpu));
    if cpu < CpuSet::MAX_CPU && is_allowed {
        let mut only = CpuSet::new();
        only.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &only);
    }
}

struct QueueThread {
    queue: FuseQueue,
    inbox: InboxOwner,
    /// The number of entries at first and at most.
    entries: (usize, usize),
    events: Vec<FuseQueueEvent>,
    disk_threads: Arc<DiskThreads>,
    /// Whether more entries are of use: neither is the filesystem unmounted, nor has an entry failed.
    can_grow: bool,
}

impl Drop for QueueThread {
    fn drop(&mut self) {
        self.disk_threads.end();
    }
}

impl QueueThread {
    fn run(mut self, start: Start) {
        let Start { requests, runtime, registered } = start;
        let result = self.register(self.entries.0);
        let is_registered = result.is_ok();
        let _ = registered.send(result);
        if !is_registered {
            return;
        }
        let _context = runtime.enter();
        if let Err(error) = self.serve(&requests) {
            tracing::error!(%error, "an io_uring queue of the mount is broken: requests of its CPU hang");
        }
    }

    /// Adds entries, and waits until the kernel has accepted or refused them.
    fn register(&mut self, count: usize) -> Result<(), Errno> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        for _ in 0..count {
            self.queue.add_entry().map_err(errno)?;
        }
        // A refusal completes the submission at once.
        self.queue.poll(&mut self.events).map_err(errno)?;
        let refused = self.events.iter().find_map(|event| match event {
            FuseQueueEvent::Ended(errno) => Some(*errno),
            FuseQueueEvent::Request(_) | FuseQueueEvent::Woken => None,
        });
        refused.map_or(Ok(()), Err)
    }

    /// Serves the queue until it is stopped.
    fn serve(&mut self, requests: &Arc<Requests>) -> io::Result<()> {
        loop {
            self.begin_received(requests)?;
            // A drain takes the wake-up for messages that came meanwhile.
            loop {
                let messages = self.inbox.0.take();
                if messages.is_empty() {
                    break;
                }
                for message in messages {
                    match message {
                        Message::Reply(entry) => self.queue.commit(entry)?,
                        Message::Drain(done) => {
                            self.drain(requests)?;
                            let _ = done.send(());
                        }
                        Message::Stop => return Ok(()),
                    }
                }
            }
            self.queue.wait(&mut self.events)?;
        }
    }

    /// Begins every request that the kernel has sent to this queue before this call.
    fn drain(&mut self, requests: &Arc<Requests>) -> io::Result<()> {
        // The kernel hands requests over in its order, at most one for each entry.
        let mut left = self.queue.available();
        loop {
            self.queue.poll(&mut self.events)?;
            if self.events.is_empty() {
                return Ok(());
            }
            left = left.saturating_sub(self.events.len());
            // All of them: the next wait is for further events.
            self.begin_received(requests)?;
            if left == 0 {
                return Ok(());
            }
        }
    }

    fn begin_received(&mut self, requests: &Arc<Requests>) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                FuseQueueEvent::Request(entry) => {
                    if let Some(entry) = self.begin(requests, entry) {
                        self.queue.commit(entry)?;
                    }
                }
                FuseQueueEvent::Ended(_) => self.can_grow = false,
                FuseQueueEvent::Woken => {}
            }
        }
        self.events = events;
        self.add_spare_entries();
        Ok(())
    }

    /// Begins a request. Returns the entry if it has the reply; otherwise the reply comes through the inbox.
    fn begin(&self, requests: &Arc<Requests>, entry: FuseEntry) -> Option<FuseEntry> {
        let message = message(&entry, requests.filesystem().buffers());
        match requests.accept(message, ReplyChannel::Queue(entry, self.inbox.0.clone())) {
            Accepted::Request(request) => requests.handle(request, requests.permit_now(), |job| {
                self.disk_threads.run(job);
                None
            }),
            Accepted::Done(entry) => entry,
        }
    }

    /// Keeps entries for further requests. One that arrives when there is none waits in the kernel, even if
    /// entries are added then, until another request of this queue is done.
    fn add_spare_entries(&mut self) {
        let (initial, max) = self.entries;
        let count = self.queue.added();
        if self.can_grow && self.queue.available() < initial / 2 && count < max {
            // Without memory for more, the entries that there are serve the requests.
            self.can_grow = (count..max).take(initial).all(|_| self.queue.add_entry().is_ok());
        }
    }
}

/// The bytes of a request. They are copied: the server may get a WRITE's data again long after the reply, and
/// the entry's memory belongs to the kernel then.
pub(crate) fn message(entry: &FuseEntry, buffers: &Arc<Buffers>) -> Bytes {
    let parts = entry.request();
    let len = parts.iter().map(|part| part.len()).sum();
    let mut buffer = if len > SMALL { buffers.take() } else { Vec::new() };
    buffer.clear();
    buffer.reserve(len);
    parts.iter().for_each(|part| buffer.extend_from_slice(part));
    if len > SMALL { buffers.share(buffer, len) } else { buffer.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,8,10-11", Some(7)), ("", None)] {
            assert_eq!(parse_cpus(list), count, "{list}");
        }
        assert_eq!(parse_cpus("3-1"), None);
    }
}
