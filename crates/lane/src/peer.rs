//! The process at the other end of a Unix socket, and the users that it may act for.
//!
//! On the wire a server believes whatever user a client's AUTH_SYS credential names. On one host the kernel
//! reports the user of the process at the other end, as of when it connected. Root may act for other users,
//! as an NFS client host does; all others only for themselves.

use crate::request::LaneCredential;

pub use sys::{PeerCredentials, SharedNamespaces};

/// Whether the process `peer` may request files in the name of `claimed` ([`may_claim`]).
#[must_use]
pub fn may_act_as(peer: &PeerCredentials, claimed: &LaneCredential) -> bool {
    may_claim(peer, claimed.uid, claimed.gid, &claimed.gids)
}

/// Whether the process `peer` may act as this user with these groups.
///
/// A process of uid 0 (as this user namespace shows it) may act for any user. Any other may act only as
/// itself: the claimed user, group and every further group must be its own. An id that this user namespace
/// doesn't map (`None`, or left out) never matches.
#[must_use]
pub fn may_claim(peer: &PeerCredentials, uid: u32, gid: u32, gids: &[u32]) -> bool {
    if peer.uid == Some(0) {
        return true;
    }
    let own = |gid: &u32| peer.gid == Some(*gid) || peer.groups.contains(gid);
    peer.uid == Some(uid) && own(&gid) && gids.iter().all(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>, groups: &[u32]) -> PeerCredentials {
        PeerCredentials { pid: Some(1), uid: uid.into(), gid: gid.into(), groups: groups.to_vec() }
    }

    fn claim(uid: u32, gid: u32, gids: &[u32]) -> LaneCredential {
        LaneCredential { uid, gid, gids: gids.to_vec() }
    }

    #[test]
    fn processes_act_only_for_permitted_users() {
        const NOBODY: u32 = 65534;
        let table = [
            // Root acts for all users, itself and "nobody" included.
            (peer(0, 0, &[]), claim(0, 0, &[]), true),
            (peer(0, 0, &[]), claim(1000, 1000, &[27, 100]), true),
            (peer(0, 1000, &[]), claim(NOBODY, NOBODY, &[NOBODY]), true),
            (peer(0, None, &[]), claim(1000, 1000, &[]), true),
            // A user acts as itself ...
            (peer(1000, 1000, &[]), claim(1000, 1000, &[]), true),
            (peer(1000, 1000, &[]), claim(1000, 1000, &[1000]), true),
            (peer(1000, 1000, &[27, 100]), claim(1000, 1000, &[100]), true),
            (peer(1000, 1000, &[27, 100]), claim(1000, 100, &[27, 1000]), true),
            (peer(1000, 0, &[]), claim(1000, 0, &[]), true),
            // ... and as no other user,
            (peer(1000, 1000, &[]), claim(0, 0, &[]), false),
            (peer(1000, 1000, &[]), claim(0, 1000, &[]), false),
            (peer(1000, 1000, &[]), claim(1001, 1000, &[]), false),
            (peer(1000, 0, &[0]), claim(0, 0, &[]), false),
            // with no group that isn't its own.
            (peer(1000, 1000, &[27]), claim(1000, 0, &[]), false),
            (peer(1000, 1000, &[27]), claim(1000, 1000, &[27, 0]), false),
            (peer(1000, 1000, &[27]), claim(1000, 6, &[27]), false),
            // An unmapped id never matches.
            (peer(None, 1000, &[]), claim(NOBODY, 1000, &[]), false),
            (peer(None, None, &[]), claim(NOBODY, NOBODY, &[]), false),
            (peer(None, None, &[]), claim(0, 0, &[]), false),
            (peer(1000, None, &[]), claim(1000, NOBODY, &[]), false),
            (peer(1000, None, &[1000]), claim(1000, 1000, &[]), true),
        ];
        for (peer, claimed, may) in table {
            assert_eq!(may_act_as(&peer, &claimed), may, "{peer:?} as {claimed:?}");
        }
    }
}
