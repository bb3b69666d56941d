//! PUTFH, GETFH, SAVEFH and their like, LOOKUP and LOOKUPP, SECINFO (RFC 8881 sections 18.8, 18.13, 18.14,
//! 18.19 to 18.29, 18.45).

use std::rc::Rc;
use std::sync::Arc;

use proto::nfs4::{MinorVersion, Name4Args, Nfsstat4, Putfh4Args, SecinfoStyle4};
use store::{Error, FileHandle, Kind};

use super::name;
use crate::authorization::access::Refusal;
use crate::export_table::Entry;
use crate::nfs4::compound::Compound;
use crate::nfs4::namespace::{Child, Namespace, PseudoId};
use crate::nfs4::object::{File, Object};
use crate::nfs4::{Result, nested, status};
use crate::programs::nfs3::asking;

/// The longest name in a pseudo directory, as its attributes say.
const MAX_NAME: usize = 255;
/// AUTH_SYS and AUTH_NONE: what SECINFO answers.
const FLAVORS: [u32; 2] = [1, 0];

pub(in crate::programs::nfs4) fn putfh(c: &mut Compound<'_>, args: Putfh4Args<'_>) -> Result<()> {
    set_handle(c, args.object.0)
}

/// Makes what a handle stands for the current object.
pub(in crate::programs::nfs4) fn set_handle(c: &mut Compound<'_>, handle: &[u8]) -> Result<()> {
    if let Some(id) = PseudoId::from_handle(handle) {
        namespace(c).directory(id).ok_or(Nfsstat4::Stale)?;
        c.set_current(Object::Pseudo(id));
        return Ok(());
    }
    let admitted = c.admit(handle)?;
    let found = {
        let acting = admitted.acting().map_err(status::of_store)?;
        acting.node(handle)
    };
    let object = match found {
        Ok(node) => Object::File(File { admitted: Rc::new(admitted), node }),
        Err(Error::Stale) => Object::Gone(open_still(c, handle).ok_or(Nfsstat4::Stale)?),
        Err(error) => return Err(status::of_store(error)),
    };
    c.set_current(object);
    Ok(())
}

/// The handle of a file that is gone, if somebody has it open.
fn open_still(c: &Compound<'_>, handle: &[u8]) -> Option<FileHandle> {
    let handle = FileHandle::from_bytes(handle)?;
    c.service.state.run(|engine, _| engine.is_open(&handle)).then_some(handle)
}

pub(in crate::programs::nfs4) fn putrootfh(c: &mut Compound<'_>) -> Result<()> {
    let namespace = namespace(c);
    let root = match namespace.root_export() {
        Some(entry) => Object::File(enter(c, entry)?),
        None => Object::Pseudo(PseudoId::root()),
    };
    c.set_current(root);
    Ok(())
}

pub(in crate::programs::nfs4) fn getfh(c: &mut Compound<'_>) -> Result<()> {
    let handle = c.object()?.handle();
    c.reply.encoder().opaque(handle.as_bytes());
    Ok(())
}

pub(in crate::programs::nfs4) fn savefh(c: &mut Compound<'_>) -> Result<()> {
    c.saved = Some(c.object()?.clone());
    c.saved_stateid = c.current_stateid;
    Ok(())
}

pub(in crate::programs::nfs4) fn restorefh(c: &mut Compound<'_>) -> Result<()> {
    let missing = if c.minor == MinorVersion::V0 { Nfsstat4::Restorefh } else { Nfsstat4::Nofilehandle };
    c.current = Some(c.saved.clone().ok_or(missing)?);
    c.current_stateid = c.saved_stateid;
    Ok(())
}

pub(in crate::programs::nfs4) fn lookup(c: &mut Compound<'_>, args: Name4Args<'_>) -> Result<()> {
    let found = find(c, args.name.0)?;
    c.set_current(found);
    Ok(())
}

/// What a name in the current directory stands for.
pub(in crate::programs::nfs4) fn find(c: &Compound<'_>, wanted: &[u8]) -> Result<Object> {
    match c.object()? {
        Object::Pseudo(id) => {
            let wanted = name(wanted)?;
            if wanted.len() > MAX_NAME {
                return Err(Nfsstat4::Nametoolong);
            }
            let namespace = namespace(c);
            let child = namespace.directory(*id).ok_or(Nfsstat4::Stale)?.children.get(wanted);
            match child.ok_or(Nfsstat4::Noent)? {
                Child::Export(entry) => enter(c, entry).map(Object::File),
                Child::Pseudo(below) => Ok(Object::Pseudo(*below)),
            }
        }
        Object::Gone(_) => Err(Nfsstat4::Stale),
        Object::File(file) => {
            must_be_directory(file)?;
            let node = match file.acting()?.lookup(&file.node, name(wanted)?) {
                Err(Error::OtherExport(export)) => return nested::enter(c, export).map(Object::File),
                found => found.map_err(status::of_store)?,
            };
            let inner = nested::entered(c, file, wanted)?;
            Ok(Object::File(inner.unwrap_or_else(|| file.sibling(node))))
        }
    }
}

/// The error for what isn't a directory.
pub(in crate::programs::nfs4) fn must_be_directory(file: &File) -> Result<()> {
    match file.node.kind() {
        Kind::Directory => Ok(()),
        Kind::Symlink => Err(Nfsstat4::Symlink),
        _ => Err(Nfsstat4::Notdir),
    }
}

pub(in crate::programs::nfs4) fn lookupp(c: &mut Compound<'_>) -> Result<()> {
    let above = parent(c)?;
    c.set_current(above);
    Ok(())
}

fn parent(c: &Compound<'_>) -> Result<Object> {
    match c.object()? {
        Object::Pseudo(id) if *id == PseudoId::root() => Err(Nfsstat4::Noent),
        Object::Pseudo(id) => {
            namespace(c).directory(*id).map(|found| Object::Pseudo(found.parent)).ok_or(Nfsstat4::Stale)
        }
        Object::Gone(_) => Err(Nfsstat4::Stale),
        Object::File(file) => {
            must_be_directory(file)?;
            let handle = file.node.handle();
            if file.admitted.root().map_err(status::of_store)? == *handle {
                if let Some(directory) = nested::above(c, file)? {
                    return Ok(Object::File(directory));
                }
                let export = FileHandle::export_of(handle.as_bytes()).ok_or(Nfsstat4::Badhandle)?;
                return namespace(c).above(export).map(Object::Pseudo).ok_or(Nfsstat4::Noent);
            }
            let node = file.acting()?.lookup(&file.node, b"..").map_err(status::of_store)?;
            Ok(Object::File(file.sibling(node)))
        }
    }
}

pub(in crate::programs::nfs4) fn secinfo(c: &mut Compound<'_>, args: Name4Args<'_>) -> Result<()> {
    find(c, args.name.0).map_err(|status| match status {
        // SECINFO doesn't know it (RFC 8881 section 15.2).
        Nfsstat4::Symlink => Nfsstat4::Notdir,
        other => other,
    })?;
    put_flavors(c);
    Ok(())
}

pub(in crate::programs::nfs4) fn secinfo_no_name(c: &mut Compound<'_>, style: SecinfoStyle4) -> Result<()> {
    match style {
        SecinfoStyle4::CurrentFh => drop(c.object()?),
        SecinfoStyle4::Parent => drop(parent(c)?),
    }
    put_flavors(c);
    Ok(())
}

/// Since 4.1 both consume the current handle (RFC 8881 section 2.6.3.1.1.8).
fn put_flavors(c: &mut Compound<'_>) {
    let to = c.reply.encoder();
    to.length(FLAVORS.len());
    FLAVORS.iter().for_each(|flavor| to.u32(*flavor));
    if c.minor >= MinorVersion::V1 {
        c.current = None;
        c.current_stateid = None;
    }
}

/// The root of an export, if the client may use it.
pub(in crate::programs::nfs4) fn enter(c: &Compound<'_>, entry: &Arc<Entry>) -> Result<File> {
    let admitted = c.service.gate.admit_to(entry, asking(c.cx)).map_err(|refusal| match refusal {
        // As if it weren't there.
        Refusal::NotExported => Nfsstat4::Noent,
        other => status::of_refusal(other),
    })?;
    let node = {
        let acting = admitted.acting().map_err(status::of_store)?;
        let root = admitted.root().map_err(status::of_store)?;
        acting.node(root.as_bytes()).map_err(status::of_store)?
    };
    Ok(File { admitted: Rc::new(admitted), node })
}

/// Whether a client is shown an export. One that can't be told yet who he is, is.
fn is_visible(c: &Compound<'_>, entry: &Arc<Entry>) -> bool {
    !matches!(c.service.gate.admit_to(entry, asking(c.cx)), Err(Refusal::NotExported))
}

/// The exports under one root, as they are for the client now.
pub(in crate::programs::nfs4) fn namespace(c: &Compound<'_>) -> Namespace {
    Namespace::of(&c.service.gate.table(), |entry| is_visible(c, entry))
}
