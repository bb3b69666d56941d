//! What the programs share: the gate, the counters, and the memory of what was done.

use std::sync::Arc;

use store::WriteVerifier;

use crate::access::Gate;
use crate::counters::Counters;
use crate::drc::Drc;
use crate::localio::{Neighbours, Notes};
use crate::mount3::Mounts;
use crate::nfs4::{Owners, States};
use crate::writes::Writes;

/// What the programs share.
pub(crate) struct Service {
    pub gate: Gate,
    pub counters: Counters,
    pub drc: Drc,
    /// WRITEs in progress; their replies aren't kept, for once it is done a WRITE can be done again.
    pub writes: Writes,
    pub mounts: Mounts,
    /// Clients of NFSv4, and what they have open and locked.
    pub nfs4: Arc<States>,
    /// How NFSv4 calls owners and groups.
    pub owners: Owners,
    /// How connections fared on their way to a lane.
    pub notes: Notes,
    /// Connections whose clients share this kernel, and sync what they want to last.
    pub neighbours: Neighbours,
    pub verifier: Arc<WriteVerifier>,
}
