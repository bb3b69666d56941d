//! POSIX access control lists (acl(5)), as the kernel keeps them in `system.posix_acl_access` and
//! `system.posix_acl_default`.

/// The version of the layout (`POSIX_ACL_XATTR_VERSION`).
const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// `ACL_UNDEFINED_ID`, in entries without a user or group.
const NOBODY: u32 = u32::MAX;

/// A POSIX access control list. Permissions are 4 to read, 2 to write, 1 to execute or search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PosixAcl {
    /// The owner's permissions.
    pub owner: u8,
    /// Permissions of named users, each at most once.
    pub users: Vec<(u32, u8)>,
    /// The owning group's permissions.
    pub group: u8,
    /// Permissions of named groups, each at most once.
    pub groups: Vec<(u32, u8)>,
    /// Upper bound for `users`, `group` and `groups`; required if either list isn't empty.
    pub mask: Option<u8>,
    /// All other users' permissions.
    pub other: u8,
}

/// The access control lists of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PosixAcls {
    /// Who may do what with the file. Without a list, the one that is equivalent to its mode.
    pub access: PosixAcl,
    /// What new entries of a directory inherit.
    pub default: Option<PosixAcl>,
}

impl PosixAcls {
    /// Those of a file without lists.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        Self { access: PosixAcl::of_mode(mode), default: None }
    }
}

impl PosixAcl {
    /// The list that is equivalent to a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        let class = |shift: u32| (mode >> shift & 7) as u8;
        Self { owner: class(6), users: vec![], group: class(3), groups: vec![], mask: None, other: class(0) }
    }

    /// The permission bits that the list gives a file's mode. The mask, if there is one, is those of the
    /// group.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let class = |permissions: u8, shift: u32| u32::from(permissions & 7) << shift;
        class(self.owner, 6) | class(self.mask.unwrap_or(self.group), 3) | class(self.other, 0)
    }

    /// Whether the list has more than the three entries that a mode stands for.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.mask.is_some() || self.has_names()
    }

    /// Whether the list names users or groups.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Whether all users have all of these permissions by every entry, the mask included.
    #[must_use]
    pub fn permits_all(&self, permissions: u8) -> bool {
        let named = self.users.iter().chain(&self.groups).map(|(_, named)| *named);
        let others = [self.owner, self.group, self.mask.unwrap_or(7), self.other];
        named.chain(others).all(|given| given & permissions == permissions)
    }

    /// Whether the kernel takes the list: it names each user and group once, with an id that one can have,
    /// and has a mask if it names any.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let are_valid = |entries: &[(u32, u8)]| {
            let sorted = sorted(entries);
            sorted.iter().all(|(id, permissions)| *id != NOBODY && *permissions <= 7)
                && sorted.windows(2).all(|pair| pair[0].0 != pair[1].0)
        };
        let are_permissions = [self.owner, self.group, self.mask.unwrap_or(0), self.other];
        are_permissions.iter().all(|permissions| *permissions <= 7)
            && are_valid(&self.users)
            && are_valid(&self.groups)
            && (self.mask.is_some() || !self.has_names())
    }

    /// The number of entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        3 + self.users.len() + self.groups.len() + usize::from(self.mask.is_some())
    }

    /// Parses the kernel's representation; `None` for one that isn't valid.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        if u32::from_le_bytes(*version) != VERSION || !rest.len().is_multiple_of(8) {
            return None;
        }
        let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for entry in rest.chunks_exact(8) {
            let tag = u16::from_le_bytes([entry[0], entry[1]]);
            let permissions = u8::try_from(u16::from_le_bytes([entry[2], entry[3]])).ok()?;
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let single = match tag {
                USER => {
                    users.push((id, permissions));
                    continue;
                }
                GROUP => {
                    groups.push((id, permissions));
                    continue;
                }
                USER_OBJ => &mut owner,
                GROUP_OBJ => &mut group,
                MASK => &mut mask,
                OTHER => &mut other,
                _ => return None,
            };
            if single.replace(permissions).is_some() {
                return None;
            }
        }
        let list = Self { owner: owner?, users, group: group?, groups, mask, other: other? };
        list.is_valid().then_some(list)
    }

    /// The kernel's representation.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, permissions: u8, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(permissions & 7).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        // The kernel requires this order.
        put(USER_OBJ, self.owner, NOBODY);
        sorted(&self.users).into_iter().for_each(|(id, permissions)| put(USER, permissions, id));
        put(GROUP_OBJ, self.group, NOBODY);
        sorted(&self.groups).into_iter().for_each(|(id, permissions)| put(GROUP, permissions, id));
        if let Some(mask) = self.mask {
            put(MASK, mask, NOBODY);
        }
        put(OTHER, self.other, NOBODY);
        bytes
    }
}

fn sorted(entries: &[(u32, u8)]) -> Vec<(u32, u8)> {
    let mut entries = entries.to_vec();
    entries.sort_unstable();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acls_round_trip_in_the_kernels_format() {
        let acl = PosixAcl {
            owner: 7,
            users: vec![(1000, 6), (3, 4)],
            group: 5,
            groups: vec![(50, 1)],
            mask: Some(7),
            other: 0,
        };
        let bytes = acl.to_bytes();
        assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]);
        assert_eq!(bytes[12..20], [2, 0, 4, 0, 3, 0, 0, 0], "ids go up");
        let again = PosixAcl::from_bytes(&bytes).unwrap();
        assert_eq!(again, PosixAcl { users: vec![(3, 4), (1000, 6)], ..acl });
        for length in 0..bytes.len() {
            assert_eq!(PosixAcl::from_bytes(&bytes[..length]), None, "{length}");
        }
        let mut twice = bytes.clone();
        twice.extend_from_slice(&bytes[4..12]);
        assert_eq!(PosixAcl::from_bytes(&twice), None);
        assert_eq!(PosixAcl::from_bytes(&[3, 0, 0, 0]), None);
        for (at, value) in [(0, 1), (4, 3), (4, 0x40), (6, 8), (7, 1), (12, 0x08), (44, 1)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            let said = PosixAcl::from_bytes(&wrong);
            assert!(said.is_none() || at == 12, "{at}: {said:?}");
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_not_valid() {
        let acl = PosixAcl { users: vec![(1, 7)], mask: Some(7), ..PosixAcl::of_mode(0o770) };
        assert!(acl.is_valid());
        assert!(!PosixAcl { mask: None, ..acl.clone() }.is_valid());
        assert!(!PosixAcl { users: vec![(1, 7), (1, 0)], ..acl.clone() }.is_valid());
        assert!(!PosixAcl { groups: vec![(u32::MAX, 0)], ..acl.clone() }.is_valid());
        assert!(!PosixAcl { users: vec![(1, 8)], ..acl.clone() }.is_valid());
        assert!(!PosixAcl { other: 8, ..acl }.is_valid());
    }

    #[test]
    fn everybody_has_what_every_entry_gives() {
        let acl = PosixAcl { users: vec![(1, 5)], mask: Some(5), ..PosixAcl::of_mode(0o755) };
        assert!(acl.permits_all(1) && acl.permits_all(5) && !acl.permits_all(2));
        assert!(!PosixAcl { mask: Some(4), ..acl.clone() }.permits_all(1));
        assert!(!PosixAcl { users: vec![(1, 4)], ..acl }.permits_all(1));
    }

    #[test]
    fn a_mode_is_an_acl_of_three_entries() {
        let acl = PosixAcl::of_mode(0o4751);
        assert_eq!((acl.owner, acl.group, acl.other, acl.mask), (7, 5, 1, None));
        assert!(!acl.is_extended());
        assert_eq!(acl.mode(), 0o751);
        assert_eq!(PosixAcl { mask: Some(4), ..acl }.mode(), 0o741);
    }
}
