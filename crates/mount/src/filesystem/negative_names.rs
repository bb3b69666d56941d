//! Directories whose names are all known, so that a LOOKUP of any other name fails without the server
//! (nfs(5), lookupcache=all).
//!
//! Such a directory was made by this mount, or listed as a whole in one reply. tar(1) looks up every name
//! before it makes it, and git(1) looks in every directory for files that are in none.
//!
//! The names of a directory here are those that *may* be in it. A name is added before the server is asked to
//! make it, whatever the result, and never removed, so no failure can make a file invisible. Foreign changes
//! show in the directory's version while its attributes are valid. The names expire with the attributes that
//! were valid when they became known, in case of a change in the same tick of the server's clock.

use std::time::Instant;

use ahash::{HashMap, HashSet};
use parking_lot::Mutex;

/// Names that are kept, of all directories together; each directory counts as one more. One above the limit
/// clears the table.
const MAX_NAMES: usize = 1 << 16;

#[derive(Debug)]
struct Names {
    /// The directory's version; for another one the names may be incomplete.
    version: u64,
    /// From then on the names may be incomplete.
    until: Instant,
    names: HashSet<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Directories {
    directories: HashMap<u64, Names>,
    kept: usize,
    /// Names that were added so far.
    added: u64,
}

impl Directories {
    fn forget(&mut self, directory: u64) {
        if let Some(removed) = self.directories.remove(&directory) {
            self.kept -= removed.names.len() + 1;
        }
    }

    fn make_room(&mut self, count: usize) {
        if self.kept + count > MAX_NAMES {
            self.directories.clear();
            self.kept = 0;
        }
    }
}

/// The directories whose names are all known, by node ID.
#[derive(Debug, Default)]
pub(super) struct NegativeNames(Mutex<Directories>);

/// The state before a listing is requested: names that are made meanwhile may be missing in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListingMark(u64);

impl NegativeNames {
    /// Called before a listing is requested.
    pub(super) fn mark(&self) -> ListingMark {
        ListingMark(self.0.lock().added)
    }

    /// Enters all names of a directory of this version, which was listed since `mark`.
    pub(super) fn insert<'a>(
        &self,
        directory: u64,
        (version, until): (u64, Instant),
        mark: ListingMark,
        names: impl Iterator<Item = &'a [u8]>,
    ) {
        let names: HashSet<Box<[u8]>> = names.map(Box::from).collect();
        let mut table = self.0.lock();
        table.forget(directory);
        if table.added != mark.0 || names.len() >= MAX_NAMES {
            return;
        }
        table.make_room(names.len() + 1);
        table.kept += names.len() + 1;
        table.directories.insert(directory, Names { version, until, names });
    }

    /// Adds a name that the server is about to be asked to make.
    pub(super) fn add(&self, directory: u64, name: &[u8]) {
        let mut table = self.0.lock();
        table.added += 1;
        table.make_room(1);
        let Directories { directories, kept, .. } = &mut *table;
        if let Some(known) = directories.get_mut(&directory)
            && known.names.insert(name.into())
        {
            *kept += 1;
        }
    }

    /// Whether it is known that a directory of this version doesn't have the name.
    pub(super) fn excludes(&self, directory: u64, version: u64, name: &[u8], now: Instant) -> bool {
        let table = self.0.lock();
        let known = table.directories.get(&directory);
        known
            .is_some_and(|known| known.version == version && now < known.until && !known.names.contains(name))
    }

    /// Removes a directory that the kernel has forgotten.
    pub(super) fn forget(&self, directory: u64) {
        self.0.lock().forget(directory);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_complete_for_one_version_and_a_time() {
        let (names, now) = (NegativeNames::default(), Instant::now());
        let until = now + Duration::from_secs(30);
        names.insert(2, (7, until), names.mark(), [&b"a"[..]].into_iter());
        assert!(names.excludes(2, 7, b"b", now) && !names.excludes(2, 7, b"a", now));
        assert!(!names.excludes(2, 8, b"b", now) && !names.excludes(2, 7, b"b", until));
        assert!(!names.excludes(3, 7, b"b", now), "nothing is known of this directory");
        names.forget(2);
        assert!(!names.excludes(2, 7, b"b", now));
        assert_eq!(names.0.lock().kept, 0);
    }

    #[test]
    fn a_listing_with_concurrent_creation_is_not_complete() {
        let (names, now) = (NegativeNames::default(), Instant::now());
        let mark = names.mark();
        names.add(2, b"new");
        names.insert(2, (0, now + Duration::from_secs(1)), mark, std::iter::empty());
        assert!(!names.excludes(2, 0, b"new", now));
    }

    #[test]
    fn the_table_is_bounded() {
        let (names, now) = (NegativeNames::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        for directory in 0..MAX_NAMES as u64 {
            names.insert(directory, (0, until), names.mark(), [&b"a"[..], b"b"].into_iter());
            names.add(directory, b"c");
            assert!(names.0.lock().kept <= MAX_NAMES);
        }
        assert!(names.excludes(MAX_NAMES as u64 - 1, 0, b"d", now), "the last directory is known");
    }

    proptest! {
        /// Whatever is made, listed, changed by others and removed, in any order: a name that exists is never
        /// excluded, provided that foreign changes show in the version.
        #[test]
        fn existing_names_are_never_excluded(
            steps in proptest::collection::vec((0..5_u8, 0..3_u64, 0..6_u8), 0..200)
        ) {
            let (names, now) = (NegativeNames::default(), Instant::now());
            let until = now + Duration::from_secs(1);
            let mut existing: [BTreeSet<[u8; 1]>; 3] = Default::default();
            let mut versions = [0; 3];
            for (step, directory, name) in steps {
                let at = directory as usize;
                match step {
                    0 => {
                        names.add(directory, &[name]);
                        existing[at].insert([name]);
                    }
                    1 => drop(existing[at].remove(&[name])),
                    2 => {
                        let listed = existing[at].iter().map(|name| &name[..]);
                        names.insert(directory, (versions[at], until), names.mark(), listed);
                    }
                    3 => {
                        versions[at] += 1;
                        existing[at].insert([name]);
                    }
                    _ => names.forget(directory),
                }
                for name in &existing[at] {
                    prop_assert!(!names.excludes(directory, versions[at], name, now));
                }
            }
        }
    }
}
