//! Who is at the other end of a Unix socket, and for whom it may speak.
//!
//! On the wire a client host is believed whatever uid its AUTH_SYS credential names. On one host we can do better:
//! the kernel says which user the process at the other end was when it connected. Root acts for others, as an NFS
//! client host does; everybody else only for itself.

use crate::request::Credential;

/// The id that the kernel shows in place of one that the reader's user namespace doesn't map
/// (`/proc/sys/kernel/overflowuid` and `overflowgid`; both are 65534 unless an admin changed them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// `overflowuid`.
    pub uid: u32,
    /// `overflowgid`.
    pub gid: u32,
}

impl Default for Overflow {
    fn default() -> Self {
        Self { uid: 65534, gid: 65534 }
    }
}

impl Overflow {
    /// What this kernel uses; the default where /proc doesn't say.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        let read = |path| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        let default = Self::default();
        Self {
            uid: read("/proc/sys/kernel/overflowuid").unwrap_or(default.uid),
            gid: read("/proc/sys/kernel/overflowgid").unwrap_or(default.gid),
        }
    }
}

/// The process at the other end of a Unix socket, as the kernel recorded it when it connected (SO_PEERCRED,
/// SO_PEERGROUPS), in the terms of our own user and pid namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerCredentials {
    /// The process; 0 when our pid namespace doesn't show it.
    pub pid: u32,
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

impl PeerCredentials {
    /// Whether this process may ask for files in the name of `claimed`.
    ///
    /// A process of uid 0 may act for any user. Any other may act only as itself: the claimed user, group and
    /// every further group must be its own. An id that our user namespace doesn't map is nobody's: it never
    /// matches, neither as the peer's nor as the claimed one.
    #[must_use]
    pub fn may_act_as(&self, claimed: &Credential, overflow: Overflow) -> bool {
        if self.uid == 0 && overflow.uid != 0 {
            return true;
        }
        let own = |gid: &u32| *gid != overflow.gid && (*gid == self.gid || self.groups.contains(gid));
        self.uid != overflow.uid
            && claimed.uid == self.uid
            && own(&claimed.gid)
            && claimed.gids.iter().all(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32, groups: &[u32]) -> PeerCredentials {
        PeerCredentials { pid: 1, uid, gid, groups: groups.to_vec() }
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
            (peer(NOBODY, 1000, &[]), claim(NOBODY, 1000, &[]), false),
            (peer(NOBODY, NOBODY, &[NOBODY]), claim(NOBODY, NOBODY, &[NOBODY]), false),
            (peer(NOBODY, NOBODY, &[]), claim(0, 0, &[]), false),
            (peer(1000, NOBODY, &[]), claim(1000, NOBODY, &[]), false),
            (peer(1000, 1000, &[NOBODY]), claim(1000, 1000, &[NOBODY]), false),
            (peer(1000, NOBODY, &[1000]), claim(1000, 1000, &[]), true),
        ];
        for (peer, claimed, may) in table {
            assert_eq!(peer.may_act_as(&claimed, Overflow::default()), may, "{peer:?} as {claimed:?}");
        }
    }

    #[test]
    fn an_admin_may_have_moved_the_overflow_ids() {
        let moved = Overflow { uid: 99, gid: 98 };
        assert!(peer(65534, 65534, &[]).may_act_as(&claim(65534, 65534, &[]), moved));
        assert!(!peer(99, 1, &[]).may_act_as(&claim(99, 1, &[]), moved));
        assert!(!peer(1, 98, &[]).may_act_as(&claim(1, 98, &[]), moved));
        let absurd = Overflow { uid: 0, gid: 0 };
        assert!(!peer(0, 0, &[]).may_act_as(&claim(1000, 1000, &[]), absurd));
    }
}
