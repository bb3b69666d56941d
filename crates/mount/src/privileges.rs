//! CAP_SYS_ADMIN for passthrough.

use rustix::thread::{CapabilitySet, capabilities};

/// Whether the kernel registers backing files for this thread, which takes CAP_SYS_ADMIN in the initial user
/// namespace. A user namespace that maps all IDs looks like the initial one; then the first open finds out.
pub(crate) fn can_register_backing() -> bool {
    let maps_all_ids = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
        && std::fs::read_to_string("/proc/self/uid_map").map_or(true, maps_all_ids)
}
