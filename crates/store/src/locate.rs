//! Finding files again without the filesystem's handles.
//!
//! An ordinary user may not open by handle, and some filesystems have none. Then a handle says who the file is (inode
//! number and birth time) and leaves hints of the path on which it was seen. No database is kept:
//!
//! 1. While the server runs, a bounded map says in which directory, under which name each file was seen last. The path is put together from the map,
//!    opened in one step from the root, and what is there must be the file.
//! 2. If it isn't (the server was restarted, or a local process renamed something), the hints lead: in each directory only those
//!    entries are looked into whose name has the right 16 bits.
//! 3. If that fails, the whole tree is searched, up to a bound, one search at a time. A file that isn't found is not searched for
//!    again for a while.
//!
//! What isn't found from the root isn't served: that is also all there is to `subtree_check`.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use rustix::fs::{FileType, Mode, OFlags, RawDir, openat2};
use rustix::io::Errno;

use crate::acting::{Acting, ONE_STEP, PATH_ONLY};
use crate::attributes::status;
use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId, MAX_HINTS};
use crate::identity::as_process_user;
use crate::open::{Inner, Scheme, file_id};

/// How many files' places are remembered.
const MAX_PLACES: usize = 65_536;
/// Entries that one search looks at.
const MAX_ENTRIES: usize = 1_000_000;
/// Directories deep that a search goes; each level keeps a descriptor open.
const MAX_DEPTH: usize = 128;
/// Directories deep that a remembered path may be.
const MAX_PATH: usize = 2048;
/// Files that were searched for in vain.
const MAX_MISSING: usize = 4096;
/// For how long they aren't searched for again.
const MISSING_FOR: Duration = Duration::from_secs(30);
/// Bytes of a path opened in one step (`PATH_MAX` is 4096).
const STEP_BYTES: usize = 3800;

/// Where a file was seen last.
#[derive(Debug)]
struct Place {
    handle: FileHandle,
    parent: FileId,
    name: CString,
}

/// The places of the files of one store.
#[derive(Debug)]
pub(crate) struct Places {
    known: Cache<FileId, Arc<Place>>,
    missing: Mutex<HashMap<FileId, Instant>>,
    searching: Mutex<()>,
}

impl Places {
    pub fn new() -> Places {
        Places { known: Cache::new(MAX_PLACES), missing: Mutex::default(), searching: Mutex::default() }
    }

    /// The handle that a file goes by.
    pub fn handle(&self, id: FileId) -> Option<FileHandle> {
        self.known.get(&id).map(|place| place.handle)
    }

    /// The file was seen as `name` in `parent`: the handle that it goes by, the old one if it has one.
    pub fn note(&self, store: &Inner, parent: FileId, name: &CStr, id: FileId) -> FileHandle {
        if let Some(place) = self.known.get(&id) {
            if place.parent != parent || place.name.as_c_str() != name {
                self.put(id, place.handle, parent, name);
            }
            return place.handle;
        }
        let mut hints: Vec<u16> = self
            .path(store, parent)
            .map(|path| path.iter().map(|name| store.sealer.hint(name.to_bytes())).collect())
            .unwrap_or_default();
        hints.push(store.sealer.hint(name.to_bytes()));
        let handle = store.sealer.located(id, &hints);
        self.put(id, handle, parent, name);
        handle
    }

    fn put(&self, id: FileId, handle: FileHandle, parent: FileId, name: &CStr) {
        self.missing.lock().remove(&id);
        self.known.insert(id, Arc::new(Place { handle, parent, name: name.to_owned() }));
    }

    /// The remembered path from the root.
    fn path(&self, store: &Inner, id: FileId) -> Option<Vec<CString>> {
        let mut path = Vec::new();
        let mut at = id;
        while at != store.root.id() {
            if path.len() >= MAX_PATH {
                return None;
            }
            let place = self.known.get(&at)?;
            path.push(place.name.clone());
            at = place.parent;
        }
        path.reverse();
        Some(path)
    }

    fn is_missing(&self, id: FileId) -> bool {
        self.missing.lock().get(&id).is_some_and(|since| since.elapsed() < MISSING_FOR)
    }

    fn miss(&self, id: FileId) {
        let mut missing = self.missing.lock();
        if missing.len() >= MAX_MISSING {
            missing.retain(|_, since| since.elapsed() < MISSING_FOR);
            if missing.len() >= MAX_MISSING {
                return;
            }
        }
        missing.insert(id, Instant::now());
    }
}

impl Acting<'_> {
    /// Opens the file `id` wherever it is below the root now. Returns the handle it goes by; `handle` if it had none.
    ///
    /// With `subtree_check` the user must be allowed to search the directories on the way. Otherwise, as with handles of the kernel, only the file
    /// itself counts.
    pub(crate) fn locate(
        &self,
        id: FileId,
        handle: &FileHandle,
        hints: Option<&[u16]>,
    ) -> Result<(FileHandle, OwnedFd)> {
        let store = self.inner();
        let Scheme::Located(places) = &store.scheme else { return Err(Error::Stale) };
        let known = places.path(store, id);
        if let Some(path) = &known {
            match self.as_searcher(|| walk(store, path)) {
                Ok(file) if is(store, &file, id) => return Ok((places.handle(id).unwrap_or(*handle), file)),
                Err(Error::Access) => return Err(Error::Access),
                _ => {}
            }
        }
        if places.is_missing(id) {
            return Err(Error::Stale);
        }
        let found = {
            let _one_at_a_time = places.searching.lock();
            // Who waited for the lock may have waited for the answer to the same question.
            if places.is_missing(id) {
                return Err(Error::Stale);
            }
            let search = || Ok(Search::new(store, id).run(hints.unwrap_or_default()));
            if self.can_act() { as_process_user(search)? } else { search()? }
        };
        let Some(path) = found else {
            places.miss(id);
            return Err(Error::Stale);
        };
        self.note_path(places, &path, id, handle)?;
        let file = self.as_searcher(|| walk(store, &path))?;
        if is(store, &file, id) {
            Ok((places.handle(id).unwrap_or(*handle), file))
        } else {
            Err(Error::Stale)
        }
    }

    /// Remembers the place of each directory on the way, and of the file under the handle that the client has.
    fn note_path(&self, places: &Places, path: &[CString], id: FileId, handle: &FileHandle) -> Result<()> {
        let store = self.inner();
        let mut parent = store.root.id();
        for (depth, name) in path.iter().enumerate() {
            if depth + 1 == path.len() {
                let handle = places.handle(id).unwrap_or(*handle);
                places.put(id, handle, parent, name);
                break;
            }
            let look = || {
                let file = walk(store, &path[..=depth])?;
                Ok(file_id(&file, &status(&file, store.filesystem.fsid)?))
            };
            let here = if self.can_act() { as_process_user(look)? } else { look()? };
            places.note(store, parent, name, here);
            parent = here;
        }
        Ok(())
    }

    /// Runs `walk` as the one whose search permission counts.
    fn as_searcher<T>(&self, walk: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.can_act() {
            walk()
        } else if self.inner().subtree_check {
            self.wear_now()?;
            walk()
        } else {
            as_process_user(walk)
        }
    }
}

fn is(store: &Inner, file: &OwnedFd, id: FileId) -> bool {
    status(file, store.filesystem.fsid).is_ok_and(|status| file_id(file, &status) == id)
}

/// Opens a path from the root, in as few steps as the kernel's bound on paths allows.
fn walk(store: &Inner, path: &[CString]) -> Result<OwnedFd> {
    walk_from(store.root.file(), path)
}

/// As [`walk`], from any directory: a read-only clone's root.
pub(crate) fn walk_from(root: impl AsFd, path: &[CString]) -> Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut step = Vec::new();
    for (index, name) in path.iter().enumerate() {
        if !step.is_empty() {
            step.push(b'/');
        }
        step.extend_from_slice(name.to_bytes());
        if step.len() >= STEP_BYTES || index + 1 == path.len() {
            let from = at.as_ref().map_or_else(|| root.as_fd(), AsFd::as_fd);
            let next = openat2(from, step.as_slice(), PATH_ONLY, Mode::empty(), ONE_STEP)?;
            at = Some(next);
            step.clear();
        }
    }
    at.ok_or(Error::Stale)
}

/// One search for one file.
struct Search<'s> {
    store: &'s Inner,
    id: FileId,
    entries_left: usize,
    path: Vec<CString>,
}

impl<'s> Search<'s> {
    fn new(store: &'s Inner, id: FileId) -> Search<'s> {
        Search { store, id, entries_left: MAX_ENTRIES, path: Vec::new() }
    }

    fn run(mut self, hints: &[u16]) -> Option<Vec<CString>> {
        let root = reopen_directory(self.store.root.file()).ok()?;
        if !hints.is_empty() && self.look_in(&root, Some(hints)) {
            return Some(self.path);
        }
        self.path.clear();
        let root = reopen_directory(self.store.root.file()).ok()?;
        if self.look_in(&root, None) { Some(self.path) } else { None }
    }

    /// Looks for the file in `dir` and below; `hints` are for the names from here on, `None` looks everywhere.
    fn look_in(&mut self, dir: &OwnedFd, hints: Option<&[u16]>) -> bool {
        if self.path.len() >= MAX_DEPTH {
            return false;
        }
        // The names first, then the descent: reading a directory while deep below would need a buffer for each level.
        let mut directories = Vec::new();
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries_left = self.entries_left.saturating_sub(1);
            if self.entries_left == 0 {
                return false;
            }
            if let Some([hint, ..]) = hints
                && *hint != self.store.sealer.hint(name.to_bytes())
            {
                continue;
            }
            let likely = entry.ino() == self.id.fileid || !self.store.filesystem.true_entry_ids;
            if likely && self.is_it(dir, name) {
                self.path.push(name.to_owned());
                return true;
            }
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                directories.push(name.to_owned());
            }
        }
        let below = match hints {
            None => None,
            // The hints end here. If the handle had room for more, the file lay in this directory.
            Some([_]) if self.path.len() + 1 < MAX_HINTS => return false,
            Some([_]) => None,
            Some([_, rest @ ..]) => Some(rest),
            Some([]) => None,
        };
        for name in directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(inside) = openat2(dir, &name, flags, Mode::empty(), ONE_STEP) else { continue };
            self.path.push(name);
            if self.look_in(&inside, below) {
                return true;
            }
            self.path.pop();
        }
        false
    }

    fn is_it(&self, dir: &OwnedFd, name: &CStr) -> bool {
        openat2(dir, name, PATH_ONLY, Mode::empty(), ONE_STEP)
            .is_ok_and(|file| is(self.store, &file, self.id))
    }
}

fn reopen_directory(dir: impl AsFd) -> std::result::Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

impl Inner {
    /// The path at which a file was seen last, for opening it through another mount.
    pub(crate) fn known_path(&self, id: FileId) -> Option<Vec<CString>> {
        match &self.scheme {
            Scheme::Located(places) => places.path(self, id),
            Scheme::Kernel => None,
        }
    }
}
