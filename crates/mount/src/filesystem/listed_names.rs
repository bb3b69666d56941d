//! Names and attributes that were listed on behalf of LOOKUPs and GETATTRs.
//!
//! A process that looks some names of a directory up mostly looks the others up, too: git(1) asks for the
//! attributes of all files that it knows, and lists nothing. So after [`MIN_REQUESTS`] LOOKUPs in a directory
//! the mount lists the first page of it (READDIRPLUS), and answers the LOOKUPs that follow from that. The
//! same holds for GETATTRs of files whose attributes have expired: the page has the attributes of the others.
//!
//! A large directory has more pages. After [`FURTHER_REQUESTS`] requests that the listed ones couldn't answer
//! the next page is listed, so that a few names of a very large directory cost at most twice as much as they
//! would alone.
//!
//! While such listings save requests, the next directory is listed at the first one: each request that a
//! listing has saved counts, and an early listing costs [`EARLY_COST`] of them.
//!
//! By NFSv4 the same call lists some of the directories that come next in the order of their names, which is
//! git's: for LOOKUPs those of the same parent that the kernel doesn't know yet, for GETATTRs those that it
//! knows. Each of them costs as much as an early listing. What was listed of a directory that the kernel
//! doesn't know is of use once it has looked the directory up.
//!
//! Attributes go where those of every reply go: to the inodes. A listed name serves one LOOKUP, within
//! `acregmin` of the listing, while the directory's version is that of the listing. The mount's own changes
//! of names don't change the version: they drop what was listed of their directory, also what a listing under
//! way will bring. A name that the kernel has known and forgotten isn't answered either, because its file may
//! have been changed here since.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::HashMap;
use client::{Attributes, DirEntry, DirectoryPage, FileKind, Handle};
use parking_lot::Mutex;

use super::silly_rename::is_hidden;
use crate::inode::Inode;

/// The requests in a directory that the server has answered before the directory is listed.
const MIN_REQUESTS: u32 = 2;

/// The requests for other files that the server has answered before a further page is listed: about what a
/// page costs.
const FURTHER_REQUESTS: u32 = 20;

/// The time between two requests that cause a listing together. A process that looks at one file again and
/// again needs none.
const REQUESTS_TIME: Duration = Duration::from_secs(1);

/// The saved requests that an early listing costs. It saves at least one, which it answers itself.
const EARLY_COST: u32 = 3;

/// Saved requests that count at most. So few listings of no further use follow the last one of use.
const MAX_SAVED: u32 = (1 + MAX_AHEAD as u32) * EARLY_COST;

/// Directories at most that are listed together with one.
const MAX_AHEAD: usize = 4;

/// Directories that are known; one more clears the table.
const MAX_DIRECTORIES: usize = 1024;

/// Names that are kept, of all directories together. Beyond that nothing is kept of further listings until
/// what was kept is of no use any more.
const MAX_NAMES: usize = 1 << 14;

/// A listed file.
#[derive(Debug)]
pub(super) struct ListedFile {
    pub(super) handle: Handle,
    pub(super) attributes: Attributes,
    /// When the listing was requested, and until when it is of use.
    pub(super) asked: Instant,
    until: Instant,
    /// What was listed of it, if it is a directory.
    pub(super) contents: Option<Box<ListedAhead>>,
}

impl ListedFile {
    /// The names that it counts for.
    fn names(&self) -> usize {
        1 + self.contents.as_ref().map_or(0, |contents| contents.listed.page.entries.len())
    }
}

/// What was listed of a directory that the kernel doesn't know, and when that was requested.
#[derive(Debug)]
pub(super) struct ListedAhead {
    pub(super) listed: DirectoryPage,
    pub(super) asked: Instant,
}

/// A directory that is listed together with another one.
#[derive(Debug)]
pub(super) enum NextDirectory {
    /// A listed name that the kernel hasn't looked up.
    Listed { parent: u64, name: Box<[u8]>, handle: Handle },
    /// The kernel knows it, and the attributes of its files have probably expired, too.
    Known(Arc<Inode>),
}

impl NextDirectory {
    pub(super) fn handle(&self) -> &Handle {
        match self {
            Self::Listed { handle, .. } => handle,
            Self::Known(inode) => &inode.handle,
        }
    }
}

/// The requests that a directory is listed for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Lookup,
    Getattr,
}

/// Where a page begins: behind this cookie, which goes with the verifier.
pub(super) type Position = (u64, [u8; 8]);

/// The first page.
pub(super) const BEGINNING: Position = (0, [0; 8]);

/// The requests of one kind in a directory.
#[derive(Debug)]
struct Requests {
    count: u32,
    /// When the last of them was made.
    last: Instant,
    /// From then on the directory may be listed from the beginning again.
    next: Instant,
    /// Where the listing goes on.
    more: Option<Position>,
}

impl Requests {
    const fn new(now: Instant) -> Self {
        Self { count: 0, last: now, next: now, more: None }
    }

    /// Counts a request. Returns which page of the directory is to be listed, if one is. The first one isn't
    /// listed again before `pause` is over. An early listing is paid from `saved`.
    fn count(&mut self, saved: &mut u32, now: Instant, pause: Duration) -> Option<Position> {
        if now.saturating_duration_since(self.last) > REQUESTS_TIME {
            self.count = 0;
        }
        (self.count, self.last) = (self.count.saturating_add(1), now);
        if now < self.next {
            let more = self.more.take_if(|_| self.count > FURTHER_REQUESTS)?;
            self.count = 0;
            return Some(more);
        }
        if self.count <= MIN_REQUESTS {
            *saved = saved.checked_sub(EARLY_COST)?;
        }
        (self.count, self.next, self.more) = (0, now + pause, None);
        Some(BEGINNING)
    }
}

#[derive(Debug)]
struct ListedDirectory {
    lookups: Requests,
    getattrs: Requests,
    /// The version of what was listed, and until when that is of use.
    version: u64,
    until: Instant,
    names: HashMap<Box<[u8]>, ListedFile>,
}

impl ListedDirectory {
    fn requests(&mut self, kind: Kind) -> &mut Requests {
        match kind {
            Kind::Lookup => &mut self.lookups,
            Kind::Getattr => &mut self.getattrs,
        }
    }

    /// Returns for how many names the dropped ones counted.
    fn drop_names(&mut self) -> usize {
        std::mem::take(&mut self.names).values().map(ListedFile::names).sum()
    }
}

#[derive(Debug, Default)]
struct ListedDirectories {
    directories: HashMap<u64, ListedDirectory>,
    kept: usize,
    /// Changes of names so far.
    changes: u64,
    /// Requests that listings have saved, less those that early listings have cost.
    saved: u32,
}

impl ListedDirectories {
    fn note_saved(&mut self) {
        self.saved = MAX_SAVED.min(self.saved + 1);
    }

    /// What is known of a directory.
    fn directory(&mut self, directory: u64, now: Instant) -> &mut ListedDirectory {
        if self.directories.len() >= MAX_DIRECTORIES && !self.directories.contains_key(&directory) {
            self.directories.clear();
            self.kept = 0;
        }
        self.directories.entry(directory).or_insert_with(|| ListedDirectory {
            lookups: Requests::new(now),
            getattrs: Requests::new(now),
            version: 0,
            until: now,
            names: HashMap::default(),
        })
    }

    fn drop_names(&mut self, directory: u64) {
        if let Some(known) = self.directories.get_mut(&directory) {
            self.kept -= known.drop_names();
        }
    }

    /// Drops what is of no use any more if there is no room for `count` names.
    fn make_room(&mut self, count: usize, now: Instant) {
        if self.kept + count <= MAX_NAMES {
            return;
        }
        for known in self.directories.values_mut().filter(|known| known.until <= now) {
            self.kept -= known.drop_names();
        }
    }

    fn take(&mut self, directory: u64, name: &[u8]) -> Option<ListedFile> {
        let file = self.directories.get_mut(&directory)?.names.remove(name)?;
        self.kept -= file.names();
        Some(file)
    }
}

/// What was listed, by the directories' node IDs.
#[derive(Debug, Default)]
pub(crate) struct ListedNames(Mutex<ListedDirectories>);

/// The state before a listing is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListingMark(u64);

/// A change of a directory's names that is being made.
#[derive(Debug)]
pub(crate) struct NameChange<'a> {
    names: &'a ListedNames,
    directory: u64,
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        self.names.changed(self.directory);
    }
}

impl ListedNames {
    /// The server is about to be asked for a name in a directory or for a file's attributes. Returns which
    /// page of the directory is to be listed, if one is. The first one isn't listed for `kind` again before
    /// `pause` is over.
    pub(super) fn count(
        &self,
        directory: u64,
        kind: Kind,
        now: Instant,
        pause: Duration,
    ) -> Option<(Position, ListingMark)> {
        let mut table = self.0.lock();
        let mut saved = table.saved;
        let position = table.directory(directory, now).requests(kind).count(&mut saved, now, pause);
        table.saved = saved;
        Some((position?, ListingMark(table.changes)))
    }

    /// A directory's listing for `kind` goes on at `more`.
    pub(super) fn set_more(&self, directory: u64, kind: Kind, more: Option<Position>) {
        if let Some(known) = self.0.lock().directories.get_mut(&directory) {
            known.requests(kind).more = more;
        }
    }

    /// How many directories may be listed together with one.
    pub(super) fn max_ahead(&self) -> usize {
        MAX_AHEAD.min((self.0.lock().saved / EARLY_COST) as usize)
    }

    /// The directories among the listed names of `parent` that come next behind `name`, `max` at most, of
    /// which nothing was listed.
    pub(super) fn listed_behind(&self, parent: u64, name: &[u8], max: usize) -> Vec<NextDirectory> {
        let table = self.0.lock();
        let names = table.directories.get(&parent).into_iter().flat_map(|known| &known.names);
        let behind = names.filter(|(other, file)| {
            other[..] > *name && file.attributes.kind == FileKind::Directory && file.contents.is_none()
        });
        let behind = first_by_name(behind.map(|(name, file)| (&name[..], file)), max);
        let next = behind.into_iter().map(|(name, file)| NextDirectory::Listed {
            parent,
            name: name.into(),
            handle: file.handle.clone(),
        });
        next.collect()
    }

    /// Enters what was listed of a directory since `mark`, together with another one. That was requested at
    /// `asked`; within `pause` the directory isn't listed for GETATTRs again.
    pub(super) fn insert_ahead(
        &self,
        next: NextDirectory,
        listed: DirectoryPage,
        mark: ListingMark,
        (asked, pause): (Instant, Duration),
    ) {
        let mut table = self.0.lock();
        table.saved = table.saved.saturating_sub(EARLY_COST);
        match next {
            NextDirectory::Known(inode) => table.directory(inode.number, asked).getattrs.next = asked + pause,
            NextDirectory::Listed { parent, name, .. } => {
                let count = listed.page.entries.len();
                table.make_room(count, asked);
                if table.changes != mark.0 || table.kept + count > MAX_NAMES {
                    return;
                }
                let file = table.directories.get_mut(&parent).and_then(|known| known.names.get_mut(&name));
                if let Some(file) = file.filter(|file| file.contents.is_none()) {
                    file.contents = Some(Box::new(ListedAhead { listed, asked }));
                    table.kept += count;
                }
            }
        }
    }

    /// The state now. While it is the same, no name is changed here.
    pub(crate) fn mark(&self) -> ListingMark {
        ListingMark(self.0.lock().changes)
    }

    /// Enters a page that was listed since `mark` of a directory of this version. The first one replaces what
    /// was listed before.
    pub(super) fn insert(
        &self,
        directory: u64,
        (version, asked, until): (u64, Instant, Instant),
        (position, mark): (Position, ListingMark),
        entries: Vec<DirEntry>,
    ) {
        let mut table = self.0.lock();
        let is_further = |known: &ListedDirectory| position != BEGINNING && known.version == version;
        if !table.directories.get(&directory).is_some_and(is_further) {
            table.drop_names(directory);
        }
        table.make_room(entries.len(), asked);
        let room = MAX_NAMES - table.kept;
        let is_changed = table.changes != mark.0;
        let Some(known) = table.directories.get_mut(&directory).filter(|_| !is_changed) else { return };
        let listed = entries.into_iter().filter(|entry| !is_hidden(&entry.name)).filter_map(|entry| {
            let (handle, attributes) = (entry.handle?, entry.attributes?);
            let file = ListedFile { handle, attributes, asked, until, contents: None };
            Some((entry.name.into_boxed_slice(), file))
        });
        let (mut kept, mut replaced) = (0, 0);
        for (name, file) in listed.take(room) {
            kept += 1;
            replaced += known.names.insert(name, file).map_or(0, |before| before.names());
        }
        (known.version, known.until) = (version, until);
        table.kept = table.kept + kept - replaced;
    }

    /// Enters what was listed of a directory that the kernel is about to be told of. The directory isn't
    /// listed again for LOOKUPs before `next`.
    pub(super) fn insert_new(
        &self,
        directory: u64,
        of_use: (u64, Instant, Instant),
        next: Instant,
        entries: Vec<DirEntry>,
    ) {
        let mark = {
            let mut table = self.0.lock();
            table.directory(directory, of_use.1).lookups.next = next;
            ListingMark(table.changes)
        };
        self.insert(directory, of_use, (BEGINNING, mark), entries);
    }

    /// Whether a directory may be listed for the attributes of its files.
    pub(super) fn may_list_attributes(&self, directory: u64, now: Instant) -> bool {
        self.0.lock().directories.get(&directory).is_none_or(|known| known.getattrs.next <= now)
    }

    /// Takes the file of a name in a directory of this version.
    pub(super) fn take(&self, directory: u64, version: u64, name: &[u8], now: Instant) -> Option<ListedFile> {
        let mut table = self.0.lock();
        let known = table.directories.get(&directory)?;
        let is_this_version = known.version == version;
        let file = table.take(directory, name)?;
        let is_current = is_this_version && now < file.until;
        if is_current {
            table.note_saved();
        }
        is_current.then_some(file)
    }

    /// The attributes of a file in this directory were requested, and are known. Counts that if a listing has
    /// saved a GETATTR.
    pub(super) fn note_known(&self, directory: u64, now: Instant) {
        let mut table = self.0.lock();
        // They are listed again when those of the last listing have expired.
        if table.directories.get(&directory).is_some_and(|known| now < known.getattrs.next) {
            table.note_saved();
        }
    }

    /// A name in a directory is made, removed or renamed here, until the value is dropped.
    pub(crate) fn change(&self, directory: u64) -> NameChange<'_> {
        self.changed(directory);
        NameChange { names: self, directory }
    }

    fn changed(&self, directory: u64) {
        let mut table = self.0.lock();
        table.changes += 1;
        table.drop_names(directory);
    }

    /// The kernel has forgotten a name, whose file may have been changed.
    pub(super) fn forget_name(&self, directory: u64, name: &[u8]) {
        self.0.lock().take(directory, name);
    }

    /// The kernel has forgotten a directory.
    pub(super) fn forget(&self, directory: u64) {
        let mut table = self.0.lock();
        table.drop_names(directory);
        table.directories.remove(&directory);
    }
}

/// The first of these names, `max` at most, in their order.
pub(super) fn first_by_name<'a, T>(
    names: impl Iterator<Item = (&'a [u8], T)>,
    max: usize,
) -> Vec<(&'a [u8], T)> {
    let mut first: Vec<(&[u8], T)> = Vec::with_capacity(max + 1);
    for named in names {
        let at = first.partition_point(|(other, _)| *other < named.0);
        if at < max {
            first.insert(at, named);
            first.truncate(max);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(30);

    fn entry(name: &str) -> DirEntry {
        DirEntry {
            name: name.as_bytes().to_vec(),
            fileid: 1,
            cookie: 1,
            kind: None,
            handle: Handle::new(name.as_bytes()),
            attributes: Some(Attributes::default()),
            acls: None,
        }
    }

    /// Looks names up until the directory is to be listed.
    fn mark(names: &ListedNames, directory: u64, now: Instant) -> ListingMark {
        (0..MIN_REQUESTS).for_each(|_| assert!(names.count(directory, Kind::Lookup, now, PAUSE).is_none()));
        names.count(directory, Kind::Lookup, now, PAUSE).expect("a listing").1
    }

    fn list(names: &ListedNames, directory: u64, mark: ListingMark, now: Instant, all: &[&str]) {
        let until = now + Duration::from_secs(3);
        names.insert(
            directory,
            (7, now, until),
            (BEGINNING, mark),
            all.iter().map(|name| entry(name)).collect(),
        );
    }

    #[test]
    fn some_lookups_cause_one_listing_whose_names_serve_once() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let marked = mark(&names, 2, now);
        assert!(names.count(2, Kind::Lookup, now, PAUSE).is_none());
        list(&names, 2, marked, now, &["a", "b", "c"]);
        let is_listed = |version, name: &str, at| names.take(2, version, name.as_bytes(), at).is_some();
        assert!(is_listed(7, "a", now) && !is_listed(7, "a", now) && !is_listed(7, "x", now));
        assert!(!is_listed(8, "b", now), "the directory has changed");
        assert!(!is_listed(7, "c", now + Duration::from_secs(3)), "the attributes have expired");
        assert_eq!(names.0.lock().kept, 0);
        // After the pause it is listed again.
        assert!((0..100).all(|_| names.count(2, Kind::Lookup, now, PAUSE).is_none()));
        mark(&names, 2, now + PAUSE);
    }

    #[test]
    fn requests_cause_listings_by_kind_and_only_close_together() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let second = Duration::from_secs(1);
        let apart = |number: u32| now + number * REQUESTS_TIME + number * Duration::from_millis(1);
        assert!((0..9).all(|number| names.count(2, Kind::Getattr, apart(number), second).is_none()));
        mark(&names, 2, now);
        let later = now + 20 * second;
        (0..MIN_REQUESTS).for_each(|_| assert!(names.count(2, Kind::Getattr, later, second).is_none()));
        assert!(names.count(2, Kind::Getattr, later, second).is_some());
    }

    #[test]
    fn a_large_directory_is_listed_page_by_page() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let marked = mark(&names, 2, now);
        list(&names, 2, marked, now, &["a", "c"]);
        let count = |at| names.count(2, Kind::Lookup, at, PAUSE).map(|(position, _)| position);
        assert!((0..100).all(|_| count(now).is_none()), "there is one page");
        names.set_more(2, Kind::Lookup, Some((5, [9; 8])));
        assert_eq!(count(now), Some((5, [9; 8])));
        assert!((0..100).all(|_| count(now).is_none()), "it is being listed");
        let further = |cookie, version, name| {
            let of_use = (version, now, now + Duration::from_secs(3));
            names.insert(2, of_use, ((cookie, [9; 8]), names.mark()), vec![entry(name)]);
        };
        further(5, 7, "b");
        assert_eq!(names.0.lock().kept, 3);
        names.set_more(2, Kind::Lookup, Some((7, [9; 8])));
        assert!(names.take(2, 7, b"a", now).is_some() && names.take(2, 7, b"b", now).is_some());
        // Of another version, or the first one again.
        further(7, 8, "d");
        assert!(names.take(2, 8, b"c", now).is_none() && names.take(2, 8, b"d", now).is_some());
        assert_eq!(count(now + PAUSE), Some(BEGINNING), "the names of before have saved requests");
        assert_eq!(names.0.lock().kept, 0);
    }

    #[test]
    fn listings_are_early_while_they_are_of_use() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let all: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let marked = mark(&names, 2, now);
        list(&names, 2, marked, now, &all);
        assert!(all.iter().all(|name| names.take(2, 7, name.as_bytes(), now).is_some()));
        // Nobody uses these.
        let early = (3..10).map(|directory| names.count(directory, Kind::Lookup, now, PAUSE).is_some());
        assert_eq!(early.collect::<Vec<_>>(), [true, true, true, true, true, false, false]);
    }

    /// A listing of directories, and of what is in some of them.
    fn list_directories(names: &ListedNames, parent: u64, now: Instant, all: &[&str]) {
        let marked = mark(names, parent, now);
        list(names, parent, marked, now, all);
        let mut table = names.0.lock();
        let listed = &mut table.directories.get_mut(&parent).unwrap().names;
        listed.values_mut().for_each(|file| file.attributes.kind = FileKind::Directory);
    }

    fn insert_ahead(names: &ListedNames, next: NextDirectory, mark: ListingMark, now: Instant) {
        let mut listed = DirectoryPage::default();
        listed.page.entries = vec![entry("x"), entry("y")];
        names.insert_ahead(next, listed, mark, (now, PAUSE));
    }

    #[test]
    fn the_next_directories_are_listed_while_that_is_of_use() {
        let (names, now) = (ListedNames::default(), Instant::now());
        list_directories(&names, 2, now, &["d", "b", "e", "a", "c", "f"]);
        let behind = |name: &str, max| {
            let next = names.listed_behind(2, name.as_bytes(), max);
            let name = |next: &NextDirectory| match next {
                NextDirectory::Listed { name, .. } => String::from_utf8_lossy(name).into_owned(),
                NextDirectory::Known(_) => unreachable!(),
            };
            next.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(behind("b", 2), ["c", "d"]);
        assert_eq!(behind("b", 9), ["c", "d", "e", "f"]);
        assert!(behind("f", 2).is_empty() && behind("a", 0).is_empty());
        assert_eq!(names.max_ahead(), 0, "nothing was saved yet");
        (0..100).for_each(|_| names.0.lock().note_saved());
        assert_eq!(names.max_ahead(), MAX_AHEAD);
        for next in names.listed_behind(2, b"b", 2) {
            insert_ahead(&names, next, names.mark(), now);
        }
        assert_eq!((behind("b", 2), names.max_ahead()), (vec!["e".to_owned(), "f".to_owned()], 3));
        assert_eq!(names.0.lock().kept, 6 + 2 * 2);
        let entries = |name: &str| {
            let contents = names.take(2, 7, name.as_bytes(), now)?.contents?;
            Some(contents.listed.page.entries.len())
        };
        assert_eq!((entries("c"), entries("e")), (Some(2), None));
        assert_eq!(names.0.lock().kept, 4 + 2);
    }

    #[test]
    fn a_change_drops_what_was_listed_ahead_or_will_be() {
        let (names, now) = (ListedNames::default(), Instant::now());
        list_directories(&names, 2, now, &["a", "b"]);
        let (mark, mut next) = (names.mark(), names.listed_behind(2, b"", 9));
        drop(names.change(3));
        insert_ahead(&names, next.pop().unwrap(), mark, now);
        assert_eq!(names.0.lock().kept, 2, "another directory's change may be this one's");
        insert_ahead(&names, next.pop().unwrap(), names.mark(), now);
        assert_eq!(names.0.lock().kept, 4);
        drop(names.change(2));
        assert_eq!(names.0.lock().kept, 0);
    }

    #[test]
    fn what_is_of_no_use_makes_room() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let all: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let full = MAX_NAMES as u64 / 1000;
        for directory in 0..full {
            let marked = mark(&names, directory, now);
            list(&names, directory, marked, now, &all);
        }
        let later = now + Duration::from_secs(3);
        let marked = mark(&names, full, later);
        list(&names, full, marked, later, &all);
        assert_eq!(names.0.lock().kept, 1000);
    }

    #[test]
    fn known_attributes_make_the_next_listing_early() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let (second, until) = (Duration::from_secs(1), now + Duration::from_secs(3));
        (0..9).for_each(|_| names.note_known(2, now));
        assert!(names.count(2, Kind::Getattr, now, until - now).is_none());
        while names.count(2, Kind::Getattr, now, until - now).is_none() {}
        (0..9).for_each(|_| names.note_known(2, until));
        assert!(names.count(3, Kind::Getattr, now, second).is_none(), "they were known by other means");
        (0..3).for_each(|_| names.note_known(2, now));
        assert!(names.count(4, Kind::Getattr, now, second).is_some());
        assert!(names.count(5, Kind::Getattr, now, second).is_none());
    }

    #[test]
    fn changes_drop_what_is_listed_or_being_listed() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let is_listed = |directory| names.take(directory, 7, b"a", now).is_some();
        for directory in [2, 3] {
            let marked = mark(&names, directory, now);
            list(&names, directory, marked, now, &["a"]);
        }
        drop(names.change(2));
        assert!(!is_listed(2) && is_listed(3));
        // A listing that began before the change or while it was made.
        for (directory, is_before) in [(4, true), (5, false)] {
            let before = is_before.then(|| mark(&names, directory, now));
            let change = names.change(directory);
            let marked = before.unwrap_or_else(|| mark(&names, directory, now));
            drop(change);
            list(&names, directory, marked, now, &["a"]);
            assert!(!is_listed(directory), "{is_before}");
        }
        let marked = mark(&names, 6, now);
        list(&names, 6, marked, now, &["a"]);
        names.forget_name(6, b"a");
        assert!(!is_listed(6));
    }

    #[test]
    fn directories_and_names_are_bounded() {
        let (names, now) = (ListedNames::default(), Instant::now());
        let all: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for directory in 0..MAX_DIRECTORIES as u64 + 10 {
            let marked = mark(&names, directory, now);
            list(&names, directory, marked, now, &all);
            let table = names.0.lock();
            let kept: usize = table.directories.values().map(|known| known.names.len()).sum();
            assert!(table.directories.len() <= MAX_DIRECTORIES && kept == table.kept && kept <= MAX_NAMES);
        }
        names.forget(MAX_DIRECTORIES as u64);
        assert!(names.take(MAX_DIRECTORIES as u64, 7, b"1", now).is_none());
    }
}
