//! The rights of users to one file: the server's last answers to ACCESS.

use std::sync::Arc;
use std::time::Instant;

use client::Access;

use crate::users::User;

/// Users with an entry; the oldest entry makes room.
const MAX_USERS: usize = 16;

/// The rights of the last users that asked.
#[derive(Debug, Default)]
pub(crate) struct AccessCache(Vec<AccessEntry>);

#[derive(Debug)]
struct AccessEntry {
    user: Arc<User>,
    /// The rights that the server was asked for.
    asked: Access,
    granted: Access,
    until: Instant,
}

impl AccessCache {
    /// Which of the rights `wanted` the user has, if that is cached.
    pub(crate) fn get(&self, user: &Arc<User>, wanted: Access, now: Instant) -> Option<Access> {
        let entry = self.0.iter().find(|entry| Arc::ptr_eq(&entry.user, user))?;
        (entry.until > now && entry.asked.contains(wanted)).then_some(Access(entry.granted.0 & wanted.0))
    }

    /// Enters the server's answer: the user has `granted` of the rights `asked`.
    pub(crate) fn insert(&mut self, user: &Arc<User>, asked: Access, granted: Access, until: Instant) {
        self.0.retain(|entry| !Arc::ptr_eq(&entry.user, user));
        if self.0.len() >= MAX_USERS {
            self.0.remove(0);
        }
        self.0.push(AccessEntry { user: user.clone(), asked, granted, until });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
