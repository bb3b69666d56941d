//! WANT_DELEGATION and DELEGRETURN (RFC 8881 sections 18.6, 18.49).

use proto::nfs4::{
    DelegClaim4, Nfsstat4, OpenDelegation4, OpenNoneDelegation4, SHARE_ACCESS_WANT_CANCEL,
    SHARE_ACCESS_WANT_DELEG_MASK, SHARE_ACCESS_WANT_NO_DELEG, SHARE_ACCESS_WANT_NO_PREFERENCE,
    SHARE_ACCESS_WANT_READ_DELEG, SHARE_ACCESS_WANT_WRITE_DELEG, Stateid4Args, WND4_CANCELLED,
    WND4_NOT_SUPP_FTYPE, WND4_WRITE_DELEG_NOT_SUPP_FTYPE, WantDelegation4Args,
};
use state::NoDelegation;
use store::{AccessMode, FileKind};

use crate::programs::nfs4::context::{Context, Operand};
use crate::programs::nfs4::delegations::{self, Delegatee, grant, none_for};
use crate::programs::nfs4::status::{self, Result};

/// WANT_DELEGATION. The server doesn't remember wants: a client that gets none may ask again.
pub(crate) fn want_delegation(c: &mut Context<'_>, args: WantDelegation4Args) -> Result<()> {
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
        FileKind::Directory => return Err(Nfsstat4::WrongType),
        kind => kind == FileKind::Regular,
    };
    let reclaims = matches!(args.claim, DelegClaim4::Previous(_));
    let grace = c.service.state.run(|engine, now| engine.check_grace(now, client, reclaims));
    grace.map_err(status::of_state)?;
    let user_context = file.user_context()?;
    let to = Delegatee { user_context: &user_context, node: &file.node, client };
    // A user who may not open the file gets no delegation; there is no error for that.
    let may_open = |mode| match user_context.may_open(&file.node, mode).map_err(status::of_store) {
        Err(gone @ (Nfsstat4::Stale | Nfsstat4::Io)) => Err(gone),
        may => Ok(may.is_ok()),
    };
    let granted = match args.claim {
        DelegClaim4::DelegPrevFh => return Err(Nfsstat4::Notsupp),
        _ if want == SHARE_ACCESS_WANT_CANCEL => Err(OpenNoneDelegation4::Other(WND4_CANCELLED)),
        _ if !regular && want == SHARE_ACCESS_WANT_WRITE_DELEG => {
            Err(OpenNoneDelegation4::Other(WND4_WRITE_DELEG_NOT_SUPP_FTYPE))
        }
        _ if !regular => Err(OpenNoneDelegation4::Other(WND4_NOT_SUPP_FTYPE)),
        DelegClaim4::Previous(kind) => match delegations::reclaim(c, &to, kind) {
            OpenDelegation4::None => Err(OpenNoneDelegation4::Resource(false)),
            reclaimed => Ok(reclaimed),
        },
        DelegClaim4::Fh => {
            let (may_read, may_write) = (may_open(AccessMode::Read)?, may_open(AccessMode::ReadWrite)?);
            let mut granted = Err(NoDelegation::Resource);
            if want != SHARE_ACCESS_WANT_READ_DELEG && may_write {
                granted = grant(c, &to, true);
            }
            if want != SHARE_ACCESS_WANT_WRITE_DELEG && may_read && granted.is_err() {
                granted = grant(c, &to, false);
            }
            granted.map_err(none_for)
        }
    };
    c.reply.encoder().put(&granted.unwrap_or_else(OpenDelegation4::NoneExt));
    Ok(())
}

pub(crate) fn delegreturn(c: &mut Context<'_>, args: Stateid4Args) -> Result<()> {
    let id = c.stateid(args.stateid)?;
    let Operand { by, file } = c.operand(&id)?;
    c.service.state.run(|engine, now| engine.delegreturn(now, &by, &id, &file)).map_err(status::of_state)
}
