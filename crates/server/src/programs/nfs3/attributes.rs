//! GETATTR, SETATTR and ACCESS (RFC 1813 sections 3.3.1, 3.3.2, 3.3.4).

use proto::nfs3::{
    Access3Args, Access3ResOk, Fattr3, Getattr3Args, Nfsstat3, PostOpAttr, Setattr3Args, WccData,
};
use state::AccessKind;
use store::{Access, Wcc};

use super::convert::{fattr, set_attributes, timestamp, wcc_data};
use super::{Call, Fault, Result};
use crate::nfs4::AttributeReader;

pub(super) fn getattr(call: &Call<'_>, args: Getattr3Args<'_>, _: &mut ()) -> Result<Fattr3> {
    let admitted = call.admit(args.object.0)?;
    let acting = admitted.acting()?;
    let node = acting.node(args.object.0)?;
    let written = call.service.state.size_at_holder(AttributeReader::Stateless, call.cx, &acting, &node);
    let written = written.map_err(|_| Fault(Nfsstat3::Jukebox))?;
    let mut attributes = acting.attributes(&node)?;
    attributes.size = written.unwrap_or(attributes.size);
    Ok(fattr(&attributes))
}

pub(super) fn setattr(call: &Call<'_>, args: Setattr3Args<'_>, body: &mut WccData) -> Result<WccData> {
    let admitted = call.admit(args.object.0)?;
    let acting = admitted.acting()?;
    let node = acting.node(args.object.0)?;
    let set = set_attributes(&args.new_attributes)?;
    let guard = args.guard.map(timestamp).transpose()?;
    call.check_conflicts(
        &acting,
        &node,
        if set.size.is_some() { AccessKind::Write } else { AccessKind::Change },
    )?;
    call.before_change(&admitted);
    let mut wcc = Wcc::default();
    let done = acting.set_attributes(&node, &set, guard, &mut wcc);
    *body = wcc_data(&wcc);
    done?;
    call.sync_metadata(&admitted, &acting, &[&node])?;
    Ok(*body)
}

pub(super) fn access(call: &Call<'_>, args: Access3Args<'_>, body: &mut PostOpAttr) -> Result<Access3ResOk> {
    let admitted = call.admit(args.object.0)?;
    let acting = admitted.acting()?;
    let node = acting.node(args.object.0)?;
    let allowed = acting.access(&node, Access(args.access));
    *body = call.current(&acting, &node);
    Ok(Access3ResOk { obj_attributes: *body, access: allowed?.0 })
}
