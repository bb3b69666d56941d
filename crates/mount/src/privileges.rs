//! Capabilities: whether files can be passed through, and whose set-id bits survive a write.
//!
//! The mount's threads work without CAP_FSETID. A process that writes to a file takes its set-id bits away
//! unless it has that capability (capabilities(7)); the kernel does it in one step with the write. The
//! mount's process writes on behalf of others, to files that were granted to it and, as whose credentials the
//! kernel keeps, to files that it passes through. So its threads don't have the capability, and get it back
//! only for the write of somebody who has it.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Takes CAP_FSETID out of this thread's effective set; nothing happens if it isn't there. For the beginning
/// of a thread.
pub(crate) fn drop_fsetid() {
    // Every thread may look at its own sets and may make the effective one smaller: this can't fail.
    if let Ok(sets) = capabilities(None) {
        let _ = set_capabilities(None, without(sets));
    }
}

/// Runs `work` with CAP_FSETID if `keep` says so and the thread is permitted to have it.
pub(crate) fn keeping_set_id<R>(keep: bool, work: impl FnOnce() -> R) -> R {
    let raised = keep
        && capabilities(None).is_ok_and(|sets| {
            let effective = sets.effective | (sets.permitted & CapabilitySet::FSETID);
            set_capabilities(None, CapabilitySets { effective, ..sets }).is_ok()
        });
    let done = work();
    if raised {
        drop_fsetid();
    }
    done
}

/// Whether the kernel takes backing files from this thread: it wants CAP_SYS_ADMIN in the initial user
/// namespace. A user namespace of all numbers isn't told from the initial one here: then the first open
/// tells.
pub(crate) fn may_pass() -> bool {
    let all_numbers = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
        && std::fs::read_to_string("/proc/self/uid_map").map_or(true, all_numbers)
}

fn without(sets: CapabilitySets) -> CapabilitySets {
    CapabilitySets { effective: sets.effective - CapabilitySet::FSETID, ..sets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_there_for_the_work_alone() {
        let has = || capabilities(None).unwrap().effective.contains(CapabilitySet::FSETID);
        // A thread of its own: the test harness may use this one again.
        let thread = std::thread::spawn(move || {
            let permitted = capabilities(None).unwrap().permitted.contains(CapabilitySet::FSETID);
            drop_fsetid();
            assert!(!has());
            assert!(!keeping_set_id(false, has));
            assert_eq!(keeping_set_id(true, has), permitted);
            assert!(!has());
        });
        thread.join().unwrap();
    }
}
