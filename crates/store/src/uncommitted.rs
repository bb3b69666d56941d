//! Unstable data: which files have any, and who may say that it is safe.
//!
//! A WRITE that was answered UNSTABLE is a promise: the client's COMMIT either makes the data durable or
//! says, by an error or a changed write verifier, that it was lost (RFC 1813 section 3.3.21). The kernel
//! keeps its half of it so: a failed write-back is told once to every file description that was open when it
//! happened, by the next fsync or synchronous write through it; one that is opened later hears of it only if
//! nobody else has heard yet and the inode is still in memory (fsync(2), `errseq_t`). From that follow three
//! rules:
//!
//! 1. *The descriptor lives as long as the promise.* A file with unstable data is pinned: its node and its
//!    descriptor for writing stay, whatever the caches would rather have, until a sync. Pins are bounded.
//!    Where there is no room for one the write is made durable before it is answered, and then nothing was
//!    promised.
//! 2. *Whoever hears of a failure says so before anybody can believe the opposite.* Threads share the
//!    descriptor, so one's sync may be told of the error in another's data. The verifier is changed inside
//!    [`FileSyncs`], and a COMMIT has that for itself: when it answers, nobody knows more than the verifier says.
//! 3. *A WRITE is answered with the verifier from before it wrote*, a COMMIT with that from after it synced.
//!    (The server.)

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ::io::Stability;
use parking_lot::RwLock;

use crate::error::Result;

const PINNED: u32 = 1;
const DIRTY: u32 = 2;
const WRITER: u32 = 4;

/// What is unstable of one file.
#[derive(Debug, Default)]
pub(crate) struct UncommittedState(AtomicU32);

/// Somebody is writing what will be unstable. From before its first byte until after the last.
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

    /// What was written so far is about to be synced.
    pub fn sync_begins(&self) {
        self.0.fetch_and(!DIRTY, Ordering::AcqRel);
    }

    /// A promise may be open: the node and its descriptor must stay.
    pub fn is_pinned(&self) -> bool {
        self.0.load(Ordering::Acquire) & PINNED != 0
    }

    pub fn pin(&self) {
        self.0.fetch_or(PINNED, Ordering::AcqRel);
    }

    /// Unpins if nothing was written since the last sync began, and nobody is writing.
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

/// How the last sync of a whole file went.
#[derive(Debug)]
struct Last {
    number: u64,
    how: Stability,
    result: Result<()>,
}

/// One file's syncs: who may meet an error of its write-back, and when.
#[derive(Debug)]
pub(crate) struct FileSyncs {
    /// Syncs of the whole file begun so far.
    begun: AtomicU64,
    /// Taken for reading by synchronous writes, for writing by syncs of the whole file.
    last: RwLock<Last>,
}

impl Default for FileSyncs {
    fn default() -> FileSyncs {
        let last = Last { number: 0, how: Stability::Unstable, result: Ok(()) };
        FileSyncs { begun: AtomicU64::new(0), last: RwLock::new(last) }
    }
}

impl FileSyncs {
    /// Syncs the whole file, alone. Who has waited for another's sync that began after he came has had his
    /// own by that, if it was as strong.
    pub fn whole(&self, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        self.whole_after(self.begun.load(Ordering::SeqCst), how, sync)
    }

    /// For somebody who came when `seen` syncs had begun.
    fn whole_after(&self, seen: u64, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut last = self.last.write();
        if last.number > seen && (last.how >= how || last.result.is_err()) {
            return last.result;
        }
        self.run(&mut last, how, sync)
    }

    /// As [`FileSyncs::whole`], unless somebody is at it.
    pub fn try_whole(&self, how: Stability, sync: impl FnOnce() -> Result<()>) -> Option<Result<()>> {
        self.last.try_write().map(|mut last| self.run(&mut last, how, sync))
    }

    fn run(&self, last: &mut Last, how: Stability, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = sync();
        *last = Last { number, how, result };
        result
    }

    /// Runs a synchronous write, which may meet the error of others' data: none of the syncs of the whole
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
        assert!(!uncommitted.unpin_if_clean(), "somebody is writing");
        drop(first);
        assert!(!uncommitted.unpin_if_clean(), "it was not synced");
        uncommitted.sync_begins();
        drop(uncommitted.enter());
        assert!(!uncommitted.unpin_if_clean(), "written since");
        uncommitted.sync_begins();
        assert!(uncommitted.unpin_if_clean() && !uncommitted.is_pinned());
        assert!(!uncommitted.unpin_if_clean(), "once");
    }

    /// What comes of a sync for somebody who came before the last one began, and how many have run then.
    fn shared(how: Stability, last: Result<()>) -> (Result<()>, u64) {
        let syncs = FileSyncs::default();
        assert_eq!(syncs.whole(how, || last), last);
        let result = syncs.whole_after(0, Stability::FileSync, || Ok(()));
        (result, syncs.begun.load(Ordering::SeqCst))
    }

    #[test]
    fn who_came_before_a_sync_began_has_its_outcome() {
        assert_eq!(shared(Stability::FileSync, Ok(())), (Ok(()), 1));
        assert_eq!(shared(Stability::FileSync, LOST), (LOST, 1), "what was lost may have been his");
        assert_eq!(shared(Stability::DataSync, LOST), (LOST, 1));
        assert_eq!(shared(Stability::DataSync, Ok(())), (Ok(()), 2), "weaker than he needs");
    }

    #[test]
    fn a_sync_waits_for_synchronous_writes_and_the_tidying_thread_does_not() {
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
