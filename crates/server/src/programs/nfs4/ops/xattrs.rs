//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276 section 8.4).

use proto::nfs4::{Listxattrs4Args, Nfsstat4, Setxattr4Args, SetxattrOption4, Xattr4Args};
use store::{SetXattr, Wcc};

use super::change_info;
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::status::{self, Result};

/// The result without the names, in bytes: the cookie, the number of names, and whether the list ends here.
const EMPTY_RESULT: usize = 8 + 4 + 4;

pub(crate) fn getxattr(c: &mut Context<'_>, args: Xattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Notsupp)?;
    let user_context = file.user_context()?;
    let value = user_context.get_xattr(&file.node, args.name.0).map_err(status::of_store)?;
    c.reply.encoder().opaque(&value);
    Ok(())
}

pub(crate) fn setxattr(c: &mut Context<'_>, args: Setxattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Rofs)?;
    let mode = match args.option {
        SetxattrOption4::Either => SetXattr::Either,
        SetxattrOption4::Create => SetXattr::Create,
        SetxattrOption4::Replace => SetXattr::Replace,
    };
    let user_context = file.user_context()?;
    let _own = c.begin_change(&user_context, &file.node)?;
    c.expect_sync(&file);
    let mut wcc = Wcc::default();
    user_context.set_xattr(&file.node, args.key.0, args.value.0, mode, &mut wcc).map_err(status::of_store)?;
    c.sync_metadata(&file, &user_context, &[&file.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}

pub(crate) fn removexattr(c: &mut Context<'_>, args: Xattr4Args<'_>) -> Result<()> {
    let file = c.file(Nfsstat4::Rofs)?;
    let user_context = file.user_context()?;
    let _own = c.begin_change(&user_context, &file.node)?;
    c.expect_sync(&file);
    let mut wcc = Wcc::default();
    user_context.remove_xattr(&file.node, args.name.0, &mut wcc).map_err(status::of_store)?;
    c.sync_metadata(&file, &user_context, &[&file.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}

/// LISTXATTRS. A cookie is the number of names before it: they are few, and the list is made for each page.
pub(crate) fn listxattrs(c: &mut Context<'_>, args: Listxattrs4Args) -> Result<()> {
    let file = c.file(Nfsstat4::Notsupp)?;
    let names = file.user_context()?.list_xattrs(&file.node).map_err(status::of_store)?;
    let skip = usize::try_from(args.cookie).unwrap_or(usize::MAX);
    if skip > names.len() {
        return Err(Nfsstat4::BadCookie);
    }
    let bound = (args.maxcount as usize).min(c.room());
    let (mut size, mut taken) = (EMPTY_RESULT, 0);
    for name in &names[skip..] {
        size += 4 + name.len() + xdr::padding(name.len());
        if size > bound {
            break;
        }
        taken += 1;
    }
    if taken == 0 && (skip < names.len() || bound < EMPTY_RESULT) {
        return Err(c.no_room_for(args.maxcount as usize, Nfsstat4::Toosmall));
    }
    let to = c.reply.encoder();
    to.u64((skip + taken) as u64);
    to.length(taken);
    names[skip..skip + taken].iter().for_each(|name| to.opaque(name));
    to.bool(skip + taken == names.len());
    Ok(())
}
