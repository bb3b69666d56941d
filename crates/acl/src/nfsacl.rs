//! POSIX lists in NFSACL.

use proto::nfsacl::{Aclent, CLASS_OBJ, DEFAULT, GROUP, GROUP_OBJ, OTHER_OBJ, USER, USER_OBJ};
use sys::PosixAcl;

/// The entries are no list: one is missing, occurs twice, or has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAList;

/// A list's entries; `flag` is set in each tag. There is always a mask: Solaris requires one, and Linux
/// treats a mask equal to the group's entry as none.
#[must_use]
pub fn entries(acl: &PosixAcl, flag: u32) -> Vec<Aclent> {
    let entry = |tag, id, perm: u8| Aclent { tag: tag | flag, id, perm: perm.into() };
    let mut entries = Vec::with_capacity(acl.entries() + 1);
    entries.push(entry(USER_OBJ, 0, acl.owner));
    entries.extend(acl.users.iter().map(|(id, perm)| entry(USER, *id, *perm)));
    entries.push(entry(GROUP_OBJ, 0, acl.group));
    entries.extend(acl.groups.iter().map(|(id, perm)| entry(GROUP, *id, *perm)));
    entries.push(entry(CLASS_OBJ, 0, acl.mask.unwrap_or(acl.group)));
    entries.push(entry(OTHER_OBJ, 0, acl.other));
    entries
}

/// The list with these entries; `None` without any. A mask that equals the group's entry and limits no named
/// user or group isn't part of it.
///
/// # Errors
/// [`NotAList`].
pub fn list(entries: &[Aclent]) -> Result<Option<PosixAcl>, NotAList> {
    if entries.is_empty() {
        return Ok(None);
    }
    let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for entry in entries {
        let permissions = u8::try_from(entry.perm).ok().filter(|perm| *perm <= 7).ok_or(NotAList)?;
        let single = match entry.tag & !DEFAULT {
            USER => {
                users.push((entry.id, permissions));
                continue;
            }
            GROUP => {
                groups.push((entry.id, permissions));
                continue;
            }
            USER_OBJ => &mut owner,
            GROUP_OBJ => &mut group,
            CLASS_OBJ => &mut mask,
            OTHER_OBJ => &mut other,
            _ => return Err(NotAList),
        };
        if single.replace(permissions).is_some() {
            return Err(NotAList);
        }
    }
    let (owner, group) = (owner.ok_or(NotAList)?, group.ok_or(NotAList)?);
    let other = other.ok_or(NotAList)?;
    if users.is_empty() && groups.is_empty() && mask == Some(group) {
        mask = None;
    }
    let list = PosixAcl { owner, users, group, groups, mask, other };
    if list.is_valid() { Ok(Some(list)) } else { Err(NotAList) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_round_trip() {
        let lists = [
            PosixAcl::of_mode(0o751),
            PosixAcl {
                owner: 7,
                users: vec![(1000, 0), (1001, 5)],
                group: 5,
                groups: vec![(50, 1)],
                mask: Some(5),
                other: 5,
            },
            PosixAcl { owner: 7, users: vec![], group: 7, groups: vec![], mask: Some(5), other: 0 },
        ];
        for acl in lists {
            for flag in [0, DEFAULT] {
                let entries = entries(&acl, flag);
                assert!(entries.iter().all(|entry| entry.tag & DEFAULT == flag));
                assert_eq!(list(&entries), Ok(Some(acl.clone())));
                for without in 0..entries.len() {
                    let mut fewer = entries.clone();
                    let gone = fewer.remove(without);
                    let needed = gone.tag & (USER | GROUP) == 0 && (gone.tag & CLASS_OBJ == 0);
                    assert!(!needed || list(&fewer).is_err(), "without {gone:?}");
                }
            }
        }
        assert_eq!(list(&[]), Ok(None));
        assert!(list(&[Aclent { tag: 0x40, id: 0, perm: 0 }]).is_err());
        assert!(list(&[Aclent { tag: USER_OBJ, id: 0, perm: 8 }]).is_err());
    }
}
