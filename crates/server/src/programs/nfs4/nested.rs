//! Exports in the namespace that a client sees: those under the pseudo-filesystem's root, and those that lie
//! in one another.
//!
//! A name in an outer export leads into the inner one, whatever stands at that name there, and ".." leads
//! back. On the outer export's own filesystem a client that isn't admitted to the inner one is refused there
//! ([`Error::NestedExport`]). Where something is mounted, it sees what the outer export has below the mount.

use std::rc::Rc;
use std::sync::Arc;

use proto::nfs4::Nfsstat4;
use store::{Error, FileHandle};

use super::context::Context;
use super::namespace::Namespace;
use super::object::File;
use super::status::{self, Result};
use crate::authorization::access::Refusal;
use crate::export_table::{ExportEntry, ExportNesting};
use crate::programs::nfs3::requester;

/// The exports under one root, as the client may see them now. An export is visible, too, while it can't be
/// decided yet whether the client is admitted.
pub(super) fn namespace(c: &Context<'_>) -> Namespace {
    // Read before the table. If that is replaced in between, the next request finds a change.
    let change = c.service.state.since.saturating_add(c.service.access.generation());
    Namespace::of(&c.service.access.table(), change, |entry| {
        !matches!(c.service.access.admit_to(entry, requester(c.cx)), Err(Refusal::NotExported))
    })
}

/// The root of an export, if the client may use it.
///
/// # Errors
/// `Noent` for an export that isn't the client's: as if it weren't there.
pub(super) fn export_root(c: &Context<'_>, entry: &Arc<ExportEntry>) -> Result<File> {
    let admitted = c.service.access.admit_to(entry, requester(c.cx)).map_err(|refusal| match refusal {
        Refusal::NotExported => Nfsstat4::Noent,
        other => status::of_refusal(other),
    })?;
    let node = {
        let user_context = admitted.user_context().map_err(status::of_store)?;
        let root = admitted.root().map_err(status::of_store)?;
        user_context.node(root.as_bytes()).map_err(status::of_store)?
    };
    Ok(File { admitted: Rc::new(admitted), node })
}

/// The root of an export that a name in another one leads to.
pub(super) fn inner_root(c: &Context<'_>, export: u32) -> Result<File> {
    let table = c.service.access.table();
    match export_root(c, table.get(export).ok_or(Nfsstat4::Access)?) {
        // It is there, and can be seen.
        Err(Nfsstat4::Noent) => Err(Nfsstat4::Access),
        other => other,
    }
}

/// The exports that have their name in `directory`.
pub(super) fn in_directory(c: &Context<'_>, directory: &File) -> Vec<ExportNesting> {
    c.service.access.nested_in(&directory.admitted, &directory.node)
}

/// The root of the inner export that `name` in `directory` leads to, if it leads to one and the client is
/// admitted to that.
pub(super) fn entered(c: &Context<'_>, directory: &File, name: &[u8]) -> Result<Option<File>> {
    if !c.service.access.has_nested(name) {
        return Ok(None);
    }
    let Some(nested) = in_directory(c, directory).into_iter().find(|nested| nested.name == name) else {
        return Ok(None);
    };
    match export_root(c, &nested.inner) {
        Ok(file) => Ok(Some(file)),
        Err(Nfsstat4::Noent) => Ok(None),
        Err(status) => Err(status),
    }
}

/// The directory of the outer export in which the export of `root` has its name, if it lies in one that the
/// client may use.
pub(super) fn above(c: &Context<'_>, root: &File) -> Result<Option<File>> {
    let Some((nested, outer)) = enclosing(c, root)? else { return Ok(None) };
    let directory = outer.admitted.walk(nested.way.iter().map(Vec::as_slice)).map_err(status::of_store)?;
    Ok(Some(outer.sibling(directory)))
}

/// The inode number of what the outer export has at the name of the export of `root`.
pub(super) fn mounted_on(c: &Context<'_>, root: &File) -> Result<Option<u64>> {
    let Some((nested, outer)) = enclosing(c, root)? else { return Ok(None) };
    let way = nested.way.iter().chain([&nested.name]).map(Vec::as_slice);
    Ok(match outer.admitted.walk(way) {
        Ok(covered) => Some(covered.fileid()),
        // Nothing is mounted there: it is the directory itself.
        Err(Error::NestedExport(_)) => Some(root.node.fileid()),
        Err(_) => None,
    })
}

/// The entry of the export around that of `root`, and the outer export's root.
fn enclosing(c: &Context<'_>, root: &File) -> Result<Option<(ExportNesting, File)>> {
    let table = c.service.access.table();
    let export = FileHandle::export_of(root.node.handle().as_bytes());
    let Some(nested) = table.nested().iter().find(|nested| Some(nested.inner.id) == export) else {
        return Ok(None);
    };
    match export_root(c, &nested.outer) {
        Ok(outer) => Ok(Some((nested.clone(), outer))),
        Err(Nfsstat4::Noent) => Ok(None),
        Err(status) => Err(status),
    }
}
