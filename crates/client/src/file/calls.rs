//! What an open file is asked: the calls that may wait, each first by the lane, and by the wire where there
//! is none.

use std::sync::Arc;

use bytes::Bytes;
use io::Stability;

use super::by_lane::ReadAttempt;
use super::{File, Inner};
use crate::error::Result;
use crate::types::{Attributes, SetAttributes};

impl File {
    /// Reads at `offset` until `buffer` is full or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error.
    pub async fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let inner = &self.inner;
        inner.may(inner.read, "reading")?;
        match inner.read_cached(buffer, offset) {
            ReadAttempt::Done(count) => Ok(count),
            // In a box, here and below: the futures of the roads that wait are large, and callers move ours
            // about.
            step => Box::pin(inner.read_on(buffer, offset, step)).await,
        }
    }

    /// Reads up to `len` bytes at `offset` into `buffer` (its old contents are lost, its memory is reused)
    /// and gives it back, as long as what was read. The wire's payload is received straight into it.
    ///
    /// # Errors
    /// As [`File::read_at`]; the buffer is then lost.
    pub async fn read_into(&self, mut buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let inner = &self.inner;
        inner.may(inner.read, "reading")?;
        let mut step = ReadAttempt::NoLane;
        if inner.has_grant() {
            // Growing costs zeroes once; a buffer that comes back full keeps its length.
            if buffer.len() != len {
                buffer.resize(len, 0);
            }
            step = inner.read_cached(&mut buffer, offset);
            if let ReadAttempt::Done(count) = step {
                buffer.truncate(count);
                return Ok(buffer);
            }
        }
        Box::pin(inner.read_on_into(buffer, offset, len, step)).await
    }

    /// Writes all of `data` at `offset`; [`File::commit`] makes it durable.
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error; [`crate::Error::Partly`] where a part was
    /// written before.
    pub async fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let inner = &self.inner;
        inner.may(inner.write, "writing")?;
        if let Some(result) = inner.write_granted(data, offset) {
            return result;
        }
        Box::pin(self.write_stable(Bytes::copy_from_slice(data), offset, Stability::Unstable)).await
    }

    /// Writes all of `data` at `offset` without copying it.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_bytes(&self, data: Bytes, offset: u64) -> Result<()> {
        let inner = &self.inner;
        inner.may(inner.write, "writing")?;
        if let Some(result) = inner.write_granted(&data, offset) {
            return result;
        }
        Box::pin(self.write_stable(data, offset, Stability::Unstable)).await
    }

    /// Writes all of `data` at `offset`, as durable as `stability` says when this returns.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_stable(&self, data: Bytes, offset: u64, stability: Stability) -> Result<()> {
        let inner = &self.inner;
        inner.may(inner.write, "writing")?;
        loop {
            if let Some(result) = inner.write_granted(&data, offset) {
                result?;
                if stability == Stability::Unstable {
                    return Ok(());
                }
                // Only the data must be durable, not what others wrote: but that is what a sync of the file
                // gives.
                return self.commit().await;
            }
            if inner.acquire_grant().await? {
                continue;
            }
            let kept = inner.kept();
            let room = kept.room(data.len()).await?;
            let stability = if room.is_some() { stability } else { Stability::FileSync };
            let stable_enough = {
                let _writer = kept.writers.read().await;
                if inner.has_grant() {
                    continue;
                }
                kept.write(&inner.session.caller, data, offset, stability).await?
            };
            return if stable_enough { Ok(()) } else { kept.commit().await };
        }
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// As [`File::write_at`]; data may then be lost.
    pub async fn commit(&self) -> Result<()> {
        let inner = &self.inner;
        let granted = inner.sync_granted().await;
        let retired = inner.sync_retired().await;
        let kept = inner.commit_kept().await;
        granted.and(retired).and(kept)
    }

    /// fsync(2): makes durable what was written, as [`File::commit`], and whatever else was changed of the
    /// file.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn sync(&self) -> Result<()> {
        let inner = &self.inner;
        inner.mark_dirty();
        self.commit().await?;
        if inner.has_grant() { Ok(()) } else { inner.session.sync_metadata(&inner.handle).await }
    }

    /// The file's attributes as of now: asked of the granted file if there is one, else of the server.
    ///
    /// # Errors
    /// The server's or the call's, or the granted file's error.
    pub async fn attributes(&self) -> Result<Attributes> {
        let inner = &self.inner;
        if let Some(result) = self.attributes_now() {
            return result;
        }
        inner.session.attributes(&inner.handle).await.map_err(|error| error.about(|| inner.shown()))
    }

    /// Makes durable what would be lost if the server restarted: what was written over the wire. What was
    /// written over the lane is in this kernel's page cache, where only [`File::commit`] is more than the
    /// close of a local file does.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn flush(&self) -> Result<()> {
        let kept = self.inner.commit_kept().await;
        kept.and(self.inner.take_lost())
    }

    /// The file's length in bytes as of now: asked of the granted file if there is one, else of the server.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn size(&self) -> Result<u64> {
        match self.inner.size_granted() {
            Some(size) => size,
            None => self.attributes().await.map(|attributes| attributes.size),
        }
    }

    /// Cuts the file off at `len`, or fills it with zeros up to there.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn set_len(&self, len: u64) -> Result<()> {
        let inner = &self.inner;
        inner.may(inner.write, "writing")?;
        loop {
            if let Some(result) = inner.set_len_granted(len) {
                return result;
            }
            if inner.acquire_grant().await? {
                continue;
            }
            let set = SetAttributes { size: Some(len), ..SetAttributes::default() };
            let result = inner.session.set_attributes(&inner.handle, &set, None).await;
            return result.map(drop).map_err(|error| error.about(|| inner.shown()));
        }
    }

    /// Commits what is not durable, and gives the grant back if this was the last clone. Dropping a file
    /// gives the grant back, too, but doesn't commit.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn close(self) -> Result<()> {
        if self.inner.is_dirty() { self.commit().await } else { self.inner.take_lost() }
    }
}

impl Inner {
    /// The rest of a read after its first `step`: whichever road it takes, waiting.
    async fn read_on(self: &Arc<Self>, buffer: &mut [u8], offset: u64, step: ReadAttempt) -> Result<usize> {
        let mut read = self.finish_read(step, buffer, offset).await;
        loop {
            if let Some(result) = read {
                return result;
            }
            if !self.acquire_grant().await? {
                return self.read_wire(buffer, offset).await;
            }
            read = self.read_granted(buffer, offset).await;
        }
    }

    /// As [`Inner::read_on`], into a buffer that the wire may take.
    async fn read_on_into(
        self: &Arc<Self>,
        mut buffer: Vec<u8>,
        offset: u64,
        len: usize,
        step: ReadAttempt,
    ) -> Result<Vec<u8>> {
        let mut read = self.finish_read(step, &mut buffer, offset).await;
        loop {
            if let Some(result) = read {
                buffer.truncate(result?);
                return Ok(buffer);
            }
            if !self.acquire_grant().await? {
                return self.read_wire_into(buffer, offset, len).await;
            }
            buffer.resize(len, 0);
            read = self.read_granted(&mut buffer, offset).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// A caller's future contains these, and an operation over the lane shouldn't cost a copy of what only
    /// the wire needs.
    #[test]
    fn futures_of_the_hot_path_are_small() {
        type Reading<'a> = (&'a File, &'a mut [u8]);
        let sizes = [
            size(|(file, buffer): Reading<'static>| file.read_at(buffer, 0)),
            size(|file: &'static File| file.read_into(Vec::new(), 0, 0)),
            size(|file: &'static File| file.write_at(&[], 0)),
            size(|file: &'static File| file.write_bytes(Bytes::new(), 0)),
        ];
        assert!(sizes.iter().all(|size| *size <= 128), "{sizes:?}");
    }
}
