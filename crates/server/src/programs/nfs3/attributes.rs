//! GETATTR, SETATTR and ACCESS (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4).

use proto::nfs3::{
    Access3Args, Access3ResOk, Fattr3, Getattr3Args, Nfsstat3, PostOpAttr, Setattr3Args, WccData,
};
use state::AccessKind;
use store::{Access, Wcc};

use super::convert::{fattr, set_attributes, timestamp, wcc_data};
use super::{Call, Fault, Result};
use crate::programs::nfs4::AttributeReader;

pub(super) fn getattr(call: &Call<'_>, args: Getattr3Args<'_>, _: &mut ()) -> Result<Fattr3> {
    let admitted = call.admit(args.object.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.object.0)?;
    let written =
        call.service.state.size_at_holder(AttributeReader::Stateless, call.cx, &user_context, &node);
    let written = written.map_err(|_| Fault(Nfsstat3::Jukebox))?;
    let mut attributes = user_context.attributes(&node)?;
    attributes.size = written.unwrap_or(attributes.size);
    Ok(fattr(&attributes))
}

pub(super) fn setattr(call: &Call<'_>, args: Setattr3Args<'_>, body: &mut WccData) -> Result<WccData> {
    let admitted = call.admit(args.object.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.object.0)?;
    let set = set_attributes(&args.new_attributes)?;
    let guard = args.guard.map(timestamp).transpose()?;
    call.check_conflicts(
        &user_context,
        &node,
        if set.size.is_some() { AccessKind::Write } else { AccessKind::Change },
    )?;
    call.before_change(&admitted);
    let mut wcc = Wcc::default();
    let done = user_context.set_attributes(&node, &set, guard, &mut wcc);
    *body = wcc_data(&wcc);
    done?;
    call.sync_metadata(&admitted, &user_context, &[&node])?;
    Ok(*body)
}

pub(super) fn access(call: &Call<'_>, args: Access3Args<'_>, body: &mut PostOpAttr) -> Result<Access3ResOk> {
    let admitted = call.admit(args.object.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.object.0)?;
    let allowed = user_context.access(&node, Access(args.access));
    *body = call.current(&user_context, &node);
    Ok(Access3ResOk { obj_attributes: *body, access: allowed?.0 })
}
