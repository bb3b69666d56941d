//! CAP_FSETID, which decides whether set-id bits survive a change.
//!
//! A write clears a file's set-id bits, atomically with the write, unless the writer has the capability
//! (capabilities(7)). A change of the mode clears set-gid if the file's group isn't one of the user's. A
//! thread that works for several users runs without the capability, and raises it for what root does.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::drop_effective;

/// Drops CAP_FSETID from this thread's effective set.
pub fn drop_fsetid() {
    drop_effective(CapabilitySet::FSETID);
}

/// Runs `work`, with CAP_FSETID if `keep` is set and the capability is in the thread's permitted set.
pub fn with_set_id_kept<R>(keep: bool, work: impl FnOnce() -> R) -> R {
    let raised = keep
        && capabilities(None).is_ok_and(|sets| {
            let effective = sets.effective | (sets.permitted & CapabilitySet::FSETID);
            effective != sets.effective
                && set_capabilities(None, CapabilitySets { effective, ..sets }).is_ok()
        });
    let result = work();
    if raised {
        drop_fsetid();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_raised_during_the_work_only() {
        let has = || capabilities(None).unwrap().effective.contains(CapabilitySet::FSETID);
        // A thread of its own, because the test harness may reuse this one.
        let thread = std::thread::spawn(move || {
            let permitted = capabilities(None).unwrap().permitted.contains(CapabilitySet::FSETID);
            assert_eq!(with_set_id_kept(true, has), permitted);
            assert_eq!(has(), permitted, "a thread that has it keeps it");
            drop_fsetid();
            assert!(!has());
            assert!(!with_set_id_kept(false, has));
            assert_eq!(with_set_id_kept(true, has), permitted);
            assert!(!has());
        });
        thread.join().unwrap();
    }
}
