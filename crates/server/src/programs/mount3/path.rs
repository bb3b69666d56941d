//! From MNT's path to a handle: the export that is nearest above it, and the way down from there.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use proto::mount3::Mountstat3;
use store::{FileHandle, FileKind};

use super::status;
use crate::authorization::access::{Asking, Gate, Refusal};
use crate::export_table::Entry;

/// The most components of a path: each costs a lookup.
const MAX_DEPTH: usize = 256;

/// Resolves `path` for a client. A directory inside an export can be mounted, too, if the client's user can
/// walk there; symbolic links on the way are not followed, for they could lead out of the export.
pub(super) fn resolve(gate: &Gate, path: &[u8], asking: Asking<'_>) -> Result<FileHandle, Mountstat3> {
    if path.first() != Some(&b'/') {
        return Err(Mountstat3::Inval);
    }
    let wanted = components(path);
    if wanted.len() > MAX_DEPTH {
        return Err(Mountstat3::Nametoolong);
    }
    let table = gate.table();
    let depth = |entry: &Arc<Entry>| components(entry.export.path().as_os_str().as_bytes()).len();
    let above =
        |entry: &&Arc<Entry>| wanted.starts_with(&components(entry.export.path().as_os_str().as_bytes()));
    let mut candidates: Vec<_> = table.entries().iter().filter(above).collect();
    candidates.sort_by_key(|entry| std::cmp::Reverse(depth(entry)));
    let mut refusal = Mountstat3::Acces;
    for entry in candidates {
        if entry.store.is_err() {
            // Exported, but not there (now): the client is told that rather than led to the export above.
            refusal = Mountstat3::Noent;
            break;
        }
        match gate.admit_to(entry, asking) {
            Ok(admitted) => {
                let acting = admitted.acting().map_err(status)?;
                let root = admitted.root().map_err(status)?;
                let mut node = acting.node(root.as_bytes()).map_err(status)?;
                for name in &wanted[depth(entry)..] {
                    if *name == b".." {
                        return Err(Mountstat3::Inval);
                    }
                    node = acting.lookup(&node, name).map_err(status)?;
                }
                return if node.kind() == FileKind::Directory {
                    Ok(*node.handle())
                } else {
                    Err(Mountstat3::Notdir)
                };
            }
            Err(Refusal::NotExported) => {}
            // Not "no", and MOUNT has no "later".
            Err(Refusal::NotKnownYet) => return Err(Mountstat3::Serverfault),
            Err(_) => break,
        }
    }
    Err(refusal)
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}
