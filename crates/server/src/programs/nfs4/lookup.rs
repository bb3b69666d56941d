//! From handles and names to objects: in the pseudo-filesystem, in exports, and across their borders.

use std::rc::Rc;
use std::sync::Arc;

use proto::nfs4::Nfsstat4;
use store::{Error, FileHandle, FileKind};

use super::context::Context;
use super::namespace::{Child, PseudoId};
use super::nested::{self, export_root, namespace};
use super::object::{File, Object};
use super::status::{self, Result};
use crate::export_table::ExportEntry;
use crate::programs::nfs3::requester;

/// The longest name in a directory of the pseudo-filesystem, as its attributes say.
const MAX_NAME: usize = 255;

/// A name from the client, if it can be one (RFC 8881 section 14.5).
///
/// # Errors
/// `Inval`, `Badname` and `Badchar`.
pub(super) fn check_name(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" => Err(Nfsstat4::Inval),
        b"." | b".." => Err(Nfsstat4::Badname),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Nfsstat4::Badchar),
        _ => Ok(name),
    }
}

/// # Errors
/// `Symlink` or `Notdir` for what isn't a directory.
pub(super) fn check_directory(file: &File) -> Result<()> {
    match file.node.kind() {
        FileKind::Directory => Ok(()),
        FileKind::Symlink => Err(Nfsstat4::Symlink),
        _ => Err(Nfsstat4::Notdir),
    }
}

/// The object that a handle stands for.
pub(super) fn object_of_handle(c: &Context<'_>, handle: &[u8]) -> Result<Object> {
    if let Some(id) = PseudoId::from_handle(handle) {
        namespace(c).directory(id).ok_or(Nfsstat4::Stale)?;
        return Ok(Object::Pseudo(id));
    }
    let admitted = c.admit(handle)?;
    let found = {
        let user_context = admitted.user_context().map_err(status::of_store)?;
        user_context.node(handle)
    };
    match found {
        Ok(node) => Ok(Object::File(File { admitted: Rc::new(admitted), node })),
        Err(Error::Stale) => Ok(Object::Gone(still_open(c, handle).ok_or(Nfsstat4::Stale)?)),
        Err(error) => Err(status::of_store(error)),
    }
}

/// The handle of a file that was removed, if a client has it open.
fn still_open(c: &Context<'_>, handle: &[u8]) -> Option<FileHandle> {
    let handle = FileHandle::from_bytes(handle)?;
    c.service.state.run(|engine, _| engine.is_open(&handle)).then_some(handle)
}

/// The root of the namespace.
pub(super) fn root(c: &Context<'_>) -> Result<Object> {
    match namespace(c).root_export() {
        Some(entry) => enter(c, entry),
        None => Ok(Object::Pseudo(PseudoId::root())),
    }
}

/// The object of that name in the current directory.
pub(super) fn child(c: &Context<'_>, name: &[u8]) -> Result<Object> {
    match c.object()? {
        Object::Pseudo(id) => {
            let name = check_name(name)?;
            if name.len() > MAX_NAME {
                return Err(Nfsstat4::Nametoolong);
            }
            let namespace = namespace(c);
            let child = namespace.directory(*id).ok_or(Nfsstat4::Stale)?.children.get(name);
            match child.ok_or(Nfsstat4::Noent)? {
                Child::Export(entry) => enter(c, entry),
                Child::Pseudo(below) => Ok(Object::Pseudo(*below)),
            }
        }
        Object::Gone(_) => Err(Nfsstat4::Stale),
        Object::File(directory) => {
            check_directory(directory)?;
            let node = match directory.user_context()?.lookup(&directory.node, check_name(name)?) {
                Err(Error::NestedExport(export)) => return nested::inner_root(c, export).map(Object::File),
                // Without a clone of the mount, the store refuses mount points.
                Err(Error::Access) if !directory.admitted.is_cloned() => {
                    let inner = nested::entered(c, directory, name)?;
                    return inner.map(Object::File).ok_or(Nfsstat4::Access);
                }
                found => found.map_err(status::of_store)?,
            };
            let inner = nested::entered(c, directory, name)?;
            Ok(Object::File(inner.unwrap_or_else(|| directory.sibling(node))))
        }
    }
}

/// The root of an export that a client reaches by name.
fn enter(c: &Context<'_>, entry: &Arc<ExportEntry>) -> Result<Object> {
    let root = export_root(c, entry)?;
    let requester = requester(c.cx);
    let uid = requester.claim.map(|claim| claim.uid);
    c.service.access.audit.entered(requester.address, uid, entry.export.path());
    Ok(Object::File(root))
}

/// The directory above the current one.
pub(super) fn parent(c: &Context<'_>) -> Result<Object> {
    match c.object()? {
        Object::Pseudo(id) if *id == PseudoId::root() => Err(Nfsstat4::Noent),
        Object::Pseudo(id) => {
            namespace(c).directory(*id).map(|found| Object::Pseudo(found.parent)).ok_or(Nfsstat4::Stale)
        }
        Object::Gone(_) => Err(Nfsstat4::Stale),
        Object::File(directory) => {
            check_directory(directory)?;
            let handle = directory.node.handle();
            if directory.admitted.root().map_err(status::of_store)? == *handle {
                let (export, namespace) = (directory.admitted.export(), namespace(c));
                if namespace.root_export().is_some_and(|root| root.id == export) {
                    return Err(Nfsstat4::Noent);
                }
                if let Some(above) = nested::above(c, directory)? {
                    return Ok(Object::File(above));
                }
                return namespace.above(export).map(Object::Pseudo).ok_or(Nfsstat4::Noent);
            }
            let node = directory.user_context()?.lookup(&directory.node, b"..").map_err(status::of_store)?;
            Ok(Object::File(directory.sibling(node)))
        }
    }
}
