//! A file's grant: how the file requests it, begins to use it, gives it up and syncs it.
//!
//! Before a grant is used, all data written over the wire is durable. After it was given up, it stays open
//! until the data written through it is synced.

use std::io as stdio;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::SeqCst, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use io::{Alignment, Files, IoMode, IoModes, Stability, trace};
use lane::Grant;
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use sys::read_mostly::ReadGuard;

use super::Inner;
use super::nowait::NowaitChoice;
use crate::counters::{add, bump};
use crate::error::Result;
use crate::in_memory::is_in_memory;
use crate::lane::{GrantHolder, LaneOpen, NowaitSupport, OpenPurpose, OpenedInTree};
use crate::operations::FileTarget;
use crate::options::LaneMode;
use crate::types::Handle;
use crate::uncommitted_writes::{UncommittedWrites, Verifier};

/// The maximum number of background syncs of a revoked grant. Later syncs are those of commit and close.
const MAX_REVOKED_SYNCS: u32 = 500;

/// The pause between background syncs of a revoked grant.
const REVOKED_SYNC_INTERVAL: Duration = Duration::from_millis(10);

/// A grant with the state of its I/O.
#[derive(Debug)]
pub(crate) struct FileGrant {
    pub(super) grant: Grant,
    /// The lane's number in the session.
    lane: u64,
    /// The server's write verifier at the time of the grant.
    verifier: Verifier,
    /// Written since the last sync began.
    is_dirty: AtomicBool,
    /// A sync runs, which may be of writes that were done before.
    is_syncing: AtomicBool,
    /// Others may write through the descriptor, so the grant always counts as dirty.
    is_shared: AtomicBool,
    syncs: SyncQueue,
    pub(super) nowait: NowaitChoice,
    is_in_memory: OnceLock<bool>,
    /// The server's I/O modes for the file. The client uses the same.
    pub(super) modes: IoModes,
    /// Whether reads and writes are plain system calls on the grant.
    pub(super) reads_buffered: bool,
    pub(super) writes_buffered: bool,
    /// A second grant of the file, with `O_DIRECT`. That flag belongs to the open file description, so direct
    /// I/O needs a second description for whole blocks, beside one without the flag for the rest.
    direct: OnceLock<(Grant, Alignment)>,
}

impl FileGrant {
    /// `nowait` is what other files of the filesystem have shown.
    pub(super) fn new(grant: Grant, lane: u64, verifier: Verifier, nowait: NowaitSupport) -> Self {
        let modes = grant.modes();
        Self {
            reads_buffered: modes.read == IoMode::Buffered,
            writes_buffered: modes.write == IoMode::Buffered,
            modes,
            grant,
            lane,
            verifier,
            is_dirty: AtomicBool::new(false),
            is_syncing: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            syncs: SyncQueue::default(),
            nowait: NowaitChoice::new(nowait),
            is_in_memory: OnceLock::new(),
            direct: OnceLock::new(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.grant.is_live()
    }

    /// Whether the filesystem is in memory, so that no call waits for a disk.
    pub(super) fn is_in_memory(&self) -> bool {
        *self.is_in_memory.get_or_init(|| is_in_memory(&self.grant))
    }

    /// The descriptors for the I/O planner.
    pub(super) fn files<'a>(&'a self, handle: &'a [u8]) -> Files<'a> {
        let direct = self.direct.get().map(|(grant, alignment)| (grant.as_fd(), *alignment));
        Files { buffered: self.grant.as_fd(), direct, handle }
    }

    pub(super) fn is_dirty(&self) -> bool {
        // In this order: a sync that has taken the note still runs, or has ended.
        self.is_dirty.load(SeqCst) || self.is_syncing.load(SeqCst) || self.is_shared()
    }

    /// Notes a write. Callers do this after the write: a sync that begins between the two would clear an
    /// earlier note.
    pub(super) fn mark_dirty(&self) {
        if !self.is_dirty.load(SeqCst) {
            self.is_dirty.store(true, SeqCst);
        }
    }

    /// Notes that others may write through the descriptor from now on.
    pub(super) fn mark_shared(&self) {
        self.is_shared.store(true, SeqCst);
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(SeqCst)
    }

    /// Makes the data durable that was written to the file of this handle. Returns false if there was none.
    /// Does not consult the interlock: acknowledged data must become durable even after a revocation.
    fn sync(&self, handle: &Handle) -> stdio::Result<bool> {
        self.syncs.run(|| {
            self.is_syncing.store(true, SeqCst);
            let synced = self.sync_if_dirty(handle);
            self.is_syncing.store(false, SeqCst);
            synced
        })
    }

    fn sync_if_dirty(&self, handle: &Handle) -> stdio::Result<bool> {
        if !self.is_dirty.swap(false, SeqCst) && !self.is_shared() {
            return Ok(false);
        }
        // A length of 0 is the whole file, as in COMMIT.
        trace::commit_start(handle.as_bytes(), 0, 0);
        io::sync(&self.grant, Stability::FileSync)?;
        trace::commit_done(handle.as_bytes(), 0, 0);
        Ok(true)
    }

    /// Whether direct I/O needs a second grant.
    fn needs_direct(&self, read: bool, write: bool) -> bool {
        let needs = read && self.modes.read == IoMode::Direct || write && self.modes.write == IoMode::Direct;
        needs && self.direct.get().is_none()
    }

    /// Uses `grant` for direct I/O. If the filesystem refuses `O_DIRECT`, the grant is released, and all I/O
    /// uses the page cache.
    fn set_direct(&self, grant: Grant, alignment: Alignment) {
        if fcntl_setfl(&grant, OFlags::DIRECT).is_ok() {
            let _ = self.direct.set((grant, alignment));
        }
    }
}

/// Runs the syncs of one descriptor one at a time, and reports an error to all that waited for it.
///
/// The kernel reports a failed write-back once to each open file description (fsync(2)), and all clones of a
/// file share one. Of several tasks that commit at the same time only one would get the error. Here the tasks
/// that wait while a sync fails get its error, too. Later ones don't: as with a local fsync(2), an error
/// belongs to the commit that meets it.
#[derive(Debug, Default)]
struct SyncQueue {
    /// The number of failed syncs.
    failures: AtomicU64,
    /// The errno of the last failed sync. Locked during a sync.
    last_errno: Mutex<Option<i32>>,
}

impl SyncQueue {
    /// Runs `sync`, unless another one fails after this call began: then returns its error.
    fn run(&self, sync: impl FnOnce() -> stdio::Result<bool>) -> stdio::Result<bool> {
        self.run_after(self.failures.load(SeqCst), sync)
    }

    /// `failures_before` is the number of failures when the caller began to wait.
    fn run_after(
        &self,
        failures_before: u64,
        sync: impl FnOnce() -> stdio::Result<bool>,
    ) -> stdio::Result<bool> {
        let mut last_errno = self.last_errno.lock();
        if self.failures.load(SeqCst) > failures_before
            && let Some(errno) = *last_errno
        {
            return Err(stdio::Error::from_raw_os_error(errno));
        }
        sync().inspect_err(|error| {
            *last_errno = error.raw_os_error();
            self.failures.fetch_add(1, SeqCst);
        })
    }
}

/// The way to a grant.
impl Inner {
    /// Whether the file has a grant after this. Requests one if it has none, once in each lane epoch.
    pub(super) async fn ensure_grant(self: &Arc<Self>) -> Result<bool> {
        let manager = &self.session.inner.lane;
        if manager.mode() == LaneMode::Off || self.must_ask_for_locks() {
            return Ok(false);
        }
        let epoch = manager.epoch_for_io().await.map_err(|error| error.about(|| self.display_name()))?;
        let Some(epoch) = epoch else { return Ok(false) };
        // A file that requires a lane requests a grant with every call, unless the lane has refused it.
        let is_required = manager.mode() == LaneMode::Required && self.refusal.lock().is_none();
        if self.requested_in.load(SeqCst) == epoch && !is_required {
            return Ok(self.has_grant());
        }
        // Boxed, because the future is large and seldom needed.
        Box::pin(self.request_grant(epoch, is_required)).await
    }

    async fn request_grant(self: &Arc<Self>, epoch: u64, is_required: bool) -> Result<bool> {
        let manager = &self.session.inner.lane;
        let _request = self.grant_request.lock().await;
        if self.has_grant() {
            return Ok(true);
        }
        if self.requested_in.swap(epoch, SeqCst) == epoch && !is_required {
            return Ok(false);
        }
        match self.open_again().await? {
            LaneOpen::Granted(opened) => match opened.granted {
                Some((grant, lane, verifier)) => {
                    *self.refusal.lock() = None;
                    let nowait = manager.nowait_support(opened.attributes.as_ref());
                    let grant = FileGrant::new(grant, lane, verifier, nowait);
                    let installed = self.install_grant(grant).await?;
                    if installed && self.needs_direct_grant() {
                        Box::pin(self.request_direct_grant()).await;
                    }
                    Ok(installed)
                }
                None => Ok(false),
            },
            LaneOpen::Refused(status) => {
                *self.refusal.lock() = Some(status);
                Ok(false)
            }
            LaneOpen::NoLane => Ok(false),
        }
    }

    /// Requests a grant for this file, which is open already.
    async fn open_again(&self) -> Result<LaneOpen> {
        let (access, user) = ((self.read, self.write), &self.session.caller.user);
        let lane = &self.session.inner.lane;
        // If it fails, the lane and the wire may still have the file, because it is open.
        let opened = lane.open_in_tree(user, FileTarget::File(&self.handle), access).await;
        if let Ok(Some(OpenedInTree::File(opened))) = opened {
            return Ok(LaneOpen::Granted(opened));
        }
        self.session.caller.seal(&[&self.handle]).await?;
        let target = lane::Target::Handle(self.handle.as_bytes());
        lane.open(user, target, &self.name, access, OpenPurpose::AlreadyOpen).await
    }

    /// Begins to use a grant. First makes everything durable that was written over the wire, so that no old
    /// data can be written over newer data later. Returns false if that failed; the file then uses the wire.
    pub(super) async fn install_grant(self: &Arc<Self>, grant: FileGrant) -> Result<bool> {
        let grant = Arc::new(grant);
        let uncommitted = self.existing_uncommitted();
        let _writers = match &uncommitted {
            Some(uncommitted) => Some(uncommitted.exclude_writes().await),
            None => None,
        };
        if let Some(uncommitted) = &uncommitted
            && !self.settle(uncommitted, &grant).await?
        {
            return Ok(false);
        }
        self.grant.set(Some(grant));
        bump(&self.session.inner.counters.data_path_changes);
        self.register();
        Ok(true)
    }

    /// Makes durable what was written over the wire. Returns false if that failed. The caller holds
    /// `writers`.
    async fn settle(
        self: &Arc<Self>,
        uncommitted: &UncommittedWrites,
        grant: &Arc<FileGrant>,
    ) -> Result<bool> {
        let lost = match uncommitted.commit_before_grant(grant.verifier).await {
            Ok(lost) => lost,
            Err(error) => {
                tracing::debug!(file = %self.display_name(), %error, "staying on the wire");
                return Ok(false);
            }
        };
        if !lost.is_empty() {
            let resent: u64 = lost.iter().map(|(_, data)| data.len() as u64).sum();
            let granted = grant.clone();
            let write_again = move || -> stdio::Result<()> {
                let _flight = granted.grant.try_get().ok_or(Errno::NXIO)?;
                for (offset, data) in &lost {
                    let mut done = 0;
                    while done < data.len() {
                        done += io::write_at(&granted.grant, &data[done..], offset + done as u64)?;
                    }
                }
                io::sync(&granted.grant, Stability::FileSync)
            };
            match tokio::task::spawn_blocking(write_again).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(file = %self.display_name(), %error, "staying on the wire");
                    return Ok(false);
                }
                Err(error) => return Err(self.local_error(stdio::Error::other(error))),
            }
            add(&self.session.inner.counters.bytes_resent, resent);
        }
        uncommitted.clear();
        Ok(true)
    }

    pub(super) fn needs_direct_grant(&self) -> bool {
        self.grant.read().is_some_and(|grant| grant.needs_direct(self.read, self.write))
    }

    /// Requests a second grant for direct I/O. Without it, or if the filesystem reports no alignment, all I/O
    /// uses the page cache.
    pub(super) async fn request_direct_grant(self: &Arc<Self>) {
        let Some(grant) = self.grant.load() else { return };
        let Some(alignment) = Alignment::of(&grant.grant) else {
            self.fallbacks().alignment_unknown();
            return;
        };
        match self.open_again().await {
            Ok(LaneOpen::Granted(opened)) => {
                if let Some((second, lane, _)) = opened.granted
                    && lane == grant.lane
                {
                    grant.set_direct(second, alignment);
                }
            }
            Ok(LaneOpen::Refused(_) | LaneOpen::NoLane) => {}
            Err(error) => {
                tracing::debug!(file = %self.display_name(), %error, "no second grant for direct I/O");
            }
        }
    }
}

/// The end of a grant.
impl Inner {
    /// Makes durable what was written through the grant.
    pub(super) async fn sync_grant(self: &Arc<Self>) -> Result<()> {
        let is_dirty = self.grant.read().is_some_and(|grant| grant.is_dirty());
        if !is_dirty {
            return Ok(());
        }
        let file = self.clone();
        tokio::task::spawn_blocking(move || file.sync_grant_blocking())
            .await
            .map_err(|error| self.local_error(stdio::Error::other(error)))?
    }

    /// As [`Inner::sync_grant`], on this thread.
    pub(crate) fn sync_grant_blocking(self: &Arc<Self>) -> Result<()> {
        let Some(grant) = self.grant.read() else { return Ok(()) };
        let Some(_flight) = grant.grant.try_get() else {
            // It is among the revoked grants from now on, which are synced next.
            return self.abandon(grant).unwrap_or(Ok(()));
        };
        let began = Instant::now();
        if grant.sync(&self.handle).map_err(|error| self.local_error(error))? {
            self.count_commit(began);
        }
        Ok(())
    }

    fn count_commit(&self, began: Instant) {
        let counters = &self.session.inner.counters;
        counters.lane_times.commits.record(began.elapsed());
        bump(&counters.lane.commits);
    }

    /// Syncs the revoked grants. Returns the first error of these and earlier syncs.
    pub(super) async fn sync_revoked(self: &Arc<Self>) -> Result<()> {
        if self.revoked.lock().is_empty() {
            return self.take_sync_error();
        }
        let file = self.clone();
        tokio::task::spawn_blocking(move || file.sync_revoked_blocking())
            .await
            .map_err(|error| self.local_error(stdio::Error::other(error)))?
    }

    /// As [`Inner::sync_revoked`], on this thread.
    pub(crate) fn sync_revoked_blocking(&self) -> Result<()> {
        let revoked: Vec<Arc<FileGrant>> = self.revoked.lock().clone();
        for grant in revoked {
            self.sync_revoked_grant(&grant);
        }
        self.take_sync_error()
    }

    /// Syncs a revoked grant. Returns true if nothing remains to be done and only `grant` keeps it open.
    fn sync_revoked_grant(&self, grant: &Arc<FileGrant>) -> bool {
        // Once no writer uses the grant any more, nothing can make it dirty again.
        self.grant.reclaim();
        let mut revoked = self.revoked.lock();
        let is_listed = revoked.iter().any(|other| Arc::ptr_eq(other, grant));
        let is_unused = Arc::strong_count(grant) <= 1 + usize::from(is_listed);
        drop(revoked);
        // Orders the last user's writes before the sync.
        fence(Acquire);
        let began = Instant::now();
        match grant.sync(&self.handle) {
            Ok(true) => self.count_commit(began),
            Ok(false) => {}
            Err(error) => {
                self.sync_error.lock().get_or_insert(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
        if grant.is_shared() {
            // It remains until the file is closed, for later commits.
            return true;
        }
        if is_unused {
            revoked = self.revoked.lock();
            revoked.retain(|other| !Arc::ptr_eq(other, grant));
        }
        is_unused
    }

    /// Gives up a grant that the server has revoked. Always returns `None`, the result of the caller.
    #[cold]
    pub(super) fn abandon<T>(self: &Arc<Self>, grant: ReadGuard<'_, FileGrant>) -> Option<T> {
        let revoked = grant.to_arc();
        drop(grant);
        self.revoke(revoked);
        None
    }

    #[cold]
    fn revoke(self: &Arc<Self>, grant: Arc<FileGrant>) {
        let manager = &self.session.inner.lane;
        {
            // Under the lock of `revoked`, so that a commit finds the grant in one of the two places.
            let mut revoked = self.revoked.lock();
            if !self.grant.remove(&grant) {
                return;
            }
            if self.write {
                revoked.push(grant.clone());
            }
        }
        bump(&self.session.inner.counters.data_path_changes);
        if manager.is_live(grant.lane) {
            // Only this grant was revoked. The lane may give another one, perhaps with less access.
            self.requested_in.store(0, SeqCst);
        } else {
            manager.lost(grant.lane);
        }
        let file = self.clone();
        manager.runtime().spawn_blocking(move || {
            for _ in 0..MAX_REVOKED_SYNCS {
                if file.sync_revoked_grant(&grant) {
                    return;
                }
                std::thread::sleep(REVOKED_SYNC_INTERVAL);
            }
        });
    }
}

impl GrantHolder for Inner {
    fn release_grant(self: Arc<Self>, lane: u64) {
        if let Some(grant) = self.grant.load()
            && grant.lane == lane
        {
            self.revoke(grant);
        }
    }

    fn release_recalled(self: Arc<Self>) {
        if let Some(grant) = self.grant.load()
            && !grant.is_live()
        {
            self.revoke(grant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_tasks_get_the_error_of_a_sync_and_later_ones_do_not() {
        let syncs = SyncQueue::default();
        let failed = syncs.run(|| Err(stdio::Error::from_raw_os_error(5)));
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(5));
        let waited = syncs.run_after(0, || panic!("its data was in the sync that failed"));
        assert_eq!(waited.unwrap_err().raw_os_error(), Some(5));
        assert!(syncs.run(|| Ok(true)).unwrap());
        assert!(!syncs.run(|| Ok(false)).unwrap(), "nothing was written");
    }
}
