//! The wire's road for writing: WRITE and COMMIT (RFC 1813 sections 3.3.7 and 3.3.21), in pieces of wsize,
//! several in flight; and what the open files of one inode share of it: what was written and isn't durable. A
//! COMMIT is about the file, whoever wrote to it, so the first open that commits does it for all.
//!
//! Each piece is committed and, should the server have forgotten it, written again as somebody who wrote:
//! another may have no right to.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use io::Stability;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use super::pool::{Reserved, UncommittedPool};
use super::unstable::{Unstable, Verifier};
use crate::counters::{add, bump};
use crate::error::{Error, Result};
use crate::operations::{Operations as _, WriteReply};
use crate::types::Handle;
use crate::wire::WireCaller;

/// How many pieces a file keeps before it commits by itself, however small they are.
const MAX_PIECES: usize = 1 << 16;

/// How often a COMMIT is tried against a server that forgets everything each time.
const COMMIT_ROUNDS: usize = 8;

/// One inode's unstable data, with those who wrote it.
#[derive(Debug)]
pub(crate) struct UncommittedWrites {
    pool: Arc<UncommittedPool>,
    handle: Handle,
    name: Box<[u8]>,
    pieces: Mutex<Unstable<WireCaller>>,
    /// Writers over the wire hold it for reading; who writes kept data again, cuts the file off, or changes
    /// to the lane, for writing.
    pub(crate) writers: RwLock<()>,
}

impl UncommittedWrites {
    pub(super) fn new(pool: Arc<UncommittedPool>, handle: Handle, name: &[u8]) -> Self {
        Self { pool, handle, name: name.into(), pieces: Mutex::default(), writers: RwLock::new(()) }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    fn protocol(&self, what: &'static str) -> Error {
        Error::Protocol { object: self.shown(), what }
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.lock().bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.lock().is_empty()
    }

    /// Changes what is kept, and the pool with it.
    fn change<R>(&self, change: impl FnOnce(&mut Unstable<WireCaller>) -> R) -> R {
        let mut pieces = self.pieces.lock();
        let before = pieces.bytes();
        let result = change(&mut pieces);
        self.pool.adjust(before, pieces.bytes());
        result
    }

    /// Forgets what is kept of `from..to`: it was written over, or cut off.
    pub(crate) fn cut(&self, from: u64, to: u64) {
        self.change(|pieces| pieces.cut(from, to));
    }

    /// Room for `len` bytes more, if it can be had.
    pub(super) async fn room(&self, len: usize) -> Result<Option<Reserved>> {
        let reserve = || {
            let few = self.pieces.lock().len() < MAX_PIECES;
            if few { self.pool.reserve(len) } else { None }
        };
        if let Some(room) = reserve() {
            return Ok(Some(room));
        }
        self.commit().await?;
        if let Some(room) = reserve() {
            return Ok(Some(room));
        }
        if let Some(largest) = self.pool.largest()
            && let Err(error) = Box::pin(largest.commit()).await
        {
            // Whoever wrote it will hear of it from their own commit.
            tracing::debug!(file = %largest.shown(), %error, "no room is made for another file");
        }
        Ok(reserve())
    }

    /// Writes all of `data`; the caller holds `writers`. False if it is less durable than `stability` says
    /// and a commit must follow.
    pub(super) async fn write(
        &self,
        by: &WireCaller,
        data: Bytes,
        offset: u64,
        stability: Stability,
    ) -> Result<bool> {
        if data.is_empty() {
            return Ok(true);
        }
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(Error::Status { object: self.shown(), status: crate::Status::TooBig });
        }
        let wsize = by.wire.wsize;
        if data.len() <= wsize {
            return self.write_piece(by, data, offset, stability).await;
        }
        // In order: of the first piece that fails it is known that all before it were written.
        stream::iter((0..data.len()).step_by(wsize))
            .map(|at| {
                let piece = data.slice(at..data.len().min(at + wsize));
                async move {
                    let written = self.write_piece(by, piece, offset + at as u64, stability).await;
                    written.map_err(|error| error.after(at))
                }
            })
            .buffered(by.wire.options.window.clamp(1, 64))
            .try_fold(true, |all, one| async move { Ok(all && one) })
            .await
    }

    /// One piece of at most wsize, short answers continued.
    async fn write_piece(
        &self,
        by: &WireCaller,
        data: Bytes,
        offset: u64,
        stability: Stability,
    ) -> Result<bool> {
        let len = data.len();
        let (mut rest, mut stable_enough) = (data, true);
        while !rest.is_empty() {
            let done = len - rest.len();
            let wrote = self.write_call(by, &mut rest, offset + done as u64, stability).await;
            stable_enough &= wrote.map_err(|error| error.after(done))?;
        }
        Ok(stable_enough)
    }

    /// One WRITE: what was written is taken off `data`. Whether it is as durable as it should be.
    async fn write_call(
        &self,
        by: &WireCaller,
        data: &mut Bytes,
        offset: u64,
        stability: Stability,
    ) -> Result<bool> {
        let written = by.perform(|nfs, user| nfs.write(user, &self.handle, offset, data.clone(), stability));
        let WriteReply { count, stability: committed, verifier } =
            written.await.map_err(|error| error.about(|| self.shown()))?;
        if count == 0 || count > data.len() {
            return Err(self.protocol("it says that it wrote nothing, or more than it was given"));
        }
        let written = data.split_to(count);
        if committed == Stability::Unstable {
            self.change(|pieces| pieces.note(offset, written, verifier, by.clone()));
        } else {
            self.cut(offset, offset + count as u64);
        }
        let data_path = &by.wire.counters.wire;
        bump(&data_path.writes);
        add(&data_path.bytes_written, count as u64);
        Ok(committed >= stability)
    }

    /// One COMMIT of the whole file: the server's verifier.
    async fn commit_call(&self, by: &WireCaller) -> Result<Verifier> {
        let committed = by.perform(|nfs, user| nfs.commit(user, &self.handle)).await;
        let verifier = committed.map_err(|error| error.about(|| self.shown()))?;
        bump(&by.wire.counters.wire.commits);
        Ok(verifier)
    }

    /// Makes everything durable that was written over the wire so far; what the server has forgotten is
    /// written again.
    pub(super) async fn commit(&self) -> Result<()> {
        for _ in 0..COMMIT_ROUNDS {
            let (by, mark) = {
                let pieces = self.pieces.lock();
                let Some(by) = pieces.writer().cloned() else { return Ok(()) };
                (by, pieces.mark())
            };
            let verifier = self.commit_call(&by).await?;
            if self.change(|pieces| pieces.committed(mark, verifier)).is_empty() {
                return Ok(());
            }
            // Nobody may write meanwhile: what is written again is older than anything.
            let _writers = self.writers.write().await;
            let again = self.change(|pieces| pieces.committed(mark, verifier));
            let bytes: usize = again.iter().map(|(_, data, _)| data.len()).sum();
            tracing::info!(file = %self.shown(), bytes, "the server has forgotten unstable data: writing it \
                                                         again");
            add(&by.wire.counters.bytes_resent, bytes as u64);
            stream::iter(again)
                .map(|(offset, data, by)| async move {
                    self.write(&by, data, offset, Stability::Unstable).await
                })
                .buffer_unordered(by.wire.options.window.clamp(1, 64))
                .try_for_each(|_| async { Ok(()) })
                .await?;
        }
        Err(self.protocol("it forgets unstable data again and again"))
    }

    /// Before a grant that came with `verifier` is used, everything becomes durable: here by a COMMIT, as far
    /// as the server still has it. What is returned it has forgotten, and is to be written again by whoever
    /// asks. The caller holds `writers` for writing.
    ///
    /// A sync through the grant wouldn't do for a server that still has the data: whether some of it was lost
    /// is known to the descriptor that was open when it was written, which is the server's (fsync(2)).
    pub(super) async fn forgotten(&self, verifier: Verifier) -> Result<Vec<(u64, Bytes)>> {
        let (by, mark, remembered) = {
            let pieces = self.pieces.lock();
            let Some(by) = pieces.writer().cloned() else { return Ok(Vec::new()) };
            (by, pieces.mark(), pieces.all_under(verifier))
        };
        let again = if remembered {
            let verifier = self.commit_call(&by).await?;
            self.change(|pieces| pieces.committed(mark, verifier))
        } else {
            self.pieces.lock().all()
        };
        Ok(again.into_iter().map(|(offset, data, _)| (offset, data)).collect())
    }

    /// Everything has become durable.
    pub(super) fn clear(&self) {
        self.change(Unstable::clear);
    }
}

impl Drop for UncommittedWrites {
    fn drop(&mut self) {
        self.clear();
        self.pool.forget(&self.handle);
    }
}
