//! FSSTAT, FSINFO and PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use proto::nfs3::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, Fsinfo3Args, Fsinfo3ResOk, Fsstat3Args,
    Fsstat3ResOk, Nfstime3, Pathconf3Args, Pathconf3ResOk, PostOpAttr,
};

use super::convert::post_op;
use super::{Call, Result};
use crate::service::limits::MAX_TRANSFER;

/// The suggested multiple of transfer sizes: a page.
const MULTIPLE: u32 = 4096;
/// The preferred size of READDIR's results.
const PREFERRED_READDIR: u32 = 64 << 10;

pub(super) fn fsstat(call: &Call<'_>, args: Fsstat3Args<'_>, body: &mut PostOpAttr) -> Result<Fsstat3ResOk> {
    let admitted = call.admit(args.fsroot.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.fsroot.0)?;
    *body = post_op(&user_context, &node);
    let stat = user_context.fs_stat(&node)?;
    Ok(Fsstat3ResOk {
        obj_attributes: *body,
        tbytes: stat.total_bytes,
        fbytes: stat.free_bytes,
        abytes: stat.available_bytes,
        tfiles: stat.total_files,
        ffiles: stat.free_files,
        afiles: stat.available_files,
        // The values may change at any time.
        invarsec: 0,
    })
}

pub(super) fn fsinfo(call: &Call<'_>, args: Fsinfo3Args<'_>, body: &mut PostOpAttr) -> Result<Fsinfo3ResOk> {
    let admitted = call.admit(args.fsroot.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.fsroot.0)?;
    *body = post_op(&user_context, &node);
    let info = user_context.fs_info(&node)?;
    let property = |is: bool, flag: u32| if is { flag } else { 0 };
    Ok(Fsinfo3ResOk {
        obj_attributes: *body,
        rtmax: MAX_TRANSFER,
        rtpref: MAX_TRANSFER,
        rtmult: MULTIPLE,
        wtmax: MAX_TRANSFER,
        wtpref: MAX_TRANSFER,
        wtmult: MULTIPLE,
        dtpref: PREFERRED_READDIR,
        maxfilesize: info.max_file_size,
        time_delta: Nfstime3 {
            seconds: info.time_delta / 1_000_000_000,
            nseconds: info.time_delta % 1_000_000_000,
        },
        properties: property(info.links, FSF3_LINK)
            | property(info.symlinks, FSF3_SYMLINK)
            | property(info.homogeneous, FSF3_HOMOGENEOUS)
            | property(info.can_set_time, FSF3_CANSETTIME),
    })
}

pub(super) fn pathconf(
    call: &Call<'_>,
    args: Pathconf3Args<'_>,
    body: &mut PostOpAttr,
) -> Result<Pathconf3ResOk> {
    let admitted = call.admit(args.object.0)?;
    let user_context = admitted.user_context()?;
    let node = user_context.node(args.object.0)?;
    *body = post_op(&user_context, &node);
    let conf = user_context.pathconf(&node)?;
    Ok(Pathconf3ResOk {
        obj_attributes: *body,
        linkmax: conf.link_max,
        name_max: conf.name_max,
        no_trunc: conf.no_trunc,
        chown_restricted: conf.chown_restricted,
        case_insensitive: conf.case_insensitive,
        case_preserving: conf.case_preserving,
    })
}
