//! Finding files again without the filesystem's handles.
//!
//! An ordinary user may not open by handle, and some filesystems have none. Then a handle says who the file
//! is (inode number and birth time) and leaves hints of the path on which it was seen. No database is kept:
//!
//! 1. While the server runs, a bounded map (`places`) says in which directory, under which name each file was
//!    seen last. The path is put together from the map, opened in one step from the root, and what is there
//!    must be the file.
//! 2. If it isn't (the server was restarted, or a local process renamed something), the hints lead: in each
//!    directory only those entries are looked into whose name has the right 16 bits. That is cheap, and
//!    bounded to stay so.
//! 3. If that fails, the whole tree is looked through, up to a bound, by one thread at a time; all others
//!    that would have to are told to try later. The result (`survey`) answers for every file, for a while:
//!    what it hasn't seen is gone. Only where it is contradicted (an entry that was there and isn't, a file
//!    that was seen later) another is made.
//!
//! What isn't found from the root isn't served: that is also all there is to `subtree_check`.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, openat2};
use rustix::io::Errno;

use crate::acting::{Acting, ONE_STEP, PATH_ONLY};
use crate::attributes::status;
use crate::error::{Error, Result};
use crate::handle::{FileHandle, FileId, MAX_HINTS};
use crate::identity::as_process_user;
use crate::open::{Inner, Scheme, file_id};
use crate::places::Places;
use crate::survey::{Finding, Survey};

/// Entries that are looked at along the hints. Nobody waits for anybody there, so it must not take long.
const MAX_HINTED: usize = 20_000;
/// Directories deep that this goes; each level keeps a descriptor open.
const MAX_DEPTH: usize = 128;
/// Bytes of a path opened in one step (`PATH_MAX` is 4096).
const STEP_BYTES: usize = 3800;

impl Acting<'_> {
    /// Opens the file `id` wherever it is below the root now. Returns the handle it goes by; `handle` if it
    /// had none.
    ///
    /// With `subtree_check` the user must be allowed to search the directories on the way. Otherwise, as with
    /// handles of the kernel, only the file itself counts.
    pub(crate) fn locate(
        &self,
        id: FileId,
        handle: &FileHandle,
        hints: Option<&[u16]>,
    ) -> Result<(FileHandle, OwnedFd)> {
        let store = self.inner();
        let Scheme::Located(places) = &store.scheme else { return Err(Error::Stale) };
        if store.others.has(id) {
            return Err(Error::Stale);
        }
        let known = places.path(store, id).filter(|_| !places.is_in_another_export(store, id));
        if let Some(path) = &known {
            match self.as_searcher(|| walk(store, path)) {
                Ok(file) if is(store, &file, id) => return Ok((places.handle(id).unwrap_or(*handle), file)),
                Err(error @ (Error::Access | Error::TryLater)) => return Err(error),
                _ => {}
            }
        }
        if places.is_missing(id) {
            return Err(Error::Stale);
        }
        let search = || self.search(places, id, hints.unwrap_or_default());
        let found = if self.can_act() { as_process_user(search)? } else { search()? };
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

    /// The path of a file of which no place is known; `None` when it is gone.
    fn search(&self, places: &Places, id: FileId, hints: &[u16]) -> Result<Option<Vec<CString>>> {
        let store = self.inner();
        let earlier = places.survey();
        let finding = match &earlier {
            Some(survey) => survey.find(store, id)?,
            None => Finding::Unseen,
        };
        match finding {
            Finding::At(path) => return Ok(Some(path)),
            Finding::Replaced => return Ok(None),
            Finding::Moved | Finding::Unseen => {}
        }
        if let Some(path) = Hinted::new(store, id).run(hints) {
            return Ok(Some(path));
        }
        if let Some(survey) = &earlier
            && finding == Finding::Unseen
            && !places.is_newer(id, survey)
        {
            return Ok(None);
        }
        let _alone = places.only_searcher()?;
        // One may have ended just now.
        let later = places.survey().filter(|survey| Some(survey.number()) > earlier.map(|one| one.number()));
        let survey = match later {
            Some(survey) => survey,
            None => places.keep_survey(Survey::make(store, places.begin_survey())?),
        };
        Ok(match survey.find(store, id)? {
            Finding::At(path) => Some(path),
            _ => None,
        })
    }

    /// Remembers the place of each directory on the way, and of the file under the handle that the client
    /// has.
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
            if store.others.has(here) {
                return Err(Error::Stale);
            }
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

pub(crate) fn is(store: &Inner, file: &OwnedFd, id: FileId) -> bool {
    status(file, store.filesystem.fsid).is_ok_and(|status| file_id(file, &status) == id)
}

/// Opens a path from the root, in as few steps as the kernel's bound on paths allows.
pub(crate) fn walk(store: &Inner, path: &[CString]) -> Result<OwnedFd> {
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

/// One look along the hints for one file.
struct Hinted<'s> {
    store: &'s Inner,
    id: FileId,
    entries_left: usize,
    /// The handle had no room for more hints: the file may be anywhere below where they end.
    beyond: bool,
    path: Vec<CString>,
}

impl<'s> Hinted<'s> {
    fn new(store: &'s Inner, id: FileId) -> Hinted<'s> {
        Hinted { store, id, entries_left: MAX_HINTED, beyond: false, path: Vec::new() }
    }

    fn run(mut self, hints: &[u16]) -> Option<Vec<CString>> {
        if hints.is_empty() {
            return None;
        }
        let root = reopen_directory(self.store.root.file()).ok()?;
        self.beyond = hints.len() == MAX_HINTS;
        self.look_in(&root, hints).then_some(self.path)
    }

    /// Looks for the file in `dir` and below; `hints` are for the names from here on.
    fn look_in(&mut self, dir: &OwnedFd, hints: &[u16]) -> bool {
        if self.path.len() >= MAX_DEPTH {
            return false;
        }
        let (hint, rest) = (hints.first(), hints.get(1..).unwrap_or_default());
        let deeper = self.beyond || !rest.is_empty();
        // The names first, then the descent: reading a directory while deep below would need a buffer for
        // each level.
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
            if hint.is_some_and(|hint| *hint != self.store.sealer.hint(name.to_bytes())) {
                continue;
            }
            let likely = entry.ino() == self.id.fileid || !self.store.filesystem.true_entry_ids;
            if likely && self.is_it(dir, name) {
                self.path.push(name.to_owned());
                return true;
            }
            if deeper && matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                directories.push(name.to_owned());
            }
        }
        drop(buffer);
        for name in directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(inside) = openat2(dir, &name, flags, Mode::empty(), ONE_STEP) else { continue };
            if self.store.others.at(&inside).is_some() {
                continue;
            }
            self.path.push(name);
            if self.look_in(&inside, rest) {
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

pub(crate) fn reopen_directory(dir: impl AsFd) -> std::result::Result<OwnedFd, Errno> {
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
