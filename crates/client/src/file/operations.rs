//! The operations of an open file. Each uses the lane if the file has a grant, and the wire otherwise.
//!
//! The async methods may wait for the server or a disk. Those that end in `_now`, and those that pass a
//! descriptor, are for callers with threads of their own, such as a mounted filesystem: they use the lane on
//! the calling thread, and return `None` if the file has no grant.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use io::Stability;

use super::lane_io::ReadAttempt;
use super::{File, Inner};
use crate::attribute_sink::AttributeUpdate;
use crate::error::Result;
use crate::session::Session;
use crate::types::{Attributes, SetAttributes};

impl File {
    /// Reads at `offset` until `buffer` is full or the file ends. Returns the number of bytes read.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{OpenOptions, Options, Session};
    /// # let session = Session::connect(&server.url(), Options::new()).await?;
    /// let file = session.open(b"greeting", &OpenOptions::reading()).await?;
    /// let mut buffer = [0; 100];
    /// let count = file.read_at(&mut buffer, 0).await?;
    /// assert_eq!(&buffer[..count], b"hello\n");
    /// assert_eq!(file.read_at(&mut buffer, 6).await?, 0, "the end of the file");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error.
    pub async fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let inner = &self.inner;
        inner.check_readable()?;
        match inner.attempt_lane_read(buffer, offset) {
            ReadAttempt::Done(count) => Ok(count),
            // Boxed, here and below: the futures that wait are large, and callers move this one.
            attempt => Box::pin(inner.finish_read(buffer, offset, attempt)).await,
        }
    }

    /// Reads up to `len` bytes at `offset` into the memory of `buffer`, whose contents are lost. The returned
    /// buffer is as long as the data. The payload of a READ is received directly into it.
    ///
    /// # Errors
    /// As [`File::read_at`]; the buffer is then lost.
    pub async fn read_into(&self, mut buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let inner = &self.inner;
        inner.check_readable()?;
        let mut attempt = ReadAttempt::NoGrant;
        if inner.has_grant() {
            // `resize` zeroes new bytes only, so a buffer that comes back full costs nothing.
            if buffer.len() != len {
                buffer.resize(len, 0);
            }
            attempt = inner.attempt_lane_read(&mut buffer, offset);
            if let ReadAttempt::Done(count) = attempt {
                buffer.truncate(count);
                return Ok(buffer);
            }
        }
        Box::pin(inner.finish_read_into(buffer, offset, len, attempt)).await
    }

    /// Writes all of `data` at `offset`; [`File::commit`] makes it durable.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{OpenOptions, Options, Session};
    /// # let session = Session::connect(&server.url(), Options::new()).await?;
    /// let file = session.open(b"log", &OpenOptions::new().write(true).create(true)).await?;
    /// file.write_at(b"first\n", 0).await?;
    /// file.write_at(b"second\n", 6).await?;
    /// file.commit().await?;
    /// assert_eq!(file.size().await?, 13);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error; [`crate::Error::Partly`] if a part was written
    /// before.
    pub async fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let inner = &self.inner;
        inner.check_writable()?;
        if let Some(result) = inner.lane_write(data, offset) {
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
        inner.check_writable()?;
        if let Some(result) = inner.lane_write(&data, offset) {
            return result;
        }
        Box::pin(self.write_stable(data, offset, Stability::Unstable)).await
    }

    /// Writes all of `data` at `offset`. When this returns, the data is at least as durable as `stability`
    /// says.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_stable(&self, data: Bytes, offset: u64, stability: Stability) -> Result<()> {
        let inner = &self.inner;
        inner.check_writable()?;
        loop {
            if let Some(result) = inner.lane_write(&data, offset) {
                result?;
                if stability == Stability::Unstable {
                    return Ok(());
                }
                // A sync of the whole file is more than needed, but the only one that there is.
                return self.commit().await;
            }
            if inner.ensure_grant().await? {
                continue;
            }
            inner.open_on_wire().await?;
            let uncommitted = inner.uncommitted();
            uncommitted.settle().await;
            let reservation = uncommitted.reserve(data.len()).await?;
            let stability = if reservation.is_some() { stability } else { Stability::FileSync };
            let is_stable_enough = {
                let _writer = uncommitted.writers.read().await;
                if inner.has_grant() {
                    continue;
                }
                uncommitted.write(&inner.session.caller, data, offset, stability).await?
            };
            return if is_stable_enough { Ok(()) } else { uncommitted.commit().await };
        }
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// As [`File::write_at`]; data may then be lost.
    pub async fn commit(&self) -> Result<()> {
        let inner = &self.inner;
        let grant = inner.sync_grant().await;
        let revoked = inner.sync_revoked().await;
        let uncommitted = inner.commit_uncommitted().await;
        grant.and(revoked).and(uncommitted)
    }

    /// fsync(2): makes written data durable, as [`File::commit`], and all other changes of the file.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn sync(&self) -> Result<()> {
        let inner = &self.inner;
        inner.mark_dirty();
        self.commit().await?;
        if inner.has_grant() { Ok(()) } else { inner.session.sync_metadata(&inner.handle).await }
    }

    /// Makes durable what a restart of the server would lose: data written over the wire. Data written over
    /// the lane is in the page cache of this host's kernel, as after the close of a local file; only
    /// [`File::commit`] makes it durable.
    ///
    /// This is for the close of one of several descriptors that share the file. The error of an earlier write
    /// or sync is reported, and [`File::commit`] reports it again: whoever closes a descriptor may be another
    /// than whoever relies on the data.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn flush(&self) -> Result<()> {
        self.inner.commit_at_close().await
    }

    /// The file's current attributes, from the granted file or from the server.
    ///
    /// # Errors
    /// The server's or the call's, or the granted file's error.
    pub async fn attributes(&self) -> Result<Attributes> {
        let inner = &self.inner;
        if let Some(result) = self.attributes_now() {
            return result;
        }
        let attributes = inner.session.attributes(&inner.handle).await;
        attributes.map_err(|error| error.about(|| inner.display_name()))
    }

    /// The file's current length in bytes, from the granted file or from the server.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn size(&self) -> Result<u64> {
        match self.inner.lane_size() {
            Some(size) => size,
            None => self.attributes().await.map(|attributes| attributes.size),
        }
    }

    /// Truncates the file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn set_len(&self, len: u64) -> Result<()> {
        let inner = &self.inner;
        inner.check_writable()?;
        loop {
            if let Some(result) = inner.lane_set_len(len) {
                return result;
            }
            if inner.ensure_grant().await? {
                continue;
            }
            inner.open_on_wire().await?;
            let set = SetAttributes { size: Some(len), ..SetAttributes::default() };
            let result = inner.session.set_attributes(&inner.handle, &set, None).await;
            return result.map(drop).map_err(|error| error.about(|| inner.display_name()));
        }
    }

    /// Commits what is not durable. The grant is released with the last clone. Dropping a file releases the
    /// grant, too, but doesn't commit.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn close(self) -> Result<()> {
        let has_written = self.inner.uncommitted.get().is_some();
        if has_written || self.inner.is_dirty() { self.commit().await } else { self.inner.take_sync_error() }
    }

    /// As [`File::write_at`], over the lane and on this thread.
    #[inline]
    #[must_use]
    pub fn write_now(&self, data: &[u8], offset: u64) -> Option<Result<()>> {
        if let Err(error) = self.inner.check_writable() {
            return Some(Err(error));
        }
        self.inner.lane_write(data, offset)
    }

    /// As [`File::set_len`], over the lane and on this thread.
    #[must_use]
    pub fn set_len_now(&self, len: u64) -> Option<Result<()>> {
        if let Err(error) = self.inner.check_writable() {
            return Some(Err(error));
        }
        self.inner.lane_set_len(len)
    }

    /// As [`File::attributes`], over the lane and on this thread. Also `None` if the file's owner has changed
    /// since it was opened.
    #[must_use]
    pub fn attributes_now(&self) -> Option<Result<Attributes>> {
        let inner = &self.inner;
        let at_open = inner.attributes_at_open?;
        let asked = Instant::now();
        // The filesystem id is the server's, too.
        let examined = inner.inspect(|grant| {
            Attributes::examine(at_open.fsid, || rustix::fs::fstat(&grant.grant)).map(|(_, now)| now)
        })?;
        // In another user namespace the server has other numbers for owners. Only it knows the new one.
        if examined.is_ok_and(|now| (now.uid, now.gid) != (at_open.uid, at_open.gid)) {
            return None;
        }
        if let (Ok(attributes), Some(sink)) = (examined, &inner.session.inner.options.attribute_sink) {
            let update = AttributeUpdate { before: None, attributes: Some(attributes), asked };
            sink.attributes(&inner.handle, &update);
        }
        Some(examined.map_err(|error| inner.local_error(error.into())))
    }

    /// Changes the file's attributes but the size, as the user of `session` and as
    /// [`Session::set_attributes`] does in a tree, by the granted descriptor. `None`: it may have to wait, or
    /// the file wasn't opened in a tree, which still lasts.
    #[must_use]
    pub fn set_attributes_now(&self, session: &Session, set: &SetAttributes) -> Option<Result<Attributes>> {
        let inner = &self.inner;
        if set.size.is_some() || session.inner.uncommitted.find(&inner.handle).is_some() {
            return None;
        }
        // Within an I/O of the grant, which may be of an earlier tree.
        inner.inspect(|grant| {
            if !grant.grant.is_derived() {
                return None;
            }
            session.perform_now("SETATTR", |tree, call| {
                tree.set_attributes_of_open(call, (&inner.handle, grant.grant.as_fd()), set)
            })
        })?
    }

    /// Whether the granted file is in memory only (tmpfs), so that no call on it waits for a disk, unless it
    /// is swapped out.
    #[must_use]
    pub fn is_in_memory(&self) -> Option<bool> {
        self.inner.inspect(|grant| grant.is_in_memory())
    }

    /// Runs `f` with the granted descriptor, for system calls that this library has no method for. The
    /// descriptor has exactly the access that the file was opened with. `f` must be short: a server that
    /// revokes the grant waits for it, for a limited time.
    pub fn with_granted_fd<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.inner.with_fd(false, f)
    }

    /// As [`File::with_granted_fd`], for a caller that shares the descriptor with others, as FUSE passthrough
    /// does. They may write through it, so each [`File::commit`] syncs it from now on, even after the server
    /// has revoked the grant.
    pub fn share_granted_fd<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.inner.with_fd(true, f)
    }
}

impl Inner {
    /// Finishes a read after its first attempt, on whichever data path.
    async fn finish_read(
        self: &Arc<Self>,
        buffer: &mut [u8],
        offset: u64,
        attempt: ReadAttempt,
    ) -> Result<usize> {
        let mut read = self.finish_lane_read(attempt, buffer, offset).await;
        loop {
            if let Some(result) = read {
                return result;
            }
            if !self.ensure_grant().await? {
                return self.wire_read(buffer, offset).await;
            }
            read = self.lane_read_async(buffer, offset).await;
        }
    }

    /// As [`Inner::finish_read`], into a buffer that READ can receive into.
    async fn finish_read_into(
        self: &Arc<Self>,
        mut buffer: Vec<u8>,
        offset: u64,
        len: usize,
        attempt: ReadAttempt,
    ) -> Result<Vec<u8>> {
        let mut read = self.finish_lane_read(attempt, &mut buffer, offset).await;
        loop {
            if let Some(result) = read {
                buffer.truncate(result?);
                return Ok(buffer);
            }
            if !self.ensure_grant().await? {
                return self.wire_read_into(buffer, offset, len).await;
            }
            buffer.resize(len, 0);
            read = self.lane_read_async(&mut buffer, offset).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// A caller's future contains these, so state that only the wire needs would be copied for every
    /// operation over the lane.
    #[test]
    fn futures_of_the_fast_path_are_small() {
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
