//! A server may say in the middle of a listing that it can't go on from where it was (NFS3ERR_BAD_COOKIE: the
//! directory changed too much, or the server is another one now). The listing then starts over and leaves out
//! what its caller has had.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// How many names are remembered for starting over; a longer listing can't, and ends with an error instead.
const REMEMBERED: usize = 1 << 20;

/// How often a listing starts over before it gives up.
const RESTARTS: u32 = 16;

/// The names of a directory that the caller of a listing has had: a 64-bit hash of each, up to a bound.
#[derive(Debug, Default)]
pub struct Listed {
    names: HashSet<u64>,
    hasher: RandomState,
    restarts: u32,
}

impl Listed {
    /// The caller has this name now.
    pub fn add(&mut self, name: &[u8]) {
        if self.names.len() < REMEMBERED {
            self.names.insert(self.hasher.hash_one(name));
        }
    }

    /// Whether to leave a name out: the listing has started over, and the caller had it before.
    #[must_use]
    pub fn leaves_out(&self, name: &[u8]) -> bool {
        self.restarts > 0 && self.names.contains(&self.hasher.hash_one(name))
    }

    /// Starts over; false if it can't, because it has too often or knows too many names.
    pub fn start_over(&mut self) -> bool {
        let can = self.restarts < RESTARTS && self.names.len() < REMEMBERED;
        self.restarts += u32::from(can);
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_had_before_it_started_over_is_left_out() {
        let mut listed = Listed::default();
        listed.add(b"a");
        assert!(!listed.leaves_out(b"a"), "a server may have a name twice");
        assert!(listed.start_over());
        assert!(listed.leaves_out(b"a") && !listed.leaves_out(b"b"));
        listed.add(b"b");
        assert!(listed.start_over() && listed.leaves_out(b"b"));
    }

    #[test]
    fn it_does_not_start_over_for_ever() {
        let mut listed = Listed::default();
        assert_eq!((0..100).filter(|_| listed.start_over()).count(), RESTARTS as usize);
    }
}
