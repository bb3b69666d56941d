//! Granting delegations, with OPEN and by WANT_DELEGATION (RFC 8881 sections 10.2 to 10.4).
//!
//! The engine knows of a delegation before the kernel lease is taken, so that a conflicting access in between
//! isn't missed. Without a lease there is no delegation.
//!
//! A server of a cluster gives none. FUSE permits leases, but they are unknown to the clients of the other
//! servers.

use std::sync::Arc;

use proto::nfs4::{
    MinorVersion, NfsSpaceLimit4, Nfsace4, OpenDelegation4, OpenNoneDelegation4, OpenReadDelegation4,
    OpenWriteDelegation4, SHARE_ACCESS_WANT_CANCEL, SHARE_ACCESS_WANT_DELEG_MASK, SHARE_ACCESS_WANT_NO_DELEG,
    SHARE_ACCESS_WANT_NO_PREFERENCE, SHARE_ACCESS_WANT_READ_DELEG, WND4_CANCELLED, WND4_NOT_SUPP_UPGRADE,
    WND4_NOT_WANTED,
};
use state::{ClientId, DelegationRequest, NoDelegation, PendingDelegation, Requester, Share, StateId};
use store::{AccessMode, Error, FileHandle, Node, UserContext};
use xdr::Opaque;

use super::context::Context;
use crate::service::nfs4_state::GrantedAttributes;
use crate::service::nfs4_state::StateResources;
use crate::service::nfs4_state::callbacks::wire_stateid;

/// `OPEN_DELEGATE_WRITE`, as CLAIM_PREVIOUS names it.
const DELEGATE_WRITE: u32 = 2;
/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

/// The file that is to be delegated, and the client.
pub(super) struct Delegatee<'a> {
    pub user_context: &'a UserContext<'a>,
    pub node: &'a Arc<Node>,
    pub client: ClientId,
}

/// OPEN's delegation, if there can be one.
pub(super) fn with_open(
    c: &Context<'_>,
    to: &Delegatee<'_>,
    share: Share,
    share_access: u32,
) -> OpenDelegation4<'static> {
    let want = share_access & SHARE_ACCESS_WANT_DELEG_MASK;
    let declined = match want {
        _ if c.minor == MinorVersion::V0 => None,
        SHARE_ACCESS_WANT_NO_DELEG => Some(OpenNoneDelegation4::Other(WND4_NOT_WANTED)),
        SHARE_ACCESS_WANT_CANCEL => Some(OpenNoneDelegation4::Other(WND4_CANCELLED)),
        _ => None,
    };
    if let Some(why) = declined {
        return OpenDelegation4::NoneExt(why);
    }
    let writes = share.access & 2 != 0 && want != SHARE_ACCESS_WANT_READ_DELEG;
    match grant(c, to, writes) {
        Ok(granted) => granted,
        Err(_) if c.minor == MinorVersion::V0 || want == SHARE_ACCESS_WANT_NO_PREFERENCE => {
            OpenDelegation4::None
        }
        Err(why) => OpenDelegation4::NoneExt(none_for(why)),
    }
}

/// Why there is no delegation; none will be offered later.
pub(super) const fn none_for(why: NoDelegation) -> OpenNoneDelegation4 {
    match why {
        NoDelegation::Contention => OpenNoneDelegation4::Contention(false),
        NoDelegation::Resource | NoDelegation::Distrusted => OpenNoneDelegation4::Resource(false),
        NoDelegation::Held => OpenNoneDelegation4::Other(WND4_NOT_SUPP_UPGRADE),
    }
}

/// Grants a delegation for reading, or for writing if it `writes`.
pub(super) fn grant(
    c: &Context<'_>,
    to: &Delegatee<'_>,
    writes: bool,
) -> std::result::Result<OpenDelegation4<'static>, NoDelegation> {
    let state = &c.service.state;
    if c.service.cluster.is_some() || !state.callbacks.is_up(to.client) {
        return Err(NoDelegation::Resource);
    }
    let by = c.requester(to.client);
    let request = request(c, to, &by, writes, false);
    let pending = state.run(|engine, now| engine.delegate_begin(now, &request))?;
    match take_lease(c, to, &pending) {
        Ok(()) => {
            let id = state.run(|engine, _| engine.delegate_done(&pending)).ok_or(NoDelegation::Contention)?;
            Ok(granted(&id, writes, false))
        }
        Err(error) => {
            state.run(|engine, _| engine.delegate_failed(&pending));
            Err(if error == Error::TryLater { NoDelegation::Contention } else { NoDelegation::Resource })
        }
    }
}

/// Gives a delegation back to a client that had it before the server restarted; if that isn't possible, to be
/// returned at once.
pub(super) fn reclaim(c: &Context<'_>, to: &Delegatee<'_>, kind: u32) -> OpenDelegation4<'static> {
    let (state, writes) = (&c.service.state, kind == DELEGATE_WRITE);
    if kind == DELEGATE_NONE || c.service.cluster.is_some() {
        return OpenDelegation4::None;
    }
    let by = c.requester(to.client);
    let request = request(c, to, &by, writes, true);
    let pending = state.run(|engine, now| engine.delegate_begin(now, &request));
    let Ok(pending) = pending else { return OpenDelegation4::None };
    let leased = take_lease(c, to, &pending).is_ok();
    let id = state.run(|engine, now| {
        if leased { engine.delegate_done(&pending) } else { engine.delegate_and_recall(now, &pending) }
    });
    id.map_or(OpenDelegation4::None, |id| granted(&id, writes, !leased))
}

fn request<'a>(
    c: &Context<'_>,
    to: &Delegatee<'a>,
    by: &'a Requester,
    writes: bool,
    reclaim: bool,
) -> DelegationRequest<'a, FileHandle> {
    let may_write = writes || to.user_context.may_open_found(to.node, AccessMode::Write).is_ok();
    DelegationRequest { by, peer: c.cx.peer.share(), key: to.node.handle(), writes, may_write, reclaim }
}

/// Takes the kernel lease, which keeps local processes out, and remembers the file's attributes.
fn take_lease(
    c: &Context<'_>,
    to: &Delegatee<'_>,
    pending: &PendingDelegation<StateResources>,
) -> store::Result<()> {
    let leases = c.service.state.leases.get().ok_or(Error::NotSupported)?;
    let lease = to.user_context.lease(to.node, pending.writes, leases)?;
    if pending.writes {
        let now = to.user_context.attributes(to.node)?;
        let holder_v40 = (c.minor == MinorVersion::V0).then(|| c.cx.peer.address.ip());
        let granted = GrantedAttributes { change: now.change, size: now.size, holder_v40 };
        let _ = pending.resources.granted.set(granted);
    }
    // It is empty: it was made for this delegation.
    let _ = pending.resources.lease.set(lease);
    Ok(())
}

fn granted(id: &StateId, writes: bool, recall: bool) -> OpenDelegation4<'static> {
    // Nothing is allowed without asking the server (ACCESS).
    let permissions = Nfsace4 { kind: 0, flag: 0, access_mask: 0, who: Opaque(b"") };
    let stateid = wire_stateid(id);
    if writes {
        let space_limit = NfsSpaceLimit4::Size(u64::MAX);
        OpenDelegation4::Write(OpenWriteDelegation4 { stateid, recall, space_limit, permissions })
    } else {
        OpenDelegation4::Read(OpenReadDelegation4 { stateid, recall, permissions })
    }
}
