//! Reads over the wire: in pieces of rsize, several in flight, with short replies continued.

use std::time::Instant;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Inner;
use crate::counters::{add, bump};
use crate::error::{Error, Result};
use crate::operations::{Operations as _, ReadReply};
use crate::types::Attributes;

/// How many bytes of a file need no space before its holes are read as such: a server looks for them at each
/// read.
const MIN_HOLES: u64 = 64 << 10;

impl Inner {
    /// Makes one READ call of more than no bytes. Returns the data in `buffer`, and whether the file ends
    /// after it.
    async fn read_call(&self, mut buffer: Vec<u8>, offset: u64, len: usize) -> Result<(Vec<u8>, bool)> {
        self.open_on_wire().await?;
        let files = [&self.handle];
        let is_sparse = self.is_sparse();
        let began = Instant::now();
        let read = self.session.caller.perform(&files, |nfs, user| {
            nfs.read(user, &self.handle, (offset, len), is_sparse, std::mem::take(&mut buffer))
        });
        let ReadReply { data, eof } = read.await.map_err(|error| error.about(|| self.display_name()))?;
        // Believed to be the end of the file, such a reply would shorten a copy without an error.
        if data.is_empty() && !eof {
            return Err(Error::Protocol {
                object: self.display_name(),
                what: "READ returns neither data nor the end of the file",
            });
        }
        let counters = &self.session.inner.counters;
        counters.wire_times.reads.record(began.elapsed());
        bump(&counters.wire.reads);
        add(&counters.wire.bytes_read, data.len() as u64);
        Ok((data, eof))
    }

    /// Whether the file had holes worth finding when it was opened.
    fn is_sparse(&self) -> bool {
        let missing = |attributes: Attributes| attributes.size.saturating_sub(attributes.used);
        self.attributes_at_open.map_or(0, missing) >= MIN_HOLES
    }

    /// Reads one piece of at most rsize bytes.
    async fn read_piece(&self, buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let (mut buffer, mut eof) = self.read_call(buffer, offset, len).await?;
        while !eof && buffer.len() < len {
            let at = offset + buffer.len() as u64;
            let (more, end) = self.read_call(Vec::new(), at, len - buffer.len()).await?;
            buffer.extend_from_slice(&more);
            eof = end;
        }
        Ok(buffer)
    }

    pub(super) async fn wire_read_into(
        &self,
        mut buffer: Vec<u8>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>> {
        if let Some(uncommitted) = self.existing_uncommitted() {
            uncommitted.settle_behind(offset).await;
        }
        let rsize = self.session.caller.wire.rsize;
        // Offsets in NFS have 64 bits; no file extends beyond.
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
                let wanted = rsize.min(len - at);
                self.read_piece(Vec::new(), offset + at as u64, wanted).await.map(|piece| (piece, wanted))
            })
            .buffered(self.session.inner.options.window.clamp(1, 64));
        while let Some((piece, wanted)) = pieces.try_next().await? {
            buffer.extend_from_slice(&piece);
            if piece.len() < wanted {
                break;
            }
        }
        Ok(buffer)
    }

    pub(super) async fn wire_read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.wire_read_into(Vec::new(), offset, buffer.len()).await?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}
