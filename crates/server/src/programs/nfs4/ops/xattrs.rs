//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 section 8.4).

use proto::nfs4::{Listxattrs4Args, Nfsstat4, Setxattr4Args, SetxattrOption4, Xattr4Args};
use store::{SetXattr, Wcc};

use super::change_info;
use crate::nfs4::compound::Compound;
use crate::nfs4::{Result, status};

/// The cookie, the number of names, and whether that is the end.
const HEAD: usize = 8 + 4 + 4;

pub(in crate::programs::nfs4) fn get(c: &mut Compound<'_>, args: Xattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Notsupp)?;
    let acting = file.acting()?;
    let value = acting.get_xattr(&file.node, args.name.0).map_err(status::of_store)?;
    c.reply.encoder().opaque(&value);
    Ok(())
}

pub(in crate::programs::nfs4) fn set(c: &mut Compound<'_>, args: Setxattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Rofs)?;
    let how = match args.option {
        SetxattrOption4::Either => SetXattr::Either,
        SetxattrOption4::Create => SetXattr::Create,
        SetxattrOption4::Replace => SetXattr::Replace,
    };
    let acting = file.acting()?;
    let _own = c.may_change(&acting, &file.node)?;
    c.before_change(&file);
    let mut wcc = Wcc::default();
    acting.set_xattr(&file.node, args.key.0, args.value.0, how, &mut wcc).map_err(status::of_store)?;
    c.commit(&file, &acting, &[&file.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}

pub(in crate::programs::nfs4) fn remove(c: &mut Compound<'_>, args: Xattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Rofs)?;
    let acting = file.acting()?;
    let _own = c.may_change(&acting, &file.node)?;
    c.before_change(&file);
    let mut wcc = Wcc::default();
    acting.remove_xattr(&file.node, args.name.0, &mut wcc).map_err(status::of_store)?;
    c.commit(&file, &acting, &[&file.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}

/// A cookie is the number of names before it: they are few, and the list is made anew for each page.
pub(in crate::programs::nfs4) fn list(c: &mut Compound<'_>, args: Listxattrs4Args) -> Result<()> {
    let file = c.file(Nfsstat4::Notsupp)?;
    let names = file.acting()?.list_xattrs(&file.node).map_err(status::of_store)?;
    let skip = usize::try_from(args.cookie).unwrap_or(usize::MAX);
    if skip > names.len() {
        return Err(Nfsstat4::BadCookie);
    }
    let bound = (args.maxcount as usize).min(c.room());
    let (mut size, mut taken) = (HEAD, 0);
    for name in &names[skip..] {
        size += 4 + name.len() + xdr::padding(name.len());
        if size > bound {
            break;
        }
        taken += 1;
    }
    if taken == 0 && (skip < names.len() || bound < HEAD) {
        return Err(c.no_room_for(args.maxcount as usize, Nfsstat4::Toosmall));
    }
    let to = c.reply.encoder();
    to.u64((skip + taken) as u64);
    to.length(taken);
    names[skip..skip + taken].iter().for_each(|name| to.opaque(name));
    to.bool(skip + taken == names.len());
    Ok(())
}
