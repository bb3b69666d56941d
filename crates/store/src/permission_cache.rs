//! The kernel's answers about users' permissions for one file, valid while its ctime stays the same.

use crate::attributes::Timestamp;

/// The answers for one ctime.
#[derive(Debug, Default)]
pub(crate) struct PermissionCache {
    /// The ctime that all answers are for.
    ctime: Timestamp,
    entries: [UserPermissions; 4],
    next: usize,
}

/// One user's permissions, as far as known: bits of `rustix::fs::Access`.
#[derive(Clone, Copy, Debug, Default)]
struct UserPermissions {
    fingerprint: u64,
    known: u32,
    allowed: u32,
}

impl PermissionCache {
    /// Whether the kernel granted `bit` to the user; `None` when unknown.
    pub fn get(&self, ctime: Timestamp, fingerprint: u64, bit: u32) -> Option<bool> {
        if self.ctime != ctime {
            return None;
        }
        let decision = self.entries.iter().find(|entry| entry.fingerprint == fingerprint)?;
        (decision.known & bit != 0).then_some(decision.allowed & bit != 0)
    }

    pub fn put(&mut self, ctime: Timestamp, fingerprint: u64, bit: u32, allowed: bool) {
        if self.ctime != ctime {
            *self = PermissionCache { ctime, ..PermissionCache::default() };
        }
        let index =
            self.entries.iter().position(|entry| entry.fingerprint == fingerprint).unwrap_or_else(|| {
                let index = self.next;
                self.next = (index + 1) % self.entries.len();
                self.entries[index] = UserPermissions { fingerprint, known: 0, allowed: 0 };
                index
            });
        let entry = &mut self.entries[index];
        entry.known |= bit;
        if allowed {
            entry.allowed |= bit;
        } else {
            entry.allowed &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_permission_is_for_one_user_and_ctime() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 1 };
        let mut permissions = PermissionCache::default();
        permissions.put(at(5), 1, 4, true);
        permissions.put(at(5), 1, 2, false);
        assert_eq!(permissions.get(at(5), 1, 4), Some(true));
        assert_eq!(permissions.get(at(5), 1, 2), Some(false));
        assert_eq!(permissions.get(at(5), 1, 1), None);
        assert_eq!(permissions.get(at(5), 2, 4), None);
        assert_eq!(permissions.get(at(6), 1, 4), None);
        for user in 2..6 {
            permissions.put(at(5), user, 4, true);
        }
        assert_eq!(permissions.get(at(5), 1, 4), None, "the oldest made room");
        permissions.put(at(6), 9, 4, true);
        assert_eq!(permissions.get(at(6), 5, 4), None, "another ctime, nothing is known");
    }
}
