//! An open file: reads and writes go over the lane while the file has a grant, and over the wire otherwise.
//!
//! With a grant, a read is `try_get`, `pread`, `put`. Without one it is READ calls. `try_get` fails when the
//! server has revoked the grant: the file gives it up, and the same read continues over the wire without an
//! error. When the session has a lane again, the file requests a new grant before its next I/O.
//!
//! Two invariants keep all data that the caller was told is durable:
//! 1. *A file with a grant has no uncommitted writes.* Data that any open of the file has written over the
//!    wire is made durable before the grant is used: by a COMMIT if the grant came with the same write
//!    verifier. With another one, or if the server has lost the data, it is written again through the grant
//!    and synced.
//! 2. *A grant with unsynced writes is synced before it is closed*, at the latest by the next
//!    [`File::commit`], which also reports an error of that sync.
//!
//! | module | what |
//! |---|---|
//! | `operations` | the methods that read, write and sync, on whichever data path |
//! | `lane_io` | system calls on the granted file |
//! | `nowait` | which reads may block an async task |
//! | `grant` | a grant: how the file gets it, gives it up and syncs it |
//! | `locks` | byte-range locks |
//! | `wire_io` | READ in pieces of rsize |
//! | `write_behind` | writes that don't wait for the server |
//! | `space` | space and holes, and copies between files of the server |

mod grant;
mod lane_io;
mod locks;
mod nowait;
mod operations;
mod space;
mod wire_io;
mod write_behind;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;
use sys::ReadMostly;
use tokio::sync::OnceCell;

use crate::error::{Error, Result, Status};
use crate::lane::{GrantHolder, OpenedFile, WireState};
use crate::operations::{FileTarget, OpenPlan, OpenReply, Operations as _, WireOpen};
use crate::options::OpenOptions;
use crate::session::Session;
use crate::types::{Access, Attributes, Handle};
use crate::uncommitted_writes::UncommittedWrites;
use grant::FileGrant;

/// The path of a file's data.
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
    is_new: bool,
    attributes_at_open: Option<Attributes>,
    /// The reason for which the lane last refused a grant.
    refusal: Mutex<Option<lane::OpenStatus>>,
    /// The grant in use, if there is one.
    grant: ReadMostly<FileGrant>,
    /// The lane epoch in which a grant was last requested; 0 if none was.
    requested_in: AtomicU64,
    /// This file's number among the files with grants; 0 if it isn't registered.
    registration: AtomicU64,
    /// Grants that were given up and may have unsynced writes.
    revoked: Mutex<Vec<Arc<FileGrant>>>,
    /// The first error of a sync in the background.
    sync_error: Mutex<Option<Errno>>,
    /// The file's uncommitted writes, which all its opens share. Empty until this open writes over the wire.
    uncommitted: OnceLock<Arc<UncommittedWrites>>,
    /// All that was in the file when it was opened, until it is taken.
    content: Mutex<Option<Box<[u8]>>>,
    /// The failed writes of the file that this open was told of, or another one before it was opened.
    known_failures: AtomicU64,
    /// Held while a grant is requested.
    grant_request: tokio::sync::Mutex<()>,
    /// What the open has at the server over the wire. Empty while it has used the lane only.
    wire_state: OnceCell<WireState>,
}

/// An open file. Clones share it; it may be used from many tasks at once.
#[derive(Debug, Clone)]
pub struct File {
    inner: Arc<Inner>,
}

impl File {
    pub(crate) fn new(session: &Session, mut opened: OpenedFile, name: &[u8], options: &OpenOptions) -> Self {
        let content = opened.state.as_mut().and_then(|state| state.content.take());
        let has_grant = opened.granted.is_some();
        let nowait = session.inner.lane.nowait_support(opened.attributes.as_ref());
        let grant = opened
            .granted
            .map(|(grant, lane, verifier)| Arc::new(FileGrant::new(grant, lane, verifier, nowait)));
        let known_failures = session.inner.uncommitted.known_failures(&opened.handle);
        let inner = Arc::new(Inner {
            session: session.clone(),
            handle: opened.handle,
            name: name.into(),
            read: options.read,
            write: options.write,
            is_new: opened.is_new,
            attributes_at_open: opened.attributes,
            refusal: Mutex::new(opened.refused),
            grant: ReadMostly::new(grant),
            requested_in: AtomicU64::new(0),
            registration: AtomicU64::new(0),
            revoked: Mutex::new(Vec::new()),
            sync_error: Mutex::new(None),
            uncommitted: OnceLock::new(),
            content: Mutex::new(content.map(Vec::into_boxed_slice)),
            known_failures: AtomicU64::new(known_failures),
            grant_request: tokio::sync::Mutex::new(()),
            wire_state: OnceCell::new_with(opened.state),
        });
        if has_grant {
            inner.register();
        }
        Self { inner }
    }

    /// Installs the grant that came with the open, after making durable what other opens have written over
    /// the wire. If that fails, the file uses the wire.
    pub(crate) async fn install_grant(
        &self,
        (grant, lane, verifier): (lane::Grant, u64, [u8; 8]),
    ) -> Result<()> {
        let nowait = self.inner.session.inner.lane.nowait_support(self.inner.attributes_at_open.as_ref());
        self.inner.install_grant(FileGrant::new(grant, lane, verifier, nowait)).await.map(drop)
    }

    /// The user's rights to the file when it was opened over the wire, if the server sent them: those of
    /// [`Access::READ`], [`Access::MODIFY`], [`Access::EXTEND`] and [`Access::EXECUTE`].
    #[must_use]
    pub fn access_at_open(&self) -> Option<Access> {
        self.inner.wire_state.get()?.access
    }

    /// Whether the server has promised to keep the file while it is open here, also when its last name is
    /// removed and over a restart (`OPEN4_RESULT_PRESERVE_UNLINKED`, RFC 8881 section 18.16.4). Otherwise the
    /// file's last name should not be removed before it is closed. Never by NFSv3, nor for a file that was
    /// opened over the lane.
    #[must_use]
    pub fn outlives_its_name(&self) -> bool {
        let state = self.inner.wire_state.get();
        state.and_then(|state| state.open.as_ref()).is_some_and(WireOpen::outlives_its_name)
    }

    /// Whether the server's I/O modes need a second grant for direct I/O.
    pub(crate) fn needs_direct_grant(&self) -> bool {
        self.inner.needs_direct_grant()
    }

    /// Requests the second grant for direct I/O.
    pub(crate) async fn request_direct_grant(&self) {
        self.inner.request_direct_grant().await;
    }

    /// The file's persistent handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inner.handle.clone()
    }

    /// The file's attributes when it was opened, if the server sent them then.
    #[must_use]
    pub fn attributes_at_open(&self) -> Option<Attributes> {
        self.inner.attributes_at_open
    }

    /// Whether this open has created the file. False also if the server hasn't said it, which happens only to
    /// a file that was granted over a lane without a tree.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.inner.is_new
    }

    /// Takes all that was in the file when it was opened, if the open has read it ([`OpenOptions::content`]).
    /// It is as new as [`File::attributes_at_open`], or newer: while the file has the same
    /// [`Attributes::change`], it is what the file has.
    #[must_use]
    pub fn take_content(&self) -> Option<Vec<u8>> {
        self.inner.content.lock().take().map(Vec::from)
    }

    /// The data path of the next read or write.
    #[must_use]
    pub fn data_path(&self) -> DataPath {
        match self.inner.grant.read() {
            Some(grant) if grant.is_live() && !self.inner.must_ask_for_locks() => DataPath::Lane,
            _ => DataPath::Wire,
        }
    }

    /// The reason for which the lane gave no grant for this file, if it refused one. If there is no lane
    /// at all, [`crate::Session::lane`] has the reasons.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let refusal = *self.inner.refusal.lock();
        refusal.filter(|_| !self.inner.has_grant()).map(|status| status.to_string())
    }

    /// The session that the file was opened with.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.inner.session
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    /// The file's name for messages.
    fn display_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    #[cold]
    fn local_error(&self, source: std::io::Error) -> Error {
        Error::Local { object: self.display_name(), source }
    }

    #[inline]
    pub(crate) fn check_readable(&self) -> Result<()> {
        if self.read { Ok(()) } else { Err(self.not_open_for("reading")) }
    }

    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.write { Ok(()) } else { Err(self.not_open_for("writing")) }
    }

    #[cold]
    fn not_open_for(&self, wanted: &'static str) -> Error {
        Error::NotOpenFor { object: self.display_name(), wanted }
    }

    /// Opens the file over the wire, unless it is.
    pub(crate) async fn open_on_wire(&self) -> Result<&WireState> {
        if let Some(state) = self.wire_state.get() {
            return Ok(state);
        }
        Box::pin(self.wire_state.get_or_try_init(|| self.open_granted_on_wire())).await
    }

    /// Opens a file over the wire that the application has opened over the lane. While another client denies
    /// that, it waits: the application has the file open already.
    async fn open_granted_on_wire(&self) -> Result<WireState> {
        let target = FileTarget::File(&self.handle);
        let plan = OpenPlan { read: self.read, write: self.write, content: 0 };
        let files = [&self.handle];
        let opened = self.session.caller.perform(&files, |nfs, user| async move {
            match nfs.open(user, target, plan).await {
                Err(Error::Status { object, status: Status::ShareDenied }) => {
                    Err(Error::Status { object, status: Status::TryLater })
                }
                other => other,
            }
        });
        let opened = opened.await.map_err(|error| error.about(|| self.display_name()))?;
        let OpenReply { access, state: open, .. } = opened;
        Ok(WireState { open, access, content: None })
    }

    /// The file's uncommitted writes, for a write over the wire.
    fn uncommitted(&self) -> &Arc<UncommittedWrites> {
        self.uncommitted.get_or_init(|| self.session.inner.uncommitted.file(&self.handle, &self.name))
    }

    /// The file's uncommitted writes, if there may be any by this or another open.
    fn existing_uncommitted(&self) -> Option<Arc<UncommittedWrites>> {
        self.uncommitted.get().cloned().or_else(|| self.session.inner.uncommitted.find(&self.handle))
    }

    /// Makes durable what was written over the wire so far. Reports writes that have failed.
    pub(crate) async fn commit_uncommitted(&self) -> Result<()> {
        let Some(uncommitted) = self.existing_uncommitted() else { return Ok(()) };
        let committed = uncommitted.commit().await;
        uncommitted.report_failure(&self.known_failures).and(committed)
    }

    /// As [`Inner::commit_uncommitted`] and [`Inner::take_sync_error`], for a close of one of the open's
    /// descriptors: the next commit reports the same errors again.
    async fn commit_at_close(&self) -> Result<()> {
        if let Some(uncommitted) = self.existing_uncommitted() {
            let committed = uncommitted.commit().await;
            if self.write {
                uncommitted.report_failure_at_close(&self.known_failures).and(committed)?;
            }
        }
        self.sync_result(*self.sync_error.lock())
    }

    /// Makes durable what was written over the wire so far, and leaves failures to be reported later.
    async fn commit_silently(&self) {
        if let Some(uncommitted) = self.existing_uncommitted()
            && let Err(error) = uncommitted.commit().await
        {
            tracing::debug!(file = %self.display_name(), %error, "not committed at an unlock");
        }
    }

    /// Waits until the server has answered what was written behind so far.
    async fn settle_writes(&self) {
        if let Some(uncommitted) = self.existing_uncommitted() {
            uncommitted.settle().await;
        }
    }

    /// Whether written data may not be durable, as far as this client knows.
    pub(crate) fn is_dirty(&self) -> bool {
        self.has_uncommitted()
            || !self.revoked.lock().is_empty()
            || self.grant.read().is_some_and(|grant| grant.is_dirty())
    }

    /// Whether a COMMIT is due.
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.existing_uncommitted()
            .is_some_and(|uncommitted| !uncommitted.is_empty() || !uncommitted.is_settled())
    }

    /// Returns the error of a sync in the background, once.
    pub(crate) fn take_sync_error(&self) -> Result<()> {
        let error = self.sync_error.lock().take();
        self.sync_result(error)
    }

    fn sync_result(&self, error: Option<Errno>) -> Result<()> {
        error.map_or(Ok(()), |errno| Err(self.local_error(errno.into())))
    }

    /// Registers the file with the session, which makes it give up its grant when the lane ends.
    fn register(self: &Arc<Self>) {
        let weak: Weak<dyn GrantHolder> = Arc::<Self>::downgrade(self);
        let number = self.session.inner.lane.register(weak, self.registration.load(Relaxed));
        self.registration.store(number, Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let registration = *self.registration.get_mut();
        if registration != 0 {
            self.session.inner.lane.unregister(registration);
        }
        if self.is_dirty() {
            tracing::debug!(file = %self.display_name(), "closed without a commit");
        }
    }
}
