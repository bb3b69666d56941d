//! membarrier(2): a memory barrier on all processors at once, at the expense of the one who asks.
//!
//! Where one side acts a million times a second and the other once a day, the one does without ordered
//! instructions and the other makes up for it: it writes, calls [`barrier`], and then reads. Any thread that
//! had stored something before is seen to have stored it, and any thread that loads something after sees what
//! was written (an asymmetric Dekker).

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
use std::sync::OnceLock;

/// Whose threads are to be in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierScope {
    /// This process's: `PRIVATE_EXPEDITED`, a microsecond or two. The first call takes some ten milliseconds.
    Process,
    /// Everybody's on this host: `GLOBAL`, some ten milliseconds. Needs nothing of the other processes,
    /// neither registration nor honesty, which the expedited variant does. The kernel doesn't offer it with
    /// `nohz_full`.
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

/// Whether the kernel (and whoever filters system calls) offers [`barrier`]. Asked once a process.
#[must_use]
pub fn is_offered(reach: BarrierScope) -> bool {
    static OFFERED: OnceLock<MembarrierQuery> = OnceLock::new();
    OFFERED.get_or_init(membarrier_query).contains(reach.query())
}

/// Returns when every thread in reach has passed a point where all its memory accesses were in program order.
///
/// # Errors
/// What membarrier(2) says; `ENOSYS` where it isn't offered. Then nothing is in any order.
pub fn barrier(reach: BarrierScope) -> rustix::io::Result<()> {
    static REGISTERED: OnceLock<rustix::io::Result<()>> = OnceLock::new();
    if !is_offered(reach) {
        return Err(Errno::NOSYS);
    }
    match reach {
        BarrierScope::Process => {
            // Only the caller must have registered: the kernel then interrupts the processors that run us.
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
    fn what_is_offered_works() {
        for reach in [BarrierScope::Process, BarrierScope::Host] {
            assert_eq!(barrier(reach).is_ok(), is_offered(reach), "{reach:?}");
        }
    }
}
