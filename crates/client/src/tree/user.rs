//! The users of a tree: the process itself, and for root everybody.
//!
//! The kernel checks permissions by the thread's filesystem ids. A thread has another user's ids for the time
//! of one operation only, because it has other duties, and threads inherit the ids of the thread that starts
//! them.

use lane::LaneCredential;
use user_ids::{Identity, Privilege, UserIds, process_identity, restore_process_ids};

use super::failure::{Failure, Result};
use crate::user::User;

/// As whom this process can perform operations.
#[derive(Debug)]
pub(crate) struct TreeUsers {
    own: Identity,
    /// The groups of `own` as far as the lane carries them.
    own_gids: Vec<u32>,
    /// Whether threads can act as other users.
    acts_as_others: bool,
}

/// Restores the thread's ids on drop.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        restore_process_ids();
    }
}

impl TreeUsers {
    /// For the ids and capabilities that the process has now.
    pub(crate) fn detect() -> Self {
        let own = process_identity();
        let own_gids = own.groups.iter().copied().take(lane::request::MAX_GIDS).collect();
        Self { own, own_gids, acts_as_others: Privilege::detect() == Privilege::Full }
    }

    /// As whom a process without privileges can perform operations.
    #[cfg(test)]
    pub(super) fn without_privilege() -> Self {
        Self { acts_as_others: false, ..Self::detect() }
    }

    /// Runs `work` as a user.
    pub(crate) fn run<T>(&self, user: &User, work: impl FnOnce(&Identity) -> Result<T>) -> Result<T> {
        let credential = user.lane.as_ref().ok_or(Failure::NotLocal)?;
        if self.is_own(credential) {
            return work(&self.own);
        }
        if !self.acts_as_others {
            return Err(Failure::NotLocal);
        }
        let LaneCredential { uid, gid, gids } = credential;
        let ids = UserIds::of(&Identity { uid: *uid, gid: *gid, groups: gids.clone() });
        let _restore = Restore;
        ids.assume_ids().map_err(|_| Failure::NotLocal)?;
        work(&ids.identity)
    }

    fn is_own(&self, credential: &LaneCredential) -> bool {
        if (credential.uid, credential.gid) != (self.own.uid, self.own.gid) {
            return false;
        }
        // Groups add nothing to root's rights.
        if credential.uid == 0 && self.acts_as_others || credential.gids == self.own_gids {
            return true;
        }
        let sorted = |gids: &[u32]| {
            let mut gids = gids.to_vec();
            gids.sort_unstable();
            gids.dedup();
            gids
        };
        sorted(&credential.gids) == sorted(&self.own_gids)
    }
}
