//! Uncommitted data: which files have any, and when it is safe.
//!
//! A WRITE that was answered UNSTABLE is a promise: the client's COMMIT either makes the data durable or
//! reports, by an error or a changed write verifier, that it was lost (RFC 1813 section 3.3.21). The kernel
//! reports a failed write-back once to every file description that was open when it happened, by the next
//! fsync or synchronous write through it. A description opened later learns of it only if it hasn't been
//! reported to anyone and the inode is still in memory (fsync(2), `errseq_t`). Three rules follow:
//!
//! 1. *The descriptor lives as long as the promise.* A file with uncommitted data is pinned: its node and its
//!    descriptor for writing stay open until a sync, whatever the caches want to close. The number of pinned
//!    files is bounded. Beyond the bound a write is made durable before the reply, which then promises
//!    nothing.
//! 2. *A failure changes the verifier before another thread can report success.* Threads share the
//!    descriptor, so one thread's sync may return the error of another's data. The verifier is changed inside
//!    [`FileSyncs`], which a COMMIT holds exclusively: when it replies, the verifier reflects every known
//!    failure.
//! 3. *A WRITE replies with the verifier from before the write*, a COMMIT with that from after the sync. (The
//!    server does that.)
//!
//! A stable WRITE has no verifier by which its client could learn of a failure later. So it must receive its
//! own error: a synchronous write has the shared descriptor to itself, or one of its own. The error of a
//! synchronous write can be that of the write, which loses nothing if it is a refusal, or that of its sync.
//! So a pinned file is written and synced by two calls.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ::io::Stability;
use parking_lot::Mutex;

use crate::error::{Error, Result};

const PINNED: u32 = 1;
const DIRTY: u32 = 2;
const WRITER: u32 = 4;

/// The state of one file's uncommitted data.
#[derive(Debug, Default)]
pub(crate) struct UncommittedState(AtomicU32);

/// A write of uncommitted data in progress, from before its first byte until after the last.
#[derive(Debug)]
pub(crate) struct UncommittedWrite<'n> {
    uncommitted: &'n UncommittedState,
    pub pinned: bool,
}

impl UncommittedState {
    pub fn enter(&self) -> UncommittedWrite<'_> {
        let before = self.0.fetch_add(WRITER, Ordering::AcqRel);
        UncommittedWrite { uncommitted: self, pinned: before & PINNED != 0 }
    }

    /// The data written so far is about to be synced.
    pub fn sync_begins(&self) {
        self.0.fetch_and(!DIRTY, Ordering::AcqRel);
    }

    /// Whether a promise may be open, so that the node and its descriptor must stay.
    pub fn is_pinned(&self) -> bool {
        self.0.load(Ordering::Acquire) & PINNED != 0
    }

    pub fn pin(&self) {
        self.0.fetch_or(PINNED, Ordering::AcqRel);
    }

    /// Unpins if nothing was written since the last sync began, and no write is in progress.
    pub fn unpin_if_clean(&self) -> bool {
        self.0.compare_exchange(PINNED, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub fn unpin(&self) {
        self.0.fetch_and(!PINNED, Ordering::AcqRel);
    }
}

impl Drop for UncommittedWrite<'_> {
    fn drop(&mut self) {
        let leave = |state: u32| Some(state.wrapping_sub(WRITER) | DIRTY);
        let _ = self.uncommitted.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
    }
}

/// The result of the last sync of a whole file.
#[derive(Debug)]
struct Last {
    number: u64,
    how: Stability,
    result: Result<()>,
    /// The number and the error of the last one that failed.
    failed: Option<(u64, Error)>,
}

/// The syncs of one file: which thread may receive a write-back error, and when.
#[derive(Debug)]
pub(crate) struct FileSyncs {
    /// Number of whole-file syncs begun.
    begun: AtomicU64,
    /// Locked by syncs of the whole file, and by synchronous writes with the shared descriptor.
    last: Mutex<Last>,
}

impl Default for FileSyncs {
    fn default() -> FileSyncs {
        let last = Last { number: 0, how: Stability::Unstable, result: Ok(()), failed: None };
        FileSyncs { begun: AtomicU64::new(0), last: Mutex::new(last) }
    }
}

impl FileSyncs {
    /// Syncs the whole file, exclusively. A caller that waited for a sync that began after the call, and was
    /// at least as strong, returns its result instead.
    pub fn whole(&self, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        self.sync_since(self.begun.load(Ordering::SeqCst), how, sync)
    }

    /// For a caller that came when `seen` syncs had begun.
    fn sync_since(&self, seen: u64, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut last = self.last.lock();
        if last.number > seen && (last.how >= how || last.result.is_err()) {
            return last.result;
        }
        self.run(&mut last, how, sync)
    }

    /// As [`FileSyncs::whole`], unless a sync or a synchronous write is in progress.
    pub fn try_whole(&self, how: Stability, sync: impl FnOnce() -> Result<()>) -> Option<Result<()>> {
        self.last.try_lock().map(|mut last| self.run(&mut last, how, sync))
    }

    /// Runs a write and then a sync of the whole file, as [`FileSyncs::whole`]. A sync by another thread that
    /// failed since the write began may have received the write's error: its error is returned.
    pub fn write_and_sync<T>(
        &self,
        how: Stability,
        write: impl FnOnce() -> Result<T>,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        let before = self.begun.load(Ordering::SeqCst);
        // One that runs now receives errors from now on, too.
        let before = before.saturating_sub(u64::from(self.last.is_locked()));
        let written = write()?;
        let synced = self.whole(how, sync);
        let failed = self.last.lock().failed.filter(|(number, _)| *number > before);
        synced.and(failed.map_or(Ok(()), |(_, error)| Err(error))).map(|()| written)
    }

    fn run(&self, last: &mut Last, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = sync();
        let failed = result.err().map(|error| (number, error)).or(last.failed);
        *last = Last { number, how, result, failed };
        result
    }

    /// Runs `receiver`, which may receive errors through the shared descriptor, while nothing else does.
    pub fn alone<T>(&self, receiver: impl FnOnce() -> T) -> T {
        let _alone = self.last.lock();
        receiver()
    }

    /// As [`FileSyncs::alone`], unless that would have to wait.
    pub fn try_alone<T>(&self, receiver: impl FnOnce() -> T) -> Option<T> {
        let _alone = self.last.try_lock()?;
        Some(receiver())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    const LOST: Result<()> = Err(Error::Io(Errno::IO));

    #[test]
    fn a_write_during_a_sync_keeps_the_promise_open() {
        let uncommitted = UncommittedState::default();
        let first = uncommitted.enter();
        assert!(!first.pinned);
        uncommitted.pin();
        uncommitted.sync_begins();
        assert!(!uncommitted.unpin_if_clean(), "a write is in progress");
        drop(first);
        assert!(!uncommitted.unpin_if_clean(), "it was not synced");
        uncommitted.sync_begins();
        drop(uncommitted.enter());
        assert!(!uncommitted.unpin_if_clean(), "written since");
        uncommitted.sync_begins();
        assert!(uncommitted.unpin_if_clean() && !uncommitted.is_pinned());
        assert!(!uncommitted.unpin_if_clean(), "once");
    }

    /// The result of a sync for a caller that came before the last one began, and the number of syncs run by
    /// then.
    fn shared(how: Stability, last: Result<()>) -> (Result<()>, u64) {
        let syncs = FileSyncs::default();
        assert_eq!(syncs.whole(how, || last), last);
        let result = syncs.sync_since(0, Stability::FileSync, || Ok(()));
        (result, syncs.begun.load(Ordering::SeqCst))
    }

    #[test]
    fn waiters_share_the_result_of_a_later_sync() {
        assert_eq!(shared(Stability::FileSync, Ok(())), (Ok(()), 1));
        assert_eq!(shared(Stability::FileSync, LOST), (LOST, 1), "what was lost may have been his");
        assert_eq!(shared(Stability::DataSync, LOST), (LOST, 1));
        assert_eq!(shared(Stability::DataSync, Ok(())), (Ok(()), 2), "weaker than he needs");
    }

    #[test]
    fn a_sync_waits_for_synchronous_writes_and_the_reaper_does_not() {
        let syncs = FileSyncs::default();
        syncs.alone(|| {
            assert_eq!(syncs.try_whole(Stability::DataSync, || Ok(())), None);
            assert_eq!(syncs.try_alone(|| ()), None);
        });
        let alone = syncs.whole(Stability::FileSync, || {
            assert_eq!(syncs.try_whole(Stability::DataSync, || Ok(())), None, "one at a time");
            Ok(())
        });
        assert_eq!(alone, Ok(()));
        assert_eq!(syncs.try_whole(Stability::DataSync, || LOST), Some(LOST));
        assert_eq!(syncs.whole(Stability::DataSync, || Ok(())), Ok(()), "the next one knows nothing of it");
    }

    #[test]
    fn a_write_fails_with_a_sync_that_may_have_received_its_error() {
        let syncs = FileSyncs::default();
        let all = Stability::FileSync;
        assert_eq!(syncs.whole(all, || LOST), LOST);
        assert_eq!(syncs.write_and_sync(all, || Ok(1), || Ok(())), Ok(1), "an earlier failure");
        let meanwhile = || {
            assert_eq!(syncs.whole(all, || LOST), LOST);
            syncs.whole(all, || Ok(())).map(|()| 1)
        };
        assert_eq!(syncs.write_and_sync(all, meanwhile, || Ok(())), LOST.map(|()| 1));
        assert_eq!(syncs.write_and_sync(all, || Ok(1), || LOST), LOST.map(|()| 1));
    }
}
