//! membarrier(2): a memory barrier on all processors, paid for by the caller.
//!
//! Where one side acts a million times a second and the other once a day, the frequent side uses no ordered
//! instructions, and the rare side makes up for it: it writes, calls [`barrier`], and then reads. Stores that
//! other threads made before the barrier are visible to it, and loads that they make after the barrier see
//! what it wrote (an asymmetric Dekker).

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
use std::sync::OnceLock;

/// Which threads the barrier orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierScope {
    /// Those of this process: `PRIVATE_EXPEDITED`, a microsecond or two. The first call takes some ten
    /// milliseconds.
    Process,
    /// Those of all processes on this host: `GLOBAL`, some ten milliseconds. The other processes needn't
    /// register or cooperate, unlike with the expedited variant. Not available with `nohz_full`.
    Host,
}

impl BarrierScope {
    const fn query(self) -> MembarrierQuery {
        match self {
            Self::Process => {
                MembarrierQuery::PRIVATE_EXPEDITED.union(MembarrierQuery::REGISTER_PRIVATE_EXPEDITED)
            }
            Self::Host => MembarrierQuery::GLOBAL,
        }
    }
}

/// Whether the kernel, and any seccomp filter, allow [`barrier`]. Determined once per process.
#[must_use]
pub fn is_offered(scope: BarrierScope) -> bool {
    static OFFERED: OnceLock<MembarrierQuery> = OnceLock::new();
    OFFERED.get_or_init(membarrier_query).contains(scope.query())
}

/// Returns when every thread in `scope` has passed a point where all its memory accesses were in program
/// order.
///
/// # Errors
/// Those of membarrier(2); `ENOSYS` where it isn't available. Then nothing is ordered.
pub fn barrier(scope: BarrierScope) -> rustix::io::Result<()> {
    static REGISTERED: OnceLock<rustix::io::Result<()>> = OnceLock::new();
    if !is_offered(scope) {
        return Err(Errno::NOSYS);
    }
    match scope {
        BarrierScope::Process => {
            // Only the calling process must be registered: the kernel interrupts the processors that run it.
            (*REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited)))?;
            membarrier(MembarrierCommand::PrivateExpedited)
        }
        BarrierScope::Host => membarrier(MembarrierCommand::Global),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_available_barrier_succeeds() {
        for scope in [BarrierScope::Process, BarrierScope::Host] {
            assert_eq!(barrier(scope).is_ok(), is_offered(scope), "{scope:?}");
        }
    }
}
