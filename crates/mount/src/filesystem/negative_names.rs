//! Directories whose names are all known, so that a LOOKUP of any other name fails without the server
//! (nfs(5), lookupcache=all).
//!
//! Such a directory was made by this mount. A program that fills it, as tar(1) does, looks up every name
//! before it makes it.
//!
//! Only the thread that has made the directory, or a name in it last, gets such an answer, and only for
//! [`BURST`] since then. Any other may have been told of a new name by another host: git(1) learns from a
//! branch which object to open. Such a name must be found, although the directory's attributes are still
//! valid: it was never looked up before.
//!
//! The names of a directory here are those that *may* be in it. A name is added before the server is asked to
//! make it, whatever the result, and never removed, so no failure can make a file invisible. Foreign changes
//! show in the directory's version while its attributes are valid. The names expire with the attributes that
//! were valid when they became known, in case of a change in the same tick of the server's clock.

use std::time::{Duration, Instant};

use ahash::{HashMap, HashSet};
use parking_lot::Mutex;

use super::RequestContext;

/// Names that are kept, of all directories together; each directory counts as one more. One above the limit
/// clears the table.
const MAX_NAMES: usize = 1 << 16;

/// How long a thread that makes names is expected to make more.
const BURST: Duration = Duration::from_secs(1);

/// The thread that makes a request, and the time of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestingThread {
    /// 0: it isn't in this process's PID namespace.
    pub(super) id: u32,
    pub(super) at: Instant,
}

impl RequestingThread {
    pub(super) const fn of(request: &RequestContext) -> Self {
        Self { id: request.header.pid, at: request.received }
    }

    /// Whether this thread is the other one, a short time later.
    fn continues(self, last: Self) -> bool {
        self.id != 0 && self.id == last.id && self.at.saturating_duration_since(last.at) < BURST
    }
}

#[derive(Debug)]
struct Names {
    /// The directory's version; for another one the names may be incomplete.
    version: u64,
    /// From then on the names may be incomplete.
    until: Instant,
    names: HashSet<Box<[u8]>>,
    /// Who has made the directory, or a name in it last.
    last: RequestingThread,
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

/// The state before a directory is made: names may be made in it before it is entered here.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamesMark(u64);

impl NegativeNames {
    /// Called before a directory is made.
    pub(super) fn mark(&self) -> NamesMark {
        NamesMark(self.0.lock().added)
    }

    /// Enters a directory of this version, which `thread` has made since `mark`.
    pub(super) fn insert(
        &self,
        thread: RequestingThread,
        directory: u64,
        (version, until): (u64, Instant),
        mark: NamesMark,
    ) {
        let mut table = self.0.lock();
        table.forget(directory);
        if table.added != mark.0 {
            return;
        }
        table.make_room(1);
        table.kept += 1;
        let names = HashSet::default();
        table.directories.insert(directory, Names { version, until, names, last: thread });
    }

    /// Adds a name that the server is about to be asked to make, for `thread` or for this mount itself.
    pub(super) fn add(&self, thread: Option<RequestingThread>, directory: u64, name: &[u8]) {
        let mut table = self.0.lock();
        table.added += 1;
        table.make_room(1);
        let Directories { directories, kept, .. } = &mut *table;
        if let Some(known) = directories.get_mut(&directory) {
            known.last = thread.unwrap_or(known.last);
            *kept += usize::from(known.names.insert(name.into()));
        }
    }

    /// Whether it is known to `thread` that a directory of this version doesn't have the name.
    pub(super) fn excludes(
        &self,
        thread: RequestingThread,
        directory: u64,
        version: u64,
        name: &[u8],
    ) -> bool {
        let table = self.0.lock();
        table.directories.get(&directory).is_some_and(|known| {
            known.version == version
                && thread.at < known.until
                && thread.continues(known.last)
                && !known.names.contains(name)
        })
    }

    /// Removes a directory that the kernel has forgotten.
    pub(super) fn forget(&self, directory: u64) {
        self.0.lock().forget(directory);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const THREAD: u32 = 5;

    /// A table, and the thread now.
    fn new() -> (NegativeNames, RequestingThread) {
        (NegativeNames::default(), RequestingThread { id: THREAD, at: Instant::now() })
    }

    fn later(thread: RequestingThread, by: Duration) -> RequestingThread {
        RequestingThread { at: thread.at + by, ..thread }
    }

    #[test]
    fn names_are_complete_for_one_version_and_a_time() {
        let (names, thread) = new();
        let valid = BURST / 2;
        names.insert(thread, 2, (7, thread.at + valid), names.mark());
        names.add(Some(thread), 2, b"a");
        assert!(names.excludes(thread, 2, 7, b"b") && !names.excludes(thread, 2, 7, b"a"));
        assert!(!names.excludes(thread, 2, 8, b"b") && !names.excludes(later(thread, valid), 2, 7, b"b"));
        assert!(!names.excludes(thread, 3, 7, b"b"), "nothing is known of this directory");
        names.forget(2);
        assert!(!names.excludes(thread, 2, 7, b"b"));
        assert_eq!(names.0.lock().kept, 0);
    }

    #[test]
    fn only_the_thread_that_makes_names_asks_in_vain() {
        let (names, thread) = new();
        let until = thread.at + 10 * BURST;
        names.insert(thread, 2, (7, until), names.mark());
        let other = RequestingThread { id: THREAD + 1, ..thread };
        assert!(!names.excludes(other, 2, 7, b"a") && !names.excludes(later(thread, BURST), 2, 7, b"a"));
        // While it makes names, it goes on.
        let next = later(thread, BURST / 2);
        names.add(Some(next), 2, b"b");
        assert!(names.excludes(later(thread, BURST), 2, 7, b"a"));
        names.add(None, 2, b"c");
        assert!(names.excludes(later(thread, BURST), 2, 7, b"a"));
        names.add(Some(RequestingThread { at: next.at, ..other }), 2, b"d");
        assert!(!names.excludes(next, 2, 7, b"a"));
        // Threads of other PID namespaces can't be told from each other.
        let unknown = RequestingThread { id: 0, ..next };
        names.add(Some(unknown), 2, b"e");
        assert!(!names.excludes(unknown, 2, 7, b"a"));
    }

    #[test]
    fn a_directory_in_which_names_are_made_at_once_is_not_known() {
        let (names, thread) = new();
        let mark = names.mark();
        names.add(Some(thread), 2, b"new");
        names.insert(thread, 2, (0, thread.at + Duration::from_secs(1)), mark);
        assert!(!names.excludes(thread, 2, 0, b"new"));
    }

    #[test]
    fn the_table_is_bounded() {
        let (names, thread) = new();
        let until = thread.at + Duration::from_secs(1);
        for directory in 0..MAX_NAMES as u64 {
            names.insert(thread, directory, (0, until), names.mark());
            names.add(Some(thread), directory, b"c");
            assert!(names.0.lock().kept <= MAX_NAMES);
        }
        assert!(names.excludes(thread, MAX_NAMES as u64 - 1, 0, b"d"), "the last directory is known");
    }

    proptest! {
        /// Whatever is made, changed by others and removed, in any order: a name that exists is never
        /// excluded, provided that foreign changes show in the version.
        #[test]
        fn existing_names_are_never_excluded(
            steps in proptest::collection::vec((0..5_u8, 0..3_u64, 0..6_u8), 0..200)
        ) {
            let (names, thread) = new();
            let until = thread.at + Duration::from_secs(1);
            let mut existing: [BTreeSet<[u8; 1]>; 3] = Default::default();
            let mut versions = [0; 3];
            for (step, directory, name) in steps {
                let at = directory as usize;
                match step {
                    0 => {
                        names.add(Some(thread), directory, &[name]);
                        existing[at].insert([name]);
                    }
                    1 => drop(existing[at].remove(&[name])),
                    2 => {
                        existing[at].clear();
                        names.insert(thread, directory, (versions[at], until), names.mark());
                    }
                    3 => {
                        versions[at] += 1;
                        existing[at].insert([name]);
                    }
                    _ => names.forget(directory),
                }
                for name in &existing[at] {
                    prop_assert!(!names.excludes(thread, directory, versions[at], name));
                }
            }
        }
    }
}
