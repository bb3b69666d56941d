//! State that the programs share: access check, counters, duplicate-request cache, NFSv4 state.
//!
//! Programs depend on it. No module here depends on a program.

mod async_clients;
pub(crate) mod cluster_gate;
pub(crate) mod drc;
mod lane_attempts;
pub(crate) mod limits;
mod mount_list;
pub(crate) mod nfs4_state;
mod owners;
mod trees;
mod users;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use recovery::StateDirectory;
use rpc::server::CallSockets;
use state::AccessKind;
use store::{AccessMode, Node, UserContext, WriteVerifier};

use crate::authorization::access::{AccessControl, ExportAccess};
use crate::status::Counters;
pub(crate) use async_clients::AsyncClients;
use cluster_gate::ClusterGate;
use drc::Drc;
pub(crate) use lane_attempts::{LaneAttempt, LaneAttempts};
pub(crate) use mount_list::MountList;
use nfs4_state::StateManager;
pub(crate) use owners::Owners;
pub(crate) use trees::Trees;
pub(crate) use users::OwnerKind;

/// State that the programs share.
pub(crate) struct Service {
    pub access: AccessControl,
    pub counters: Counters,
    /// The replies to WRITEs.
    pub write_drc: Drc,
    /// The replies to other calls that must not be executed twice.
    pub drc: Drc,
    pub mounts: MountList,
    /// NFSv4's clients and their state.
    pub state: Arc<StateManager>,
    /// The names of owners and groups in NFSv4.
    pub owners: Owners,
    /// Which NFSv4 calls may be executed now, on a server of a cluster.
    pub cluster: Option<ClusterGate>,
    /// The last attempt of each connection to get a lane.
    pub lane_attempts: LaneAttempts,
    /// Connections of clients that share this kernel and sync their changes themselves.
    pub async_clients: AsyncClients,
    /// The directories that clients of this host have been given.
    pub trees: Arc<Trees>,
    pub verifier: Arc<WriteVerifier>,
    /// What opens call sockets for lanes. Set when the server listens.
    pub call_sockets: OnceLock<CallSockets>,
    /// No other server uses the state directory as long as a call may.
    pub _state_directory: Option<Arc<StateDirectory>>,
}

impl Service {
    /// Whether changes of names and attributes must be on stable storage before the reply to this client: on
    /// a `sync` export, as with knfsd, unless the client syncs them itself.
    pub(crate) fn must_sync_metadata(&self, admitted: &ExportAccess, client: SocketAddr) -> bool {
        admitted.sync && !self.async_clients.contains(client)
    }

    /// Checks the file's permissions before an access that may conflict with the state of other clients. No
    /// delegation is recalled and no silent client expired for a user whom the permissions refuse.
    pub(crate) fn check_permission(
        user_context: &UserContext<'_>,
        node: &Node,
        touch: AccessKind,
    ) -> store::Result<()> {
        match touch {
            AccessKind::Read => user_context.may(node, AccessMode::Read),
            AccessKind::Write => user_context.may(node, AccessMode::Write),
            AccessKind::Open(share) => match share.access {
                1 => user_context.may(node, AccessMode::Read),
                2 => user_context.may(node, AccessMode::Write),
                _ => user_context.may(node, AccessMode::ReadWrite),
            },
            AccessKind::Change => user_context.may_change(node),
        }
    }

    /// Makes the metadata of `changed` durable if it must be before the reply.
    ///
    /// # Errors
    /// As for [`UserContext::sync_metadata`].
    pub(crate) fn sync_metadata(
        &self,
        admitted: &ExportAccess,
        client: SocketAddr,
        user_context: &UserContext<'_>,
        changed: &[&Node],
    ) -> store::Result<()> {
        if self.must_sync_metadata(admitted, client) {
            for node in changed {
                user_context.sync_metadata(node)?;
            }
        }
        Ok(())
    }
}

/// Whether this is a refusal by permissions, and not another failure.
pub(crate) const fn is_permission_denied(right: store::Result<()>) -> bool {
    matches!(right, Err(store::Error::Access | store::Error::Permission | store::Error::ReadOnly))
}
