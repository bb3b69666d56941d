//! The space that quotas leave for a file or directory.
//!
//! Data in a file is charged to its owner and group. New entries of a directory are charged to the user who
//! creates them, and to the directory's group if they inherit it. Users see their own quota and those of
//! their groups, root all of them.

use std::time::{SystemTime, UNIX_EPOCH};

use ::sys::quota::{Quota, QuotaOwner, is_unavailable, quota};

use super::context::UserContext;
use crate::attributes::{Attributes, FileKind};
use crate::error::Result;
use crate::node::Node;
use user_ids::Identity;

/// The set-group-ID bit.
const SET_GROUP: u32 = 0o2000;

/// The space that a quota leaves, in bytes (RFC 8881 sections 5.8.2.28 to 5.8.2.30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaAvailable {
    /// What can be allocated before requests are refused; `None`: unlimited.
    pub hard: Option<u64>,
    /// What can be allocated before the user should be warned; `None`: unlimited.
    pub soft: Option<u64>,
    /// What is allocated, including all other files charged to the same quota.
    pub used: u64,
}

impl UserContext<'_> {
    /// What the quotas in force leave for `node`: the smaller of the user's and the group's. `None` where
    /// there are none, none that the user may see, or none that the kernel reports (before Linux 5.14).
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn room(&self, node: &Node) -> Result<Option<QuotaAvailable>> {
        let attributes = self.live(node)?.attributes;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut least: Option<QuotaAvailable> = None;
        for holder in charged(&attributes, self.identity()) {
            if !may_know(holder, self.identity()) {
                continue;
            }
            let found = match quota(node.file(), holder) {
                Ok(found) => found.and_then(|quota| left(&quota, now)),
                Err(error) if is_unavailable(error) => None,
                Err(error) => return Err(error.into()),
            };
            least = smaller(least, found);
        }
        Ok(least)
    }
}

/// The user and group that more data in this file or directory would be charged to.
fn charged(to: &Attributes, by: &Identity) -> [QuotaOwner; 2] {
    let (uid, gid) = match to.kind {
        FileKind::Directory if to.mode & SET_GROUP != 0 => (by.uid, to.gid),
        FileKind::Directory => (by.uid, by.gid),
        _ => (to.uid, to.gid),
    };
    [QuotaOwner::User(uid), QuotaOwner::Group(gid)]
}

fn may_know(holder: QuotaOwner, who: &Identity) -> bool {
    who.uid == 0
        || match holder {
            QuotaOwner::User(uid) => who.uid == uid,
            QuotaOwner::Group(gid) => who.gid == gid || who.groups.contains(&gid),
        }
}

/// What a quota leaves at `now` (seconds since 1970); `None` if it limits nothing.
fn left(quota: &Quota, now: u64) -> Option<QuotaAvailable> {
    let of = |limit: u64| (limit > 0).then(|| limit.saturating_sub(quota.used));
    let over = quota.grace_end > 0 && now > quota.grace_end;
    let hard = if over { Some(0) } else { of(quota.hard) };
    let soft = of(quota.soft).or(hard);
    soft.map(|_| QuotaAvailable { hard, soft, used: quota.used })
}

/// The one that is exhausted first.
fn smaller(one: Option<QuotaAvailable>, other: Option<QuotaAvailable>) -> Option<QuotaAvailable> {
    let room = |room: &QuotaAvailable| (room.hard.unwrap_or(u64::MAX), room.soft.unwrap_or(u64::MAX));
    [one, other].into_iter().flatten().min_by_key(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Identity = Identity { uid: 1000, gid: 100, groups: Vec::new() };

    #[test]
    fn available_space_respects_both_limits() {
        let quota = Quota { hard: 100, soft: 50, used: 60, grace_end: 0 };
        let room = |hard, soft| Some(QuotaAvailable { hard, soft, used: 60 });
        assert_eq!(left(&quota, 9), room(Some(40), Some(0)));
        assert_eq!(left(&Quota { soft: 0, ..quota }, 9), room(Some(40), Some(40)));
        assert_eq!(left(&Quota { hard: 0, soft: 80, ..quota }, 9), room(None, Some(20)));
        assert_eq!(left(&Quota { hard: 0, soft: 0, ..quota }, 9), None);
        assert_eq!(left(&Quota { hard: 10, ..quota }, 9), room(Some(0), Some(0)), "root took more");
        // During and after the grace time of the soft limit.
        for (grace_end, hard) in [(9, 40), (8, 0)] {
            assert_eq!(left(&Quota { grace_end, ..quota }, 9), room(Some(hard), Some(0)));
        }
    }

    #[test]
    fn the_smaller_quota_applies() {
        let room = |hard, soft| Some(QuotaAvailable { hard, soft, used: 1 });
        assert_eq!(smaller(None, None), None);
        assert_eq!(smaller(None, room(None, Some(3))), room(None, Some(3)));
        assert_eq!(smaller(room(Some(5), Some(1)), room(Some(4), Some(4))), room(Some(4), Some(4)));
        assert_eq!(smaller(room(None, Some(1)), room(Some(4), Some(4))), room(Some(4), Some(4)));
        assert_eq!(smaller(room(None, Some(1)), room(None, Some(4))), room(None, Some(1)));
    }

    #[test]
    fn charged_ids_and_visible_quotas() {
        let file = Attributes { uid: 7, gid: 8, kind: FileKind::Regular, ..Attributes::default() };
        let directory = Attributes { kind: FileKind::Directory, ..file };
        let sticky = Attributes { mode: 0o2755, ..directory };
        assert_eq!(charged(&file, &WHO), [QuotaOwner::User(7), QuotaOwner::Group(8)]);
        assert_eq!(charged(&directory, &WHO), [QuotaOwner::User(1000), QuotaOwner::Group(100)]);
        assert_eq!(charged(&sticky, &WHO), [QuotaOwner::User(1000), QuotaOwner::Group(8)]);
        let member = Identity { groups: vec![8], ..WHO };
        assert!(may_know(QuotaOwner::User(1000), &WHO) && may_know(QuotaOwner::Group(100), &WHO));
        assert!(!may_know(QuotaOwner::User(7), &WHO) && !may_know(QuotaOwner::Group(8), &WHO));
        assert!(may_know(QuotaOwner::Group(8), &member));
        let root = Identity { uid: 0, ..WHO };
        assert!(may_know(QuotaOwner::User(7), &root) && may_know(QuotaOwner::Group(8), &root));
    }
}
