//! Changes of opens and locks as requests, and the answers to them.

use client_state::{
    LockChange, LockChangeRequest, LockError, LockKind, OpenChange, OpenChangeRequest, OpenClaim, Share,
    StateError, StateId,
};
use proto::nfs4::{
    Close4Args, ExistLockOwner4, Lock4Args, Locker4, Locku4Args, NfsLockType4, Nfsstat4, Open4Args,
    OpenClaim4, OpenDowngrade4Args, OpenToLockOwner4, Openflag4, Operation as Op, SHARE_ACCESS_WANT_NO_DELEG,
    StateOwner4, Stateid4, Stateid4Args,
};
use xdr::Opaque;

use super::{HeldState, OpenOwner, OwnerOfLocks};
use crate::error::Result;
use crate::nfs4::compound::Compound;
use crate::nfs4::session::CompoundReply;
use crate::types::Handle;

/// A request about state.
#[derive(PartialEq, Eq)]
pub(in crate::nfs4) struct StateRequest {
    pub(in crate::nfs4) operation: Op,
    pub(in crate::nfs4) compound: Compound,
    /// The state that it names. The server may have revoked it.
    pub(in crate::nfs4) names: Option<StateId>,
}

/// How the server has answered an operation about state.
pub(in crate::nfs4) enum StateAnswer {
    Ok,
    /// Send it again after a pause.
    Delayed,
    Failed(StateError),
    Denied,
}

impl StateAnswer {
    pub(in crate::nfs4) const fn of(status: Nfsstat4) -> Self {
        match status {
            Nfsstat4::Ok => Self::Ok,
            Nfsstat4::Delay | Nfsstat4::Grace => Self::Delayed,
            Nfsstat4::Denied => Self::Denied,
            Nfsstat4::OldStateid => Self::Failed(StateError::Old),
            Nfsstat4::NoGrace | Nfsstat4::ReclaimBad | Nfsstat4::ReclaimConflict => {
                Self::Failed(StateError::NoReclaim)
            }
            status if is_gone(status) => Self::Failed(StateError::Gone),
            _ => Self::Failed(StateError::Refused),
        }
    }
}

/// Whether the server doesn't have the state of a request any more.
pub(in crate::nfs4) const fn is_gone(status: Nfsstat4) -> bool {
    matches!(
        status,
        Nfsstat4::BadStateid
            | Nfsstat4::StaleStateid
            | Nfsstat4::Expired
            | Nfsstat4::AdminRevoked
            | Nfsstat4::DelegRevoked
    )
}

/// The state id of a client that holds no state (RFC 8881 section 8.2.3).
pub(in crate::nfs4) const ANONYMOUS: Stateid4 = Stateid4 { seqid: 0, other: [0; 12] };

/// The state id that an earlier operation of the same COMPOUND has set (RFC 8881 section 16.2.3.1.2).
pub(in crate::nfs4) const CURRENT: Stateid4 = Stateid4 { seqid: 1, other: [0; 12] };

pub(in crate::nfs4) const fn stateid(id: StateId) -> Stateid4 {
    Stateid4 { seqid: id.seqid, other: id.other }
}

pub(in crate::nfs4) const fn state_id(from: Stateid4) -> StateId {
    StateId { seqid: from.seqid, other: from.other }
}

/// The arguments of OPEN without those of creating a file.
///
/// `want` is an `OPEN4_SHARE_ACCESS_WANT_` value.
pub(in crate::nfs4) fn open_args<'a>(
    share: Share,
    want: u32,
    owner: &'a [u8],
    claim: OpenClaim4<'a>,
) -> Open4Args<'a> {
    Open4Args {
        seqid: 0,
        share_access: u32::from(share.access) | want,
        share_deny: share.deny.into(),
        owner: StateOwner4 { clientid: 0, owner: Opaque(owner) },
        openhow: Openflag4::Nocreate,
        claim,
    }
}

/// The state that a change of an open names.
pub(super) const fn named_by(request: &OpenChangeRequest) -> Option<StateId> {
    match request {
        OpenChangeRequest::Open { claim: OpenClaim::Delegation(id), .. }
        | OpenChangeRequest::Downgrade { id, .. }
        | OpenChangeRequest::Close { id } => Some(*id),
        OpenChangeRequest::Open { .. } => None,
    }
}

/// A change of an open as a request, behind what `compound` has.
pub(super) fn open_change(compound: Compound, change: &OpenChange<Handle, OpenOwner>) -> StateRequest {
    let compound = compound.put_fh(change.file());
    let request = change.request();
    let names = named_by(&request);
    let (operation, compound) = match request {
        OpenChangeRequest::Open { share, claim } => {
            let claim = match claim {
                OpenClaim::Handle => OpenClaim4::Fh,
                // Delegations aren't reclaimed.
                OpenClaim::Previous => OpenClaim4::Previous(0),
                OpenClaim::Delegation(id) => OpenClaim4::DelegCurFh(stateid(id)),
            };
            let owner = change.owner().name();
            (Op::Open, compound.then(Op::Open, &open_args(share, SHARE_ACCESS_WANT_NO_DELEG, &owner, claim)))
        }
        OpenChangeRequest::Downgrade { id, to } => {
            let args = OpenDowngrade4Args {
                open_stateid: stateid(id),
                seqid: 0,
                share_access: to.access.into(),
                share_deny: to.deny.into(),
            };
            (Op::OpenDowngrade, compound.then(Op::OpenDowngrade, &args))
        }
        OpenChangeRequest::Close { id } => {
            let args = Close4Args { seqid: 0, open_stateid: stateid(id) };
            (Op::Close, compound.then(Op::Close, &args))
        }
    };
    StateRequest { operation, compound, names }
}

/// A kind of lock on the wire.
pub(in crate::nfs4) const fn lock_type(kind: LockKind, waits: bool) -> NfsLockType4 {
    match (kind, waits) {
        (LockKind::Read, false) => NfsLockType4::Read,
        (LockKind::Write, false) => NfsLockType4::Write,
        (LockKind::Read, true) => NfsLockType4::Readw,
        (LockKind::Write, true) => NfsLockType4::Writew,
    }
}

/// A change of locks as a request; `open` is the state id of the owner's open. `None` if the first lock has
/// no open.
pub(super) fn lock_change(
    (file, owner): (&Handle, &OwnerOfLocks),
    request: LockChangeRequest,
    open: Option<StateId>,
    waits: bool,
) -> Option<StateRequest> {
    let compound = Compound::once();
    let (operation, compound, names) = match request {
        LockChangeRequest::Lock { id, range, kind, reclaim } => {
            let name = owner.name();
            let named = id.or(open)?;
            let locker = match id {
                Some(id) => Locker4::Existing(ExistLockOwner4 { lock_stateid: stateid(id), lock_seqid: 0 }),
                None => Locker4::New(OpenToLockOwner4 {
                    open_seqid: 0,
                    open_stateid: stateid(named),
                    lock_seqid: 0,
                    lock_owner: StateOwner4 { clientid: 0, owner: Opaque(&name) },
                }),
            };
            let (offset, length) = (range.first, range.length());
            let args = Lock4Args { locktype: lock_type(kind, waits), reclaim, offset, length, locker };
            (Op::Lock, compound.put_fh(file).then(Op::Lock, &args), Some(named))
        }
        LockChangeRequest::Unlock { id, range } => {
            let (offset, length) = (range.first, range.length());
            let locktype = NfsLockType4::Write;
            let args = Locku4Args { locktype, seqid: 0, lock_stateid: stateid(id), offset, length };
            (Op::Locku, compound.put_fh(file).then(Op::Locku, &args), Some(id))
        }
        LockChangeRequest::Free { id } => {
            (Op::FreeStateid, compound.then(Op::FreeStateid, &Stateid4Args { stateid: stateid(id) }), None)
        }
    };
    Some(StateRequest { operation, compound, names })
}

/// The status of `operation` in a reply, and the state id in its result.
pub(in crate::nfs4) fn state_status(
    reply: &CompoundReply,
    operation: Op,
) -> Result<(Nfsstat4, Option<StateId>)> {
    let mut results = reply.results()?;
    if operation != Op::FreeStateid {
        match results.status(Op::Putfh)? {
            Nfsstat4::Ok => {}
            status => return Ok((status, None)),
        }
    }
    let status = results.status(operation)?;
    let id = match status {
        Nfsstat4::Ok if !matches!(operation, Op::FreeStateid | Op::Delegreturn) => {
            Some(state_id(results.value(operation)?))
        }
        _ => None,
    };
    Ok((status, id))
}

pub(super) fn open_result(
    (answer, id): (StateAnswer, Option<StateId>),
) -> Option<Result<StateId, StateError>> {
    match answer {
        StateAnswer::Ok => Some(id.ok_or(StateError::Refused)),
        StateAnswer::Delayed => None,
        StateAnswer::Failed(error) => Some(Err(error)),
        StateAnswer::Denied => Some(Err(StateError::Refused)),
    }
}

pub(super) fn lock_result(
    (answer, id): (StateAnswer, Option<StateId>),
) -> Option<Result<Option<StateId>, LockError>> {
    match answer {
        StateAnswer::Ok => Some(Ok(id)),
        StateAnswer::Delayed => None,
        StateAnswer::Failed(error) => Some(Err(error.into())),
        StateAnswer::Denied => Some(Err(LockError::Denied)),
    }
}

/// The request of a lock's change now. `None` if recovery has overtaken it, or the file isn't open.
pub(in crate::nfs4) fn lock_request(
    held: &HeldState,
    change: &LockChange<Handle, OwnerOfLocks>,
    waits: bool,
) -> Option<StateRequest> {
    let (file, owner) = (change.file(), change.owner());
    let open = held.opens.io_id_of(file, &owner.through, 0).ok().flatten();
    lock_change((file, owner), held.locks.request(change)?, open, waits)
}
