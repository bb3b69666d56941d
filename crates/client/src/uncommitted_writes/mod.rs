//! Uncommitted writes: data that the server has acknowledged UNSTABLE, kept until a COMMIT covers it (RFC
//! 1813 sections 3.3.7 and 3.3.21).
//!
//! All opens of a file share its [`UncommittedWrites`]: a COMMIT covers the whole file, so the first open
//! that commits does it for all. Data that the server has lost is written again with the credential of its
//! writer, since another user may have no permission to.
//!
//! The [`UncommittedPool`] bounds the data over all files of a session to
//! [`Options::unstable_max`](crate::Options::unstable_max). A write reserves room before it is sent, and
//! holds it until its data is kept or durable. Without room it commits its own file, and then the file with
//! the most data. If there still is no room, it writes FILE_SYNC and keeps nothing. No write waits for the
//! room of another one.

mod behind;
mod extents;
mod pending;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use io::Stability;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, RwLock};

use crate::counters::{add, bump};
use crate::error::{Error, Result, Status};
use crate::operations::{Operations as _, WriteReply};
use crate::types::{Attributes, Handle, SetAttributes};
use crate::wire::WireCaller;
use extents::UncommittedExtents;

use behind::Behind;
pub(crate) use behind::{Accepted, BehindWrite};
pub(crate) use extents::Verifier;

/// The maximum number of extents of a file, whatever their size. A write that finds more commits first.
const MAX_EXTENTS: usize = 1 << 16;

/// The maximum number of COMMITs in one commit. Each follows a server that has lost data.
const MAX_COMMITS: usize = 8;

/// One file's uncommitted writes.
#[derive(Debug)]
pub(crate) struct UncommittedWrites {
    pool: Arc<UncommittedPool>,
    handle: Handle,
    name: Box<[u8]>,
    extents: Mutex<UncommittedExtents<WireCaller>>,
    /// Locked for reading by writes over the wire. Locked for writing while lost data is written again, the
    /// file is truncated, or a grant is installed.
    pub(crate) writers: RwLock<()>,
    /// Data that the server may not have yet.
    behind: Behind,
    /// Locked while the file is committed because it has much data.
    early_commit: AsyncMutex<()>,
}

impl UncommittedWrites {
    fn new(pool: Arc<UncommittedPool>, handle: Handle, name: &[u8]) -> Self {
        Self {
            pool,
            handle,
            name: name.into(),
            extents: Mutex::default(),
            writers: RwLock::new(()),
            behind: Behind::default(),
            early_commit: AsyncMutex::new(()),
        }
    }

    fn display_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    fn protocol_error(&self, what: &'static str) -> Error {
        Error::Protocol { object: self.display_name(), what }
    }

    fn bytes(&self) -> usize {
        self.extents.lock().bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.extents.lock().is_empty()
    }

    /// Changes the extents and adjusts the pool.
    fn change<R>(&self, change: impl FnOnce(&mut UncommittedExtents<WireCaller>) -> R) -> R {
        let mut extents = self.extents.lock();
        let before = extents.bytes();
        let result = change(&mut extents);
        self.pool.adjust(before, extents.bytes());
        result
    }

    /// Discards the data in `from..to`, which was written over or truncated.
    pub(crate) fn discard(&self, from: u64, to: u64) {
        self.change(|extents| extents.discard(from, to));
    }

    /// Reserves room for `len` bytes. Commits this file and then the largest one to make room. Returns `None`
    /// if there still is none.
    pub(crate) async fn reserve(self: &Arc<Self>, len: usize) -> Result<Option<Reservation>> {
        let reserve = || {
            let has_room = self.extents.lock().len() < MAX_EXTENTS;
            if has_room { self.pool.reserve(len) } else { None }
        };
        if let Some(reservation) = reserve() {
            return Ok(Some(reservation));
        }
        self.commit().await?;
        if let Some(reservation) = reserve() {
            return Ok(Some(reservation));
        }
        if let Some(largest) = self.pool.largest()
            && let Err(error) = Box::pin(largest.commit()).await
        {
            // That file's own commit will report the error.
            tracing::debug!(file = %largest.display_name(), %error, "no room is made for another file");
        }
        Ok(reserve())
    }

    /// Writes all of `data`, in pieces of wsize and several in flight. The caller holds `writers`. Returns
    /// false if the data is less durable than `stability`, so that a commit must follow.
    pub(crate) async fn write(
        &self,
        writer: &WireCaller,
        data: Bytes,
        offset: u64,
        stability: Stability,
    ) -> Result<bool> {
        if data.is_empty() {
            return Ok(true);
        }
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(Error::Status { object: self.display_name(), status: Status::TooBig });
        }
        let wsize = writer.wire.wsize;
        if data.len() <= wsize {
            return self.write_piece(writer, data, offset, stability).await;
        }
        // The results are taken in order, so that all pieces before the first error were written.
        stream::iter((0..data.len()).step_by(wsize))
            .map(|at| {
                let piece = data.slice(at..data.len().min(at + wsize));
                async move {
                    let written = self.write_piece(writer, piece, offset + at as u64, stability).await;
                    written.map_err(|error| error.after(at))
                }
            })
            .buffered(writer.wire.options.window.clamp(1, 64))
            .try_fold(true, |all, one| async move { Ok(all && one) })
            .await
    }

    /// Writes one piece of at most wsize bytes. Short replies are continued.
    async fn write_piece(
        &self,
        writer: &WireCaller,
        data: Bytes,
        offset: u64,
        stability: Stability,
    ) -> Result<bool> {
        let len = data.len();
        let (mut rest, mut is_stable_enough) = (data, true);
        while !rest.is_empty() {
            let done = len - rest.len();
            let written = self.write_call(writer, &mut rest, offset + done as u64, stability, None).await;
            is_stable_enough &= written.map_err(|error| error.after(done))?.0;
        }
        Ok(is_stable_enough)
    }

    /// Makes one WRITE call and removes the written bytes from the start of `data`. The same call may set
    /// attributes. Returns whether the bytes are as durable as `stability`, and the attributes' result if
    /// there is one.
    async fn write_call(
        &self,
        writer: &WireCaller,
        data: &mut Bytes,
        offset: u64,
        stability: Stability,
        set: Option<&SetAttributes>,
    ) -> Result<(bool, Option<Result<Option<Attributes>>>)> {
        let files = [&self.handle];
        let began = Instant::now();
        let reply = writer
            .perform(&files, |nfs, user| nfs.write(user, &self.handle, offset, data.clone(), stability, set));
        let WriteReply { count, stability: committed, verifier, set } =
            reply.await.map_err(|error| error.about(|| self.display_name()))?;
        if count == 0 || count > data.len() {
            return Err(self.protocol_error("it says that it wrote nothing, or more than it was given"));
        }
        let written = data.split_to(count);
        if committed == Stability::Unstable {
            self.change(|extents| extents.insert(offset, written, verifier, writer.clone()));
        } else {
            self.discard(offset, offset + count as u64);
        }
        let counters = &writer.wire.counters;
        counters.wire_times.writes.record(began.elapsed());
        bump(&counters.wire.writes);
        add(&counters.wire.bytes_written, count as u64);
        Ok((committed >= stability, set))
    }

    /// Writes data, and sets attributes behind it: in one request if the version can and the data has at most
    /// wsize bytes. The caller holds `writers`.
    ///
    /// # Errors
    /// The write's; then nothing is set.
    async fn write_and_set(
        &self,
        writer: &WireCaller,
        (offset, data): (u64, Bytes),
        stability: Stability,
        attributes: &SetAttributes,
    ) -> Result<Result<Option<Attributes>>> {
        if data.len() > writer.wire.wsize {
            self.write(writer, data, offset, stability).await?;
            return Ok(self.set_now(writer, attributes).await);
        }
        let (len, mut rest) = (data.len(), data);
        let (_, mut set) = self.write_call(writer, &mut rest, offset, stability, Some(attributes)).await?;
        if !rest.is_empty() {
            let done = len - rest.len();
            let written = self.write(writer, rest, offset + done as u64, stability).await;
            written.map_err(|error| error.after(done))?;
            // The rest has changed the times again.
            set = None;
        }
        match set {
            Some(Err(error)) if error.status() == Some(Status::TryLater) => {}
            Some(set) => return Ok(set),
            None => {}
        }
        Ok(self.set_now(writer, attributes).await)
    }

    /// Sets attributes but the size.
    async fn set_now(&self, caller: &WireCaller, set: &SetAttributes) -> Result<Option<Attributes>> {
        caller.perform(&[&self.handle], |nfs, user| nfs.set_attributes(user, &self.handle, set, None)).await
    }

    /// Makes one COMMIT call for the whole file, after `mark`. Returns the server's verifier.
    async fn commit_call(&self, writer: &WireCaller, mark: u64) -> Result<Verifier> {
        let began = Instant::now();
        let committed = writer.perform(&[&self.handle], |nfs, user| nfs.commit(user, &self.handle)).await;
        let verifier = committed.map_err(|error| {
            self.change(|extents| extents.commit_failed(mark));
            error.about(|| self.display_name())
        })?;
        let counters = &writer.wire.counters;
        counters.wire_times.commits.record(began.elapsed());
        bump(&counters.wire.commits);
        Ok(verifier)
    }

    /// Makes durable what was written over the wire so far, write-behind included. Data that the server has
    /// lost is written again. A failed write of the past isn't an error here.
    pub(crate) async fn commit(self: &Arc<Self>) -> Result<()> {
        let failures = self.failures();
        self.settle_for_commit().await;
        self.commit_answered().await?;
        self.end_write_through(failures);
        Ok(())
    }

    /// As [`UncommittedWrites::commit`], for the writes that the server has answered.
    async fn commit_answered(&self) -> Result<()> {
        for _ in 0..MAX_COMMITS {
            let (writer, mark) = {
                let extents = self.extents.lock();
                let Some(writer) = extents.any_writer().cloned() else { return Ok(()) };
                (writer, extents.mark())
            };
            let verifier = self.commit_call(&writer, mark).await?;
            if self.change(|extents| extents.committed(mark, verifier)).is_empty() {
                return Ok(());
            }
            // Excludes new writes: the lost data is older and must not replace theirs.
            let _writers = self.writers.write().await;
            let lost = self.change(|extents| extents.committed(mark, verifier));
            let bytes: usize = lost.iter().map(|(_, data, _)| data.len()).sum();
            tracing::info!(
                file = %self.display_name(),
                bytes,
                "the server has forgotten unstable data: writing it again"
            );
            add(&writer.wire.counters.bytes_resent, bytes as u64);
            stream::iter(lost)
                .map(|(offset, data, writer)| async move {
                    self.write(&writer, data, offset, Stability::Unstable).await
                })
                .buffer_unordered(writer.wire.options.window.clamp(1, 64))
                .try_for_each(|_| async { Ok(()) })
                .await?;
        }
        Err(self.protocol_error("it forgets unstable data again and again"))
    }

    /// Prepares for a grant that came with `verifier`: commits the data if the server still has it. Returns
    /// the data that the server has lost, which the caller must write through the grant. The caller holds
    /// `writers` for writing.
    ///
    /// A sync through the grant couldn't replace the COMMIT. The kernel reports a failed write-back to the
    /// descriptions that were open at the time (fsync(2)), and these are the server's.
    pub(crate) async fn commit_before_grant(&self, verifier: Verifier) -> Result<Vec<(u64, Bytes)>> {
        let (writer, mark, is_remembered) = {
            let extents = self.extents.lock();
            let Some(writer) = extents.any_writer().cloned() else { return Ok(Vec::new()) };
            (writer, extents.mark(), extents.all_have(verifier))
        };
        let lost = if is_remembered {
            let verifier = self.commit_call(&writer, mark).await?;
            self.change(|extents| extents.committed(mark, verifier))
        } else {
            self.extents.lock().all()
        };
        Ok(lost.into_iter().map(|(offset, data, _)| (offset, data)).collect())
    }

    /// Discards all data, which has become durable.
    pub(crate) fn clear(&self) {
        self.change(UncommittedExtents::clear);
    }
}

impl Drop for UncommittedWrites {
    fn drop(&mut self) {
        self.clear();
        if self.failures() > 0 {
            self.pool.failed.fetch_sub(1, SeqCst);
        }
        self.pool.remove(&self.handle);
    }
}

/// The uncommitted writes of a session, by file.
#[derive(Debug)]
pub(crate) struct UncommittedPool {
    max: usize,
    /// Bytes kept and reserved.
    bytes: AtomicUsize,
    /// The files of which writes have failed since they were opened first.
    failed: AtomicUsize,
    /// The files with uncommitted writes, and open files that had some. Bounded by the number of open files.
    files: Mutex<HashMap<Handle, Weak<UncommittedWrites>>>,
    /// The files with attributes that the server doesn't have yet.
    pending: Mutex<HashMap<Handle, Arc<UncommittedWrites>>>,
}

impl UncommittedPool {
    /// An empty pool for `max` bytes.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            bytes: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            files: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    /// The uncommitted writes of a file, shared by all its opens. `name` is for errors.
    pub(crate) fn file(self: &Arc<Self>, handle: &Handle, name: &[u8]) -> Arc<UncommittedWrites> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(handle).and_then(Weak::upgrade) {
            return file;
        }
        let file = Arc::new(UncommittedWrites::new(self.clone(), handle.clone(), name));
        files.insert(handle.clone(), Arc::downgrade(&file));
        file
    }

    /// The uncommitted writes of a file, if it has any, or a write is in flight, or has failed.
    #[inline]
    pub(crate) fn find(&self, handle: &Handle) -> Option<Arc<UncommittedWrites>> {
        let has_none = self.bytes.load(Relaxed) == 0 && self.failed.load(Relaxed) == 0;
        if has_none { None } else { self.look_up(handle) }
    }

    /// The failed writes of a file that a new open isn't told of.
    pub(crate) fn known_failures(&self, handle: &Handle) -> u64 {
        if self.failed.load(SeqCst) == 0 {
            return 0;
        }
        self.look_up(handle).map_or(0, |file| file.known_failures())
    }

    #[cold]
    fn look_up(&self, handle: &Handle) -> Option<Arc<UncommittedWrites>> {
        self.files.lock().get(handle).and_then(Weak::upgrade)
    }

    /// The file with the most uncommitted bytes.
    fn largest(&self) -> Option<Arc<UncommittedWrites>> {
        let files: Vec<_> = self.files.lock().values().filter_map(Weak::upgrade).collect();
        files.into_iter().max_by_key(|file| file.bytes())
    }

    /// Reserves `len` bytes, if there is room.
    fn reserve(self: &Arc<Self>, len: usize) -> Option<Reservation> {
        let add = |bytes: usize| bytes.checked_add(len).filter(|sum| *sum <= self.max);
        self.bytes.fetch_update(SeqCst, SeqCst, add).ok()?;
        Some(Reservation { pool: self.clone(), len })
    }

    /// The bytes of one file that may be on their way to the server. A file is committed early with more than
    /// that.
    fn share(&self) -> usize {
        (self.max / 4).max(1)
    }

    /// Notes that a file has `after` bytes instead of `before`.
    fn adjust(&self, before: usize, after: usize) {
        if after >= before {
            self.bytes.fetch_add(after - before, SeqCst);
        } else {
            self.bytes.fetch_sub(before - after, SeqCst);
        }
    }

    /// Removes a dropped file, unless the entry is a newer one's.
    fn remove(&self, handle: &Handle) {
        let mut files = self.files.lock();
        if files.get(handle).is_some_and(|file| file.strong_count() == 0) {
            files.remove(handle);
        }
    }
}

/// Room in the pool, until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    pool: Arc<UncommittedPool>,
    len: usize,
}

impl Reservation {
    /// Adds another one's room.
    fn merge(&mut self, mut other: Self) {
        self.len += std::mem::take(&mut other.len);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.adjust(self.len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(byte: u8) -> Handle {
        Handle::new(&[byte; 8]).unwrap()
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let pool = UncommittedPool::new(100);
        let (first, second) = (pool.reserve(60).unwrap(), pool.reserve(40).unwrap());
        assert!(pool.reserve(1).is_none());
        drop(first);
        assert!(pool.reserve(61).is_none() && pool.reserve(60).is_some());
        drop(second);
        assert!(pool.reserve(usize::MAX).is_none() && pool.reserve(100).is_some());
    }

    #[test]
    fn all_opens_share_a_file_until_the_last_is_closed() {
        let pool = UncommittedPool::new(100);
        let one = pool.file(&handle(1), b"one");
        assert!(Arc::ptr_eq(&one, &pool.file(&handle(1), b"other name")));
        assert!(pool.find(&handle(1)).is_none(), "the pool is empty");
        let reservation = pool.reserve(10).unwrap();
        assert!(pool.find(&handle(1)).is_some() && pool.find(&handle(2)).is_none());
        drop(one);
        assert!(pool.find(&handle(1)).is_none() && pool.files.lock().is_empty());
        drop(reservation);
        assert_eq!(pool.bytes.load(SeqCst), 0);
    }
}
