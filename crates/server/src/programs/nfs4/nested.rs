//! Exports that lie in other exports: going on from a directory of the outer one leads into the inner one,
//! whatever stands at its name there, and going up leads back. On the outer export's own filesystem a client
//! that isn't let into the inner one is refused there ([`Error::OtherExport`]); where something is mounted,
//! it sees what the outer export has below the mount.

use proto::nfs4::Nfsstat4;
use store::{Error, FileHandle};

use super::compound::Compound;
use super::object::File;
use super::ops::handles;
use super::{Result, status};
use crate::export_table::Nested;

/// The exports that have their name in `directory`.
pub(super) fn in_directory(c: &Compound<'_>, directory: &File) -> Vec<Nested> {
    let table = c.service.gate.table();
    let export = FileHandle::export_of(directory.node.handle().as_bytes());
    let here = |nested: &&Nested| {
        // Where it leads now: directories may have been renamed.
        let parent = || directory.admitted.walk(nested.way.iter().map(Vec::as_slice));
        Some(nested.outer.id) == export
            && parent().is_ok_and(|parent| parent.handle() == directory.node.handle())
    };
    table.nested().iter().filter(here).cloned().collect()
}

/// The root of an export to which a name in another one has led.
pub(super) fn enter(c: &Compound<'_>, export: u32) -> Result<File> {
    let table = c.service.gate.table();
    match handles::enter(c, table.get(export).ok_or(Nfsstat4::Access)?) {
        // It is there, and can be seen.
        Err(Nfsstat4::Noent) => Err(Nfsstat4::Access),
        other => other,
    }
}

/// The inner export that `name` in `directory` leads to, if it is one, and if the client is let in.
pub(super) fn entered(c: &Compound<'_>, directory: &File, name: &[u8]) -> Result<Option<File>> {
    if !c.service.gate.table().nested().iter().any(|nested| nested.name == name) {
        return Ok(None);
    }
    let Some(nested) = in_directory(c, directory).into_iter().find(|nested| nested.name == name) else {
        return Ok(None);
    };
    match handles::enter(c, &nested.inner) {
        Ok(file) => Ok(Some(file)),
        Err(Nfsstat4::Noent) => Ok(None),
        Err(status) => Err(status),
    }
}

/// The directory of the outer export in which the export of `root` has its name, if it lies in one that the
/// client may use.
pub(super) fn above(c: &Compound<'_>, root: &File) -> Result<Option<File>> {
    let Some((nested, outer)) = around(c, root)? else { return Ok(None) };
    let directory = outer.admitted.walk(nested.way.iter().map(Vec::as_slice)).map_err(status::of_store)?;
    Ok(Some(outer.sibling(directory)))
}

/// The inode number of what the outer export has at the name of the export of `root`.
pub(super) fn mounted_on(c: &Compound<'_>, root: &File) -> Result<Option<u64>> {
    let Some((nested, outer)) = around(c, root)? else { return Ok(None) };
    let way = nested.way.iter().chain([&nested.name]).map(Vec::as_slice);
    Ok(match outer.admitted.walk(way) {
        Ok(covered) => Some(covered.fileid()),
        // Nothing is mounted there: it is the directory itself.
        Err(Error::OtherExport(_)) => Some(root.node.fileid()),
        Err(_) => None,
    })
}

/// The export around that of `root`, and its directory.
fn around(c: &Compound<'_>, root: &File) -> Result<Option<(Nested, File)>> {
    let table = c.service.gate.table();
    let export = FileHandle::export_of(root.node.handle().as_bytes());
    let Some(nested) = table.nested().iter().find(|nested| Some(nested.inner.id) == export) else {
        return Ok(None);
    };
    match handles::enter(c, &nested.outer) {
        Ok(outer) => Ok(Some((nested.clone(), outer))),
        Err(Nfsstat4::Noent) => Ok(None),
        Err(status) => Err(status),
    }
}
