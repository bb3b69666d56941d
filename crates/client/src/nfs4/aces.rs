//! NFSv4 access control lists (RFC 8881 section 6.2) in the form of POSIX ones: the permissions of each class
//! of users that the list names.

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

/// The classes with their permissions. A class has the permissions that its own entries and those for
/// everyone allow, each decided by the first entry that names it. Entries that are for inheritance alone
/// don't count.
pub(super) fn entries(acl: &Acl4<'_>) -> Vec<AclEntry> {
    let aces: Vec<_> = acl
        .0
        .iter()
        .filter(|ace| ace.flag & ACE_INHERIT_ONLY == 0 && matches!(ace.kind, ACE_ALLOWED | ACE_DENIED))
        .map(|ace| (class(ace), ace))
        .collect();
    let mut classes = vec![(OWNER, 0), (GROUP, 0), (OTHER, 0)];
    for (class, _) in &aces {
        if !classes.contains(class) {
            classes.push(*class);
        }
    }
    let permissions = |of: (u32, u32)| {
        let allows = |right: u32| {
            let first = aces
                .iter()
                .find(|(class, ace)| (*class == of || class.0 == OTHER) && ace.access_mask & right != 0);
            first.is_some_and(|(_, ace)| ace.kind == ACE_ALLOWED)
        };
        RIGHTS.iter().filter(|(_, right)| allows(*right)).fold(0, |all, (permission, _)| all | permission)
    };
    classes.into_iter().map(|(tag, id)| AclEntry { tag, id, permissions: permissions((tag, id)) }).collect()
}

#[cfg(test)]
mod tests {
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
}
