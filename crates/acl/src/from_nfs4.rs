//! An NFSv4 list as POSIX lists that allow no more.
//!
//! Entries are processed in order. Each class collects the permissions that are allowed and denied, the first
//! entry deciding. An entry applies to all classes that a process may be in at the same time: a member of a
//! denied group may be the owner or a named user. An ALLOW entry counts if it has all rights of the POSIX
//! permission, a DENY entry if it has any of them.

use std::collections::BTreeMap;

use proto::nfs4::ACE_INHERIT_ONLY;
use sys::{PosixAcl, PosixAcls};

use crate::ace::{Ace, INHERITED, NoCounterpart, Who, rights_of};

/// The POSIX lists for the NFSv4 list of a file or a directory.
///
/// # Errors
/// [`NoCounterpart`] for inheritance that POSIX lists lack: from a file, by files only, by directories only,
/// or by direct children only.
pub fn from_nfs4(aces: &[Ace], directory: bool) -> Result<PosixAcls, NoCounterpart> {
    let (mut access, mut inherited) = (Classes::default(), None::<Classes>);
    for ace in aces {
        match ace.flags {
            0 => access.apply(ace, directory),
            flags if directory && flags & !ACE_INHERIT_ONLY == INHERITED => {
                inherited.get_or_insert_default().apply(ace, directory);
                if flags & ACE_INHERIT_ONLY == 0 {
                    access.apply(ace, directory);
                }
            }
            _ => return Err(NoCounterpart),
        }
    }
    Ok(PosixAcls { access: access.list(), default: inherited.map(Classes::list) })
}

/// The permissions that a class has been allowed and denied so far.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    allowed: u8,
    denied: u8,
}

#[derive(Debug, Default)]
struct Classes {
    owner: Class,
    users: BTreeMap<u32, Class>,
    group: Class,
    groups: BTreeMap<u32, Class>,
    other: Class,
    /// What users and groups start with that a later entry names.
    unnamed: Class,
}

impl Class {
    fn decide(&mut self, allows: bool, permissions: u8) {
        if allows {
            self.allowed |= permissions & !self.denied;
        } else {
            self.denied |= permissions & !self.allowed;
        }
    }
}

impl Classes {
    fn apply(&mut self, ace: &Ace, directory: bool) {
        let counts =
            |right: u32| if ace.allows { ace.rights & right == right } else { ace.rights & right != 0 };
        let permissions = rights_of(directory)
            .into_iter()
            .filter(|(_, right)| counts(*right))
            .fold(0, |permissions, (bit, _)| permissions | bit);
        let allows = ace.allows;
        match ace.who {
            Who::Owner => self.owner.decide(allows, permissions),
            Who::User(uid) => {
                let unnamed = self.unnamed;
                self.users.entry(uid).or_insert(unnamed).decide(allows, permissions);
                if !allows {
                    self.owner.decide(allows, permissions);
                }
            }
            Who::Group if allows => self.group.decide(allows, permissions),
            Who::NamedGroup(gid) if allows => {
                let unnamed = self.unnamed;
                self.groups.entry(gid).or_insert(unnamed).decide(allows, permissions);
            }
            Who::Group => self.all_but_other(permissions),
            Who::NamedGroup(gid) => {
                let unnamed = self.unnamed;
                self.groups.entry(gid).or_insert(unnamed);
                self.all_but_other(permissions);
            }
            Who::Everyone => {
                self.each(|class| class.decide(allows, permissions));
                self.other.decide(allows, permissions);
            }
        }
    }

    /// Denies `permissions` to every class whose members may be in a group: all but the others.
    fn all_but_other(&mut self, permissions: u8) {
        self.each(|class| class.decide(false, permissions));
    }

    fn each(&mut self, mut with: impl FnMut(&mut Class)) {
        with(&mut self.owner);
        with(&mut self.group);
        with(&mut self.unnamed);
        self.users.values_mut().for_each(&mut with);
        self.groups.values_mut().for_each(&mut with);
    }

    fn list(self) -> PosixAcl {
        let allowed = |classes: BTreeMap<u32, Class>| -> Vec<(u32, u8)> {
            classes.into_iter().map(|(id, class)| (id, class.allowed)).collect()
        };
        let (users, groups) = (allowed(self.users), allowed(self.groups));
        let named = users.iter().chain(&groups).fold(self.group.allowed, |all, (_, some)| all | some);
        let mask = (!users.is_empty() || !groups.is_empty()).then_some(named);
        PosixAcl {
            owner: self.owner.allowed,
            users,
            group: self.group.allowed,
            groups,
            mask,
            other: self.other.allowed,
        }
    }
}
