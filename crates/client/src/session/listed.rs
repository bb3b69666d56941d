//! Restarts of directory listings.
//!
//! A server may refuse to continue a listing (NFS3ERR_BAD_COOKIE), because the directory has changed too much
//! or the server was replaced. The listing then starts over and leaves out the names that its caller has
//! already received.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// The maximum number of names that are remembered. A longer listing can't start over, and fails instead.
const MAX_NAMES: usize = 1 << 20;

/// The maximum number of restarts of a listing.
const MAX_RESTARTS: u32 = 16;

/// The names that the caller of a listing has received: a 64-bit hash of each.
#[derive(Debug, Default)]
pub struct Listed {
    names: HashSet<u64>,
    hasher: RandomState,
    restarts: u32,
}

impl Listed {
    /// Adds a name that the caller receives.
    pub fn add(&mut self, name: &[u8]) {
        if self.names.len() < MAX_NAMES {
            self.names.insert(self.hasher.hash_one(name));
        }
    }

    /// Whether to leave a name out: the listing has started over, and the caller has received the name
    /// before.
    #[must_use]
    pub fn leaves_out(&self, name: &[u8]) -> bool {
        self.restarts > 0 && self.names.contains(&self.hasher.hash_one(name))
    }

    /// Starts over. Returns false if the listing has started over too often or has too many names.
    pub fn start_over(&mut self) -> bool {
        let can = self.restarts < MAX_RESTARTS && self.names.len() < MAX_NAMES;
        self.restarts += u32::from(can);
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_from_before_a_restart_are_left_out() {
        let mut listed = Listed::default();
        listed.add(b"a");
        assert!(!listed.leaves_out(b"a"), "a server may have a name twice");
        assert!(listed.start_over());
        assert!(listed.leaves_out(b"a") && !listed.leaves_out(b"b"));
        listed.add(b"b");
        assert!(listed.start_over() && listed.leaves_out(b"b"));
    }

    #[test]
    fn restarts_have_a_bound() {
        let mut listed = Listed::default();
        assert_eq!((0..100).filter(|_| listed.start_over()).count(), MAX_RESTARTS as usize);
    }
}
