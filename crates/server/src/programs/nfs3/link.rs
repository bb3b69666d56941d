//! RENAME and LINK (RFC 1813 sections 3.3.14, 3.3.15): the procedures with two handles.

use proto::nfs3::{Link3Args, Link3Body, Nfsstat3, Rename3Args, Rename3Body};
use state::AccessKind;
use store::Wcc;

use super::convert::{entry_status, post_op, wcc_data};
use super::{Call, Fault, Result};

pub(super) fn rename(call: &Call<'_>, args: Rename3Args<'_>, body: &mut Rename3Body) -> Result<Rename3Body> {
    let admitted = call.admit(args.from.dir.0)?;
    // Both exports are checked first, although a rename between two is always refused.
    if !call.admit(args.to.dir.0)?.same_export(&admitted) {
        return Err(Fault(Nfsstat3::Xdev));
    }
    let user_context = admitted.user_context()?;
    let (from, to) = (user_context.node(args.from.dir.0)?, user_context.node(args.to.dir.0)?);
    call.before_change(&admitted);
    call.check_conflicts_at(&user_context, &from, args.from.name.0, AccessKind::Change)?;
    call.check_conflicts_at(&user_context, &to, args.to.name.0, AccessKind::Change)?;
    let (mut from_wcc, mut to_wcc) = (Wcc::default(), Wcc::default());
    let done = user_context.rename(&from, args.from.name.0, &to, args.to.name.0, &mut from_wcc, &mut to_wcc);
    *body = Rename3Body { fromdir_wcc: wcc_data(&from_wcc), todir_wcc: wcc_data(&to_wcc) };
    done.map_err(|error| Fault(entry_status(error)))?;
    call.sync_metadata(&admitted, &user_context, &[&from, &to])?;
    Ok(*body)
}

pub(super) fn link(call: &Call<'_>, args: Link3Args<'_>, body: &mut Link3Body) -> Result<Link3Body> {
    let admitted = call.admit(args.file.0)?;
    if !call.admit(args.link.dir.0)?.same_export(&admitted) {
        return Err(Fault(Nfsstat3::Xdev));
    }
    let user_context = admitted.user_context()?;
    let (file, directory) = (user_context.node(args.file.0)?, user_context.node(args.link.dir.0)?);
    call.check_conflicts_if(|| user_context.may_change_entries(&directory), &file, AccessKind::Change)?;
    call.before_change(&admitted);
    let mut wcc = Wcc::default();
    let done = user_context.link(&file, &directory, args.link.name.0, &mut wcc);
    *body = Link3Body { file_attributes: post_op(&user_context, &file), linkdir_wcc: wcc_data(&wcc) };
    done.map_err(|error| Fault(entry_status(error)))?;
    call.sync_metadata(&admitted, &user_context, &[&file, &directory])?;
    Ok(*body)
}
