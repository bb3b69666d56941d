//! fallocate(2), lseek(2) for data and holes, posix_fadvise(2), copy_file_range(2) and FICLONERANGE.
//!
//! On granted files they are system calls. Over the wire NFSv4.2 has operations for them. These don't change
//! what this client has in memory: data that is uncommitted in a range that they change is discarded, because
//! it would undo the change if it were written again.

use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use io::Stability;
use rustix::fs::{Advice as FileAdvice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::{File, Inner};
use crate::error::{Error, Result, Status};
use crate::operations::{CopyReply, Operations as _};
use crate::types::{Advice, Fallocate, SeekTo};

/// The most bytes that are copied by one request. The server is asked for the rest.
const MAX_COPY: u64 = 64 << 20;

/// How often a copy is repeated because the server has restarted before it was durable.
const MAX_REPEATED_COPIES: u32 = 8;

impl File {
    /// Changes the space of `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`Status::NotSupported`] without a grant by NFSv3 and 4.1, or by the server's filesystem; those of
    /// [`File::write_at`].
    pub async fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let inner = &self.inner;
        inner.check_writable()?;
        loop {
            if let Some(result) = inner.lane_fallocate(how, offset, len) {
                return result;
            }
            if !inner.ensure_grant().await? {
                inner.open_on_wire().await?;
                inner.settle_writes().await;
                return inner.wire_fallocate(how, offset, len).await;
            }
        }
    }

    /// The first data or hole at `offset` or behind it. `None` if there is none, or the file ends at
    /// `offset` or before.
    ///
    /// Where the server can't tell, the whole file is data, as lseek(2) permits.
    ///
    /// # Errors
    /// The server's or the call's, or the granted file's error.
    pub async fn seek(&self, to: SeekTo, offset: u64) -> Result<Option<u64>> {
        let inner = &self.inner;
        loop {
            if let Some(result) = inner.lane_seek(to, offset) {
                return result;
            }
            if !inner.ensure_grant().await? {
                break;
            }
        }
        inner.open_on_wire().await?;
        inner.settle_writes().await;
        let files = [&inner.handle];
        let found =
            inner.session.caller.perform(&files, |nfs, user| nfs.seek(user, &inner.handle, to, offset));
        match found.await {
            // A user who may only write may search in a local file.
            Err(error) if matches!(error.status(), Some(Status::NotSupported | Status::Access)) => {}
            found => return found.map_err(|error| error.about(|| inner.display_name())),
        }
        let size = self.size().await?;
        Ok((offset < size).then_some(match to {
            SeekTo::Data => offset,
            SeekTo::Hole => size,
        }))
    }

    /// Tells the server how `len` bytes from `offset` on will be used; 0 for all up to the end of the file.
    /// On a granted file that is posix_fadvise(2).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{Advice, OpenOptions, Options, Session, Version};
    /// # let options = Options::new().version(Version::V4_2);
    /// # let session = Session::connect(&server.url(), options).await?;
    /// let file = session.open(b"greeting", &OpenOptions::reading()).await?;
    /// file.advise(Advice::WillNeed, 0, 0).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server's or the call's, or the granted file's error. Servers without IO_ADVISE, which NFSv4.2 has,
    /// aren't told: that is no error.
    pub async fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        let inner = &self.inner;
        if let Some(advised) = inner.lane_advise(advice, offset, len) {
            return advised;
        }
        inner.open_on_wire().await?;
        let files = [&inner.handle];
        let advised = inner
            .session
            .caller
            .perform(&files, |nfs, user| nfs.advise(user, &inner.handle, advice, offset, len));
        match advised.await {
            Err(error) if error.status() == Some(Status::NotSupported) => Ok(()),
            advised => advised.map_err(|error| error.about(|| inner.display_name())),
        }
    }

    /// Copies up to `len` bytes at `offset` to another file of the same session, without the data passing
    /// through this client. Returns the number of bytes copied, which is less than `len` at the end of the
    /// file, and for long copies.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{OpenOptions, Options, Session, Version};
    /// # let options = Options::new().version(Version::V4_2);
    /// # let session = Session::connect(&server.url(), options).await?;
    /// let from = session.open(b"greeting", &OpenOptions::reading()).await?;
    /// let to = session.open(b"copy", &OpenOptions::replacing()).await?;
    /// assert_eq!(from.copy_range(0, &to, 0, 100).await?, 6);
    /// assert_eq!(to.size().await?, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Status::NotSupported`] without grants by NFSv3 and 4.1, or by the server; [`Status::CrossDevice`]
    /// if the files are of different sessions or the server can't copy between their filesystems; those of
    /// [`File::read_at`] and [`File::write_at`].
    pub async fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        let (from, target) = (&self.inner, &to.inner);
        from.check_readable()?;
        target.check_writable()?;
        from.check_same_session(target)?;
        if len == 0 {
            return Ok(0);
        }
        let on_lane = {
            let (source, target) = (self.clone(), to.clone());
            move || source.copy_range_now(offset, &target, to_offset, len)
        };
        if from.has_grant() && target.has_grant() {
            let copied = match tokio::task::spawn_blocking(on_lane).await {
                Ok(copied) => copied,
                Err(error) => return Err(from.local_error(std::io::Error::other(error))),
            };
            if let Some(copied) = copied {
                return copied;
            }
        }
        from.open_on_wire().await?;
        target.open_on_wire().await?;
        from.wire_copy(offset, target, to_offset, len).await
    }

    /// As [`File::copy_range`], over the lane and on this thread.
    #[must_use]
    pub fn copy_range_now(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Option<Result<u64>> {
        let (from, target) = (&self.inner, &to.inner);
        let count = usize::try_from(len.min(MAX_COPY)).unwrap_or(usize::MAX);
        let copied = from.inspect(|source| {
            target.with_fd(false, |fd| {
                let (mut at, mut to_at) = (offset, to_offset);
                rustix::fs::copy_file_range(&source.grant, Some(&mut at), fd, Some(&mut to_at), count)
            })
        });
        let copied = copied.flatten()?;
        if let Ok(count) = copied {
            target.discard_uncommitted(to_offset, count as u64);
        }
        Some(copied.map(|count| count as u64).map_err(|error| target.local_error(error.into())))
    }

    /// Lets `len` bytes of another file of the same session share the space of those at `offset`
    /// (FICLONERANGE); 0 for all up to the end of this file.
    ///
    /// # Errors
    /// [`Status::NotSupported`] by NFSv3 and 4.1, the server or its filesystem; [`Status::Invalid`] if the
    /// range isn't aligned to the filesystem's blocks; [`Status::CrossDevice`] as for [`File::copy_range`].
    pub async fn clone_range(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<()> {
        let (from, target) = (&self.inner, &to.inner);
        from.check_readable()?;
        target.check_writable()?;
        from.check_same_session(target)?;
        from.open_on_wire().await?;
        target.open_on_wire().await?;
        // What the server must not lose before it shares it.
        self.commit().await?;
        let files = [&from.handle, &target.handle];
        let clone = || {
            target.session.caller.perform(&files, |nfs, user| {
                nfs.clone_range(user, (&from.handle, offset), (&target.handle, to_offset), len)
            })
        };
        let cloned_len = match len {
            0 => self.session().attributes(&from.handle).await?.size.saturating_sub(offset),
            len => len,
        };
        let cloned = target.change_range(to_offset, clone, |()| cloned_len).await;
        cloned.map_err(|error| error.about(|| target.display_name()))
    }
}

impl Inner {
    fn check_same_session(&self, other: &Self) -> Result<()> {
        if Arc::ptr_eq(&self.session.inner, &other.session.inner) {
            return Ok(());
        }
        Err(Error::Status { object: other.display_name(), status: Status::CrossDevice })
    }

    /// fallocate(2) on the granted file.
    fn lane_fallocate(self: &Arc<Self>, how: Fallocate, offset: u64, len: u64) -> Option<Result<()>> {
        let flags = match how {
            Fallocate::Allocate => FallocateFlags::empty(),
            Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Fallocate::ZeroRange => FallocateFlags::ZERO_RANGE,
        };
        let change = |fd: BorrowedFd<'_>| {
            if how != Fallocate::Allocate {
                self.discard_uncommitted(offset, len);
            }
            rustix::fs::fallocate(fd, flags, offset, len)
        };
        let result = self.with_fd(false, change)?;
        Some(result.map_err(|error| self.local_error(error.into())))
    }

    async fn wire_fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let files = [&self.handle];
        let change = || {
            self.session
                .caller
                .perform(&files, |nfs, user| nfs.fallocate(user, &self.handle, how, offset, len))
        };
        let changed = match how {
            Fallocate::Allocate => change().await,
            Fallocate::PunchHole | Fallocate::ZeroRange => self.change_range(offset, change, |()| len).await,
        };
        changed.map_err(|error| error.about(|| self.display_name()))
    }

    /// lseek(2) in the granted file. I/O doesn't use the descriptor's offset.
    fn lane_seek(self: &Arc<Self>, to: SeekTo, offset: u64) -> Option<Result<Option<u64>>> {
        let from = match to {
            SeekTo::Data => SeekFrom::Data(offset),
            SeekTo::Hole => SeekFrom::Hole(offset),
        };
        Some(match self.inspect(|grant| rustix::fs::seek(&grant.grant, from))? {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(self.local_error(error.into())),
        })
    }

    /// posix_fadvise(2) on the granted file.
    fn lane_advise(self: &Arc<Self>, advice: Advice, offset: u64, len: u64) -> Option<Result<()>> {
        let advice = match advice {
            Advice::Normal => FileAdvice::Normal,
            Advice::Sequential => FileAdvice::Sequential,
            Advice::Random => FileAdvice::Random,
            Advice::WillNeed => FileAdvice::WillNeed,
            Advice::DontNeed => FileAdvice::DontNeed,
            Advice::NoReuse => FileAdvice::NoReuse,
        };
        let advise = |fd: BorrowedFd<'_>| rustix::fs::fadvise(fd, offset, NonZeroU64::new(len), advice);
        let advised = self.with_fd(false, advise)?;
        Some(advised.map_err(|error| self.local_error(error.into())))
    }

    /// Changes a range of the file over the wire by something else than writes. Writes of this client wait
    /// meanwhile, and what is uncommitted in the range is discarded afterwards. `len` is that of what was
    /// changed.
    async fn change_range<T>(
        &self,
        offset: u64,
        change: impl AsyncFnOnce() -> Result<T>,
        len: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let uncommitted = self.existing_uncommitted();
        let _writers = match &uncommitted {
            Some(uncommitted) => Some(uncommitted.exclude_writes().await),
            None => None,
        };
        let changed = change().await?;
        if let Some(uncommitted) = &uncommitted {
            uncommitted.discard(offset, offset.saturating_add(len(&changed)));
        }
        Ok(changed)
    }

    /// Copies over the wire. The copied bytes are durable.
    async fn wire_copy(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        // A server that restarts would copy what the file was before.
        self.commit_uncommitted().await?;
        let copied = self.wire_copy_once(offset, to, to_offset, len.min(MAX_COPY)).await;
        let copied = match copied {
            Err(error) if error.status() == Some(Status::Invalid) => {
                // The server refuses to copy beyond the end (RFC 7862 section 15.2.3).
                let size = self.session.attributes(&self.handle).await?.size;
                match size.saturating_sub(offset) {
                    0 => Ok(0),
                    left if left < len => {
                        self.wire_copy_once(offset, to, to_offset, left.min(MAX_COPY)).await
                    }
                    _ => Err(error),
                }
            }
            copied => copied,
        };
        copied.map_err(|error| error.about(|| to.display_name()))
    }

    async fn wire_copy_once(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        let files = [&self.handle, &to.handle];
        let caller = &to.session.caller;
        for _ in 0..MAX_REPEATED_COPIES {
            let copy = || {
                caller.perform(&files, |nfs, user| {
                    nfs.copy(user, (&self.handle, offset), (&to.handle, to_offset), len)
                })
            };
            let copied = to.change_range(to_offset, copy, |reply| reply.count).await?;
            let CopyReply { count, stability, verifier } = copied;
            if stability != Stability::Unstable {
                return Ok(count);
            }
            // This client has no data that it could write again.
            let committed = caller.perform(&files[1..], |nfs, user| nfs.commit(user, &to.handle)).await?;
            if committed == verifier {
                return Ok(count);
            }
        }
        let object = to.display_name();
        Err(Error::Protocol { object, what: "the server's write verifier changes after every copy" })
    }
}
