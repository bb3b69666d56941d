//! Capabilities: CAP_FSETID, which decides whether set-id bits survive a write, and CAP_SYS_ADMIN for
//! passthrough.
//!
//! A write clears a file's set-id bits, atomically with the write, unless the writer has CAP_FSETID
//! (capabilities(7)). The mount's process writes to granted files on behalf of other users, and the kernel
//! writes to passed-through files with this process's credentials. So the mount's threads run without the
//! capability, and raise it only for a write by a user who has it.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Drops CAP_FSETID from this thread's effective set. Called when a thread starts.
pub(crate) fn drop_fsetid() {
    // A thread may always read its own sets and reduce the effective one.
    if let Ok(sets) = capabilities(None) {
        let _ = set_capabilities(None, without(sets));
    }
}

/// Runs `work`, with CAP_FSETID if `keep` is set and the capability is in the thread's permitted set.
pub(crate) fn with_set_id_kept<R>(keep: bool, work: impl FnOnce() -> R) -> R {
    let raised = keep
        && capabilities(None).is_ok_and(|sets| {
            let effective = sets.effective | (sets.permitted & CapabilitySet::FSETID);
            set_capabilities(None, CapabilitySets { effective, ..sets }).is_ok()
        });
    let result = work();
    if raised {
        drop_fsetid();
    }
    result
}

/// Whether the kernel registers backing files for this thread, which takes CAP_SYS_ADMIN in the initial user
/// namespace. A user namespace that maps all IDs looks like the initial one; then the first open finds out.
pub(crate) fn can_register_backing() -> bool {
    let maps_all_ids = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
        && std::fs::read_to_string("/proc/self/uid_map").map_or(true, maps_all_ids)
}

fn without(sets: CapabilitySets) -> CapabilitySets {
    CapabilitySets { effective: sets.effective - CapabilitySet::FSETID, ..sets }
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
            drop_fsetid();
            assert!(!has());
            assert!(!with_set_id_kept(false, has));
            assert_eq!(with_set_id_kept(true, has), permitted);
            assert!(!has());
        });
        thread.join().unwrap();
    }
}
