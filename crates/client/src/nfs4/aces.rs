//! NFSv4 access control lists (RFC 8881 section 6.2) in the form of POSIX ones: the permissions of each class
//! of users that the list names.

use std::collections::HashMap;

use proto::nfs4::{
    ACE_ALLOWED, ACE_DENIED, ACE_EXECUTE, ACE_IDENTIFIER_GROUP, ACE_INHERIT_ONLY, ACE_READ_DATA,
    ACE_WRITE_DATA, Acl4, Nfsace4,
};

use super::owners::{OwnerKind, number};
use crate::types::AclEntry;

/// The attribute's value.
pub(super) type AclAttribute<'a> = Acl4<'a>;

/// NFSACL's tags.
const OWNER: u32 = 0x01;
const USER: u32 = 0x02;
const GROUP: u32 = 0x04;
const NAMED_GROUP: u32 = 0x08;
const OTHER: u32 = 0x20;

/// The permissions that the list decides for each class, each with the right that stands for it.
const RIGHTS: [(u32, u32); 3] = [(4, ACE_READ_DATA), (2, ACE_WRITE_DATA), (1, ACE_EXECUTE)];

/// The class of an entry: its tag, and the number of a named user or group.
fn class(ace: &Nfsace4<'_>) -> (u32, u32) {
    match ace.who.0 {
        b"OWNER@" => (OWNER, 0),
        b"GROUP@" => (GROUP, 0),
        b"EVERYONE@" => (OTHER, 0),
        _ if ace.flag & ACE_IDENTIFIER_GROUP != 0 => (NAMED_GROUP, number(OwnerKind::Group, ace.who.0)),
        _ => (USER, number(OwnerKind::User, ace.who.0)),
    }
}

/// The rights that entries have decided, and those of them that were allowed.
#[derive(Debug, Clone, Copy, Default)]
struct Decided {
    decided: u32,
    allowed: u32,
}

impl Decided {
    /// An entry decides the rights that no earlier one has.
    fn apply(&mut self, ace: &Nfsace4<'_>) {
        let new = ace.access_mask & !self.decided;
        self.decided |= new;
        if ace.kind == ACE_ALLOWED {
            self.allowed |= new;
        }
    }

    fn permissions(self) -> u32 {
        RIGHTS.iter().filter(|(_, right)| self.allowed & right != 0).fold(0, |all, (bit, _)| all | bit)
    }
}

/// The classes with their permissions. A class has the permissions that its own entries and those for
/// everyone allow, each decided by the first entry that names it. Entries that are for inheritance alone
/// don't count.
pub(super) fn entries(acl: &Acl4<'_>) -> Vec<AclEntry> {
    const ALL: u32 = ACE_READ_DATA | ACE_WRITE_DATA | ACE_EXECUTE;
    let mut everyone = Decided::default();
    let mut classes = vec![((OWNER, 0), everyone), ((GROUP, 0), everyone), ((OTHER, 0), everyone)];
    let mut places: HashMap<_, _> = classes.iter().map(|(class, _)| *class).zip(0..).collect();
    let counts =
        |ace: &&Nfsace4<'_>| ace.flag & ACE_INHERIT_ONLY == 0 && matches!(ace.kind, ACE_ALLOWED | ACE_DENIED);
    for ace in acl.0.iter().filter(counts) {
        let class = class(ace);
        if class.0 == OTHER {
            // It decides something new three times at most.
            if ace.access_mask & ALL & !everyone.decided != 0 {
                everyone.apply(ace);
                classes.iter_mut().for_each(|(_, decided)| decided.apply(ace));
            }
            continue;
        }
        let place = *places.entry(class).or_insert_with(|| {
            classes.push((class, everyone));
            classes.len() - 1
        });
        classes[place].1.apply(ace);
    }
    let entry = |((tag, id), decided): ((u32, u32), Decided)| AclEntry {
        tag,
        id,
        permissions: decided.permissions(),
    };
    classes.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use proto::nfs4::MAX_ACES;
    use xdr::{Array, Opaque};

    use super::*;

    fn ace(kind: u32, flag: u32, who: &[u8], access_mask: u32) -> Nfsace4<'_> {
        Nfsace4 { kind, flag, access_mask, who: Opaque(who) }
    }

    #[test]
    fn each_class_has_what_the_first_entry_that_names_a_right_decides() {
        let acl = Array(vec![
            ace(ACE_ALLOWED, 0, b"OWNER@", ACE_READ_DATA | ACE_WRITE_DATA | ACE_EXECUTE),
            ace(ACE_DENIED, 0, b"1000", ACE_EXECUTE),
            ace(ACE_ALLOWED, 0, b"1000", ACE_READ_DATA),
            ace(ACE_ALLOWED, ACE_IDENTIFIER_GROUP, b"50", ACE_WRITE_DATA),
            ace(ACE_ALLOWED, ACE_INHERIT_ONLY, b"EVERYONE@", ACE_WRITE_DATA),
            ace(ACE_ALLOWED, 0, b"EVERYONE@", ACE_EXECUTE),
        ]);
        let entry = |tag, id, permissions| AclEntry { tag, id, permissions };
        assert_eq!(
            entries(&acl),
            [
                entry(OWNER, 0, 7),
                entry(GROUP, 0, 1),
                entry(OTHER, 0, 1),
                entry(USER, 1000, 4),
                entry(NAMED_GROUP, 50, 3)
            ]
        );
    }

    /// A list as long as a reply can have, of users who are all different.
    #[test]
    fn a_long_list_takes_no_longer_than_its_length() {
        let names: Vec<String> = (0..MAX_ACES as u32).map(|id| (id + 1).to_string()).collect();
        let mut aces: Vec<_> =
            names.iter().map(|name| ace(ACE_ALLOWED, 0, name.as_bytes(), ACE_READ_DATA)).collect();
        aces.extend(names.iter().map(|_| ace(ACE_DENIED, 0, b"EVERYONE@", u32::MAX)));
        let entries = entries(&Array(aces));
        assert_eq!(entries.len(), 3 + MAX_ACES);
        assert!(entries[3..].iter().all(|entry| entry.permissions == 4));
        assert!(entries[..3].iter().all(|entry| entry.permissions == 0));
    }
}
