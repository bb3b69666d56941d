//! Requests: read from the device, each carried out by a task of its own, answered when it is done.
//!
//! 1. One task reads. It never waits for a server: every request that may is another task's. At [`MOST`] of
//!    them it stops reading until one is done; the kernel keeps the rest.
//! 2. A request is answered exactly once: by its task, or, when that is given up, by the guard that it
//!    leaves.
//! 3. What only tells (FORGET, RELEASE) is taken in before the next request is read, and keeps its place in
//!    the order.
//! 4. INTERRUPT says that the caller got a signal. As on a kernel's hard mount only one that kills counts:
//!    the request is given up if the caller is dying, now or (the kernel doesn't tell a second time) as long
//!    as the request takes. What was asked of the server may still be done there, as with every kill between
//!    two machines.

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

use crate::filesystem::{Call, Filesystem};
use crate::fuse::answer::Answer;
use crate::fuse::request::{Header, Operation};
use crate::users;

/// Requests under way at once.
const MOST: usize = 16_384;

/// Requests that are read before others get a turn.
const RUN: usize = 64;

/// How often it is looked whether an interrupted caller is dying.
const LOOK: Duration = Duration::from_millis(100);

/// The requests under way.
#[derive(Debug)]
pub(crate) struct Requests {
    filesystem: Arc<Filesystem>,
    room: Arc<Semaphore>,
    under_way: Mutex<HashMap<u64, (AbortHandle, u32)>>,
    read: AtomicU64,
}

/// Sees to it that a request is answered.
struct Owed {
    requests: Arc<Requests>,
    unique: u64,
    answered: bool,
}

impl Owed {
    /// Answers; an error of the device means that nobody waits any more.
    fn answer(&mut self, result: Result<&[u8], Errno>) -> Result<(), Errno> {
        self.answered = true;
        let device = self.requests.filesystem.device.get_ref();
        match result {
            Ok(body) => device.answer(self.unique, body),
            Err(errno) => device.refuse(self.unique, errno),
        }
    }

    /// Answers, and doesn't care whether anybody hears it.
    fn settle(mut self, result: Result<&[u8], Errno>) {
        let _ = self.answer(result);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.requests.under_way.lock().remove(&self.unique);
        if !self.answered {
            let _ = self.answer(Err(Errno::INTR));
        }
    }
}

impl Requests {
    pub(crate) fn new(filesystem: Arc<Filesystem>) -> Arc<Self> {
        Arc::new(Self {
            filesystem,
            room: Arc::new(Semaphore::new(MOST)),
            under_way: Mutex::default(),
            read: AtomicU64::new(0),
        })
    }

    /// How many requests have been read, and how many are under way.
    pub(crate) fn count(&self) -> (u64, usize) {
        (self.read.load(Relaxed), self.under_way.lock().len())
    }

    /// Reads requests until the filesystem is unmounted.
    ///
    /// # Errors
    /// The device's.
    pub(crate) async fn serve(self: &Arc<Self>, longest: usize) -> std::io::Result<()> {
        let device = self.filesystem.device.clone();
        let fresh = || vec![0; longest];
        let mut buffer = fresh();
        loop {
            let mut ready = device.ready(Interest::READABLE | Interest::ERROR).await?;
            let mut run = 0;
            loop {
                match device.get_ref().read(&mut buffer) {
                    Ok(len) => {
                        // What a WRITE brings may be kept for long: it shouldn't hold much more memory than
                        // it is worth.
                        let message = if len <= longest / 2 {
                            Bytes::copy_from_slice(&buffer[..len])
                        } else {
                            let mut next = self.filesystem.buffers.take();
                            if next.len() < longest {
                                next = fresh();
                            }
                            self.filesystem.buffers.lend(std::mem::replace(&mut buffer, next), len)
                        };
                        self.begin(message).await;
                    }
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    // The request was taken back before it was read.
                    Err(Errno::INTR | Errno::NOENT) => {}
                    Err(Errno::NODEV) => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
                run += 1;
                if run == RUN {
                    run = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn begin(self: &Arc<Self>, message: Bytes) {
        self.read.fetch_add(1, Relaxed);
        let header = match Header::of(&message) {
            Ok(header) => header,
            // Without a header there is nobody to answer.
            Err(_) => return tracing::warn!(len = message.len(), "a request without a header"),
        };
        let operation = match Operation::of(&header, &message) {
            Ok(operation) => operation,
            Err(errno) => return self.owed(&header).settle(Err(errno)),
        };
        match operation {
            Operation::Forget { count } => self.filesystem.forget(header.node, count),
            Operation::BatchForget { nodes } => {
                nodes.iter().for_each(|(node, count)| self.filesystem.forget(*node, *count));
            }
            Operation::Release { fh } => self.release(&header, fh).await,
            Operation::Interrupt { unique } => self.interrupt(&header, unique),
            Operation::Destroy => self.owed(&header).settle(Ok(&[])),
            Operation::Unknown | Operation::Init { .. } => self.owed(&header).settle(Err(Errno::NOSYS)),
            _ => self.spawn(header, message).await,
        }
    }

    fn owed(self: &Arc<Self>, header: &Header) -> Owed {
        Owed { requests: self.clone(), unique: header.unique, answered: false }
    }

    async fn spawn(self: &Arc<Self>, header: Header, message: Bytes) {
        let Ok(room) = self.room.clone().acquire_owned().await else { return };
        let (abort, registration) = AbortHandle::new_pair();
        self.under_way.lock().insert(header.unique, (abort, header.pid));
        let mut owed = self.owed(&header);
        let requests = self.clone();
        let work = async move {
            let call = Call { header, asked: Instant::now() };
            let result = requests.carry_out(&call, message).await;
            let opened = result.as_ref().ok().and_then(Outcome::opened);
            let sent =
                owed.answer(result.as_ref().map(|outcome| &outcome.answer.0[..]).map_err(|errno| *errno));
            if let (Err(_), Some(opened)) = (sent, opened) {
                // Nobody has it: nobody will release it.
                Box::pin(requests.filesystem.take_back(opened)).await;
            }
            if let Ok(outcome) = result {
                requests.filesystem.buffers.give(outcome.answer.0);
            }
            drop(room);
        };
        tokio::spawn(Abortable::new(work, registration));
    }

    /// A file is closed in the order in which the kernel says so; what that takes is another task's. The
    /// kernel doesn't care for the answer, but counts what isn't answered, and tells of no more than so many
    /// at once.
    async fn release(self: &Arc<Self>, header: &Header, fh: u64) {
        let released = self.filesystem.release(fh);
        self.owed(header).settle(released.as_ref().map(|_| &[][..]).map_err(|errno| *errno));
        let Ok(Some(closing)) = released else { return };
        let Ok(room) = self.room.clone().acquire_owned().await else { return };
        let filesystem = self.filesystem.clone();
        let mut finishing = Box::pin(async move {
            filesystem.finish(closing).await;
            drop(room);
        });
        // Mostly there is nothing to wait for, and no other thread need wake up for it.
        if (&mut finishing).now_or_never().is_none() {
            tokio::spawn(finishing);
        }
    }

    /// Ends what the kernel doesn't ask about any more: closes what is open, and waits until nothing is under
    /// way.
    pub(crate) async fn wind_up(&self) {
        self.filesystem.close_all().await;
        let _ = self.room.acquire_many(MOST as u32).await;
    }

    /// The caller of a request got a signal.
    fn interrupt(self: &Arc<Self>, header: &Header, unique: u64) {
        let Some((abort, pid)) = self.under_way.lock().get(&unique).cloned() else {
            // Not read yet, or done: EAGAIN has the kernel ask again if it still waits.
            let _ = self.filesystem.device.get_ref().refuse(header.unique, Errno::AGAIN);
            return;
        };
        let requests = self.clone();
        tokio::spawn(async move {
            loop {
                // A caller that can't be seen from here may be dying.
                if pid == 0 || users::is_dying(pid) {
                    abort.abort();
                    return;
                }
                tokio::time::sleep(LOOK).await;
                if !requests.under_way.lock().contains_key(&unique) {
                    return;
                }
            }
        });
    }

    async fn carry_out(&self, call: &Call, message: Bytes) -> Result<Outcome, Errno> {
        let filesystem = &*self.filesystem;
        let answer = match Operation::of(&call.header, &message)? {
            Operation::Read(io) => filesystem.read(&io).await,
            // In a box: every request has room for the largest of these, and most requests are reads.
            Operation::Write(io, data) => Box::pin(filesystem.write(&io, message.slice_ref(data))).await,
            other => return Box::pin(self.carry_out_other(call, other)).await,
        };
        answer.map(|answer| Outcome { answer, kind: Kind::Plain })
    }

    async fn carry_out_other(&self, call: &Call, operation: Operation<'_>) -> Result<Outcome, Errno> {
        let filesystem = &*self.filesystem;
        let mut kind = Kind::Plain;
        let answer = match operation {
            Operation::Lookup { name } => filesystem.lookup(call, name).await,
            Operation::GetAttr { fh } => filesystem.get_attributes(call, fh).await,
            Operation::SetAttr(set) => filesystem.set_attributes(call, &set).await,
            Operation::ReadLink => filesystem.read_link(call).await,
            Operation::Symlink { name, target } => filesystem.symlink(call, name, target).await,
            Operation::MkNod { name, mode, rdev } => filesystem.make_node(call, name, mode, rdev).await,
            Operation::MkDir { name, mode } => filesystem.make_dir(call, name, mode).await,
            Operation::Unlink { name } => filesystem.unlink(call, name).await,
            Operation::RmDir { name } => filesystem.remove_dir(call, name).await,
            Operation::Rename { name, to, to_name, flags } => {
                filesystem.rename(call, name, to, to_name, flags).await
            }
            Operation::Link { from, name } => filesystem.link(call, from, name).await,
            Operation::Open { flags, how } => {
                kind = Kind::Open;
                filesystem.open(call, flags, how).await
            }
            Operation::Create { name, flags, mode, how } => {
                kind = Kind::Create;
                filesystem.create(call, name, (flags, how), mode).await
            }
            Operation::Flush { fh } => filesystem.flush(fh).await,
            Operation::FSync { fh, .. } => filesystem.fsync(fh).await,
            Operation::OpenDir => {
                kind = Kind::OpenDir;
                filesystem.open_dir(call).await
            }
            Operation::ReadDir(io, plus) => filesystem.read_dir(&io, plus).await,
            Operation::ReleaseDir { fh } => filesystem.release_dir(fh),
            Operation::FSyncDir => filesystem.fsync_dir(call).await,
            Operation::StatFs => filesystem.stat_fs(call).await,
            Operation::Access { mask } => filesystem.access(call, mask).await,
            Operation::FAllocate { fh, offset, len, mode } => {
                filesystem.fallocate(call, fh, (offset, len), mode).await
            }
            Operation::LSeek { fh, offset, whence } => filesystem.seek(fh, offset, whence).await,
            Operation::CopyFileRange(range) => filesystem.copy_range(call, &range).await,
            Operation::Read(_)
            | Operation::Write(..)
            | Operation::Forget { .. }
            | Operation::BatchForget { .. }
            | Operation::Release { .. }
            | Operation::Interrupt { .. }
            | Operation::Init { .. }
            | Operation::Destroy
            | Operation::Unknown => Err(Errno::NOSYS),
        };
        answer.map(|answer| Outcome { answer, kind })
    }
}

/// What an answer has opened.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    Open,
    Create,
    OpenDir,
}

/// What a request has come to.
struct Outcome {
    answer: Answer,
    kind: Kind,
}

/// Something that the kernel was to be told of, by the number it was to know it by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Untold {
    /// An open file.
    File(u64),
    /// A new file, by its node, and open.
    NewFile(u64, u64),
    /// An open directory.
    Directory(u64),
}

impl Outcome {
    fn opened(&self) -> Option<Untold> {
        let number = |at: usize| {
            let bytes = self.answer.0.get(at..at + 8)?;
            bytes.try_into().ok().map(u64::from_ne_bytes)
        };
        match self.kind {
            Kind::Plain => None,
            Kind::Open => number(0).map(Untold::File),
            Kind::Create => Some(Untold::NewFile(number(0)?, number(128)?)),
            Kind::OpenDir => number(0).map(Untold::Directory),
        }
    }
}
