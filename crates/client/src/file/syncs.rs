//! The syncs of one granted descriptor, one at a time.
//!
//! The kernel tells a failed write-back once to each file description (fsync(2)), and all clones of a file
//! share one. So of several tasks that commit at the same time only one would hear of an error in the data of
//! any of them. Here whoever was waiting while a sync failed is told as well. Who comes later is not: an
//! error is told to the commit that meets it, as to a local fsync.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// Syncs that have failed so far.
    failures: AtomicU64,
    /// The errno of the last that failed. Held during a sync, so that nobody believes a sync done that has
    /// only begun.
    last: Mutex<Option<i32>>,
}

impl Syncs {
    /// Runs `sync`, unless another failed since this was called: then that was this one's, too.
    pub(crate) fn run(&self, sync: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        self.run_for(self.failures.load(SeqCst), sync)
    }

    /// For somebody who came when `seen` syncs had failed.
    fn run_for(&self, seen: u64, sync: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        let mut last = self.last.lock();
        if self.failures.load(SeqCst) > seen
            && let Some(errno) = *last
        {
            return Err(io::Error::from_raw_os_error(errno));
        }
        sync().inspect_err(|error| {
            *last = error.raw_os_error();
            self.failures.fetch_add(1, SeqCst);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waited_while_a_sync_failed_is_told_and_who_comes_later_is_not() {
        let syncs = Syncs::default();
        let failed = syncs.run(|| Err(io::Error::from_raw_os_error(5)));
        assert_eq!(failed.expect_err("as it said").raw_os_error(), Some(5));
        let waited = syncs.run_for(0, || panic!("its data was in the sync that failed"));
        assert_eq!(waited.expect_err("told").raw_os_error(), Some(5));
        assert!(syncs.run(|| Ok(true)).expect("its own"));
        assert!(!syncs.run(|| Ok(false)).expect("nothing was written"));
    }
}
