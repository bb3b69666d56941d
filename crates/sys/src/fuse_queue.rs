//! FUSE over io_uring: one queue of a FUSE connection's requests, and the threads that serve it (Linux 6.14,
//! Documentation/filesystems/fuse/fuse-io-uring.rst).
//!
//! The kernel has a queue for each possible CPU and sends a request to the queue of the CPU that its caller
//! runs on. A queue has entries, each with a buffer for a header and one for a payload. An entry belongs
//! either to the kernel, which waits for a request to put into it, or to this process, which handles the
//! request and commits its reply. [`FuseEntry`] is the right to use the buffers: [`FuseQueue::wait`] returns
//! it with a request, and [`FuseQueue::commit`] gives it back.
//!
//! A commit makes the thread that submits it the one to which the kernel hands the entry's next request, and
//! the kernel prefers the entry that was committed last. Each thread that commits has a [`FuseQueue`] of its
//! own, a ring to which only it submits (`IORING_SETUP_SINGLE_ISSUER`). Another thread that has a reply
//! passes the entry to one of them and calls [`FuseQueueWaker::wake`].

use std::collections::HashSet;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{io, slice};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;

/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;

/// `FUSE_URING_OP_IN_OUT_SZ`: bytes for the arguments that an operation always has.
const MAX_ARGUMENTS: usize = 128;

/// Bytes of `struct fuse_in_header`.
const IN_HEADER: usize = 40;

/// Bytes for the header, in front of the payload.
const HEADER_LEN: usize = 4096;

/// The offset of the vectors behind the header.
const VECTORS: usize = 512;

/// Submissions between two system calls.
const SUBMISSIONS: u32 = 64;

/// Room for completions; the kernel keeps those beyond it.
const COMPLETIONS: u32 = 1024;

/// The memory of a payload up to this size, in bytes, is never returned between requests.
const SMALL_PAYLOAD: usize = 64 << 10;

/// The completion that [`FuseQueueWaker::wake`] causes.
const WAKE: u64 = u64::MAX;

/// `struct fuse_uring_req_header`.
#[repr(C)]
struct RequestHeader {
    /// `struct fuse_in_header`, or `fuse_out_header` of the reply.
    in_out: [u8; 128],
    arguments: [u8; MAX_ARGUMENTS],
    flags: u64,
    commit_id: u64,
    payload_len: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<RequestHeader>() == 288 && VECTORS >= 288 && VECTORS + 32 <= HEADER_LEN);

/// The memory of an entry: a header, the vectors for its registration, and the payload.
#[derive(Debug)]
struct EntryMemory {
    start: NonNull<u8>,
    payload_len: usize,
    /// The number of the entry's queue.
    queue: u16,
    /// Whether it may keep the memory of a large payload between requests.
    keeps_payload: AtomicBool,
}

// SAFETY: the value owns the mapping. Only the owner of the entry accesses it.
unsafe impl Send for EntryMemory {}
// SAFETY: a shared reference gives no access to the memory, only its address.
unsafe impl Sync for EntryMemory {}

impl EntryMemory {
    fn new(queue: u16, payload_len: usize) -> rustix::io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let len = HEADER_LEN + payload_len;
        // SAFETY: a new anonymous mapping affects no other memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let memory = Self { start, payload_len, queue, keeps_payload: AtomicBool::new(false) };
        let vectors = [
            libc::iovec { iov_base: memory.header().as_ptr().cast(), iov_len: size_of::<RequestHeader>() },
            libc::iovec { iov_base: memory.payload().as_ptr().cast(), iov_len: payload_len },
        ];
        // SAFETY: this part of the page is aligned, and has no other use.
        unsafe { memory.vectors().write(vectors) };
        Ok(memory)
    }

    /// Where the kernel finds the other two parts at a registration.
    const fn vectors(&self) -> NonNull<[libc::iovec; 2]> {
        // SAFETY: the page is larger.
        unsafe { self.start.add(VECTORS).cast() }
    }

    const fn header(&self) -> NonNull<RequestHeader> {
        self.start.cast()
    }

    const fn payload(&self) -> NonNull<u8> {
        // SAFETY: the mapping is larger than the header's page.
        unsafe { self.start.add(HEADER_LEN) }
    }
}

impl EntryMemory {
    /// Returns the memory of a large payload to the system; it reads as zeros then. Not while the kernel
    /// copies, and not while there is a [`FuseEntry`].
    fn release_pages(&self) {
        if self.payload_len > SMALL_PAYLOAD {
            // SAFETY: this part of the mapping has no contents that are still needed, says the caller.
            let _ = unsafe {
                let start = self.payload().add(SMALL_PAYLOAD).as_ptr().cast();
                rustix::mm::madvise(start, self.payload_len - SMALL_PAYLOAD, Advice::LinuxDontNeed)
            };
        }
    }
}

impl Drop for EntryMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own. The kernel writes to it only on the thread of the ring
        // that the entry was submitted to, in its calls of io_uring_enter(2). Such a ring keeps this value.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), HEADER_LEN + self.payload_len) };
    }
}

/// An entry that belongs to this process: a request, and room for its reply.
#[derive(Debug)]
pub struct FuseEntry {
    memory: Arc<EntryMemory>,
    commit_id: u64,
    /// Bytes of the request's arguments and payload.
    arguments: usize,
    payload: usize,
    /// Bytes of the payload buffer that the request or its reply has used.
    used: usize,
}

impl FuseEntry {
    /// The request as /dev/fuse would return it, in three parts that follow each other: `struct
    /// fuse_in_header`, the arguments that the operation always has, and the rest (names, data).
    #[must_use]
    pub fn request(&self) -> [&[u8]; 3] {
        // SAFETY: the entry belongs to this process, so the kernel doesn't write to its memory, and this
        // value is the only one with access to it.
        let (header, payload) = unsafe {
            (
                self.memory.header().as_ref(),
                slice::from_raw_parts(self.memory.payload().as_ptr(), self.payload),
            )
        };
        [&header.in_out[..IN_HEADER], &header.arguments[..self.arguments], payload]
    }

    /// The most bytes that the body of a reply may have.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.payload_len
    }

    /// Writes the reply, which [`FuseQueue::commit`] sends: the error 0 with a body, or a negative errno
    /// without one.
    ///
    /// # Panics
    /// If the body is longer than [`FuseEntry::capacity`].
    pub fn set_reply(&mut self, error: i32, body: &[u8]) {
        assert!(body.len() <= self.memory.payload_len, "a reply of {} bytes", body.len());
        // SAFETY: as in `request`; the reference is exclusive.
        let (header, payload) = unsafe {
            let payload = slice::from_raw_parts_mut(self.memory.payload().as_ptr(), body.len());
            (self.memory.header().as_mut(), payload)
        };
        payload.copy_from_slice(body);
        // `struct fuse_out_header`: length, error, and the request's number, which the request has at the
        // same place.
        header.in_out[..4].copy_from_slice(&((16 + body.len()) as u32).to_ne_bytes());
        header.in_out[4..8].copy_from_slice(&error.to_ne_bytes());
        header.payload_len = body.len() as u32;
        self.used = self.used.max(body.len());
    }
}

/// Wakes the thread of a queue.
#[derive(Debug, Clone)]
pub struct FuseQueueWaker(Arc<OwnedFd>);

impl FuseQueueWaker {
    /// Makes [`FuseQueue::wait`] return, now or at its next call.
    pub fn wake(&self) {
        // The counter can't overflow by ones, and so the write doesn't block.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// The result of a wait.
#[derive(Debug)]
pub enum FuseQueueEvent {
    /// A request.
    Request(FuseEntry),
    /// A waker was used.
    Woken,
    /// The kernel doesn't use an entry any more. `ENOTCONN`, `ECONNABORTED`: the filesystem is unmounted or
    /// was aborted. Another error after a registration: the kernel refuses it, and serves the connection over
    /// /dev/fuse.
    Ended(Errno),
}

/// A thread's ring for a queue of a FUSE connection. It stays on the thread that makes it.
pub struct FuseQueue {
    // Closed before the memory goes.
    ring: IoUring<Entry128, cqueue::Entry>,
    number: u16,
    payload_len: usize,
    /// The entries that belong to the kernel and were submitted here.
    submitted: Vec<Option<Arc<EntryMemory>>>,
    /// The indices of `submitted` that have none.
    free: Vec<usize>,
    /// The number of entries that were added here.
    added: usize,
    waker: Arc<OwnedFd>,
    /// The target of the read that completes when the queue is woken.
    woken: Box<[u8; 8]>,
    is_waker_armed: bool,
    /// How many further entries may keep the memory of a large payload. The kernel takes the entry that was
    /// used last, so the same few serve most requests.
    large_left: usize,
    /// Other entries with a large payload whose replies are being sent, by their index in `submitted`.
    releasing: HashSet<usize>,
    /// Only one thread may submit.
    thread: PhantomData<*const ()>,
}

impl FuseQueue {
    /// Makes a ring for queue `number` (the number of its CPU) of the connection that `device` belongs to,
    /// without entries. Each entry that is added here will have a payload buffer of `payload_len` bytes,
    /// which must hold the largest READ and WRITE that INIT negotiates; at most `max_large` entries begin to
    /// keep the memory of a large payload by a commit here. Only this thread may use the ring.
    ///
    /// # Errors
    /// io_uring_setup(2)'s. `EPERM` and `ENOSYS`: io_uring isn't permitted here.
    pub fn new(
        device: BorrowedFd<'_>,
        number: u16,
        payload_len: usize,
        max_large: usize,
    ) -> io::Result<Self> {
        let ring = IoUring::<Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            ring,
            number,
            payload_len,
            submitted: Vec::new(),
            free: Vec::new(),
            added: 0,
            waker: Arc::new(waker),
            woken: Box::default(),
            is_waker_armed: false,
            large_left: max_large,
            releasing: HashSet::new(),
            thread: PhantomData,
        })
    }

    /// Wakes this queue's thread.
    #[must_use]
    pub fn waker(&self) -> FuseQueueWaker {
        FuseQueueWaker(Arc::clone(&self.waker))
    }

    /// The number of entries that were added here.
    #[must_use]
    pub const fn added(&self) -> usize {
        self.added
    }

    /// The number of entries that were added or committed here and wait for a request.
    #[must_use]
    pub const fn available(&self) -> usize {
        self.submitted.len() - self.free.len()
    }

    /// Adds an entry, which the next [`FuseQueue::wait`] registers. The kernel must have received the reply
    /// to INIT.
    ///
    /// # Errors
    /// `ENOMEM`, and io_uring_enter(2)'s.
    pub fn add_entry(&mut self) -> io::Result<()> {
        let memory = Arc::new(EntryMemory::new(self.number, self.payload_len)?);
        let vectors = memory.vectors().as_ptr() as u64;
        let index = self.keep(memory);
        let mut submission = self.command(REGISTER, 0, index);
        set_address(&mut submission, vectors, 2);
        self.added += 1;
        // SAFETY: the memory with the vectors is kept until the completion, or the end of the ring.
        unsafe { self.submit(&submission) }
    }

    /// Sends the reply of an entry and gives the entry back to the kernel, at the next [`FuseQueue::wait`] or
    /// [`FuseQueue::poll`], which returns its next request. Another ring of the same queue may have returned
    /// the entry.
    ///
    /// # Errors
    /// io_uring_enter(2)'s, which means that the ring is broken.
    ///
    /// # Panics
    /// If the entry is another queue's.
    pub fn commit(&mut self, entry: FuseEntry) -> io::Result<()> {
        let FuseEntry { memory, commit_id, used, .. } = entry;
        assert_eq!(memory.queue, self.number, "another queue's entry");
        let is_large = used > SMALL_PAYLOAD && !memory.keeps_payload.load(Relaxed);
        let is_kept = is_large && self.large_left > 0;
        if is_kept {
            self.large_left -= 1;
            memory.keeps_payload.store(true, Relaxed);
        }
        let index = self.keep(memory);
        if is_large && !is_kept {
            self.releasing.insert(index);
        }
        let submission = self.command(COMMIT_AND_FETCH, commit_id, index);
        // SAFETY: the memory that the kernel reads and writes is kept until the completion, or the end of the
        // ring.
        unsafe { self.submit(&submission) }
    }

    /// Keeps the memory of an entry that the kernel is about to get.
    fn keep(&mut self, memory: Arc<EntryMemory>) -> usize {
        if let Some(index) = self.free.pop() {
            self.submitted[index] = Some(memory);
            return index;
        }
        self.submitted.push(Some(memory));
        self.submitted.len() - 1
    }

    /// Submits what is pending, and waits until something happened. Appends what happened to `events`.
    ///
    /// # Errors
    /// io_uring_enter(2)'s, which means that the ring is broken.
    pub fn wait(&mut self, events: &mut Vec<FuseQueueEvent>) -> io::Result<()> {
        if !self.is_waker_armed {
            let target = self.woken.as_mut_ptr();
            let read = opcode::Read::new(types::Fd(self.waker.as_fd().as_raw_fd()), target, 8).build();
            // SAFETY: the target lives as long as the ring.
            unsafe { self.submit(&Entry128::from(read.user_data(WAKE)))? };
            self.is_waker_armed = true;
        }
        self.enter(1)?;
        self.take_completions(events);
        Ok(())
    }

    /// Submits what is pending, lets the kernel hand over requests, and appends what has happened to
    /// `events`, without waiting. The kernel may hand over some of the requests only.
    ///
    /// # Errors
    /// io_uring_enter(2)'s, which means that the ring is broken.
    pub fn poll(&mut self, events: &mut Vec<FuseQueueEvent>) -> io::Result<()> {
        self.enter(0)?;
        self.take_completions(events);
        Ok(())
    }

    fn enter(&mut self, completions: u32) -> io::Result<()> {
        /// `IORING_ENTER_GETEVENTS`: the kernel hands over requests in this call.
        const GETEVENTS: u32 = 1;
        loop {
            let submissions = self.ring.submission().len() as u32;
            // SAFETY: without a signal mask the call has no arguments in memory. `submit` has ensured what
            // the submissions point to.
            let entered = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(submissions, completions, GETEVENTS, None)
            };
            match entered {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The system is short of memory.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                // The completions that are there come first.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(()),
                entered => return entered.map(drop),
            }
        }
    }

    fn take_completions(&mut self, events: &mut Vec<FuseQueueEvent>) {
        for completion in self.ring.completion() {
            if completion.user_data() == WAKE {
                self.is_waker_armed = false;
                events.push(FuseQueueEvent::Woken);
                continue;
            }
            let index = completion.user_data() as usize;
            self.releasing.remove(&index);
            let Some(memory) = self.submitted[index].take() else { continue };
            self.free.push(index);
            events.push(if completion.result() < 0 {
                FuseQueueEvent::Ended(Errno::from_raw_os_error(-completion.result()))
            } else {
                FuseQueueEvent::Request(received(memory))
            });
        }
        // The kernel has copied the replies out of these entries, and copies nothing into them before the
        // next call.
        if !self.releasing.is_empty() && self.ring.submission().is_empty() {
            let releasing = self.releasing.drain().filter_map(|index| self.submitted[index].as_ref());
            releasing.for_each(|memory| memory.release_pages());
        }
    }

    /// A command for the FUSE device, with `struct fuse_uring_cmd_req`.
    fn command(&self, command: u32, commit_id: u64, index: usize) -> Entry128 {
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        arguments[16..18].copy_from_slice(&self.number.to_ne_bytes());
        // The device is the only registered file.
        opcode::UringCmd80::new(types::Fixed(0), command).cmd(arguments).build().user_data(index as u64)
    }

    /// # Safety
    /// What the submission points to must live until its completion.
    unsafe fn submit(&mut self, submission: &Entry128) -> io::Result<()> {
        // SAFETY: the caller's.
        while unsafe { self.ring.submission().push(submission) }.is_err() {
            self.enter(0)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for FuseQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FuseQueue").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The entry that the kernel has put a request into.
fn received(memory: Arc<EntryMemory>) -> FuseEntry {
    // SAFETY: the completion gave the entry to this process.
    let header = unsafe { memory.header().as_ref() };
    let payload = (header.payload_len as usize).min(memory.payload_len);
    let [a, b, c, d, ..] = header.in_out;
    let total = u32::from_ne_bytes([a, b, c, d]) as usize;
    let arguments = total.saturating_sub(IN_HEADER + payload).min(MAX_ARGUMENTS);
    let commit_id = header.commit_id;
    FuseEntry { memory, commit_id, arguments, payload, used: payload }
}

/// Sets `addr` and `len` of a submission.
fn set_address(submission: &mut Entry128, address: u64, len: u32) {
    const ADDRESS: usize = 16;
    const LEN: usize = 24;
    let start = std::ptr::from_mut(submission).cast::<u8>();
    // SAFETY: `Entry128` is `struct io_uring_sqe` with 64 more bytes, and that has these fields at these
    // offsets, aligned.
    unsafe {
        start.add(ADDRESS).cast::<u64>().write(address);
        start.add(LEN).cast::<u32>().write(len);
    }
}

const _: () = assert!(size_of::<Entry128>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_the_wait() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut queue = match FuseQueue::new(file.as_fd(), 0, 8192, 1) {
            Ok(queue) => queue,
            Err(error) => return eprintln!("skipped: no io_uring here ({error})"),
        };
        let waker = queue.waker();
        let mut events = Vec::new();
        for _ in 0..3 {
            waker.wake();
            queue.wait(&mut events).unwrap();
        }
        assert!(matches!(events[..], [FuseQueueEvent::Woken, FuseQueueEvent::Woken, FuseQueueEvent::Woken]));
    }

    #[test]
    fn a_device_without_queues_refuses_the_entry() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut queue = match FuseQueue::new(file.as_fd(), 0, 8192, 1) {
            Ok(queue) => queue,
            Err(error) => return eprintln!("skipped: no io_uring here ({error})"),
        };
        queue.add_entry().unwrap();
        assert_eq!((queue.added(), queue.available()), (1, 1));
        let mut events = Vec::new();
        queue.wait(&mut events).unwrap();
        assert!(matches!(events[..], [FuseQueueEvent::Ended(_)]), "{events:?}");
        assert_eq!(queue.available(), 0);
    }
}
