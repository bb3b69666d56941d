//! An NFSv4 list as POSIX lists that let nobody do more.
//!
//! Entries are gone through in their order, and for every class it is kept what has been allowed and what
//! denied, whatever came first. An entry concerns all classes that a process may be in besides: who is denied
//! as a group's member may be the owner or a named user; what everybody is allowed, everybody is. An
//! allowance counts when it has all rights that the POSIX permission is, a denial when it has any of them.

use std::collections::BTreeMap;

use proto::nfs4::{ACE_INHERIT_ONLY, Nfsstat4};
use store::PosixAcl;

use super::{Ace, INHERITED, Pair, Who, rights_of};
use crate::nfs4::Result;

/// The POSIX lists of an NFSv4 list for a file or a directory.
///
/// # Errors
/// `Attrnotsupp` for inheritance that POSIX lists haven't: of files, and entries that only files or only
/// directories inherit, or only directly.
pub(in crate::programs::nfs4) fn from_nfs4(aces: &[Ace], directory: bool) -> Result<Pair> {
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
            _ => return Err(Nfsstat4::Attrnotsupp),
        }
    }
    Ok((access.list(), inherited.map(|classes| classes.list())))
}

/// What one class has been allowed and denied so far.
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
    /// What holds for whoever is named later.
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

    /// Denies `permissions` to whoever may be in a group: anybody that the list has a class for, but the
    /// others.
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
