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

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ::io::Stability;
use parking_lot::RwLock;

use crate::error::Result;

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
}

/// The syncs of one file: which thread may receive a write-back error, and when.
#[derive(Debug)]
pub(crate) struct FileSyncs {
    /// Number of whole-file syncs begun.
    begun: AtomicU64,
    /// Read-locked by synchronous writes, write-locked by syncs of the whole file.
    last: RwLock<Last>,
}

impl Default for FileSyncs {
    fn default() -> FileSyncs {
        let last = Last { number: 0, how: Stability::Unstable, result: Ok(()) };
        FileSyncs { begun: AtomicU64::new(0), last: RwLock::new(last) }
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
        let mut last = self.last.write();
        if last.number > seen && (last.how >= how || last.result.is_err()) {
            return last.result;
        }
        self.run(&mut last, how, sync)
    }

    /// As [`FileSyncs::whole`], unless a sync or a synchronous write is in progress.
    pub fn try_whole(&self, how: Stability, sync: impl FnOnce() -> Result<()>) -> Option<Result<()>> {
        self.last.try_write().map(|mut last| self.run(&mut last, how, sync))
    }

    fn run(&self, last: &mut Last, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = sync();
        *last = Last { number, how, result };
        result
    }

    /// Runs a synchronous write, which may receive the error of other threads' data. No sync of the whole
    /// file runs meanwhile.
    pub fn in_write<T>(&self, write: impl FnOnce() -> T) -> T {
        let _shared = self.last.read();
        write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
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
        syncs.in_write(|| assert_eq!(syncs.try_whole(Stability::DataSync, || Ok(())), None));
        let alone = syncs.whole(Stability::FileSync, || {
            assert_eq!(syncs.try_whole(Stability::DataSync, || Ok(())), None, "one at a time");
            Ok(())
        });
        assert_eq!(alone, Ok(()));
        assert_eq!(syncs.try_whole(Stability::DataSync, || LOST), Some(LOST));
        assert_eq!(syncs.whole(Stability::DataSync, || Ok(())), Ok(()), "the next one knows nothing of it");
    }
}
