//! Directories of which all names are known: nobody need ask the server for one that isn't among them
//! (nfs(5), lookupcache=all).
//!
//! They were made by this mount, or listed whole in one answer. Who unpacks a tree looks every name up before
//! it is made, and git(1) looks in every directory for files that are in none.
//!
//! What is kept of a directory are the names that *may* be in it: a name is added before the server is asked
//! to make it, whatever comes of that, and never taken out. So nothing that goes wrong on the way makes a
//! file invisible. What others do shows in the directory's version, as far as its attributes are believed;
//! and after the time for which they were believed when the names became known, all is forgotten, in case
//! somebody came in the same tick of the server's clock.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use parking_lot::Mutex;

/// Names that are kept, of all directories together; each directory counts one more. With one above that all
/// are forgotten.
const MOST: usize = 1 << 16;

#[derive(Debug)]
struct Names {
    /// Of the directory: with another one they aren't all any more.
    version: u64,
    /// From then on they mayn't be all.
    until: Instant,
    names: HashSet<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Table {
    directories: HashMap<u64, Names>,
    kept: usize,
    /// Names that were about to be made so far.
    added: u64,
}

impl Table {
    fn forget(&mut self, directory: u64) {
        if let Some(names) = self.directories.remove(&directory) {
            self.kept -= names.names.len() + 1;
        }
    }

    fn make_room(&mut self, count: usize) {
        if self.kept + count > MOST {
            self.directories.clear();
            self.kept = 0;
        }
    }
}

/// The directories, by node.
#[derive(Debug, Default)]
pub(super) struct Complete(Mutex<Table>);

/// When a listing was asked for: names that are made meanwhile may not be in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(u64);

impl Complete {
    /// A listing is about to be asked for.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.0.lock().added)
    }

    /// These are all names of a directory of this version, which was listed since `mark`.
    pub(super) fn know<'a>(
        &self,
        directory: u64,
        (version, until): (u64, Instant),
        mark: Mark,
        names: impl Iterator<Item = &'a [u8]>,
    ) {
        let names: HashSet<Box<[u8]>> = names.map(Box::from).collect();
        let mut table = self.0.lock();
        table.forget(directory);
        if table.added != mark.0 || names.len() >= MOST {
            return;
        }
        table.make_room(names.len() + 1);
        table.kept += names.len() + 1;
        table.directories.insert(directory, Names { version, until, names });
    }

    /// The server is about to be asked to make this name.
    pub(super) fn add(&self, directory: u64, name: &[u8]) {
        let mut table = self.0.lock();
        table.added += 1;
        table.make_room(1);
        let Table { directories, kept, .. } = &mut *table;
        if let Some(known) = directories.get_mut(&directory)
            && known.names.insert(name.into())
        {
            *kept += 1;
        }
    }

    /// Whether a directory of this version can't have the name, as far as is known at `now`.
    pub(super) fn lacks(&self, directory: u64, version: u64, name: &[u8], now: Instant) -> bool {
        let table = self.0.lock();
        let known = table.directories.get(&directory);
        known
            .is_some_and(|known| known.version == version && now < known.until && !known.names.contains(name))
    }

    /// The kernel has forgotten a directory.
    pub(super) fn forgotten(&self, directory: u64) {
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
    fn names_are_all_for_one_version_and_a_time() {
        let (complete, now) = (Complete::default(), Instant::now());
        let until = now + Duration::from_secs(30);
        complete.know(2, (7, until), complete.mark(), [&b"a"[..]].into_iter());
        assert!(complete.lacks(2, 7, b"b", now) && !complete.lacks(2, 7, b"a", now));
        assert!(!complete.lacks(2, 8, b"b", now) && !complete.lacks(2, 7, b"b", until));
        assert!(!complete.lacks(3, 7, b"b", now), "nobody knows");
        complete.forgotten(2);
        assert!(!complete.lacks(2, 7, b"b", now));
        assert_eq!(complete.0.lock().kept, 0);
    }

    #[test]
    fn what_is_made_while_a_directory_is_listed_may_be_missing_in_the_list() {
        let (complete, now) = (Complete::default(), Instant::now());
        let mark = complete.mark();
        complete.add(2, b"new");
        complete.know(2, (0, now + Duration::from_secs(1)), mark, std::iter::empty());
        assert!(!complete.lacks(2, 0, b"new", now));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (complete, now) = (Complete::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        for directory in 0..MOST as u64 {
            complete.know(directory, (0, until), complete.mark(), [&b"a"[..], b"b"].into_iter());
            complete.add(directory, b"c");
            assert!(complete.0.lock().kept <= MOST);
        }
        assert!(complete.lacks(MOST as u64 - 1, 0, b"d", now), "the last is known");
    }

    proptest! {
        /// Whatever is made, listed, changed by others and removed, in whichever order: a name that is there
        /// is never said to be missing, as long as what others do shows in the version.
        #[test]
        fn nothing_that_is_there_is_lacking(steps in proptest::collection::vec((0..5_u8, 0..3_u64, 0..6_u8), 0..200)) {
            let (complete, now) = (Complete::default(), Instant::now());
            let until = now + Duration::from_secs(1);
            let mut there: [BTreeSet<[u8; 1]>; 3] = Default::default();
            let mut versions = [0; 3];
            for (step, directory, name) in steps {
                let at = directory as usize;
                match step {
                    0 => {
                        complete.add(directory, &[name]);
                        there[at].insert([name]);
                    }
                    1 => drop(there[at].remove(&[name])),
                    2 => {
                        let names = there[at].iter().map(|name| &name[..]);
                        complete.know(directory, (versions[at], until), complete.mark(), names);
                    }
                    3 => {
                        versions[at] += 1;
                        there[at].insert([name]);
                    }
                    _ => complete.forgotten(directory),
                }
                for name in &there[at] {
                    prop_assert!(!complete.lacks(directory, versions[at], name, now));
                }
            }
        }
    }
}
