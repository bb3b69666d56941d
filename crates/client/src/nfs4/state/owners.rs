//! The owners of opens and locks, as the server knows them.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::operations::LockOwner;
use crate::user::User;

/// An open owner: a user of a session. A server merges the opens of one owner on one file. Those of sessions
/// that share a client stay apart, so that each session has its own opens, and loses only its own locks.
#[derive(Debug, Clone)]
pub(in crate::nfs4) struct OpenOwner(Arc<User>);

impl OpenOwner {
    pub(in crate::nfs4) fn new(user: &User) -> Self {
        Self(Arc::new(User {
            wire: user.wire.clone(),
            lane: None,
            ids: user.ids.clone(),
            umask: 0,
            session: user.session.clone(),
        }))
    }

    /// The user as whom requests about the opens are sent.
    pub(in crate::nfs4) fn user(&self) -> &User {
        &self.0
    }

    /// The number of the user's session.
    pub(in crate::nfs4) fn session(&self) -> u64 {
        self.0.session.number
    }

    /// What equal owners have the same of.
    fn key(&self) -> (u64, &[u8]) {
        (self.session(), &self.0.ids)
    }

    /// `state_owner4.owner`.
    pub(in crate::nfs4) fn name(&self) -> Vec<u8> {
        [b"user", &self.session().to_be_bytes()[..], &self.0.ids].concat()
    }
}

impl PartialEq for OpenOwner {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
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
        self.key().cmp(&other.key())
    }
}

/// A lock owner of a session, and the open owner through whose open it locked a file first. Equal lock owners
/// have the same session and number.
#[derive(Debug, Clone)]
pub(in crate::nfs4) struct OwnerOfLocks {
    pub(in crate::nfs4) owner: LockOwner,
    pub(in crate::nfs4) through: OpenOwner,
}

impl OwnerOfLocks {
    /// `state_owner4.owner`.
    pub(in crate::nfs4) fn name(&self) -> Vec<u8> {
        lock_owner_name(self.through.session(), self.owner)
    }

    /// The number of the session's owners that have locked something.
    pub(in crate::nfs4) fn lockers(&self) -> &AtomicU64 {
        &self.through.user().session.counters.lockers
    }

    /// What equal owners have the same of.
    fn key(&self) -> (u64, LockOwner) {
        (self.through.session(), self.owner)
    }
}

/// `state_owner4.owner` of a lock owner of a session.
pub(in crate::nfs4) fn lock_owner_name(session: u64, owner: LockOwner) -> Vec<u8> {
    [&b"lock"[..], &session.to_be_bytes(), &owner.0.to_be_bytes()].concat()
}

/// The lock owner with this name, and the number of its session.
pub(in crate::nfs4) fn lock_owner_of(name: &[u8]) -> Option<(u64, LockOwner)> {
    let (session, owner) = name.strip_prefix(b"lock")?.split_at_checked(8)?;
    let number = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
    Some((number(session)?, LockOwner(number(owner)?)))
}

impl PartialEq for OwnerOfLocks {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
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
        self.key().cmp(&other.key())
    }
}
