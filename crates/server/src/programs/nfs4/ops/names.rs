//! REMOVE, RENAME and LINK (RFC 8881 sections 18.9, 18.25, 18.26).

use proto::nfs4::{Name4Args, Nfsstat4, Rename4Args, Rename4ResOk};
use store::{Error, Kind, Wcc};

use super::handles::must_be_directory;
use super::{change_info, name};
use crate::nfs4::compound::Compound;
use crate::nfs4::{Result, status};

pub(in crate::programs::nfs4) fn remove(c: &mut Compound<'_>, args: Name4Args<'_>) -> Result<()> {
    let directory = c.file(Nfsstat4::Rofs)?;
    must_be_directory(&directory)?;
    let wanted = name(args.name.0)?;
    c.before_change(&directory);
    let acting = directory.acting()?;
    let _own = c.may_change_entry(&acting, &directory.node, wanted)?;
    let mut wcc = Wcc::default();
    let done = match acting.remove(&directory.node, wanted, &mut wcc) {
        Err(Error::IsDirectory) => acting.rmdir(&directory.node, wanted, &mut wcc),
        other => other,
    };
    done.map_err(status::of_entry)?;
    c.commit(&directory, &acting, &[&directory.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}

pub(in crate::programs::nfs4) fn rename(c: &mut Compound<'_>, args: Rename4Args<'_>) -> Result<()> {
    let to_dir = c.file(Nfsstat4::Rofs)?;
    let from_dir = c.saved_file(Nfsstat4::Rofs)?;
    must_be_directory(&from_dir)?;
    must_be_directory(&to_dir)?;
    let (from, to) = (name(args.oldname.0)?, name(args.newname.0)?);
    if !to_dir.admitted.same_export(&from_dir.admitted) {
        return Err(Nfsstat4::Xdev);
    }
    c.before_change(&to_dir);
    let acting = to_dir.acting()?;
    let _own =
        (c.may_change_entry(&acting, &from_dir.node, from)?, c.may_change_entry(&acting, &to_dir.node, to)?);
    let (mut from_wcc, mut to_wcc) = (Wcc::default(), Wcc::default());
    let done = acting.rename(&from_dir.node, from, &to_dir.node, to, &mut from_wcc, &mut to_wcc);
    done.map_err(|error| match error {
        // A directory over something else, or something else over a directory.
        Error::NotDirectory | Error::IsDirectory | Error::NotEmpty => Nfsstat4::Exist,
        other => status::of_entry(other),
    })?;
    c.commit(&to_dir, &acting, &[&from_dir.node, &to_dir.node])?;
    let (source_cinfo, target_cinfo) = (change_info(&from_wcc), change_info(&to_wcc));
    c.reply.encoder().put(&Rename4ResOk { source_cinfo, target_cinfo });
    Ok(())
}

pub(in crate::programs::nfs4) fn link(c: &mut Compound<'_>, args: Name4Args<'_>) -> Result<()> {
    let directory = c.file(Nfsstat4::Rofs)?;
    let file = c.saved_file(Nfsstat4::Isdir)?;
    must_be_directory(&directory)?;
    if file.node.kind() == Kind::Directory {
        return Err(Nfsstat4::Isdir);
    }
    let wanted = name(args.name.0)?;
    if !directory.admitted.same_export(&file.admitted) {
        return Err(Nfsstat4::Xdev);
    }
    c.before_change(&directory);
    let acting = directory.acting()?;
    let _own = c.may_change_if(|| acting.may_change_entries(&directory.node), &file.node)?;
    let mut wcc = Wcc::default();
    acting.link(&file.node, &directory.node, wanted, &mut wcc).map_err(status::of_entry)?;
    c.commit(&directory, &acting, &[&file.node, &directory.node])?;
    c.reply.encoder().put(&change_info(&wcc));
    Ok(())
}
