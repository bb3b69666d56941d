//! Resolution of located handles, where the filesystem's own handles can't be used.
//!
//! An ordinary user may not open by handle, and some filesystems have no handles. There a handle contains the
//! file's identity (inode number and birth time) and hints of the path on which it was seen. There is no
//! database:
//!
//! 1. While the server runs, a bounded cache (`path_cache`) has the directory and name under which each file
//!    was last seen. The path is assembled from it and opened in one step from the root. The result must be
//!    the file.
//! 2. If it isn't, because the server was restarted or a local process renamed something, the hints are
//!    followed: in each directory only entries are examined whose names have the right 16-bit hash. That is
//!    cheap, and bounded.
//! 3. If that fails, the whole tree is scanned, up to a bound, by one thread at a time; others return
//!    `TryLater`. The scan (`tree_scan`) answers for every file for a while: a file that it hasn't seen is
//!    gone. It is repeated only when contradicted, by an entry that has disappeared or a file that was seen
//!    later.
//!
//! Files that aren't found from the root aren't served. That is also the implementation of `subtree_check`.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, openat2};

use super::context::UserContext;
use crate::attributes::status;
use crate::error::{Error, Result};
use crate::export_tree::{ExportTree, PATH_ONLY, STRICT_RESOLVE, reopen_directory};
use crate::handle::{FileHandle, FileId, MAX_HINTS};
use crate::inner::HandleScheme;
use crate::path_cache::PathCache;
use crate::tree_scan::{ScanResult, TreeScan};
use user_ids::as_process_user;

/// Maximum number of entries examined along the hints. Several threads may do that at once, so it must be
/// quick.
const MAX_HINTED: usize = 20_000;
/// Maximum depth; each level keeps a descriptor open.
const MAX_DEPTH: usize = 128;

impl UserContext<'_> {
    /// Opens the file `id` wherever it is below the root. Returns its handle, or `handle` if it has none yet.
    ///
    /// With `subtree_check` the user must be allowed to search the directories on the way. Otherwise, as with
    /// kernel handles, only the file itself counts.
    pub(super) fn resolve_located(
        &self,
        id: FileId,
        handle: &FileHandle,
        hints: Option<&[u16]>,
    ) -> Result<(FileHandle, OwnedFd)> {
        let tree = &self.store.tree;
        let HandleScheme::Located(paths) = &self.store.scheme else { return Err(Error::Stale) };
        if tree.nested.has(id) {
            return Err(Error::Stale);
        }
        let known = paths.path(tree, id).filter(|_| !paths.is_in_another_export(tree, id));
        if let Some(path) = &known {
            match self.as_searcher(|| tree.open_path(path)) {
                Ok(file) if tree.is_file(&file, id) => {
                    return Ok((paths.handle(id).unwrap_or(*handle), file));
                }
                Err(error @ (Error::Access | Error::TryLater)) => return Err(error),
                _ => {}
            }
        }
        if paths.is_missing(id) {
            return Err(Error::Stale);
        }
        let search = || self.search(paths, id, hints.unwrap_or_default());
        let found = self.as_process(search)?;
        let Some(path) = found else {
            paths.miss(id);
            return Err(Error::Stale);
        };
        self.note_path(paths, &path, id, handle)?;
        let file = self.as_searcher(|| tree.open_path(&path))?;
        if tree.is_file(&file, id) {
            Ok((paths.handle(id).unwrap_or(*handle), file))
        } else {
            Err(Error::Stale)
        }
    }

    /// The path of a file that isn't cached; `None` when it is gone.
    fn search(&self, paths: &PathCache, id: FileId, hints: &[u16]) -> Result<Option<Vec<CString>>> {
        let tree = &self.store.tree;
        let earlier = paths.scan();
        let result = match &earlier {
            Some(scan) => scan.find(tree, id)?,
            None => ScanResult::Unseen,
        };
        match result {
            ScanResult::At(path) => return Ok(Some(path)),
            ScanResult::Replaced => return Ok(None),
            ScanResult::Moved | ScanResult::Unseen => {}
        }
        if let Some(path) = Hinted::new(tree, id).run(hints) {
            return Ok(Some(path));
        }
        if let Some(scan) = &earlier
            && result == ScanResult::Unseen
            && !paths.is_newer(id, scan)
        {
            return Ok(None);
        }
        let _alone = paths.only_searcher()?;
        // Another thread may have finished one just now.
        let later = paths.scan().filter(|scan| Some(scan.number()) > earlier.map(|one| one.number()));
        let scan = match later {
            Some(scan) => scan,
            None => paths.keep_scan(TreeScan::make(tree, paths.begin_scan())?),
        };
        Ok(match scan.find(tree, id)? {
            ScanResult::At(path) => Some(path),
            _ => None,
        })
    }

    /// Caches the name of each directory on the path, and that of the file with the client's handle.
    fn note_path(&self, paths: &PathCache, path: &[CString], id: FileId, handle: &FileHandle) -> Result<()> {
        let tree = &self.store.tree;
        let mut parent = tree.root.id();
        for (depth, name) in path.iter().enumerate() {
            if depth + 1 == path.len() {
                let handle = paths.handle(id).unwrap_or(*handle);
                paths.put(id, handle, parent, name);
                break;
            }
            let identify = || {
                let file = tree.open_path(&path[..=depth])?;
                Ok(FileId::of(&file, &status(&file, tree.filesystem.fsid)?))
            };
            let here = self.as_process(identify)?;
            if tree.nested.has(here) {
                return Err(Error::Stale);
            }
            paths.note(tree, parent, name, here);
            parent = here;
        }
        Ok(())
    }

    /// The path at which a file was last seen, for opening it through another mount.
    pub(super) fn known_path(&self, id: FileId) -> Option<Vec<CString>> {
        match &self.store.scheme {
            HandleScheme::Located(paths) => paths.path(&self.store.tree, id),
            HandleScheme::Kernel => None,
        }
    }

    /// Runs `walk` as the user if the user needs search permission, else as the process.
    fn as_searcher<T>(&self, walk: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.is_privileged() {
            walk()
        } else if self.store.subtree_check {
            self.assume_ids()?;
            walk()
        } else {
            as_process_user(walk)
        }
    }
}

/// One search along the hints.
struct Hinted<'s> {
    tree: &'s ExportTree,
    id: FileId,
    entries_left: usize,
    /// The handle had no room for more hints: the file may be anywhere below the last one.
    beyond: bool,
    path: Vec<CString>,
}

impl<'s> Hinted<'s> {
    fn new(tree: &'s ExportTree, id: FileId) -> Hinted<'s> {
        Hinted { tree, id, entries_left: MAX_HINTED, beyond: false, path: Vec::new() }
    }

    fn run(mut self, hints: &[u16]) -> Option<Vec<CString>> {
        if hints.is_empty() {
            return None;
        }
        let root = reopen_directory(self.tree.root.file()).ok()?;
        self.beyond = hints.len() == MAX_HINTS;
        self.look_in(&root, hints).then_some(self.path)
    }

    /// Searches `dir` and below; `hints` are for the names from here on.
    fn look_in(&mut self, dir: &OwnedFd, hints: &[u16]) -> bool {
        if self.path.len() >= MAX_DEPTH {
            return false;
        }
        let (hint, rest) = (hints.first(), hints.get(1..).unwrap_or_default());
        let deeper = self.beyond || !rest.is_empty();
        // All names are read before descending, so that there is one buffer and not one for each level.
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
            if hint.is_some_and(|hint| *hint != self.tree.sealer.hint(name.to_bytes())) {
                continue;
            }
            let likely = entry.ino() == self.id.fileid || !self.tree.filesystem.true_entry_ids;
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
            let Ok(inside) = openat2(dir, &name, flags, Mode::empty(), STRICT_RESOLVE) else { continue };
            if self.tree.nested.at(&inside).is_some() {
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
        openat2(dir, name, PATH_ONLY, Mode::empty(), STRICT_RESOLVE)
            .is_ok_and(|file| self.tree.is_file(&file, self.id))
    }
}
