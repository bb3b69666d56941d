//! The wire's road: READ, WRITE and COMMIT (RFC 1813 sections 3.3.6, 3.3.7 and 3.3.21), in pieces of rsize and wsize,
//! several in flight.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use io::Stability;
use proto::nfs3::{self, Procedure, StableHow};
use rpc::client::Receive;
use xdr::{Decoder, Opaque};

use super::Inner;
use super::unstable::Verifier;
use crate::counters::{add, bump};
use crate::error::{Error, Result};

/// How many pieces a file keeps before it commits by itself, however small they are.
const MAX_PIECES: usize = 1 << 16;

/// How often a COMMIT is tried against a server that forgets everything each time.
const COMMIT_ROUNDS: usize = 8;

/// Where the payload of READ's results begins.
fn split(results: &[u8]) -> Option<(usize, usize)> {
    let mut from = Decoder::new(results);
    match from.get::<nfs3::Read3ResHead>() {
        Ok(nfs3::Outcome::Ok(head)) => Some((results.len() - from.rest().len(), head.length as usize)),
        _ => None,
    }
}

impl Inner {
    fn protocol(&self, what: &'static str) -> Error {
        Error::Protocol { object: self.shown(), what }
    }

    /// One READ: what came (in `buffer`), and whether the file ends behind it.
    async fn read_call(&self, buffer: Vec<u8>, offset: u64, len: usize) -> Result<(Vec<u8>, bool)> {
        let procedure = Procedure::Read;
        let args = nfs3::Read3Args { file: Opaque(self.handle.as_bytes()), offset, count: len as u32 };
        let receive = Receive { into: buffer, limit: len, split };
        let replied = self.session.nfs_with(procedure, &args, Bytes::new(), Some(receive)).await;
        let replied = replied.map_err(|error| error.about(|| self.shown()))?;
        let head = self
            .session
            .body::<nfs3::Read3Head, nfs3::PostOpAttr>(procedure, &replied, &[&self.handle])
            .map_err(|error| error.about(|| self.shown()))?;
        let payload = replied.reply.payload;
        if head.count as usize != payload.len() || payload.len() > len {
            return Err(self.protocol("it says one length and sends another"));
        }
        let road = &self.session.inner.live.wire;
        bump(&road.reads);
        add(&road.bytes_read, payload.len() as u64);
        Ok((payload, head.eof))
    }

    /// One piece of at most rsize, short answers continued.
    async fn read_piece(&self, buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let (mut buffer, mut eof) = self.read_call(buffer, offset, len).await?;
        while !eof && buffer.len() < len {
            let at = offset + buffer.len() as u64;
            let (more, end) = self.read_call(Vec::new(), at, len - buffer.len()).await?;
            if more.is_empty() {
                break;
            }
            buffer.extend_from_slice(&more);
            eof = end;
        }
        Ok(buffer)
    }

    pub(super) async fn read_wire_into(
        &self,
        mut buffer: Vec<u8>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>> {
        let rsize = self.session.inner.rsize;
        // NFS counts to 2^64; what lies beyond is beyond the end of any file.
        let len = usize::try_from(u64::MAX - offset).map_or(len, |room| len.min(room));
        if len <= rsize {
            return if len == 0 {
                buffer.clear();
                Ok(buffer)
            } else {
                self.read_piece(buffer, offset, len).await
            };
        }
        buffer.clear();
        let mut pieces = stream::iter((0..len).step_by(rsize))
            .map(|at| async move {
                let want = rsize.min(len - at);
                self.read_piece(Vec::new(), offset + at as u64, want).await.map(|piece| (piece, want))
            })
            .buffered(self.session.inner.options.window.clamp(1, 64));
        while let Some((piece, want)) = pieces.try_next().await? {
            buffer.extend_from_slice(&piece);
            if piece.len() < want {
                break;
            }
        }
        Ok(buffer)
    }

    pub(super) async fn read_wire(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.read_wire_into(Vec::new(), offset, buffer.len()).await?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// Whether a write of `len` bytes has to wait for a commit first.
    pub(super) fn is_full(&self, len: usize) -> bool {
        let kept = self.kept.lock();
        !kept.is_empty()
            && (kept.bytes() + len > self.session.inner.options.unstable_max || kept.len() >= MAX_PIECES)
    }

    /// Writes all of `data`; the caller holds `wire_writers`. False if it is less durable than `stability` says and a
    /// commit must follow.
    pub(super) async fn write_wire(&self, data: Bytes, offset: u64, stability: Stability) -> Result<bool> {
        if data.is_empty() {
            return Ok(true);
        }
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(Error::Status { object: self.shown(), status: crate::Status::TooBig });
        }
        let wsize = self.session.inner.wsize;
        if data.len() <= wsize {
            return self.write_piece(data, offset, stability).await;
        }
        stream::iter((0..data.len()).step_by(wsize))
            .map(|at| {
                let piece = data.slice(at..data.len().min(at + wsize));
                self.write_piece(piece, offset + at as u64, stability)
            })
            .buffer_unordered(self.session.inner.options.window.clamp(1, 64))
            .try_fold(true, |all, one| async move { Ok(all && one) })
            .await
    }

    /// One piece of at most wsize, short answers continued.
    async fn write_piece(&self, mut data: Bytes, mut offset: u64, stability: Stability) -> Result<bool> {
        let stable = match stability {
            Stability::Unstable => StableHow::Unstable,
            Stability::DataSync => StableHow::DataSync,
            Stability::FileSync => StableHow::FileSync,
        };
        let mut stable_enough = true;
        while !data.is_empty() {
            let args = nfs3::Write3Head {
                file: Opaque(self.handle.as_bytes()),
                offset,
                count: data.len() as u32,
                stable,
                length: data.len() as u32,
            };
            let procedure = Procedure::Write;
            let replied = self.session.nfs_with(procedure, &args, data.clone(), None).await;
            let replied = replied.map_err(|error| error.about(|| self.shown()))?;
            let ok = self
                .session
                .body::<nfs3::Write3ResOk, nfs3::WccData>(procedure, &replied, &[&self.handle])
                .map_err(|error| error.about(|| self.shown()))?;
            let count = ok.count as usize;
            if count == 0 || count > data.len() {
                return Err(self.protocol("it says that it wrote nothing, or more than it was given"));
            }
            let written = data.split_to(count);
            let end = offset + count as u64;
            if ok.committed == StableHow::Unstable {
                self.kept.lock().note(offset, written, ok.verf);
            } else {
                self.kept.lock().cut(offset, end);
            }
            stable_enough &= ok.committed >= stable;
            offset = end;
            let road = &self.session.inner.live.wire;
            bump(&road.writes);
            add(&road.bytes_written, count as u64);
        }
        Ok(stable_enough)
    }

    /// One COMMIT of the whole file: the server's verifier.
    pub(super) async fn commit_call(&self) -> Result<Verifier> {
        let procedure = Procedure::Commit;
        let args = nfs3::Commit3Args { file: Opaque(self.handle.as_bytes()), offset: 0, count: 0 };
        let replied =
            self.session.nfs(procedure, &args).await.map_err(|error| error.about(|| self.shown()))?;
        let ok = self
            .session
            .body::<nfs3::Commit3ResOk, nfs3::WccData>(procedure, &replied, &[&self.handle])
            .map_err(|error| error.about(|| self.shown()))?;
        bump(&self.session.inner.live.wire.commits);
        Ok(ok.verf)
    }

    /// Makes everything durable that was written over the wire so far; what the server has forgotten is written again.
    pub(crate) async fn commit_kept(self: &Arc<Self>) -> Result<()> {
        for _ in 0..COMMIT_ROUNDS {
            let mark = {
                let kept = self.kept.lock();
                if kept.is_empty() {
                    return Ok(());
                }
                kept.mark()
            };
            let verifier = self.commit_call().await?;
            if self.kept.lock().committed(mark, verifier).is_empty() {
                return Ok(());
            }
            // Nobody may write meanwhile: what is written again is older than anything.
            let _writers = self.wire_writers.write().await;
            let again = self.kept.lock().committed(mark, verifier);
            let bytes: usize = again.iter().map(|(_, data)| data.len()).sum();
            tracing::info!(file = %self.shown(), bytes, "the server has forgotten unstable data: writing it again");
            add(&self.session.inner.live.bytes_resent, bytes as u64);
            stream::iter(again)
                .map(|(offset, data)| self.write_wire(data, offset, Stability::Unstable))
                .buffer_unordered(self.session.inner.options.window.clamp(1, 64))
                .try_for_each(|_| async { Ok(()) })
                .await?;
        }
        Err(self.protocol("it forgets unstable data again and again"))
    }
}
