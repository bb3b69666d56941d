//! An open file: an object that knows its road.
//!
//! A file has a grant or it has none. With one, a read is `try_get`, `pread`, `put` (`by_lane`); without, it
//! is READ calls (`by_wire`). When `try_get` fails the server has taken the grant back: the file gives it up
//! and the same read goes on over the wire; the caller doesn't see it. When the session finds a lane again,
//! the file asks for a new grant at its next I/O.
//!
//! Two rules keep every byte that the caller was told is durable:
//! 1. *Where there is a grant no unstable data is kept.* What was written over the wire and not committed,
//!    through whichever open of the file, is made durable before the grant is used: by a COMMIT if the grant
//!    came with the same write verifier, else (or if that finds it forgotten) it is written again through the
//!    grant and synced.
//! 2. *A grant with unsynced writes is synced before it is closed*, at the latest by the next
//!    [`File::commit`], which also reports it if that failed.

mod by_lane;
mod by_mode;
mod by_wire;
mod calls;
mod change;
mod granted;
mod kept;
mod local;
mod pool;
mod retired;
mod syncs;
mod unstable;
mod waiting;
mod way;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sys::ReadMostly;

use crate::error::{Error, Result};
use crate::lane::{GrantHolder, OpenedFile};
use crate::options::OpenOptions;
use crate::session::Session;
use crate::types::{Attributes, Handle};
use granted::FileGrant;
use kept::UncommittedWrites;
pub(crate) use pool::UncommittedPool;

/// Which way a file's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataPath {
    /// NFS over TCP.
    Wire,
    /// A granted descriptor.
    Lane,
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
    refused: Mutex<Option<lane::OpenStatus>>,
    /// The lane's road, while there is one.
    granted: ReadMostly<FileGrant>,
    /// The occasion on which a lane was last asked for a grant; 0: none.
    asked: AtomicU64,
    /// This file's number in the session's list of files with grants; 0: not in it.
    listed: AtomicU64,
    /// Grants given up while they had unsynced writes.
    retired: Mutex<Vec<Arc<FileGrant>>>,
    /// The first error of a sync that nobody waited for.
    lost: Mutex<Option<std::io::Error>>,
    /// What was written over the wire and is not durable: the inode's, once this open has written that way.
    kept: OnceLock<Arc<UncommittedWrites>>,
    /// Held while a lane is asked for a grant.
    asking: tokio::sync::Mutex<()>,
}

/// An open file. Clones share it; it may be used from many tasks at once.
#[derive(Debug, Clone)]
pub struct File {
    inner: Arc<Inner>,
}

impl File {
    pub(crate) fn new(session: &Session, opening: OpenedFile, name: &[u8], options: &OpenOptions) -> Self {
        let has_grant = opening.granted.is_some();
        let medium = session.inner.lane.nowait_support(opening.attributes.as_ref());
        let granted = opening
            .granted
            .map(|(grant, lane, verifier)| Arc::new(FileGrant::new(grant, lane, verifier, medium)));
        let inner = Arc::new(Inner {
            session: session.clone(),
            handle: opening.handle,
            name: name.into(),
            read: options.read,
            write: options.write,
            opened_as: opening.attributes,
            refused: Mutex::new(opening.refused),
            granted: ReadMostly::new(granted),
            asked: AtomicU64::new(0),
            listed: AtomicU64::new(0),
            retired: Mutex::new(Vec::new()),
            lost: Mutex::new(None),
            kept: OnceLock::new(),
            asking: tokio::sync::Mutex::new(()),
        });
        if has_grant {
            inner.enlist();
        }
        Self { inner }
    }

    /// Takes a grant that the file was opened with, once everything is durable that other opens have written
    /// over the wire. If that can't be had now, the file goes over the wire.
    pub(crate) async fn take_grant(
        &self,
        (grant, lane, verifier): (lane::Grant, u64, [u8; 8]),
    ) -> Result<()> {
        let medium = self.inner.session.inner.lane.nowait_support(self.inner.opened_as.as_ref());
        self.inner.change_to(FileGrant::new(grant, lane, verifier, medium)).await.map(drop)
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
    pub fn data_path(&self) -> DataPath {
        match self.inner.granted.read() {
            Some(granted) if granted.is_live() => DataPath::Lane,
            _ => DataPath::Wire,
        }
    }

    /// The session that the file was opened with.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.inner.session
    }

    /// For the blocking face.
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
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

    /// Where what is written over the wire is kept.
    fn kept(&self) -> &Arc<UncommittedWrites> {
        self.kept.get_or_init(|| self.session.inner.uncommitted.file(&self.handle, &self.name))
    }

    /// What any open of the file may have written over the wire and not committed.
    fn kept_by_any(&self) -> Option<Arc<UncommittedWrites>> {
        self.session.inner.uncommitted.find(&self.handle)
    }

    /// Makes everything durable that was written over the wire so far.
    pub(crate) async fn commit_kept(&self) -> Result<()> {
        match self.kept_by_any() {
            Some(kept) => kept.commit().await,
            None => Ok(()),
        }
    }

    /// Whether something written may not be durable, as far as is known.
    pub(crate) fn is_dirty(&self) -> bool {
        self.keeps_any()
            || !self.retired.lock().is_empty()
            || self.granted.read().is_some_and(|granted| granted.is_dirty())
    }

    /// Whether a COMMIT is due over the wire.
    pub(crate) fn keeps_any(&self) -> bool {
        self.kept_by_any().is_some_and(|kept| !kept.is_empty())
    }

    /// The error of a sync that nobody waited for, once.
    pub(crate) fn take_lost(&self) -> Result<()> {
        self.lost.lock().take().map_or(Ok(()), |error| Err(self.local(error)))
    }

    /// Enters the session's list of files with grants.
    fn enlist(self: &Arc<Self>) {
        let weak: Weak<dyn GrantHolder> = Arc::<Self>::downgrade(self);
        let number = self.session.inner.lane.register(weak, self.listed.load(Relaxed));
        self.listed.store(number, Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let listed = *self.listed.get_mut();
        if listed != 0 {
            self.session.inner.lane.unregister(listed);
        }
        if self.is_dirty() {
            tracing::debug!(file = %self.shown(), "closed without a commit");
        }
    }
}
