//! Verification of AUTH_SYS claims by the owner of the client's process.
//!
//! AUTH_SYS names a user and proves nothing. For connections from this host the kernel knows the owner of the
//! process at the other end.
//!
//! 1. A server that can't act as other users does everything as the user that it runs as. It serves that user
//!    and root, unless the export makes everybody act as that user ([`is_served_as`]).
//! 2. A server that can act as other users believes the claims of other hosts, as every AUTH_SYS server does,
//!    and those of local processes of root, such as the kernel of an NFS client host. Any other local process
//!    may claim its own user only, unless the export trusts it ([`is_own_claim`]); otherwise it becomes the
//!    anonymous user. `sock_diag` reports the user and not the groups. Groups therefore come from the host's
//!    user database, as with rpc.mountd's `--manage-gids` ([`Memberships`]).
//!
//! On the lane the kernel reports user and groups (`SO_PEERCRED`, `SO_PEERGROUPS`), and the lane itself
//! checks claims against both.

use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exports::{Claim, NotKnownYet};
use nix::unistd::{Uid, User, getgrouplist};
use rpc::server::TcpOwner;

use crate::authorization::lookups::Lookups;

/// How long a call waits for the first lookup of a user's groups.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How many users' groups are cached.
const MAX_USERS: usize = 4096;
/// How many groups of one user are used; the others are ignored.
const MAX_GROUPS: usize = 1024;
/// For how long a thread uses its own last answer without consulting the shared cache.
const THREAD_CACHE_TIME: Duration = Duration::from_secs(1);

/// Whether a server that does everything as the user `server` serves this process and this claim: both must
/// be that user or root. Requests without a claim (AUTH_NONE) aren't served.
pub(crate) fn is_served_as(server: u32, owner: TcpOwner, claim: Option<Claim<'_>>) -> bool {
    is_process_served_as(server, owner) && claim.is_some_and(|claim| claim.uid == server || claim.uid == 0)
}

/// The part of [`is_served_as`] that concerns the process. Processes of other hosts are judged by their
/// claims.
pub(crate) const fn is_process_served_as(server: u32, owner: TcpOwner) -> bool {
    match owner {
        TcpOwner::Remote => true,
        TcpOwner::User(uid) => uid == server || uid == 0,
        TcpOwner::Unknown => false,
    }
}

/// Whether the process may claim this user id. Root, and processes of other hosts, may claim any.
pub(crate) const fn is_own_claim(owner: TcpOwner, uid: u32) -> bool {
    match owner {
        TcpOwner::Remote | TcpOwner::User(0) => true,
        TcpOwner::User(own) => own == uid,
        TcpOwner::Unknown => false,
    }
}

/// A user's groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Membership {
    /// The group in the user's database entry; `None` for users without an entry.
    primary: Option<u32>,
    /// All groups, including the primary one.
    groups: Vec<u32>,
}

impl Membership {
    /// The claim with the groups of the database. The primary group is the claimed one if the user is a
    /// member, else that of the user's entry, and `anonymous` for users without an entry.
    pub(crate) fn of<'a>(&'a self, claim: Claim<'_>, anonymous: u32) -> Claim<'a> {
        let own = self.groups.contains(&claim.gid).then_some(claim.gid);
        let gid = own.or(self.primary).unwrap_or(anonymous);
        Claim { uid: claim.uid, gid, gids: &self.groups }
    }
}

/// The membership that a thread used last.
struct CachedMembership {
    /// The round of the [`Memberships`] that it comes from.
    round: u64,
    uid: u32,
    until: Instant,
    membership: Arc<Membership>,
}

thread_local! {
    static LAST_MEMBERSHIP: RefCell<Option<CachedMembership>> = const { RefCell::new(None) };
}

/// The next round number; unique among all [`Memberships`] of the process.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// The groups of the users whose claims are verified, from the host's user database.
#[derive(Debug)]
pub(crate) struct Memberships {
    lookups: Lookups<u32, Membership>,
    round: AtomicU64,
}

impl Default for Memberships {
    fn default() -> Self {
        Self {
            lookups: Lookups::new(look_up, LOOKUP_TIMEOUT, MAX_USERS),
            round: AtomicU64::new(ROUNDS.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl Memberships {
    /// Looks all groups up again. For reloads of the exports.
    pub(crate) fn ask_again(&self) {
        self.lookups.ask_again();
        self.round.store(ROUNDS.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The user's groups. A thread that serves one user consults the shared cache once a second.
    ///
    /// # Errors
    /// [`NotKnownYet`] while the first lookup is pending.
    pub(crate) fn of(&self, uid: u32) -> Result<Arc<Membership>, NotKnownYet> {
        let (round, now) = (self.round.load(Ordering::Relaxed), Instant::now());
        let cached = LAST_MEMBERSHIP.with_borrow(|cached| {
            let cached = cached
                .as_ref()
                .filter(|cached| (cached.round, cached.uid) == (round, uid) && now < cached.until);
            cached.map(|cached| Arc::clone(&cached.membership))
        });
        if let Some(membership) = cached {
            return Ok(membership);
        }
        let membership = self.lookups.ask(&uid).map_err(|_| NotKnownYet)?;
        let cached = CachedMembership {
            round,
            uid,
            until: now + THREAD_CACHE_TIME,
            membership: Arc::clone(&membership),
        };
        LAST_MEMBERSHIP.set(Some(cached));
        Ok(membership)
    }
}

/// Queries the user database; `None` if it fails.
fn look_up(uid: &u32) -> Option<Membership> {
    let asked = User::from_uid(Uid::from_raw(*uid)).and_then(|user| {
        let Some(user) = user else { return Ok(Membership::default()) };
        let name = CString::new(user.name).map_err(|_| nix::Error::EINVAL)?;
        let groups = getgrouplist(&name, user.gid)?;
        let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).take(MAX_GROUPS).collect();
        Ok(Membership { primary: Some(user.gid.as_raw()), groups })
    });
    asked.inspect_err(|error| tracing::info!(uid, %error, "a user's groups can't be looked up")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: u32) -> Option<Claim<'static>> {
        Some(Claim { uid, gid: uid, gids: &[] })
    }

    #[test]
    fn a_server_of_one_user_serves_that_user_and_root() {
        let local = [
            (TcpOwner::User(1000), claim(1000), true),
            (TcpOwner::User(1000), claim(0), true),
            (TcpOwner::User(0), claim(1000), true),
            (TcpOwner::User(0), claim(0), true),
            // A process of root is believed, and this user isn't served.
            (TcpOwner::User(0), claim(1001), false),
            (TcpOwner::User(1000), claim(1001), false),
            (TcpOwner::User(1001), claim(1000), false),
            (TcpOwner::User(1001), claim(1001), false),
            (TcpOwner::Unknown, claim(1000), false),
            (TcpOwner::User(1000), None, false),
            (TcpOwner::Remote, claim(1000), true),
            (TcpOwner::Remote, claim(0), true),
            (TcpOwner::Remote, claim(1001), false),
            (TcpOwner::Remote, None, false),
        ];
        for (owner, claim, served) in local {
            assert_eq!(is_served_as(1000, owner, claim), served, "{owner:?} claims {claim:?}");
        }
    }

    #[test]
    fn an_ordinary_process_claims_itself_only() {
        for (owner, uid, own) in [
            (TcpOwner::Remote, 1000, true),
            (TcpOwner::User(0), 1000, true),
            (TcpOwner::User(1000), 1000, true),
            (TcpOwner::User(1000), 0, false),
            (TcpOwner::User(1000), 1001, false),
            (TcpOwner::Unknown, 1000, false),
            (TcpOwner::Unknown, u32::MAX, false),
        ] {
            assert_eq!(is_own_claim(owner, uid), own, "{owner:?} claims {uid}");
        }
    }

    #[test]
    fn groups_are_those_of_the_database_whatever_is_claimed() {
        let known = Membership { primary: Some(100), groups: vec![100, 27] };
        let of = |membership: &Membership, gid| {
            let claim = membership.of(Claim { uid: 1000, gid, gids: &[0, 4] }, 65534);
            (claim.uid, claim.gid, claim.gids.to_vec())
        };
        assert_eq!(of(&known, 100), (1000, 100, vec![100, 27]));
        assert_eq!(of(&known, 27), (1000, 27, vec![100, 27]), "newgrp(1)");
        assert_eq!(of(&known, 0), (1000, 100, vec![100, 27]));
        assert_eq!(of(&Membership::default(), 1000), (1000, 65534, vec![]), "a user without an entry");
    }

    #[test]
    fn root_is_in_roots_group_and_a_user_without_an_entry_in_none() {
        let memberships = Memberships::default();
        let root = memberships.of(0).unwrap();
        assert_eq!(root.primary, Some(0));
        assert!(root.groups.contains(&0));
        assert_eq!(*memberships.of(u32::MAX - 7).unwrap(), Membership::default());
        let again = memberships.of(0).unwrap();
        assert_eq!(again, root);
        memberships.ask_again();
        assert_eq!(memberships.of(0).unwrap(), root);
    }
}
