//! REMOVE, RENAME and LINK (RFC 8881 sections 18.9, 18.25, 18.26).

use proto::nfs4::{Name4Args, Nfsstat4, Rename4Args, Rename4ResOk};
use store::{Error, FileKind, Wcc};

use super::change_info;
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::lookup::{check_directory, check_name};
use crate::programs::nfs4::status::{self, Result};

pub(crate) fn remove(c: &mut Context<'_>, args: Name4Args<'_>) -> Result<()> {
    let directory = c.file(Nfsstat4::Rofs)?;
    check_directory(&directory)?;
    let name = check_name(args.name.0)?;
    c.expect_sync(&directory);
    let user_context = directory.user_context()?;
    let _own = c.begin_entry_change(&user_context, &directory.node, name)?;
    let mut wcc = Wcc::default();
    let done = match user_context.remove(&directory.node, name, &mut wcc) {
        Err(Error::IsDirectory) => user_context.rmdir(&directory.node, name, &mut wcc),
        other => other,
    };
    done.map_err(status::of_entry)?;
    c.sync_metadata(&directory, &user_context, &[&directory.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}

pub(crate) fn rename(c: &mut Context<'_>, args: Rename4Args<'_>) -> Result<()> {
    let to_dir = c.file(Nfsstat4::Rofs)?;
    let from_dir = c.saved_file(Nfsstat4::Rofs)?;
    check_directory(&from_dir)?;
    check_directory(&to_dir)?;
    let (from, to) = (check_name(args.oldname.0)?, check_name(args.newname.0)?);
    if !to_dir.admitted.same_export(&from_dir.admitted) {
        return Err(Nfsstat4::Xdev);
    }
    c.expect_sync(&to_dir);
    let user_context = to_dir.user_context()?;
    let _own = (
        c.begin_entry_change(&user_context, &from_dir.node, from)?,
        c.begin_entry_change(&user_context, &to_dir.node, to)?,
    );
    let (mut from_wcc, mut to_wcc) = (Wcc::default(), Wcc::default());
    let done = user_context.rename(&from_dir.node, from, &to_dir.node, to, &mut from_wcc, &mut to_wcc);
    done.map_err(|error| match error {
        // A directory onto another object, or another object onto a directory.
        Error::NotDirectory | Error::IsDirectory | Error::NotEmpty => Nfsstat4::Exist,
        other => status::of_entry(other),
    })?;
    c.sync_metadata(&to_dir, &user_context, &[&from_dir.node, &to_dir.node])?;
    let (source_cinfo, target_cinfo) = (change_info(&from_wcc), change_info(&to_wcc));
    c.reply.encoder().put(&Rename4ResOk { source_cinfo, target_cinfo });
    Ok(())
}

pub(crate) fn link(c: &mut Context<'_>, args: Name4Args<'_>) -> Result<()> {
    let directory = c.file(Nfsstat4::Rofs)?;
    let file = c.saved_file(Nfsstat4::Isdir)?;
    check_directory(&directory)?;
    if file.node.kind() == FileKind::Directory {
        return Err(Nfsstat4::Isdir);
    }
    let name = check_name(args.name.0)?;
    if !directory.admitted.same_export(&file.admitted) {
        return Err(Nfsstat4::Xdev);
    }
    c.expect_sync(&directory);
    let user_context = directory.user_context()?;
    let _own = c.begin_permitted_change(|| user_context.may_change_entries(&directory.node), &file.node)?;
    let mut wcc = Wcc::default();
    user_context.link(&file.node, &directory.node, name, &mut wcc).map_err(status::of_entry)?;
    c.sync_metadata(&directory, &user_context, &[&file.node, &directory.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}
