//! The owners of opens and locks, as the server knows them.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::operations::LockOwner;
use crate::user::User;

/// An open owner: a user. A server merges the opens of one owner on one file.
#[derive(Debug, Clone)]
pub(in crate::nfs4) struct OpenOwner(Arc<User>);

impl OpenOwner {
    pub(in crate::nfs4) fn new(user: &User) -> Self {
        Self(Arc::new(User { wire: user.wire.clone(), lane: None, ids: user.ids.clone(), umask: 0 }))
    }

    /// The user as whom requests about the opens are sent.
    pub(in crate::nfs4) fn user(&self) -> &User {
        &self.0
    }

    /// `state_owner4.owner`.
    pub(in crate::nfs4) fn name(&self) -> Vec<u8> {
        [b"user", &*self.0.ids].concat()
    }
}

impl PartialEq for OpenOwner {
    fn eq(&self, other: &Self) -> bool {
        self.0.ids == other.0.ids
    }
}

impl Eq for OpenOwner {}

impl PartialOrd for OpenOwner {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpenOwner {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.ids.cmp(&other.0.ids)
    }
}

/// A lock owner, and the open owner through whose open it locked a file first. Equal lock owners have the
/// same number.
#[derive(Debug, Clone)]
pub(in crate::nfs4) struct OwnerOfLocks {
    pub(in crate::nfs4) owner: LockOwner,
    pub(in crate::nfs4) through: OpenOwner,
}

impl OwnerOfLocks {
    /// `state_owner4.owner`.
    pub(in crate::nfs4) fn name(&self) -> Vec<u8> {
        lock_owner_name(self.owner)
    }
}

/// `state_owner4.owner` of a lock owner.
pub(in crate::nfs4) fn lock_owner_name(owner: LockOwner) -> Vec<u8> {
    [&b"lock"[..], &owner.0.to_be_bytes()].concat()
}

/// The lock owner with this name.
pub(in crate::nfs4) fn lock_owner_of(name: &[u8]) -> Option<LockOwner> {
    let number = name.strip_prefix(b"lock")?.try_into().ok()?;
    Some(LockOwner(u64::from_be_bytes(number)))
}

impl PartialEq for OwnerOfLocks {
    fn eq(&self, other: &Self) -> bool {
        self.owner == other.owner
    }
}

impl Eq for OwnerOfLocks {}

impl PartialOrd for OwnerOfLocks {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OwnerOfLocks {
    fn cmp(&self, other: &Self) -> Ordering {
        self.owner.cmp(&other.owner)
    }
}
