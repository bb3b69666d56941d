//! Delegations: given with OPEN or by WANT_DELEGATION, returned by DELEGRETURN (RFC 8881 sections 10.2 to
//! 10.4, 18.6, 18.49).

use std::sync::Arc;

use proto::nfs4::attributes as number;
use proto::nfs4::{
    Bitmap4, DelegClaim4, MinorVersion, NfsSpaceLimit4, Nfsace4, Nfsstat4, OpenDelegation4,
    OpenNoneDelegation4, OpenReadDelegation4, OpenWriteDelegation4, SHARE_ACCESS_WANT_CANCEL,
    SHARE_ACCESS_WANT_DELEG_MASK, SHARE_ACCESS_WANT_NO_DELEG, SHARE_ACCESS_WANT_NO_PREFERENCE,
    SHARE_ACCESS_WANT_READ_DELEG, SHARE_ACCESS_WANT_WRITE_DELEG, Stateid4Args, WND4_CANCELLED,
    WND4_NOT_SUPP_FTYPE, WND4_NOT_SUPP_UPGRADE, WND4_NOT_WANTED, WND4_WRITE_DELEG_NOT_SUPP_FTYPE,
    WantDelegation4Args,
};
use state::{ClientId, DelegationRequest, NoDelegation, PendingDelegation, Requester, Share, StateId};
use store::{AccessMode, Acting, Error, FileHandle, Kind, Node};
use xdr::Opaque;

use super::open::place;
use crate::nfs4::callbacks::wire_stateid;
use crate::nfs4::compound::Compound;
use crate::nfs4::state_manager::StateResources;
use crate::nfs4::writers::{Asker, Given};
use crate::nfs4::{Result, status};

/// `OPEN_DELEGATE_WRITE`, as CLAIM_PREVIOUS names it.
const DELEGATE_WRITE: u32 = 2;
/// `OPEN_DELEGATE_NONE`.
const DELEGATE_NONE: u32 = 0;

/// What a holder's data changes.
const CHANGED_BY_DATA: Bitmap4 = Bitmap4::of(&[
    number::CHANGE,
    number::SIZE,
    number::SPACE_USED,
    number::TIME_MODIFY,
    number::TIME_METADATA,
]);

/// Gives a delegation with an OPEN, if there is one to be given: what OPEN answers about that.
pub(super) fn offer(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    client: ClientId,
    share: Share,
    share_access: u32,
) -> OpenDelegation4<'static> {
    let want = share_access & SHARE_ACCESS_WANT_DELEG_MASK;
    let refused = match want {
        _ if c.minor == MinorVersion::V0 => None,
        SHARE_ACCESS_WANT_NO_DELEG => Some(OpenNoneDelegation4::Other(WND4_NOT_WANTED)),
        SHARE_ACCESS_WANT_CANCEL => Some(OpenNoneDelegation4::Other(WND4_CANCELLED)),
        _ => None,
    };
    if let Some(why) = refused {
        return OpenDelegation4::NoneExt(why);
    }
    let writes = share.access & 2 != 0 && want != SHARE_ACCESS_WANT_READ_DELEG;
    match give(c, acting, node, client, writes) {
        Ok(id) => delegation(&id, writes, false),
        Err(_) if c.minor == MinorVersion::V0 || want == SHARE_ACCESS_WANT_NO_PREFERENCE => {
            OpenDelegation4::None
        }
        Err(why) => OpenDelegation4::NoneExt(none_for(why)),
    }
}

/// Why there is no delegation, and no promise of one.
const fn none_for(why: NoDelegation) -> OpenNoneDelegation4 {
    match why {
        NoDelegation::Contention => OpenNoneDelegation4::Contention(false),
        NoDelegation::Resource | NoDelegation::Distrusted => OpenNoneDelegation4::Resource(false),
        NoDelegation::Held => OpenNoneDelegation4::Other(WND4_NOT_SUPP_UPGRADE),
    }
}

/// WANT_DELEGATION. Wants aren't remembered: who gets none is told so, and asks again.
pub(in crate::programs::nfs4) fn want(c: &mut Compound<'_>, args: WantDelegation4Args) -> Result<()> {
    let client = c.session_client()?;
    let file = c.file(Nfsstat4::WrongType)?;
    let want = args.want & SHARE_ACCESS_WANT_DELEG_MASK;
    if want == SHARE_ACCESS_WANT_NO_PREFERENCE
        || want == SHARE_ACCESS_WANT_NO_DELEG
        || want > SHARE_ACCESS_WANT_CANCEL
    {
        return Err(Nfsstat4::Inval);
    }
    let regular = match file.node.kind() {
        Kind::Directory => return Err(Nfsstat4::WrongType),
        kind => kind == Kind::Regular,
    };
    let reclaims = matches!(args.claim, DelegClaim4::Previous(_));
    let grace = c.service.state.run(|engine, now| engine.check_grace(now, client, reclaims));
    grace.map_err(status::of_state)?;
    let acting = file.acting()?;
    // Who may not open it gets no delegation; there is no error for that.
    let may = |mode| match acting.may_open(&file.node, mode).map_err(status::of_store) {
        Err(gone @ (Nfsstat4::Stale | Nfsstat4::Io)) => Err(gone),
        may => Ok(may.is_ok()),
    };
    let given = match args.claim {
        DelegClaim4::DelegPrevFh => return Err(Nfsstat4::Notsupp),
        _ if want == SHARE_ACCESS_WANT_CANCEL => Err(OpenNoneDelegation4::Other(WND4_CANCELLED)),
        _ if !regular && want == SHARE_ACCESS_WANT_WRITE_DELEG => {
            Err(OpenNoneDelegation4::Other(WND4_WRITE_DELEG_NOT_SUPP_FTYPE))
        }
        _ if !regular => Err(OpenNoneDelegation4::Other(WND4_NOT_SUPP_FTYPE)),
        DelegClaim4::Previous(kind) => match reclaim(c, &acting, &file.node, client, kind) {
            OpenDelegation4::None => Err(OpenNoneDelegation4::Resource(false)),
            given => Ok(given),
        },
        DelegClaim4::Fh => {
            // As little as is wanted comes last.
            let (read, write) = (may(AccessMode::Read)?, may(AccessMode::ReadWrite)?);
            let mut given = Err(NoDelegation::Resource);
            if want != SHARE_ACCESS_WANT_READ_DELEG && write {
                given = give(c, &acting, &file.node, client, true).map(|id| delegation(&id, true, false));
            }
            if want != SHARE_ACCESS_WANT_WRITE_DELEG && read && given.is_err() {
                given = give(c, &acting, &file.node, client, false).map(|id| delegation(&id, false, false));
            }
            given.map_err(none_for)
        }
    };
    c.reply.encoder().put(&given.unwrap_or_else(OpenDelegation4::NoneExt));
    Ok(())
}

fn give(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    client: ClientId,
    writes: bool,
) -> std::result::Result<StateId, NoDelegation> {
    let states = &c.service.state;
    if !states.callbacks.is_up(client) {
        return Err(NoDelegation::Resource);
    }
    let by = c.requester(client);
    let asked = request(c, acting, node, &by, writes, false);
    let begun = states.run(|engine, now| engine.delegate_begin(now, &asked))?;
    match keep_out(c, acting, node, &begun) {
        Ok(()) => states.run(|engine, _| engine.delegate_done(&begun)).ok_or(NoDelegation::Contention),
        Err(error) => {
            states.run(|engine, _| engine.delegate_failed(&begun));
            Err(if error == Error::TryLater { NoDelegation::Contention } else { NoDelegation::Resource })
        }
    }
}

fn request<'a>(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &'a Node,
    by: &'a Requester,
    writes: bool,
    reclaim: bool,
) -> DelegationRequest<'a, FileHandle> {
    let may_write = writes || acting.may_open(node, AccessMode::ReadWrite).is_ok();
    DelegationRequest { by, peer: c.cx.peer.share(), key: node.handle(), writes, may_write, reclaim }
}

/// Gives a delegation back to a client that had it before the server restarted; if that can't be, for it to
/// return at once.
pub(super) fn reclaim(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    client: ClientId,
    kind: u32,
) -> OpenDelegation4<'static> {
    let (states, writes) = (&c.service.state, kind == DELEGATE_WRITE);
    if kind == DELEGATE_NONE {
        return OpenDelegation4::None;
    }
    let by = c.requester(client);
    let asked = request(c, acting, node, &by, writes, true);
    let begun = states.run(|engine, now| engine.delegate_begin(now, &asked));
    let Ok(begun) = begun else { return OpenDelegation4::None };
    let kept_out = keep_out(c, acting, node, &begun).is_ok();
    let id = states.run(|engine, now| {
        if kept_out { engine.delegate_done(&begun) } else { engine.delegate_and_recall(now, &begun) }
    });
    id.map_or(OpenDelegation4::None, |id| delegation(&id, writes, !kept_out))
}

/// Keeps local processes out, and remembers what the file is like.
fn keep_out(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Arc<Node>,
    begun: &PendingDelegation<StateResources>,
) -> store::Result<()> {
    let leases = c.service.state.leases.get().ok_or(Error::NotSupported)?;
    let lease = acting.lease(node, begun.writes, leases)?;
    if begun.writes {
        let now = acting.attributes(node)?;
        let nameless_at = (c.minor == MinorVersion::V0).then(|| c.cx.peer.address.ip());
        let _ = begun.kept.given.set(Given { change: now.change, size: now.size, nameless_at });
    }
    // Nobody else has it: it was made for this delegation.
    let _ = begun.kept.lease.set(lease);
    Ok(())
}

fn delegation(id: &StateId, writes: bool, recall: bool) -> OpenDelegation4<'static> {
    // Nobody may do more by it than the server says when it is asked (ACCESS).
    let permissions = Nfsace4 { kind: 0, flag: 0, access_mask: 0, who: Opaque(b"") };
    let stateid = wire_stateid(id);
    if writes {
        let space_limit = NfsSpaceLimit4::Size(u64::MAX);
        OpenDelegation4::Write(OpenWriteDelegation4 { stateid, recall, space_limit, permissions })
    } else {
        OpenDelegation4::Read(OpenReadDelegation4 { stateid, recall, permissions })
    }
}

pub(in crate::programs::nfs4) fn delegreturn(c: &mut Compound<'_>, args: Stateid4Args) -> Result<()> {
    let id = c.stateid(args.stateid)?;
    let (by, key) = place(c, &id)?;
    c.service.state.run(|engine, now| engine.delegreturn(now, &by, &id, &key)).map_err(status::of_state)
}

/// Asks another client's delegation for writing what it makes of the file, if it matters for what is
/// `wanted`: see [`StateManager::ask_writer`].
///
/// [`StateManager::ask_writer`]: crate::nfs4::StateManager::ask_writer
pub(super) fn ask_writer(
    c: &Compound<'_>,
    acting: &Acting<'_>,
    node: &Node,
    wanted: &Bitmap4,
) -> Result<Option<u64>> {
    if wanted.and(&CHANGED_BY_DATA).is_empty() {
        return Ok(None);
    }
    let asker = c.by().map_or(Asker::Nameless(c.cx.peer.address.ip()), Asker::Client);
    c.service.state.ask_writer(asker, c.cx, acting, node).map_err(status::of_state)
}
