//! A POSIX list as an NFSv4 list.
//!
//! In a POSIX list only the first class counts that a process belongs to (owner, named user, any of its
//! groups, others). An NFSv4 list is read entry by entry until every right is decided. So each class is
//! denied first what a later one would allow it. Groups come together, ALLOW entries before DENY entries,
//! because a process may be in several.

use proto::nfs4::{
    ACE_INHERIT_ONLY, ACE_READ_ACL, ACE_READ_ATTRIBUTES, ACE_SYNCHRONIZE, ACE_WRITE_ACL, ACE_WRITE_ATTRIBUTES,
};
use sys::{PosixAcl, PosixAcls};

use crate::ace::{Ace, INHERITED, Who, rights_of};

/// What Linux allows everyone who can reach the file.
const ANYBODY: u32 = ACE_READ_ATTRIBUTES | ACE_READ_ACL | ACE_SYNCHRONIZE;
/// What it allows the owner besides.
const OWNER: u32 = ACE_WRITE_ATTRIBUTES | ACE_WRITE_ACL;

/// The NFSv4 list of a file's POSIX lists. Permissions that a mask takes away aren't in it.
#[must_use]
pub fn to_nfs4(acls: &PosixAcls, directory: bool) -> Vec<Ace> {
    let mut list = AceList { aces: Vec::new(), flags: 0, directory };
    list.put(&acls.access);
    if let Some(default) = &acls.default {
        list.flags = INHERITED | ACE_INHERIT_ONLY;
        list.put(default);
    }
    list.aces
}

struct AceList {
    aces: Vec<Ace>,
    flags: u32,
    directory: bool,
}

impl AceList {
    fn put(&mut self, acl: &PosixAcl) {
        let most = acl.mask.unwrap_or(7);
        let group = acl.group & most;
        let of = |entries: &[(u32, u8)]| -> Vec<(u32, u8)> {
            entries.iter().map(|(id, permissions)| (*id, permissions & most)).collect()
        };
        let (users, groups) = (of(&acl.users), of(&acl.groups));
        let any = |entries: &[(u32, u8)]| entries.iter().fold(0, |any, (_, permissions)| any | permissions);
        let by_group = group | any(&groups) | acl.other;
        self.deny(Who::Owner, acl.owner, any(&users) | by_group);
        self.allow(Who::Owner, acl.owner, OWNER);
        for (uid, permissions) in &users {
            self.deny(Who::User(*uid), *permissions, by_group);
            self.allow(Who::User(*uid), *permissions, 0);
        }
        self.allow(Who::Group, group, 0);
        groups.iter().for_each(|(gid, permissions)| self.allow(Who::NamedGroup(*gid), *permissions, 0));
        self.deny(Who::Group, group, acl.other);
        groups
            .iter()
            .for_each(|(gid, permissions)| self.deny(Who::NamedGroup(*gid), *permissions, acl.other));
        self.allow(Who::Everyone, acl.other, 0);
    }

    fn allow(&mut self, who: Who, permissions: u8, more: u32) {
        self.push(true, who, permissions, ANYBODY | more);
    }

    /// Denies the permissions of `later` classes that aren't in `permissions`.
    fn deny(&mut self, who: Who, permissions: u8, later: u8) {
        if later & !permissions != 0 {
            self.push(false, who, later & !permissions, 0);
        }
    }

    fn push(&mut self, allows: bool, who: Who, permissions: u8, more: u32) {
        let named = rights_of(self.directory).into_iter().filter(|(bit, _)| permissions & bit != 0);
        let rights = named.fold(more, |rights, (_, right)| rights | right);
        self.aces.push(Ace { allows, flags: self.flags, rights, who });
    }
}
