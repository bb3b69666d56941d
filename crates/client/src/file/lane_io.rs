//! System calls on the granted file, each between the interlock's `try_get` and `put`.
//!
//! The fast path has no locked instruction. It consists of a load that says whether the session has locks, a
//! load of the grant, the interlock, the system call, two counters of the calling thread, and two trace
//! events. A session with locks looks at the clock, too, because they end with the lease. Every method
//! returns `None` if the file has no grant, or has just lost it, or if it is uncertain whether locks on the
//! file are lost; the caller then uses the wire.

use std::io as stdio;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use io::{Stability, trace};
use rustix::io::{Errno, ReadWriteFlags};
use sys::read_mostly::ReadGuard;

use super::Inner;
use super::grant::FileGrant;
use super::nowait::ReadMethod;
use crate::disk_waits;
use crate::error::{Error, Result};
use crate::lane::NowaitSupport;

/// The result of a read that must not wait.
#[derive(Debug)]
pub(super) enum ReadAttempt {
    Done(usize),
    Failed(stdio::Error),
    /// The file has no grant.
    NoGrant,
    /// The data isn't in the page cache, as far as is known.
    NotCached,
    /// The I/O mode excludes an attempt, because it would probably wait.
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

/// Reads until the buffer is full or the file ends. `read` returns a count if an error follows after some
/// bytes, and then the error: a caller of this would take the count for the end of the file.
#[inline]
fn until_end(
    buffer: &mut [u8],
    offset: u64,
    read: impl Fn(&mut [u8], u64) -> stdio::Result<usize>,
) -> stdio::Result<usize> {
    let mut done = read(buffer, offset)?;
    while done > 0 && done < buffer.len() {
        match read(&mut buffer[done..], offset.saturating_add(done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

impl Inner {
    pub(super) fn has_grant(&self) -> bool {
        self.grant.is_some() && !self.must_ask_for_locks()
    }

    /// Whether only the server knows that the session's locks on the file aren't lost, or knows that they
    /// are: reads and writes take the wire then, where the server refuses them.
    #[inline]
    pub(super) fn must_ask_for_locks(&self) -> bool {
        self.session.inner.counters.lockers.load(Relaxed) != 0 && self.has_uncertain_locks()
    }

    #[cold]
    fn has_uncertain_locks(&self) -> bool {
        let caller = &self.session.caller;
        !caller.wire.protocol.has_locks_for_certain(&caller.user, &self.handle)
    }

    /// The grant for a read or write now.
    #[inline]
    fn usable_grant(&self) -> Option<ReadGuard<'_, FileGrant>> {
        if self.must_ask_for_locks() {
            return None;
        }
        self.grant.read()
    }

    /// Makes the next commit sync the granted file, which may have been changed by other means than the
    /// grant.
    pub(super) fn mark_dirty(&self) {
        if let Some(grant) = self.grant.read() {
            grant.mark_dirty();
        }
    }

    /// Reads, and waits for the disk if necessary.
    #[inline]
    pub(crate) fn lane_read(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> Option<Result<usize>> {
        let grant = self.usable_grant()?;
        let slot = grant.thread_slot();
        let Some(flight) = grant.grant.try_get_at(slot) else { return self.abandon(grant) };
        let began = self.begin_read(slot);
        let result = if grant.reads_buffered {
            self.read_buffered(&grant, buffer, offset)
        } else {
            self.read_in_mode(&grant, buffer, offset)
        };
        drop(flight);
        Some(match result {
            Ok(count) => {
                self.count_read(slot, offset, count, began);
                Ok(count)
            }
            Err(error) => Err(self.read_error(offset, error)),
        })
    }

    /// Reads for an async task: a read that has to wait is made on another thread.
    pub(super) async fn lane_read_async(
        self: &Arc<Self>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        let attempt = self.attempt_lane_read(buffer, offset);
        self.finish_lane_read(attempt, buffer, offset).await
    }

    /// Finishes a read after [`Inner::attempt_lane_read`].
    pub(super) async fn finish_lane_read(
        self: &Arc<Self>,
        attempt: ReadAttempt,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        match attempt {
            ReadAttempt::Done(count) => return Some(Ok(count)),
            ReadAttempt::Failed(error) => return Some(Err(self.read_error(offset, error))),
            ReadAttempt::NoGrant => return None,
            ReadAttempt::NotAttempted => return Box::pin(self.read_in_mode_on_thread(buffer, offset)).await,
            ReadAttempt::NotCached => {}
        }
        let (file, len) = (self.clone(), buffer.len());
        let read = move || {
            let mut bytes = vec![0; len];
            let result = file.lane_read(&mut bytes, offset)?;
            Some(result.map(|count| (count, bytes)))
        };
        let result = match disk_waits::run(read).await {
            Ok(result) => result?,
            Err(error) => return Some(Err(self.local_error(stdio::Error::other(error)))),
        };
        Some(result.map(|(count, bytes)| {
            buffer[..count].copy_from_slice(&bytes[..count]);
            count
        }))
    }

    /// Reads as far as that doesn't wait. A [`ReadMethod::Plain`] read may wait, see `nowait`.
    #[inline]
    pub(super) fn attempt_lane_read(self: &Arc<Self>, buffer: &mut [u8], offset: u64) -> ReadAttempt {
        let Some(grant) = self.usable_grant() else { return ReadAttempt::NoGrant };
        if !grant.reads_buffered {
            return ReadAttempt::NotAttempted;
        }
        let slot = grant.thread_slot();
        let Some(flight) = grant.grant.try_get_at(slot) else {
            return self.abandon(grant).unwrap_or(ReadAttempt::NoGrant);
        };
        let began = self.begin_read(slot);
        let attempt = match grant.nowait.next() {
            ReadMethod::Plain => self.read_buffered(&grant, buffer, offset).into(),
            ReadMethod::Nowait => self.read_nowait(&grant, buffer, offset),
            ReadMethod::Thread => ReadAttempt::NotCached,
        };
        drop(flight);
        if let ReadAttempt::Done(count) = attempt {
            self.count_read(slot, offset, count, began);
        }
        attempt
    }

    #[inline]
    fn read_buffered(&self, grant: &FileGrant, buffer: &mut [u8], offset: u64) -> stdio::Result<usize> {
        trace::read_vector(self.handle.as_bytes(), offset, buffer.len() as u64);
        until_end(buffer, offset, |buffer, offset| io::read_at(&grant.grant, buffer, offset))
    }

    #[inline(never)]
    fn read_nowait(&self, grant: &FileGrant, buffer: &mut [u8], offset: u64) -> ReadAttempt {
        let mut parts = [stdio::IoSliceMut::new(buffer)];
        let flags = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(&grant.grant, &mut parts, offset.min(io::MAX_OFFSET), flags) {
            Ok(count) if count == buffer.len() || count == 0 => {
                grant.nowait.note(true);
                trace::read_vector(self.handle.as_bytes(), offset, buffer.len() as u64);
                ReadAttempt::Done(count)
            }
            // The rest isn't cached, or the file ends here. A plain read shows which.
            Ok(_) | Err(Errno::INTR) => self.read_buffered(grant, buffer, offset).into(),
            Err(Errno::AGAIN) => {
                grant.nowait.note(false);
                ReadAttempt::NotCached
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                let in_memory = grant.is_in_memory();
                let support = if in_memory { NowaitSupport::InMemory } else { NowaitSupport::Unsupported };
                grant.nowait.note_support(support);
                if let Some(attributes) = &self.attributes_at_open {
                    self.session.inner.lane.note_nowait_support(attributes.fsid, support);
                }
                if in_memory {
                    self.read_buffered(grant, buffer, offset).into()
                } else {
                    ReadAttempt::NotCached
                }
            }
            Err(error) => ReadAttempt::Failed(error.into()),
        }
    }

    /// Reads in an I/O mode other than buffered. Waits for the disk.
    #[cold]
    fn read_in_mode(&self, grant: &FileGrant, buffer: &mut [u8], offset: u64) -> stdio::Result<usize> {
        until_end(buffer, offset, |buffer, offset| {
            io::read(self.files(grant), grant.modes.read, buffer, offset, self.fallbacks())
        })
    }

    /// As [`Inner::read_in_mode`], on a thread for blocking calls.
    async fn read_in_mode_on_thread(
        self: &Arc<Self>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize>> {
        let (file, len) = (self.clone(), buffer.len());
        let fetch = move || {
            let grant = file.usable_grant()?;
            let slot = grant.thread_slot();
            let Some(flight) = grant.grant.try_get_at(slot) else { return file.abandon(grant) };
            let began = file.begin_read(slot);
            let fetched = file.fetch_until_end(&grant, offset, len);
            drop(flight);
            if let Ok(payloads) = &fetched {
                file.count_read(slot, offset, payloads.iter().map(|payload| payload.len()).sum(), began);
            }
            Some(fetched)
        };
        let fetched = match disk_waits::run(fetch).await {
            Ok(fetched) => fetched?,
            Err(error) => return Some(Err(self.local_error(stdio::Error::other(error)))),
        };
        Some(match fetched {
            Ok(payloads) => {
                let mut done = 0;
                for payload in payloads {
                    buffer[done..done + payload.len()].copy_from_slice(&payload);
                    done += payload.len();
                }
                Ok(done)
            }
            Err(error) => Err(self.read_error(offset, error)),
        })
    }

    /// Reads `len` bytes, or as many as the file has. More than one payload is rare.
    fn fetch_until_end(&self, grant: &FileGrant, offset: u64, len: usize) -> stdio::Result<Vec<io::Payload>> {
        let (mut payloads, mut done) = (Vec::with_capacity(1), 0);
        while done < len {
            let at = offset.saturating_add(done as u64);
            let payload = io::fetch(self.files(grant), grant.modes.read, at, len - done, self.fallbacks())?;
            if payload.is_empty() {
                break;
            }
            done += payload.len();
            payloads.push(payload);
        }
        Ok(payloads)
    }

    /// Writes all of `data`. Short writes are continued until an error; after a part was written it is
    /// [`Error::Partly`].
    #[inline]
    pub(crate) fn lane_write(self: &Arc<Self>, data: &[u8], offset: u64) -> Option<Result<()>> {
        let grant = self.usable_grant()?;
        let slot = grant.thread_slot();
        let Some(flight) = grant.grant.try_get_at(slot) else { return self.abandon(grant) };
        self.discard_uncommitted(offset, data.len() as u64);
        let began = self.session.inner.counters.lane_io.begin_write(slot);
        let mut done = 0;
        let result = loop {
            let (rest, at) = (&data[done..], offset.saturating_add(done as u64));
            let written = if grant.writes_buffered {
                trace::write_vector(self.handle.as_bytes(), at, rest.len() as u64);
                io::write_at(&grant.grant, rest, at)
            } else {
                self.write_in_mode(&grant, rest, at)
            };
            match written {
                Ok(count) => done += count,
                Err(error) => break Err(error),
            }
            if done == data.len() {
                break Ok(());
            }
        };
        grant.mark_dirty();
        drop(flight);
        let counters = &self.session.inner.counters;
        counters.lane_io.write(slot, done as u64);
        if let Some(began) = began {
            counters.lane_times.writes.record(began.elapsed());
        }
        Some(match result {
            Ok(()) => {
                trace::write_io_done(self.handle.as_bytes(), offset, done as u64);
                Ok(())
            }
            Err(error) => Err(self.write_error(offset, error).after(done)),
        })
    }

    /// Writes in an I/O mode other than buffered. Waits for the disk.
    #[cold]
    fn write_in_mode(&self, grant: &FileGrant, data: &[u8], offset: u64) -> stdio::Result<usize> {
        let (files, mode) = (self.files(grant), grant.modes.write);
        io::write(files, mode, data, offset, Stability::Unstable, self.fallbacks())
    }

    /// Discards another open's uncommitted writes of a range that is being written over the lane: written
    /// again after a restart of the server, they would replace newer data.
    #[inline]
    pub(super) fn discard_uncommitted(&self, offset: u64, len: u64) {
        if let Some(uncommitted) = self.existing_uncommitted() {
            uncommitted.discard(offset, offset.saturating_add(len));
        }
    }

    /// Runs `f` with the granted descriptor. `shared` says that others use it from now on: `None` if they may
    /// not.
    pub(super) fn with_fd<R>(
        self: &Arc<Self>,
        shared: bool,
        f: impl FnOnce(BorrowedFd<'_>) -> R,
    ) -> Option<R> {
        let grant = self.usable_grant()?;
        if shared && grant.grant.is_files_only() {
            return None;
        }
        let Some(flight) = grant.grant.try_get() else { return self.abandon(grant) };
        if self.write && shared {
            grant.mark_shared();
        }
        let result = f(grant.grant.as_fd());
        if self.write {
            grant.mark_dirty();
        }
        drop(flight);
        Some(result)
    }

    /// Runs `f` with the grant, for system calls that don't change the file.
    pub(super) fn inspect<R>(self: &Arc<Self>, f: impl FnOnce(&FileGrant) -> R) -> Option<R> {
        let grant = self.grant.read()?;
        let Some(_flight) = grant.grant.try_get() else { return self.abandon(grant) };
        Some(f(&grant))
    }

    /// The granted file's length in bytes.
    pub(crate) fn lane_size(self: &Arc<Self>) -> Option<Result<u64>> {
        let stat = self.inspect(|grant| rustix::fs::fstat(&grant.grant))?;
        Some(
            stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
                .map_err(|error| self.local_error(error.into())),
        )
    }

    /// Sets the granted file's length in bytes.
    pub(crate) fn lane_set_len(self: &Arc<Self>, len: u64) -> Option<Result<()>> {
        let grant = self.usable_grant()?;
        let Some(flight) = grant.grant.try_get() else { return self.abandon(grant) };
        self.discard_uncommitted(len, u64::MAX);
        let result =
            if len > io::MAX_OFFSET { Err(Errno::FBIG) } else { rustix::fs::ftruncate(&grant.grant, len) };
        grant.mark_dirty();
        drop(flight);
        Some(result.map_err(|error| self.local_error(error.into())))
    }

    fn files<'a>(&'a self, grant: &'a FileGrant) -> io::Files<'a> {
        grant.files(self.handle.as_bytes())
    }

    pub(super) fn fallbacks(&self) -> &io::IoFallbacks {
        &self.session.inner.lane.fallbacks
    }

    #[inline]
    fn begin_read(&self, slot: Option<usize>) -> Option<Instant> {
        self.session.inner.counters.lane_io.begin_read(slot)
    }

    #[inline]
    fn count_read(&self, slot: Option<usize>, offset: u64, count: usize, began: Option<Instant>) {
        trace::read_io_done(self.handle.as_bytes(), offset, count as u64);
        let counters = &self.session.inner.counters;
        counters.lane_io.read(slot, count as u64);
        if let Some(began) = began {
            counters.lane_times.reads.record(began.elapsed());
        }
    }

    #[cold]
    fn read_error(&self, offset: u64, error: stdio::Error) -> Error {
        trace::read_err(self.handle.as_bytes(), offset, errno(&error));
        self.local_error(error)
    }

    #[cold]
    fn write_error(&self, offset: u64, error: stdio::Error) -> Error {
        trace::write_err(self.handle.as_bytes(), offset, errno(&error));
        self.local_error(error)
    }
}

/// The errno for trace events; 0 for errors that aren't the kernel's.
fn errno(error: &stdio::Error) -> u64 {
    error.raw_os_error().unwrap_or(0).unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of a file that has these parts, each in one call; `Err` is one that can't be read.
    fn read(parts: &[stdio::Result<usize>], room: usize) -> stdio::Result<usize> {
        let mut buffer = vec![0; room];
        until_end(&mut buffer, 0, |buffer, offset| {
            let mut at = 0;
            for part in parts {
                match part {
                    Ok(len) if offset < at + *len as u64 => {
                        return Ok(buffer.len().min((at + *len as u64 - offset) as usize));
                    }
                    Ok(len) => at += *len as u64,
                    Err(error) => return Err(error.kind().into()),
                }
            }
            Ok(0)
        })
    }

    #[test]
    fn an_error_behind_some_bytes_is_not_the_end_of_the_file() {
        let bad = || Err(stdio::ErrorKind::Other.into());
        assert_eq!(read(&[Ok(10)], 10).unwrap(), 10);
        assert_eq!(read(&[Ok(10)], 20).unwrap(), 10);
        assert_eq!(read(&[Ok(10), Ok(5), Ok(1)], 15).unwrap(), 15);
        assert_eq!(read(&[], 20).unwrap(), 0);
        assert_eq!(read(&[Ok(10), bad()], 10).unwrap(), 10);
        assert!(read(&[Ok(10), bad()], 11).is_err());
        assert!(read(&[bad(), Ok(10)], 11).is_err());
    }
}
