//! GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS and READLINK (RFC 8881 sections 18.1, 18.7, 18.15, 18.24, 18.30,
//! 18.31).

use proto::nfs4::attributes as number;
use proto::nfs4::{
    ACCESS4_XALIST, ACCESS4_XAREAD, ACCESS4_XAWRITE, Access4Args, Access4ResOk, Bitmap4, Fsid4, Getattr4Args,
    MinorVersion, Nfsstat4, Setattr4Args, Verify4Args,
};
use state::Direction;
use store::{Access, Acting, Attributes, Kind, PosixAcl, Wcc};
use xdr::Encoder;

use super::delegation;
use super::handles::namespace;
use crate::nfs4::acl::to_nfs4;
use crate::nfs4::attributes::{Known, PSEUDO_FSID, WRITE_ONLY, of_pseudo, supported};
use crate::nfs4::compound::Compound;
use crate::nfs4::fsfacts::FsFacts;
use crate::nfs4::namespace::{Namespace, PseudoId};
use crate::nfs4::object::{File, Handle, Object};
use crate::nfs4::{Result, nested, settable, status};

/// What ACCESS can answer: NFSv3's bits.
const ACCESS_BITS: u32 = 0x3f;

pub(in crate::programs::nfs4) fn getattr(c: &mut Compound<'_>, args: Getattr4Args) -> Result<()> {
    if !args.attr_request.and(&WRITE_ONLY).and(&supported(c.minor)).is_empty() {
        return Err(Nfsstat4::Inval);
    }
    put_attributes(c, &args.attr_request).map(drop)
}

/// Appends the current object's attributes, and says which it has.
fn put_attributes(c: &mut Compound<'_>, wanted: &Bitmap4) -> Result<Bitmap4> {
    match c.object()?.clone() {
        Object::Pseudo(id) => {
            let known = known_pseudo(c, &namespace(c), id)?;
            known.put(wanted, c.reply.encoder());
            Ok(known.answered(wanted))
        }
        Object::Gone(_) => Err(Nfsstat4::Stale),
        Object::File(file) => {
            let acting = file.acting()?;
            let written = delegation::ask_writer(c, &acting, &file.node, wanted)?;
            let mut attributes = acting.attributes(&file.node).map_err(status::of_store)?;
            attributes.size = written.unwrap_or(attributes.size);
            let known = known_file(c, &acting, &file, &attributes, wanted)?;
            known.put(wanted, c.reply.encoder());
            Ok(known.answered(wanted))
        }
    }
}

/// What the attributes of a directory of `namespace` are made of.
pub(in crate::programs::nfs4) fn known_pseudo<'k>(
    c: &Compound<'k>,
    namespace: &Namespace,
    id: PseudoId,
) -> Result<Known<'k>> {
    let children = namespace.directory(id).ok_or(Nfsstat4::Stale)?.children.len();
    let attributes = of_pseudo(id, children, c.service.state.since);
    Ok(Known {
        minor: c.minor,
        attributes,
        handle: Object::Pseudo(id).handle(),
        fsid: PSEUDO_FSID,
        mounted_on: id.fileid(),
        facts: FsFacts::NONE,
        acl: to_nfs4(&(PosixAcl::of_mode(attributes.mode), None), true),
        owners: &c.service.owners,
        lease: lease(c),
    })
}

/// What a file's attributes are made of, as far as they are `wanted`.
pub(in crate::programs::nfs4) fn known_file<'k>(
    c: &Compound<'k>,
    acting: &Acting<'_>,
    file: &File,
    attributes: &Attributes,
    wanted: &Bitmap4,
) -> Result<Known<'k>> {
    let is_root = file.admitted.root().is_ok_and(|root| root == *file.node.handle());
    let mounted_on = if is_root && wanted.contains(number::MOUNTED_ON_FILEID) {
        let covered = nested::mounted_on(c, file)?;
        covered.unwrap_or_else(|| PseudoId::of_path(file.admitted.path()).fileid())
    } else {
        attributes.fileid
    };
    let acl = if wanted.contains(number::ACL) {
        let lists = acting.acls(&file.node).map_err(status::of_store)?;
        to_nfs4(&lists, file.node.kind() == Kind::Directory)
    } else {
        Vec::new()
    };
    Ok(Known {
        minor: c.minor,
        attributes: *attributes,
        handle: Handle::File(*file.node.handle()),
        fsid: Fsid4 { major: attributes.fsid, minor: 0 },
        mounted_on,
        facts: FsFacts::of(acting, &file.node, wanted)?,
        acl,
        owners: &c.service.owners,
        lease: lease(c),
    })
}

fn lease(c: &Compound<'_>) -> u32 {
    u32::try_from(c.service.state.lease.as_secs()).unwrap_or(u32::MAX)
}

pub(in crate::programs::nfs4) fn setattr(c: &mut Compound<'_>, args: Setattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Rofs)?;
    let mut wanted = settable::decode(&args.obj_attributes, c.minor, &c.service.owners)?;
    // For what is new only (RFC 8275 section 5).
    if wanted.mask.contains(number::MODE_UMASK) {
        return Err(Nfsstat4::Inval);
    }
    if file.node.kind() == Kind::Symlink {
        // Linux keeps none, and says nothing about it, as knfsd.
        wanted.set.mode = None;
    }
    if wanted.set.size.is_some() {
        match file.node.kind() {
            Kind::Regular => {}
            Kind::Directory => return Err(Nfsstat4::Isdir),
            _ => return Err(Nfsstat4::Inval),
        }
        let id = c.stateid(args.stateid)?;
        let asker = c.asker(&id)?;
        let key = *file.node.handle();
        c.may_io(&file, &id, Direction::Write)?;
        c.service
            .state
            .run(|engine, now| engine.check_io(now, asker, &id, &key, Direction::Write))
            .map_err(status::of_state)?;
    }
    let acting = file.acting()?;
    let _own = c.may_change(&acting, &file.node)?;
    c.before_change(&file);
    let acls = wanted.acls(&acting, &file.node, file.node.kind() == Kind::Directory)?;
    let mut wcc = Wcc::default();
    acting.set_attributes(&file.node, &wanted.set, None, &mut wcc).map_err(status::of_store)?;
    settable::set_acls(&acting, &file.node, acls.as_ref())?;
    c.commit(&file, &acting, &[&file.node])?;
    c.reply.encoder().put(&wanted.mask);
    Ok(())
}

pub(in crate::programs::nfs4) fn verify(c: &mut Compound<'_>, args: Verify4Args<'_>) -> Result<()> {
    if is_same(c, &args)? { Ok(()) } else { Err(Nfsstat4::NotSame) }
}

pub(in crate::programs::nfs4) fn nverify(c: &mut Compound<'_>, args: Verify4Args<'_>) -> Result<()> {
    if is_same(c, &args)? { Err(Nfsstat4::Same) } else { Ok(()) }
}

/// Whether the current object's attributes are those of the client.
fn is_same(c: &mut Compound<'_>, args: &Verify4Args<'_>) -> Result<bool> {
    c.object()?;
    let mask = args.obj_attributes.attrmask;
    if !mask.and(&WRITE_ONLY).is_empty() || mask.contains(number::RDATTR_ERROR) {
        return Err(Nfsstat4::Inval);
    }
    let at = c.reply.encoder().position();
    let answered = put_attributes(c, &mask)?;
    let mut given = Encoder::new();
    given.put(&args.obj_attributes);
    let to = c.reply.encoder();
    let same = to.as_slice()[at..] == *given.as_slice();
    to.truncate(at);
    if mask == answered { Ok(same) } else { Err(Nfsstat4::Attrnotsupp) }
}

pub(in crate::programs::nfs4) fn access(c: &mut Compound<'_>, args: Access4Args) -> Result<()> {
    // RFC 8276 section 8.5: to read and to change attributes takes what reading and writing does.
    let xattrs = if c.minor >= MinorVersion::V2 {
        [(ACCESS4_XAREAD, Access::READ), (ACCESS4_XALIST, Access::READ), (ACCESS4_XAWRITE, Access::MODIFY)]
    } else {
        [(0, Access(0)); 3]
    };
    let asked = xattrs.iter().filter(|(bit, _)| args.access & bit != 0);
    let (bits, needs) = asked.fold((0, 0), |(bits, needs), (bit, need)| (bits | bit, needs | need.0));
    let meaningful = match c.object()? {
        Object::File(file) if file.node.kind() != Kind::Directory => {
            ACCESS_BITS & !(Access::LOOKUP.0 | Access::DELETE.0)
        }
        _ => ACCESS_BITS & !Access::EXECUTE.0,
    };
    let supported = args.access & meaningful | bits;
    let wanted = args.access & meaningful | needs;
    let access = match c.object()? {
        Object::Pseudo(_) => wanted & (Access::READ.0 | Access::LOOKUP.0),
        Object::Gone(_) => return Err(Nfsstat4::Stale),
        Object::File(file) => {
            let acting = file.acting()?;
            acting.access(&file.node, Access(wanted)).map_err(status::of_store)?.0
        }
    };
    let given = xattrs.iter().filter(|(_, need)| access & need.0 == need.0);
    let access = given.fold(access, |access, (bit, _)| access | bit) & supported;
    c.reply.encoder().put(&Access4ResOk { supported, access });
    Ok(())
}

pub(in crate::programs::nfs4) fn readlink(c: &mut Compound<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Inval)?;
    if file.node.kind() != Kind::Symlink {
        return Err(if c.minor >= proto::nfs4::MinorVersion::V1 {
            Nfsstat4::WrongType
        } else {
            Nfsstat4::Inval
        });
    }
    let text = file.acting()?.readlink(&file.node).map_err(status::of_store)?;
    c.reply.encoder().opaque(&text);
    Ok(())
}
