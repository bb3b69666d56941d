//! An NFSv4 list as the POSIX lists that mean the same.
//!
//! For each right, the first entry that names it decides for each subject: the owner, a named user, a group,
//! others. That is the meaning of a POSIX list if it doesn't depend on what else a process is. An entry for a
//! user or a group in front of the owner's decision must not decide otherwise, because the owner may be that
//! user or in that group, and likewise for the groups of named users. A process in several groups has what
//! any of them has, so a group that is denied a right must come behind those that are allowed it.

use std::collections::BTreeMap;

use proto::nfs4::{ACE_DELETE_CHILD, ACE_INHERIT_ONLY};
use sys::{PosixAcl, PosixAcls};

use crate::ace::{Ace, INHERITED, NoCounterpart, Who, rights_of};

/// `ACE4_INHERITED_ACE`: says where an entry came from.
const FROM_PARENT: u32 = 0x80;

/// The POSIX lists that mean the same as the NFSv4 list of a file or a directory. Rights that no POSIX
/// permission stands for don't count, and neither does the right to delete from a directory if no entry names
/// it.
///
/// # Errors
/// [`NoCounterpart`] if there are none.
pub fn same_as_nfs4(aces: &[Ace], directory: bool) -> Result<PosixAcls, NoCounterpart> {
    let (mut access, mut inherited) = (Vec::new(), Vec::new());
    for ace in aces {
        let flags = ace.flags & !FROM_PARENT;
        let is_inherited = directory && flags & !ACE_INHERIT_ONLY == INHERITED;
        if flags != 0 && !is_inherited {
            return Err(NoCounterpart);
        }
        if flags & ACE_INHERIT_ONLY == 0 {
            access.push(ace);
        }
        if is_inherited {
            inherited.push(ace);
        }
    }
    let default = if inherited.is_empty() { None } else { Some(list(&inherited, directory)?) };
    Ok(PosixAcls { access: list(&access, directory)?, default })
}

/// Who has a right.
#[derive(Debug, PartialEq, Eq)]
struct Holders {
    owner: bool,
    users: BTreeMap<u32, bool>,
    group: bool,
    groups: BTreeMap<u32, bool>,
    other: bool,
}

fn list(aces: &[&Ace], directory: bool) -> Result<PosixAcl, NoCounterpart> {
    let named = |right: u32| aces.iter().any(|ace| ace.rights & right != 0);
    let mut acl = PosixAcl { mask: None, ..PosixAcl::of_mode(0) };
    let (mut users, mut groups) = (BTreeMap::<u32, u8>::new(), BTreeMap::<u32, u8>::new());
    for (bit, rights) in rights_of(directory) {
        let each = (0..u32::BITS).map(|shift| 1 << shift).filter(|right| rights & right != 0);
        let mut all = None;
        for right in each.filter(|right| *right != ACE_DELETE_CHILD || named(*right)) {
            let holders = holders(aces, right)?;
            if all.as_ref().is_some_and(|all| *all != holders) {
                return Err(NoCounterpart);
            }
            all = Some(holders);
        }
        let Some(all) = all else { continue };
        let permission = |has: bool| if has { bit } else { 0 };
        acl.owner |= permission(all.owner);
        acl.group |= permission(all.group);
        acl.other |= permission(all.other);
        all.users.into_iter().for_each(|(uid, has)| *users.entry(uid).or_default() |= permission(has));
        all.groups.into_iter().for_each(|(gid, has)| *groups.entry(gid).or_default() |= permission(has));
    }
    (acl.users, acl.groups) = (users.into_iter().collect(), groups.into_iter().collect());
    if acl.has_names() {
        let limited = acl.users.iter().chain(&acl.groups).map(|(_, permissions)| permissions);
        acl.mask = Some(limited.fold(acl.group, |all, permissions| all | permissions));
    }
    Ok(acl)
}

/// Whether entries have allowed and denied a right.
#[derive(Debug, Clone, Copy, Default)]
struct SeenDecisions {
    allowed: bool,
    denied: bool,
}

impl SeenDecisions {
    fn note(&mut self, allows: bool) {
        self.allowed |= allows;
        self.denied |= !allows;
    }

    /// Whether a decision behind these entries is the same for processes that they concern.
    fn agrees(self, allows: bool) -> bool {
        if allows { !self.denied } else { !self.allowed }
    }
}

fn holders(aces: &[&Ace], right: u32) -> Result<Holders, NoCounterpart> {
    let (mut owner, mut group) = (None, None);
    let (mut users, mut groups) = (BTreeMap::new(), BTreeMap::new());
    for ace in aces {
        match ace.who {
            Who::User(uid) => drop(users.insert(uid, None)),
            Who::NamedGroup(gid) => drop(groups.insert(gid, None)),
            Who::Owner | Who::Group | Who::Everyone => {}
        }
    }
    // What may concern the owner, and what may concern a named user.
    let (mut by_any, mut by_groups) = (SeenDecisions::default(), SeenDecisions::default());
    let mut other = false;
    for ace in aces.iter().filter(|ace| ace.rights & right != 0) {
        let undecided = match ace.who {
            Who::Everyone => {
                other = ace.allows;
                break;
            }
            Who::Owner => {
                if owner.is_none() && !by_any.agrees(ace.allows) {
                    return Err(NoCounterpart);
                }
                owner.get_or_insert(ace.allows);
                continue;
            }
            Who::User(uid) => users.entry(uid).or_default(),
            Who::Group => &mut group,
            Who::NamedGroup(gid) => groups.entry(gid).or_default(),
        };
        if undecided.is_some() {
            continue;
        }
        *undecided = Some(ace.allows);
        if let Who::User(_) = ace.who {
            if !by_groups.agrees(ace.allows) {
                return Err(NoCounterpart);
            }
        } else {
            if ace.allows && by_groups.denied {
                return Err(NoCounterpart);
            }
            by_groups.note(ace.allows);
        }
        by_any.note(ace.allows);
    }
    let is_open = |subjects: &BTreeMap<u32, Option<bool>>| subjects.values().any(Option::is_none);
    let groups_left = group.is_none() || is_open(&groups);
    if owner.is_none() && !by_any.agrees(other)
        || is_open(&users) && !by_groups.agrees(other)
        || groups_left && other && by_groups.denied
    {
        return Err(NoCounterpart);
    }
    let decided = |subjects: BTreeMap<u32, Option<bool>>| {
        subjects.into_iter().map(|(id, has)| (id, has.unwrap_or(other))).collect()
    };
    Ok(Holders {
        owner: owner.unwrap_or(other),
        users: decided(users),
        group: group.unwrap_or(other),
        groups: decided(groups),
        other,
    })
}
