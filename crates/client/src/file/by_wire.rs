//! The wire's road for reading: READ (RFC 1813 section 3.3.6), in pieces of rsize, several in flight.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Inner;
use crate::counters::{add, bump};
use crate::error::Result;
use crate::operations::{Operations as _, ReadReply};

impl Inner {
    /// One READ: the data (in `buffer`), and whether the file ends behind it.
    async fn read_call(&self, mut buffer: Vec<u8>, offset: u64, len: usize) -> Result<(Vec<u8>, bool)> {
        let read = self
            .session
            .caller
            .perform(|nfs, user| nfs.read(user, &self.handle, offset, len, std::mem::take(&mut buffer)));
        let ReadReply { data, eof } = read.await.map_err(|error| error.about(|| self.shown()))?;
        let data_path = &self.session.inner.counters.wire;
        bump(&data_path.reads);
        add(&data_path.bytes_read, data.len() as u64);
        Ok((data, eof))
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
        let rsize = self.session.caller.wire.rsize;
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
}
