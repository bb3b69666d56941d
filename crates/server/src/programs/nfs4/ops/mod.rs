//! The operations, one function each: it takes the COMPOUND's context and its decoded arguments, and appends
//! the body of its result to the reply unless it fails.
//!
//! Operations don't call one another. What several need stands in the modules beside this one.

pub(super) mod attributes;
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
pub(super) mod session;
pub(super) mod space;
pub(super) mod stateids;
pub(super) mod write;
pub(super) mod xattrs;

use proto::nfs4::ChangeInfo4;
use store::Wcc;

/// A directory's change attribute before and after an operation.
fn change_info(wcc: &Wcc) -> ChangeInfo4 {
    let after = wcc.after.map_or(0, |after| after.change);
    ChangeInfo4 {
        atomic: wcc.before.is_some() && wcc.after.is_some(),
        before: wcc.before.map_or(after, |before| before.change),
        after,
    }
}
