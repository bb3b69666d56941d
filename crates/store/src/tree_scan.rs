//! A scan of the whole tree, for files of which only the handle is known.
//!
//! After a restart one client may have thousands of handles whose files are gone. Searching the tree for each
//! of them would occupy a worker for hours. So one scan records the inode number, directory and name of each
//! entry, about 32 bytes, up to a bound. Whether an entry is the requested file is verified on request only:
//! for a million entries that would be a million system calls.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, openat2, statx};

use crate::attributes::status;
use crate::error::{Error, Result};
use crate::export_tree::{ExportTree, STRICT_RESOLVE, reopen_directory};
use crate::handle::FileId;

/// Maximum number of entries in a scan.
const MAX_ENTRIES: usize = 1_000_000;
/// Maximum number of bytes of names.
const MAX_NAMES: usize = 32 << 20;
/// Maximum depth; each level keeps a descriptor open.
const MAX_DEPTH: usize = 128;

/// The directory index of the root's entries.
const ROOT: u32 = u32::MAX;

/// One entry of the tree.
#[derive(Debug)]
struct Entry {
    fileid: u64,
    /// Index of its directory in `TreeScan::directories`.
    directory: u32,
    /// Offset of its name in `TreeScan::names`, which ends with a NUL.
    name: u32,
}

/// A directory below the root: its parent and its name, as in [`Entry`].
#[derive(Debug)]
struct Directory {
    parent: u32,
    name: u32,
}

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct TreeScan {
    number: u64,
    /// Sorted by inode number.
    entries: Vec<Entry>,
    directories: Vec<Directory>,
    names: Vec<u8>,
}

/// What a scan says about a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScanResult {
    /// The file is at this path now.
    At(Vec<CString>),
    /// Another file has its inode number now: it is gone.
    Replaced,
    /// An entry with its inode number was there and has moved or gone.
    Moved,
    /// The scan has no entry with its inode number.
    Unseen,
}

impl TreeScan {
    /// Scans the tree with the rights of the calling thread. Entries that it may not see, and those beyond
    /// the bounds, are missing.
    ///
    /// # Errors
    /// `TryLater` when descriptors or memory are short; then the scan says nothing.
    pub fn make(tree: &ExportTree, number: u64) -> Result<TreeScan> {
        let mut scan = TreeScan { number, entries: Vec::new(), directories: Vec::new(), names: Vec::new() };
        let root = reopen_directory(tree.root.file())?;
        scan.look_in(tree, &root, ROOT, 0)?;
        scan.entries.sort_unstable_by_key(|entry| entry.fileid);
        scan.entries.shrink_to_fit();
        Ok(scan)
    }

    /// The number of the scan in its store, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Records the entries of `dir`, the directory with this index, and of those below; `false` when a bound
    /// is reached.
    fn look_in(&mut self, tree: &ExportTree, dir: &OwnedFd, index: u32, depth: usize) -> Result<bool> {
        // All names are recorded before descending, so that there is one buffer and not one for each level.
        let first = self.directories.len();
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let bytes = name.to_bytes_with_nul();
            if self.entries.len() >= MAX_ENTRIES || self.names.len() + bytes.len() > MAX_NAMES {
                return Ok(false);
            }
            let fileid = if tree.filesystem.true_entry_ids { entry.ino() } else { true_id(dir, name) };
            let at = self.names.len() as u32;
            self.names.extend_from_slice(bytes);
            self.entries.push(Entry { fileid, directory: index, name: at });
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                self.directories.push(Directory { parent: index, name: at });
            }
        }
        drop(buffer);
        if depth + 1 >= MAX_DEPTH {
            return Ok(true);
        }
        for below in first..self.directories.len() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let name = self.name(self.directories[below].name);
            let inside = match openat2(dir, name, flags, Mode::empty(), STRICT_RESOLVE) {
                Ok(inside) => inside,
                Err(errno) if Error::from(errno) == Error::TryLater => return Err(Error::TryLater),
                Err(_) => continue,
            };
            if tree.nested.at(&inside).is_some() {
                continue;
            }
            if !self.look_in(tree, &inside, below as u32, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn name(&self, at: u32) -> &CStr {
        CStr::from_bytes_until_nul(&self.names[at as usize..]).unwrap_or(c"")
    }

    fn path(&self, entry: &Entry) -> Vec<CString> {
        let mut path = vec![self.name(entry.name).to_owned()];
        let mut at = entry.directory;
        while let Some(directory) = self.directories.get(at as usize) {
            path.push(self.name(directory.name).to_owned());
            at = directory.parent;
        }
        path.reverse();
        path
    }

    /// Checks whether the file is where the scan saw its inode number.
    ///
    /// # Errors
    /// `TryLater`, as for [`TreeScan::make`].
    pub fn find(&self, tree: &ExportTree, id: FileId) -> Result<ScanResult> {
        let start = self.entries.partition_point(|entry| entry.fileid < id.fileid);
        let mut finding = ScanResult::Unseen;
        for entry in self.entries[start..].iter().take_while(|entry| entry.fileid == id.fileid) {
            let path = self.path(entry);
            match tree.open_path(&path) {
                Ok(file) if tree.is_file(&file, id) => return Ok(ScanResult::At(path)),
                Ok(file) if has_number(&file, id.fileid) => finding = ScanResult::Replaced,
                Err(Error::TryLater) => return Err(Error::TryLater),
                _ if finding == ScanResult::Unseen => finding = ScanResult::Moved,
                _ => {}
            }
        }
        Ok(finding)
    }
}

fn has_number(file: &OwnedFd, fileid: u64) -> bool {
    status(file, 0).is_ok_and(|status| status.attributes.fileid == fileid)
}

/// The inode number that the file itself reports, 0 if it is gone.
fn true_id(dir: &OwnedFd, name: &CStr) -> u64 {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(dir, name, flags, StatxFlags::INO).map_or(0, |raw| raw.stx_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::inner::HandleScheme;
    use crate::testing::store;

    fn id_of(tree: &ExportTree, path: &std::path::Path) -> FileId {
        let file = std::fs::File::open(path).expect("there");
        FileId::of(&file, &status(&file, tree.filesystem.fsid).expect("says"))
    }

    #[test]
    fn a_scan_finds_files_and_detects_later_changes() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b/c")).expect("makes");
        for name in ["top", "a/b/c/deep", "a/moves", "a/b/goes"] {
            std::fs::write(at(name), b"").expect("writes");
        }
        let store = store(dir.path());
        let inner = &store.inner().tree;
        let [top, deep, moves, goes, inside] =
            ["top", "a/b/c/deep", "a/moves", "a/b/goes", "a/b"].map(|name| id_of(inner, &at(name)));
        let scan = TreeScan::make(inner, 1).expect("looks");
        std::fs::rename(at("a/moves"), at("moved")).expect("renames");
        std::fs::remove_file(at("a/b/goes")).expect("removes");
        std::fs::write(at("new"), b"").expect("writes");
        let path = |names: &[&str]| {
            ScanResult::At(names.iter().map(|name| CString::new(*name).expect("no NUL")).collect())
        };
        let find = |id| scan.find(inner, id).expect("looks");
        assert_eq!(find(top), path(&["top"]));
        assert_eq!(find(deep), path(&["a", "b", "c", "deep"]));
        assert_eq!(find(inside), path(&["a", "b"]));
        assert_eq!(find(moves), ScanResult::Moved);
        assert_eq!(find(goes), ScanResult::Moved);
        assert_eq!(find(FileId { generation: 1, ..top }), ScanResult::Replaced);
        assert_eq!(find(FileId { fileid: u64::MAX, generation: 1 }), ScanResult::Unseen);
    }

    #[test]
    fn a_concurrent_scan_returns_try_later() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a scratch directory");
        let store = store(dir.path());
        let inner = store.inner();
        let HandleScheme::Located(paths) = &inner.scheme else { panic!("subtree_check is located") };
        let handle = inner.tree.sealer.located(FileId { fileid: u64::MAX, generation: 1 }, &[7]);
        let nobody = Identity { uid: 0, gid: 0, groups: vec![] };
        let context = store.as_user(&nobody).expect("acts");
        let searching = paths.only_searcher().expect("no other scan");
        for _ in 0..3 {
            assert_eq!(context.node(handle.as_bytes()).err(), Some(Error::TryLater));
        }
        drop(searching);
        assert_eq!(paths.tree_scans(), 0);
        assert_eq!(context.node(handle.as_bytes()).err(), Some(Error::Stale));
        assert_eq!(paths.tree_scans(), 1);
    }
}
