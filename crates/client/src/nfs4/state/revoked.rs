//! State that the server has revoked (RFC 8881 sections 8.5 and 18.38).
//!
//! The server remembers it, and says so with each SEQUENCE, until the client frees it. The client drops a
//! state when the answer to a request says that it is gone, so that the test of all states doesn't find it.
//! So whoever sends a request that names a state hands the answer's status to
//! [`SessionClient::free_if_revoked`]. The test of all states frees what it finds itself.

use std::sync::Arc;

use client_state::StateId;
use proto::nfs4::{Nfsstat4, Operation as Op, Stateid4Args};

use super::requests::{StateAnswer, StateRequest, stateid};
use super::{ChangeInFlight, send_until_answered};
use crate::nfs4::compound::Compound;
use crate::nfs4::session::SessionClient;

impl SessionClient {
    /// The server has answered `status` to a request that names the state `id`. If that means that it has
    /// revoked the state, the state is freed. Of several requests for one state the first answer counts.
    pub(in crate::nfs4) fn free_if_revoked(self: &Arc<Self>, id: Option<StateId>, status: Nfsstat4) {
        let is_revoked = || match status {
            Nfsstat4::Expired | Nfsstat4::AdminRevoked | Nfsstat4::DelegRevoked => true,
            // Some servers answer this for revoked state, too.
            Nfsstat4::BadStateid => self.knows_of_revoked_state(),
            _ => false,
        };
        let Some(id) = id.filter(|_| is_revoked()).map(StateId::any) else { return };
        if self.with_held(|held| held.freeing.insert(id.other)) {
            drop(self.spawn(send_free(ChangeInFlight::new(self), id)));
        }
    }
}

/// FREE_STATEID. If it fails, the state ends with the client id.
async fn send_free(in_flight: ChangeInFlight, id: StateId) {
    let client = in_flight.client().clone();
    if client.is_ended() {
        // A further request would begin another client id, which has nothing to free.
        client.with_held(|held| held.freeing.remove(&id.other));
        return;
    }
    let owner = client.owner.clone();
    send_until_answered(
        &client,
        &owner,
        || {
            let compound = Compound::once().then(Op::FreeStateid, &Stateid4Args { stateid: stateid(id) });
            Some(StateRequest { operation: Op::FreeStateid, compound, names: None })
        },
        |(answer, _)| (!matches!(answer, StateAnswer::Delayed)).then_some(()),
        |held, _| {
            held.freeing.remove(&id.other);
        },
    )
    .await;
}
