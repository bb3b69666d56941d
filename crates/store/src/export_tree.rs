//! The exported tree: its root, its handles, and opening of files in it.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::attributes::status;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::handle::{FileId, HandleSealer};
use crate::nested_exports::NestedExports;
use crate::node::Node;

/// Resolution that follows no symbolic link, enters no mount and stays below the starting directory.
pub(crate) const STRICT_RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

pub(crate) const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Bytes of a path that one openat2(2) resolves (`PATH_MAX` is 4096).
const STEP_BYTES: usize = 3800;

/// One exported tree.
#[derive(Debug)]
pub(crate) struct ExportTree {
    pub root: Arc<Node>,
    pub filesystem: Filesystem,
    pub sealer: HandleSealer,
    /// The exports below the root.
    pub nested: NestedExports,
}

impl ExportTree {
    /// Whether an open file is the one with this id.
    pub fn is_file(&self, file: &OwnedFd, id: FileId) -> bool {
        status(file, self.filesystem.fsid).is_ok_and(|status| FileId::of(file, &status) == id)
    }

    /// Opens a path from the root, in as few steps as the kernel's limit on path lengths allows.
    pub fn open_path(&self, path: &[CString]) -> Result<OwnedFd> {
        open_path_from(self.root.file(), path)
    }
}

/// As [`ExportTree::open_path`], from any directory, such as the root of a read-only clone.
pub(crate) fn open_path_from(root: impl AsFd, path: &[CString]) -> Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut step = Vec::new();
    for (index, name) in path.iter().enumerate() {
        if !step.is_empty() {
            step.push(b'/');
        }
        step.extend_from_slice(name.to_bytes());
        if step.len() >= STEP_BYTES || index + 1 == path.len() {
            let from = at.as_ref().map_or_else(|| root.as_fd(), AsFd::as_fd);
            let next = openat2(from, step.as_slice(), PATH_ONLY, Mode::empty(), STRICT_RESOLVE)?;
            at = Some(next);
            step.clear();
        }
    }
    at.ok_or(Error::Stale)
}

/// Opens a directory for reading, given any descriptor of it.
pub(crate) fn reopen_directory(dir: impl AsFd) -> std::result::Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
