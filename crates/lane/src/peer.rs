//! Who is at the other end of a Unix socket, and for whom it may speak.
//!
//! On the wire a client host is believed whatever user its AUTH_SYS credential names. On one host we can do
//! better: the kernel says which user the process at the other end was when it connected. Root acts for
//! others, as an NFS client host does; everybody else only for itself.

use crate::request::Credential;

pub use sys::PeerCredentials;

/// Whether the process `peer` may ask for files in the name of `claimed`.
///
/// A process of uid 0 (as our user namespace shows it) may act for any user. Any other may act only as
/// itself: the claimed user, group and every further group must be its own. An id that our user namespace
/// doesn't map is nobody's (`None`, or left out): it never matches.
#[must_use]
pub fn may_act_as(peer: &PeerCredentials, claimed: &Credential) -> bool {
    if peer.uid == Some(0) {
        return true;
    }
    let own = |gid: &u32| peer.gid == Some(*gid) || peer.groups.contains(gid);
    peer.uid == Some(claimed.uid) && own(&claimed.gid) && claimed.gids.iter().all(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>, groups: &[u32]) -> PeerCredentials {
        PeerCredentials { pid: Some(1), uid: uid.into(), gid: gid.into(), groups: groups.to_vec() }
    }

    fn claim(uid: u32, gid: u32, gids: &[u32]) -> Credential {
        Credential { uid, gid, gids: gids.to_vec() }
    }

    #[test]
    fn who_may_act_as_whom() {
        const NOBODY: u32 = 65534;
        let table = [
            // Root acts for everybody, itself and nobody included.
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
            // ... and as nobody else,
            (peer(1000, 1000, &[]), claim(0, 0, &[]), false),
            (peer(1000, 1000, &[]), claim(0, 1000, &[]), false),
            (peer(1000, 1000, &[]), claim(1001, 1000, &[]), false),
            (peer(1000, 0, &[0]), claim(0, 0, &[]), false),
            // with no group that isn't its own.
            (peer(1000, 1000, &[27]), claim(1000, 0, &[]), false),
            (peer(1000, 1000, &[27]), claim(1000, 1000, &[27, 0]), false),
            (peer(1000, 1000, &[27]), claim(1000, 6, &[27]), false),
            // An unmapped id is nobody's.
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
