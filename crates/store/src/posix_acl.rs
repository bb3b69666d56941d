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

impl PosixAcl {
    /// The list that is equivalent to a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        let class = |shift: u32| (mode >> shift & 7) as u8;
        Self { owner: class(6), users: vec![], group: class(3), groups: vec![], mask: None, other: class(0) }
    }

    /// Parses the kernel's representation; `None` for unknown tags, and for duplicates of entries that may
    /// occur only once.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        if u32::from_le_bytes(*version) != VERSION || !rest.len().is_multiple_of(8) {
            return None;
        }
        let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
        let (mut users, mut groups) = (Vec::new(), Vec::new());
        for entry in rest.chunks_exact(8) {
            let tag = u16::from_le_bytes([entry[0], entry[1]]);
            let permissions = entry[2] & 7;
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
        Some(Self { owner: owner?, users, group: group?, groups, mask, other: other? })
    }

    /// The kernel's representation.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
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
    }

    #[test]
    fn a_mode_is_an_acl_of_three_entries() {
        let acl = PosixAcl::of_mode(0o4751);
        assert_eq!((acl.owner, acl.group, acl.other, acl.mask), (7, 5, 1, None));
    }
}
