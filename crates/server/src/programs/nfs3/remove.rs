//! REMOVE and RMDIR (RFC 1813 sections 3.3.12, 3.3.13).

use proto::nfs3::{Diropargs3, Remove3Args, Rmdir3Args, WccData};
use state::AccessKind;
use store::{Node, UserContext, Wcc};

use super::convert::{entry_status, wcc_data};
use super::{Call, Fault, Result};

fn remove_entry(
    call: &Call<'_>,
    place: Diropargs3<'_>,
    body: &mut WccData,
    unlink: impl FnOnce(&UserContext<'_>, &Node, &[u8], &mut Wcc) -> store::Result<()>,
) -> Result<WccData> {
    let admitted = call.admit(place.dir.0)?;
    let user_context = admitted.user_context()?;
    let directory = user_context.node(place.dir.0)?;
    call.before_change(&admitted);
    call.check_conflicts_at(&user_context, &directory, place.name.0, AccessKind::Change)?;
    let mut wcc = Wcc::default();
    let done = unlink(&user_context, &directory, place.name.0, &mut wcc);
    *body = wcc_data(&wcc);
    done.map_err(|error| Fault(entry_status(error)))?;
    call.sync_metadata(&admitted, &user_context, &[&directory])?;
    Ok(*body)
}

pub(super) fn remove(call: &Call<'_>, args: Remove3Args<'_>, body: &mut WccData) -> Result<WccData> {
    remove_entry(call, args.object, body, |user_context, directory, name, wcc| {
        user_context.remove(directory, name, wcc)
    })
}

pub(super) fn rmdir(call: &Call<'_>, args: Rmdir3Args<'_>, body: &mut WccData) -> Result<WccData> {
    remove_entry(call, args.object, body, |user_context, directory, name, wcc| {
        user_context.rmdir(directory, name, wcc)
    })
}
