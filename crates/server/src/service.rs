//! What the programs share: the gate, the counters, and the memory of what was done.

use std::net::SocketAddr;
use std::sync::Arc;

use state::AccessKind;
use store::{AccessMode, Node, UserContext, WriteVerifier};

use crate::authorization::access::{Admission, Gate};
use crate::nfs4::{Owners, StateManager};
use crate::programs::drc::Drc;
use crate::programs::localio::{Neighbours, Notes};
use crate::programs::mount3::Mounts;
use crate::programs::running_writes::Writes;
use crate::status::Counters;

/// What the programs share.
pub(crate) struct Service {
    pub gate: Gate,
    pub counters: Counters,
    pub drc: Drc,
    /// WRITEs in progress; their replies aren't kept, for once it is done a WRITE can be done again.
    pub writes: Writes,
    pub mounts: Mounts,
    /// Clients of NFSv4, and what they have open and locked.
    pub state: Arc<StateManager>,
    /// How NFSv4 calls owners and groups.
    pub owners: Owners,
    /// How connections fared on their way to a lane.
    pub notes: Notes,
    /// Connections whose clients share this kernel, and sync what they want to last.
    pub neighbours: Neighbours,
    pub verifier: Arc<WriteVerifier>,
}

impl Service {
    /// Whether changes of names and attributes must be on stable storage before the reply to this client: on
    /// a `sync` export, as with knfsd, unless the client syncs for itself.
    pub(crate) fn must_last(&self, admitted: &Admission, client: SocketAddr) -> bool {
        admitted.sync && !self.neighbours.has(client)
    }

    /// Whether a user may do at all what the state of others may have to make way for. It is asked before
    /// they are, on all roads: no delegation is recalled, and no silent client ended, for somebody whom the
    /// file's permissions refuse anyhow.
    pub(crate) fn may_touch(acting: &UserContext<'_>, node: &Node, touch: AccessKind) -> store::Result<()> {
        match touch {
            AccessKind::Read => acting.may(node, AccessMode::Read),
            AccessKind::Write => acting.may(node, AccessMode::Write),
            AccessKind::Open(share) => match share.access {
                1 => acting.may(node, AccessMode::Read),
                2 => acting.may(node, AccessMode::Write),
                _ => acting.may(node, AccessMode::ReadWrite),
            },
            AccessKind::Change => acting.may_change(node),
        }
    }

    /// Makes the metadata of `changed` durable where it must last.
    ///
    /// # Errors
    /// As for [`UserContext::sync_metadata`].
    pub(crate) fn make_last(
        &self,
        admitted: &Admission,
        client: SocketAddr,
        acting: &UserContext<'_>,
        changed: &[&Node],
    ) -> store::Result<()> {
        if self.must_last(admitted, client) {
            for node in changed {
                acting.sync_metadata(node)?;
            }
        }
        Ok(())
    }
}

/// Whether this says that a user may not, as opposed to that it can't be said now.
pub(crate) const fn refuses(right: store::Result<()>) -> bool {
    matches!(right, Err(store::Error::Access | store::Error::Permission | store::Error::ReadOnly))
}
