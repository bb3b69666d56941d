//! How many descriptors stores keep open, so that a process which has other uses for them can divide them.

use rustix::process::{Resource, getrlimit};

/// How many descriptors to keep. What one call opens while it runs comes on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Files that one store keeps open, at least 4. Half as many may stay beyond that while they have
    /// unstable data.
    pub nodes: usize,
    /// Descriptors for reading, writing and listing that all stores of the process keep for the next call.
    /// Files with unstable data or a lease keep theirs whatever this says.
    pub data: usize,
    /// Files that all stores of the process [hold](crate::Store::preserve_unlinked).
    pub preserved: usize,
}

impl Default for DescriptorLimits {
    /// By `RLIMIT_NOFILE`, for a process with one store and little else: an eighth (64 to 4096) for files,
    /// and a quarter each for data and what is held.
    fn default() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let quarter = (limit / 4).max(32);
        Self { nodes: (limit / 8).clamp(64, 4096), data: quarter, preserved: quarter }
    }
}
