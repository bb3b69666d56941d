//! Resolution of MNT's path: the nearest export above it, and the walk from there.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use proto::mount3::Mountstat3;
use store::{FileHandle, FileKind};

use super::status;
use crate::authorization::access::{AccessControl, Refusal};
use crate::authorization::requester::Requester;

/// The maximum number of components of a path, since each costs a lookup.
const MAX_DEPTH: usize = 256;

/// Why a path isn't mounted.
pub(super) struct Unresolved {
    pub status: Mountstat3,
    /// The refusal of the access check, if that is the reason.
    pub refusal: Option<Refusal>,
}

impl From<Mountstat3> for Unresolved {
    fn from(status: Mountstat3) -> Self {
        Self { status, refusal: None }
    }
}

/// Resolves `path` for a client. A directory below an export's can be mounted if the client's user can reach
/// it. Symbolic links on the way aren't followed, since they could lead out of the export, except those in
/// the path of an export as it is written.
pub(super) fn resolve(
    access: &AccessControl,
    path: &[u8],
    requester: Requester<'_>,
) -> Result<FileHandle, Unresolved> {
    if path.first() != Some(&b'/') {
        return Err(Mountstat3::Inval.into());
    }
    let wanted = components(path);
    if wanted.len() > MAX_DEPTH {
        return Err(Mountstat3::Nametoolong.into());
    }
    let table = access.table();
    let names = |path| components(Path::as_os_str(path).as_bytes());
    let written = table.entries().iter().filter(|entry| wanted.starts_with(&names(entry.export.path())));
    // Which exports lie around it depends on the directory that the path leads to.
    let wanted = match written.max_by_key(|entry| names(entry.export.path()).len()) {
        Some(entry) => {
            let below = &wanted[names(entry.export.path()).len()..];
            [names(entry.location()).as_slice(), below].concat()
        }
        None => wanted,
    };
    let around = table.entries().iter().map(|entry| (entry, names(entry.location())));
    let mut candidates: Vec<_> = around.filter(|(_, location)| wanted.starts_with(location)).collect();
    // Of several lines for one directory only one is served.
    candidates.sort_by_key(|(entry, location)| (std::cmp::Reverse(location.len()), !entry.is_served()));
    let mut unresolved = Unresolved { status: Mountstat3::Acces, refusal: Some(Refusal::NotExported) };
    for (entry, location) in candidates {
        if !entry.is_served() {
            // Exported, but not available: an error is better than a directory of the outer export.
            unresolved = Mountstat3::Noent.into();
            break;
        }
        match access.admit_to(entry, requester) {
            Ok(admitted) => {
                let user_context = admitted.user_context().map_err(status)?;
                let root = admitted.root().map_err(status)?;
                let mut node = user_context.node(root.as_bytes()).map_err(status)?;
                for name in &wanted[location.len()..] {
                    if *name == b".." {
                        return Err(Mountstat3::Inval.into());
                    }
                    node = user_context.lookup(&node, name).map_err(status)?;
                }
                return if node.kind() == FileKind::Directory {
                    Ok(*node.handle())
                } else {
                    Err(Mountstat3::Notdir.into())
                };
            }
            Err(Refusal::NotExported) => {}
            // Not a refusal, and MOUNT has no status for "try later".
            Err(refusal @ Refusal::NotKnownYet) => {
                return Err(Unresolved { status: Mountstat3::Serverfault, refusal: Some(refusal) });
            }
            Err(refusal) => {
                unresolved.refusal = Some(refusal);
                break;
            }
        }
    }
    Err(unresolved)
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}
