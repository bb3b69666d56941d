//! The lane's road: plain system calls on the granted file, each between `try_get` and `put`.
//!
//! What stands on the hot path is as little as can be, and no locked instruction: a look at the switch that
//! holds the grant, the interlock, the system call, two counters of this thread's own, and two events that
//! nobody looks at.

use std::io as stdio;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use io::trace;
use rustix::io::{Errno, ReadWriteFlags};

use super::Inner;
use super::granted::FileGrant;
use super::waiting::How;
use crate::error::{Error, Result};
use crate::lane::NowaitSupport;

impl Inner {
    pub(super) fn has_grant(&self) -> bool {
        self.granted.is_some()
    }

    /// Something may have been changed of the granted file by another way than the grant: the next commit
    /// syncs it.
    pub(super) fn mark_dirty(&self) {
        if let Some(granted) = self.granted.read() {
            granted.mark_dirty();
        }
    }

    /// Reads by the lane, waiting for the disk if it must; `None` if there is no lane (any more).
    #[inline]
    pub(crate) fn pread(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Option<Result<usize>> {
        let granted = self.granted.read()?;
        let slot = granted.thread_slot();
        let Some(flight) = granted.grant.try_get_at(slot) else { return self.leave(granted) };
        let result = if granted.plain_reads {
            self.read_plainly(&granted, buffer, offset)
        } else {
            self.read_by_mode(&granted, buffer, offset)
        };
        drop(flight);
        Some(match result {
            Ok(count) => {
                self.did_read(slot, offset, count);
                Ok(count)
            }
            Err(error) => Err(self.failed_read(offset, error)),
        })
    }

    /// As [`Inner::pread`], for an async caller: a read that has to wait does so elsewhere.
    pub(super) async fn read_granted(
        self: &Arc<Self>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        let step = self.read_cached(buffer, offset);
        self.finish_read(step, buffer, offset).await
    }

    /// What is left to do of a read after [`Inner::read_cached`].
    pub(super) async fn finish_read(
        self: &Arc<Self>,
        step: ReadAttempt,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        match step {
            ReadAttempt::Done(count) => return Some(Ok(count)),
            ReadAttempt::Failed(error) => return Some(Err(self.failed_read(offset, error))),
            ReadAttempt::NoLane => return None,
            ReadAttempt::NotAttempted => return Box::pin(self.fetch_elsewhere(buffer, offset)).await,
            ReadAttempt::NotCached => {}
        }
        let (file, len) = (self.clone(), buffer.len());
        let read = move || {
            let mut bytes = vec![0; len];
            let result = file.pread(&mut bytes, offset)?;
            Some(result.map(|count| (count, bytes)))
        };
        let result = match tokio::task::spawn_blocking(read).await {
            Ok(result) => result?,
            Err(error) => return Some(Err(self.local(stdio::Error::other(error)))),
        };
        Some(result.map(|(count, bytes)| {
            buffer[..count].copy_from_slice(&bytes[..count]);
            count
        }))
    }

    /// The part of a read that doesn't wait (but see the module's header).
    #[inline]
    pub(super) fn read_cached(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> ReadAttempt {
        let Some(granted) = self.granted.read() else { return ReadAttempt::NoLane };
        if !granted.plain_reads {
            return ReadAttempt::NotAttempted;
        }
        let slot = granted.thread_slot();
        let Some(flight) = granted.grant.try_get_at(slot) else {
            return self.leave(granted).unwrap_or(ReadAttempt::NoLane);
        };
        let step = match granted.waiting.how() {
            How::Plain => self.read_plainly(&granted, buffer, offset).into(),
            How::Asking => self.read_not_waiting(&granted, buffer, offset),
            How::Elsewhere => ReadAttempt::NotCached,
        };
        drop(flight);
        if let ReadAttempt::Done(count) = step {
            self.did_read(slot, offset, count);
        }
        step
    }

    /// A system call on the grant, and no more.
    #[inline]
    fn read_plainly(&self, granted: &FileGrant, buffer: &mut [u8], offset: u64) -> stdio::Result<usize> {
        trace::read_vector(self.handle.as_bytes(), offset, buffer.len() as u64);
        io::read_at(&granted.grant, buffer, offset)
    }

    /// One of the reads that ask the kernel not to wait.
    #[inline(never)]
    fn read_not_waiting(&self, granted: &FileGrant, buffer: &mut [u8], offset: u64) -> ReadAttempt {
        let mut parts = [stdio::IoSliceMut::new(buffer)];
        let flags = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(&granted.grant, &mut parts, offset.min(io::MAX_OFFSET), flags) {
            Ok(count) if count == buffer.len() || count == 0 => {
                granted.waiting.went(true);
                trace::read_vector(self.handle.as_bytes(), offset, buffer.len() as u64);
                ReadAttempt::Done(count)
            }
            // The rest isn't cached, or there is none: see what a plain read says.
            Ok(_) | Err(Errno::INTR) => self.read_plainly(granted, buffer, offset).into(),
            Err(Errno::AGAIN) => {
                granted.waiting.went(false);
                ReadAttempt::NotCached
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                let medium =
                    if granted.is_in_memory() { NowaitSupport::InMemory } else { NowaitSupport::Unsupported };
                granted.waiting.cannot_be_asked(medium);
                if let Some(attributes) = &self.opened_as {
                    self.session.inner.lane.note_nowait_support(attributes.fsid, medium);
                }
                match medium {
                    NowaitSupport::InMemory => self.read_plainly(granted, buffer, offset).into(),
                    _ => ReadAttempt::NotCached,
                }
            }
            Err(error) => ReadAttempt::Failed(error.into()),
        }
    }

    /// A read has brought so many bytes.
    #[inline]
    pub(super) fn did_read(&self, slot: Option<usize>, offset: u64, count: usize) {
        trace::read_io_done(self.handle.as_bytes(), offset, count as u64);
        self.session.inner.counters.lane_io.read(slot, count as u64);
    }

    #[cold]
    pub(super) fn failed_read(&self, offset: u64, error: stdio::Error) -> Error {
        trace::read_err(self.handle.as_bytes(), offset, errno(&error));
        self.local(error)
    }

    #[cold]
    fn failed_write(&self, offset: u64, error: stdio::Error) -> Error {
        trace::write_err(self.handle.as_bytes(), offset, errno(&error));
        self.local(error)
    }

    /// Writes by the lane; `None` if there is no lane (any more). What the kernel takes in pieces is
    /// continued, and an error ends it: [`Error::Partly`], if something was written before.
    #[inline]
    pub(crate) fn write_granted(self: &Arc<Self>, data: &[u8], offset: u64) -> Option<Result<()>> {
        let granted = self.granted.read()?;
        let slot = granted.thread_slot();
        let Some(flight) = granted.grant.try_get_at(slot) else { return self.leave(granted) };
        self.overwrite(offset, data.len() as u64);
        let mut done = 0;
        let result = loop {
            let (rest, at) = (&data[done..], offset.saturating_add(done as u64));
            let wrote = if granted.plain_writes {
                trace::write_vector(self.handle.as_bytes(), at, rest.len() as u64);
                io::write_at(&granted.grant, rest, at)
            } else {
                self.write_by_mode(&granted, rest, at)
            };
            match wrote {
                Ok(count) => done += count,
                Err(error) => break Err(error),
            }
            if done == data.len() {
                break Ok(());
            }
        };
        granted.mark_dirty();
        drop(flight);
        self.session.inner.counters.lane_io.write(slot, done as u64);
        Some(match result {
            Ok(()) => {
                trace::write_io_done(self.handle.as_bytes(), offset, done as u64);
                Ok(())
            }
            Err(error) => Err(self.failed_write(offset, error).after(done)),
        })
    }

    /// What another open keeps of `offset..`, written over the wire, is not to be written again over what is
    /// written now.
    #[inline]
    fn overwrite(&self, offset: u64, len: u64) {
        if let Some(kept) = self.kept_by_any() {
            kept.cut(offset, offset.saturating_add(len));
        }
    }

    /// Runs `f` with the granted descriptor, between `try_get` and `put`; `passed`: the descriptor goes to
    /// somebody who may write through it from now on.
    pub(super) fn lend<R>(self: &Arc<Self>, passed: bool, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let granted = self.granted.read()?;
        let Some(flight) = granted.grant.try_get() else { return self.leave(granted) };
        if self.write && passed {
            granted.pass_on();
        }
        let result = f(granted.grant.as_fd());
        if self.write {
            granted.mark_dirty();
        }
        drop(flight);
        Some(result)
    }

    /// As [`Inner::lend`], for looking only.
    pub(super) fn look<R>(self: &Arc<Self>, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.look_at_grant(|granted| f(granted.grant.as_fd()))
    }

    /// Looks at the grant, between `try_get` and `put`.
    pub(super) fn look_at_grant<R>(self: &Arc<Self>, f: impl FnOnce(&FileGrant) -> R) -> Option<R> {
        let granted = self.granted.read()?;
        let Some(_flight) = granted.grant.try_get() else { return self.leave(granted) };
        Some(f(&granted))
    }

    /// The granted file's length.
    pub(crate) fn size_granted(self: &Arc<Self>) -> Option<Result<u64>> {
        let stat = self.look(|file| rustix::fs::fstat(file))?;
        Some(
            stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
                .map_err(|error| self.local(error.into())),
        )
    }

    /// Cuts the granted file off, or fills it with zeros.
    pub(crate) fn set_len_granted(self: &Arc<Self>, len: u64) -> Option<Result<()>> {
        let granted = self.granted.read()?;
        let Some(flight) = granted.grant.try_get() else { return self.leave(granted) };
        self.overwrite(len, u64::MAX);
        let result =
            if len > io::MAX_OFFSET { Err(Errno::FBIG) } else { rustix::fs::ftruncate(&granted.grant, len) };
        granted.mark_dirty();
        drop(flight);
        Some(result.map_err(|error| self.local(error.into())))
    }
}

/// The result of a read from the page cache that must not wait.
#[derive(Debug)]
pub(super) enum ReadAttempt {
    Done(usize),
    NoLane,
    NotCached,
    Failed(stdio::Error),
    /// The I/O mode excludes an attempt: it would most likely wait.
    NotAttempted,
}

impl From<stdio::Result<usize>> for ReadAttempt {
    #[inline]
    fn from(result: stdio::Result<usize>) -> Self {
        match result {
            Ok(count) => Self::Done(count),
            Err(error) => Self::Failed(error),
        }
    }
}

/// For events; 0 for what isn't the kernel's.
fn errno(error: &stdio::Error) -> u64 {
    error.raw_os_error().unwrap_or(0).unsigned_abs().into()
}
