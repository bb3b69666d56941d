//! The operations, one function each: decoded arguments in, the body of a successful result into the reply,
//! or a status.

pub(super) mod attributes;
pub(super) mod back_channel;
pub(super) mod client;
pub(super) mod copy;
pub(super) mod create;
pub(super) mod delegation;
pub(super) mod directory;
pub(super) mod handles;
pub(super) mod lock;
pub(super) mod names;
pub(super) mod open;
pub(super) mod read;
pub(super) mod read_plus;
pub(super) mod session;
pub(super) mod space;
pub(super) mod stateids;
pub(super) mod write;
pub(super) mod xattrs;

use proto::nfs4::{ChangeInfo4, Nfsstat4};
use store::Wcc;

use super::Result;

/// A name from the client that can be one (RFC 8881 section 14.5).
fn name(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" => Err(Nfsstat4::Inval),
        b"." | b".." => Err(Nfsstat4::Badname),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Nfsstat4::Badchar),
        _ => Ok(name),
    }
}

/// A directory's change attribute before and after an operation.
fn change_info(wcc: &Wcc) -> ChangeInfo4 {
    let after = wcc.after.map_or(0, |after| after.change);
    ChangeInfo4 {
        atomic: wcc.before.is_some() && wcc.after.is_some(),
        before: wcc.before.map_or(after, |before| before.change),
        after,
    }
}
