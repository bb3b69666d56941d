//! An open file: an object that knows its road.
//!
//! A file has a grant or it has none. With one, a read is `try_get`, `pread`, `put` (`by_lane`); without, it is READ calls
//! (`by_wire`). When `try_get` fails the server has taken the grant back: the file gives it up and the same read goes on
//! over the wire; the caller doesn't see it. When the session finds a lane again, the file asks for a new grant at its
//! next I/O.
//!
//! Two rules keep every byte that the caller was told is durable:
//! 1. *A file with a grant keeps no unstable data.* What was written over the wire and not committed is made durable
//!    before the grant is used: by a COMMIT if the grant came with the same write verifier, else (or if that finds it forgotten)
//!    it is written again through the grant and synced.
//! 2. *A grant with unsynced writes is synced before it is closed*, at the latest by the next [`File::commit`], which
//!    also reports it if that failed.

mod by_lane;
mod by_mode;
mod by_wire;
mod local;
mod syncs;
mod unstable;
mod way;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use io::Stability;
use parking_lot::Mutex;
use sys::Switch;

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::session::Session;
use crate::types::{Attributes, Handle, SetAttributes};
use by_lane::{Granted, Step};
use unstable::Unstable;

/// Which way a file's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Road {
    /// NFS over TCP.
    Wire,
    /// A granted descriptor.
    Lane,
}

/// What is known of a file that is about to be opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) handle: Handle,
    pub(crate) attributes: Option<Attributes>,
    /// The grant, its lane's number, and the server's write verifier.
    pub(crate) granted: Option<(lane::Grant, u64, [u8; 8])>,
    /// Why the lane, if there is one, gave none.
    pub(crate) refused: Option<lane::Status>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    session: Session,
    handle: Handle,
    name: Box<[u8]>,
    read: bool,
    write: bool,
    opened_as: Option<Attributes>,
    /// Why the lane gave no grant when it was last asked.
    refused: Mutex<Option<lane::Status>>,
    /// The lane's road, while there is one.
    granted: Switch<Granted>,
    /// The occasion on which a lane was last asked for a grant; 0: none.
    asked: AtomicU64,
    /// This file's number in the session's list of files with grants; 0: not in it.
    listed: AtomicU64,
    /// Grants given up while they had unsynced writes.
    retired: Mutex<Vec<Arc<Granted>>>,
    /// The first error of a sync that nobody waited for.
    lost: Mutex<Option<std::io::Error>>,
    /// What was written over the wire and is not durable.
    kept: Mutex<Unstable>,
    /// Writers over the wire hold it for reading; who writes kept data again, or changes to the lane, for writing.
    wire_writers: tokio::sync::RwLock<()>,
    /// Held while a lane is asked for a grant.
    asking: tokio::sync::Mutex<()>,
}

/// An open file. Clones share it; it may be used from many tasks at once.
#[derive(Debug, Clone)]
pub struct File {
    inner: Arc<Inner>,
}

impl File {
    pub(crate) fn new(session: &Session, opening: Opening, name: &[u8], options: &OpenOptions) -> Self {
        let has_grant = opening.granted.is_some();
        let waits = session.inner.lane.waits_on(opening.attributes.as_ref());
        let granted = opening
            .granted
            .map(|(grant, lane, verifier)| Arc::new(Granted::new(grant, lane, verifier, waits)));
        let inner = Arc::new(Inner {
            session: session.clone(),
            handle: opening.handle,
            name: name.into(),
            read: options.read,
            write: options.write,
            opened_as: opening.attributes,
            refused: Mutex::new(opening.refused),
            granted: Switch::new(granted),
            asked: AtomicU64::new(0),
            listed: AtomicU64::new(0),
            retired: Mutex::new(Vec::new()),
            lost: Mutex::new(None),
            kept: Mutex::new(Unstable::default()),
            wire_writers: tokio::sync::RwLock::new(()),
            asking: tokio::sync::Mutex::new(()),
        });
        if has_grant {
            inner.enlist();
        }
        Self { inner }
    }

    /// Whether the server's mode asks for more than one grant.
    pub(crate) fn wants_direct(&self) -> bool {
        self.inner.wants_direct()
    }

    /// Gets what direct I/O takes, if it can be had.
    pub(crate) async fn take_direct(&self) {
        self.inner.take_direct().await;
    }

    /// The file's persistent handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// The file's attributes when it was opened, if the server sent them then.
    #[must_use]
    pub fn opened_as(&self) -> Option<Attributes> {
        self.inner.opened_as
    }

    /// Which road the next read or write would take.
    #[must_use]
    pub fn road(&self) -> Road {
        match self.inner.granted.look() {
            Some(granted) if granted.is_live() => Road::Lane,
            _ => Road::Wire,
        }
    }

    /// The session that the file was opened with.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.inner.session
    }

    /// Reads at `offset` until `buffer` is full or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error.
    pub async fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let inner = &self.inner;
        inner.may(inner.read, "reading")?;
        match inner.read_cached(buffer, offset) {
            Step::Done(count) => Ok(count),
            // In a box, here and below: the futures of the roads that wait are large, and callers move ours about.
            step => Box::pin(inner.read_on(buffer, offset, step)).await,
        }
    }

    /// Reads up to `len` bytes at `offset` into `buffer` (its old contents are lost, its memory is reused) and gives it
    /// back, as long as what was read. The wire's payload is received straight into it.
    ///
    /// # Errors
    /// As [`File::read_at`]; the buffer is then lost.
    pub async fn read_into(&self, mut buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let inner = &self.inner;
        inner.may(inner.read, "reading")?;
        let mut step = Step::NoLane;
        if inner.has_grant() {
            // Growing costs zeroes once; a buffer that comes back full keeps its length.
            if buffer.len() != len {
                buffer.resize(len, 0);
            }
            step = inner.read_cached(&mut buffer, offset);
            if let Step::Done(count) = step {
                buffer.truncate(count);
                return Ok(buffer);
            }
        }
        Box::pin(inner.read_on_into(buffer, offset, len, step)).await
    }

    /// Writes all of `data` at `offset`; [`File::commit`] makes it durable.
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error; some of the data may have been written.
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
                // Only the data must be durable, not what others wrote: but that is what a sync of the file gives.
                return self.commit().await;
            }
            if inner.take_road().await? {
                continue;
            }
            if inner.is_full(data.len()) {
                inner.commit_kept().await?;
            }
            let stable_enough = {
                let _writer = inner.wire_writers.read().await;
                if inner.has_grant() {
                    continue;
                }
                inner.write_wire(data, offset, stability).await?
            };
            return if stable_enough { Ok(()) } else { inner.commit_kept().await };
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

    /// Makes durable what would be lost if the server restarted: what was written over the wire. What was written over the
    /// lane is in this kernel's page cache, where only [`File::commit`] is more than the close of a local file does.
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
            if inner.take_road().await? {
                continue;
            }
            // Nobody may write again what is about to be cut off.
            let _writers = inner.wire_writers.write().await;
            if inner.has_grant() {
                continue;
            }
            let set = SetAttributes { size: Some(len), ..SetAttributes::default() };
            let result = inner.session.set_attributes(&inner.handle, &set, None).await;
            result.map_err(|error| error.about(|| inner.shown()))?;
            inner.kept.lock().cut(len, u64::MAX);
            return Ok(());
        }
    }

    /// Commits what is not durable, and gives the grant back if this was the last clone. Dropping a file gives the
    /// grant back, too, but doesn't commit.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn close(self) -> Result<()> {
        if self.inner.is_dirty() { self.commit().await } else { self.inner.take_lost() }
    }

    /// For the blocking face.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    /// The rest of a read after its first `step`: whichever road it takes, waiting.
    async fn read_on(self: &Arc<Self>, buffer: &mut [u8], offset: u64, step: Step) -> Result<usize> {
        let mut read = self.finish_read(step, buffer, offset).await;
        loop {
            if let Some(result) = read {
                return result;
            }
            if !self.take_road().await? {
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
        step: Step,
    ) -> Result<Vec<u8>> {
        let mut read = self.finish_read(step, &mut buffer, offset).await;
        loop {
            if let Some(result) = read {
                buffer.truncate(result?);
                return Ok(buffer);
            }
            if !self.take_road().await? {
                return self.read_wire_into(buffer, offset, len).await;
            }
            buffer.resize(len, 0);
            read = self.read_granted(&mut buffer, offset).await;
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    #[cold]
    fn local(&self, source: std::io::Error) -> Error {
        Error::Local { object: self.shown(), source }
    }

    #[inline]
    pub(crate) fn may(&self, allowed: bool, wanted: &'static str) -> Result<()> {
        if allowed { Ok(()) } else { Err(Error::NotOpenFor { object: self.shown(), wanted }) }
    }

    pub(crate) fn readable(&self) -> Result<()> {
        self.may(self.read, "reading")
    }

    pub(crate) fn writable(&self) -> Result<()> {
        self.may(self.write, "writing")
    }

    /// Whether something written may not be durable, as far as is known.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.kept.lock().is_empty()
            || !self.retired.lock().is_empty()
            || self.granted.look().is_some_and(|granted| granted.is_dirty())
    }

    /// Whether a COMMIT is due over the wire.
    pub(crate) fn keeps_any(&self) -> bool {
        !self.kept.lock().is_empty()
    }

    /// The error of a sync that nobody waited for, once.
    pub(crate) fn take_lost(&self) -> Result<()> {
        self.lost.lock().take().map_or(Ok(()), |error| Err(self.local(error)))
    }

    /// Enters the session's list of files with grants.
    fn enlist(self: &Arc<Self>) {
        let weak: Weak<Self> = Arc::downgrade(self);
        let number = self.session.inner.lane.enlist(weak, self.listed.load(Relaxed));
        self.listed.store(number, Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let listed = *self.listed.get_mut();
        if listed != 0 {
            self.session.inner.lane.strike(listed);
        }
        if self.is_dirty() {
            tracing::debug!(file = %self.shown(), "closed without a commit");
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, F>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// A caller's future contains these, and an operation over the lane shouldn't cost a copy of what only the wire needs.
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
