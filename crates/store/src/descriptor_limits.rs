//! Limits on the descriptors that stores keep open, set by a process that needs descriptors for other
//! purposes, too.

use rustix::process::{Resource, getrlimit};

/// How many descriptors to keep open. A running call may open a few more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Files that one store keeps open, at least 4. Half as many more may stay open while they have
    /// uncommitted data.
    pub nodes: usize,
    /// Descriptors for reading, writing and listing that all stores of the process keep for later calls.
    /// Files with uncommitted data or a lease keep theirs beyond this limit.
    pub data: usize,
    /// Files that all stores of the process [preserve](crate::Store::preserve_unlinked).
    pub preserved: usize,
}

impl Default for DescriptorLimits {
    /// From `RLIMIT_NOFILE`, for a process with one store and little else: an eighth (64 to 4096) for files,
    /// and a quarter each for data and for preserved files.
    fn default() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let quarter = (limit / 4).max(32);
        Self { nodes: (limit / 8).clamp(64, 4096), data: quarter, preserved: quarter }
    }
}
