//! GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS and READLINK (RFC 8881 sections 18.1, 18.7, 18.15, 18.24, 18.30,
//! 18.31).

use proto::nfs4::attributes as number;
use proto::nfs4::{
    ACCESS4_XALIST, ACCESS4_XAREAD, ACCESS4_XAWRITE, Access4Args, Access4ResOk, Bitmap4, Getattr4Args,
    MinorVersion, Nfsstat4, Setattr4Args, Verify4Args,
};
use state::Direction;
use store::{Access, FileKind, Wcc};
use xdr::Encoder;

use crate::programs::nfs4::attributes::settable;
use crate::programs::nfs4::attributes::{WRITE_ONLY, supported};
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::nested::namespace;
use crate::programs::nfs4::object::Object;
use crate::programs::nfs4::status::{self, Result};

/// The bits of NFSv3's ACCESS.
const ACCESS_BITS: u32 = 0x3f;

pub(crate) fn getattr(c: &mut Context<'_>, args: Getattr4Args) -> Result<()> {
    if !args.attr_request.and(&WRITE_ONLY).and(&supported(c.minor)).is_empty() {
        return Err(Nfsstat4::Inval);
    }
    put_attributes(c, &args.attr_request).map(drop)
}

/// Appends those of the `requested` attributes that the current object has; which they are.
fn put_attributes(c: &mut Context<'_>, requested: &Bitmap4) -> Result<Bitmap4> {
    let found = match c.object()?.clone() {
        Object::Pseudo(id) => c.pseudo_attributes(&namespace(c), id)?,
        Object::Gone(_) => return Err(Nfsstat4::Stale),
        Object::File(file) => {
            let user_context = file.user_context()?;
            let written = c.size_at_holder(&user_context, &file.node, requested)?;
            let mut attributes = user_context.attributes(&file.node).map_err(status::of_store)?;
            attributes.size = written.unwrap_or(attributes.size);
            c.file_attributes(&user_context, &file, &attributes, requested)?
        }
    };
    found.put(requested, c.reply.encoder());
    Ok(found.present(requested))
}

pub(crate) fn setattr(c: &mut Context<'_>, args: Setattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Rofs)?;
    let mut settable = settable::decode(&args.obj_attributes, c.minor, &c.service.owners)?;
    // For new files only (RFC 8275 section 5).
    if settable.mask.contains(number::MODE_UMASK) {
        return Err(Nfsstat4::Inval);
    }
    if file.node.kind() == FileKind::Symlink {
        // Linux keeps no mode for symbolic links; knfsd ignores it, too.
        settable.set.mode = None;
    }
    if settable.set.size.is_some() {
        match file.node.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Nfsstat4::Isdir),
            _ => return Err(Nfsstat4::Inval),
        }
        c.check_io(&file, args.stateid, Direction::Write)?;
    }
    let user_context = file.user_context()?;
    let _own = c.begin_change(&user_context, &file.node)?;
    c.expect_sync(&file);
    let acls = settable.acls(&user_context, &file.node, file.node.kind() == FileKind::Directory)?;
    let mut wcc = Wcc::default();
    user_context.set_attributes(&file.node, &settable.set, None, &mut wcc).map_err(status::of_store)?;
    settable::set_acls(&user_context, &file.node, acls.as_ref())?;
    c.sync_metadata(&file, &user_context, &[&file.node])?;
    c.reply.encoder().put(&settable.mask);
    Ok(())
}

pub(crate) fn verify(c: &mut Context<'_>, args: Verify4Args<'_>) -> Result<()> {
    if is_same(c, &args)? { Ok(()) } else { Err(Nfsstat4::NotSame) }
}

pub(crate) fn nverify(c: &mut Context<'_>, args: Verify4Args<'_>) -> Result<()> {
    if is_same(c, &args)? { Err(Nfsstat4::Same) } else { Ok(()) }
}

/// Whether the current object has the client's attributes.
fn is_same(c: &mut Context<'_>, args: &Verify4Args<'_>) -> Result<bool> {
    c.object()?;
    let mask = args.obj_attributes.attrmask;
    if !mask.and(&WRITE_ONLY).is_empty() || mask.contains(number::RDATTR_ERROR) {
        return Err(Nfsstat4::Inval);
    }
    let at = c.reply.encoder().position();
    let present = put_attributes(c, &mask)?;
    let mut given = Encoder::new();
    given.put(&args.obj_attributes);
    let to = c.reply.encoder();
    let same = to.as_slice()[at..] == *given.as_slice();
    to.truncate(at);
    if mask == present { Ok(same) } else { Err(Nfsstat4::Attrnotsupp) }
}

pub(crate) fn access(c: &mut Context<'_>, args: Access4Args) -> Result<()> {
    // RFC 8276 section 8.5: extended attributes take the permissions of reading and writing.
    let xattrs = if c.minor >= MinorVersion::V2 {
        [(ACCESS4_XAREAD, Access::READ), (ACCESS4_XALIST, Access::READ), (ACCESS4_XAWRITE, Access::MODIFY)]
    } else {
        [(0, Access(0)); 3]
    };
    let requested = xattrs.iter().filter(|(bit, _)| args.access & bit != 0);
    let (bits, needs) = requested.fold((0, 0), |(bits, needs), (bit, need)| (bits | bit, needs | need.0));
    let meaningful = match c.object()? {
        Object::File(file) if file.node.kind() != FileKind::Directory => {
            ACCESS_BITS & !(Access::LOOKUP.0 | Access::DELETE.0)
        }
        _ => ACCESS_BITS & !Access::EXECUTE.0,
    };
    let supported = args.access & meaningful | bits;
    let requested = args.access & meaningful | needs;
    let access = match c.object()? {
        Object::Pseudo(_) => requested & (Access::READ.0 | Access::LOOKUP.0),
        Object::Gone(_) => return Err(Nfsstat4::Stale),
        Object::File(file) => {
            let user_context = file.user_context()?;
            user_context.access(&file.node, Access(requested)).map_err(status::of_store)?.0
        }
    };
    let allowed = xattrs.iter().filter(|(_, need)| access & need.0 == need.0);
    let access = allowed.fold(access, |access, (bit, _)| access | bit) & supported;
    c.reply.encoder().put(&Access4ResOk { supported, access });
    Ok(())
}

pub(crate) fn readlink(c: &mut Context<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Inval)?;
    if file.node.kind() != FileKind::Symlink {
        return Err(if c.minor >= MinorVersion::V1 { Nfsstat4::WrongType } else { Nfsstat4::Inval });
    }
    let text = file.user_context()?.readlink(&file.node).map_err(status::of_store)?;
    c.reply.encoder().opaque(&text);
    Ok(())
}
