//! READDIR.
//!
//! A cookie is the filesystem's own position in the directory (`d_off`), so that paging survives concurrent
//! changes and needs no memory here. The verifier identifies the directory. On filesystems whose positions
//! don't outlive an open directory, or move when entries are removed (see `Filesystem::volatile_cookies`), it
//! also identifies the server process and the state of the directory: there a cookie is valid while the
//! directory is still open where the last page ended, or hasn't changed. Otherwise the client must start
//! again, because it would never notice a skipped entry.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, RawDir, SeekFrom, seek};

use super::context::UserContext;
use super::types::{AccessMode, DirEntry, DirPage};
use crate::attributes::{FileKind, FileStatus};
use crate::error::{Error, Result};
use crate::node::Node;

/// Buffer size for one getdents64(2), in bytes.
const BUFFER: usize = 32 * 1024;

/// Bytes of the verifier that identify the directory; the others identify its state.
const WHO: usize = 4;

const PURPOSE_DIRECTORY: u8 = 3;
const PURPOSE_DIRECTORY_STATE: u8 = 4;

impl UserContext<'_> {
    /// Calls `each` with the entries after `cookie` (0: from the start), including "." and "..", until it
    /// breaks or there are no more. The entry at which it breaks isn't consumed: the cookie of its
    /// predecessor continues with it.
    ///
    /// `verifier` is the one of the previous page, and ignored when `cookie` is 0.
    ///
    /// # Errors
    /// `NotDirectory`, `Access`, `BadCookie` for an invalid verifier or cookie, `Stale`, `Io`.
    pub fn read_dir(
        &self,
        dir: &Node,
        cookie: u64,
        verifier: [u8; 8],
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<DirPage> {
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let status = self.live(dir)?;
        self.check(dir, &status, AccessMode::Read)?;
        let ours = self.directory_verifier(dir, &status);
        let (who, state) = ours.split_at(WHO);
        if cookie != 0 && (&verifier[..WHO] != who || i64::try_from(cookie).is_err()) {
            return Err(Error::BadCookie);
        }
        let current = cookie == 0 || &verifier[WHO..] == state;
        let file = self.open_at(dir, cookie, current)?;
        let (reached, eof) = self.walk_entries(dir, &file, cookie, each)?;
        if !eof && reached != 0 {
            // The kernel has read ahead. Seek back now, while the position is still valid.
            if !self.store.tree.filesystem.volatile_cookies || seek(&file, SeekFrom::Start(reached)).is_ok() {
                self.store.dirs.put(*dir.handle(), reached, file, self.store.limits.data);
            }
        }
        // Cookies from an older state are invalid for the current one.
        Ok(DirPage { verifier: if current { ours } else { verifier }, eof })
    }

    /// The cookie after the last consumed entry, and whether it was the last of all.
    fn walk_entries(
        &self,
        dir: &Node,
        file: &OwnedFd,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(u64, bool)> {
        let at_root = dir.handle() == self.store.tree.root.handle();
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = RawDir::new(file.as_fd(), buffer.spare_capacity_mut());
        let mut reached = cookie;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| match errno {
                // Linux returns this for a directory that was removed while open.
                rustix::io::Errno::NOENT => Error::Stale,
                errno => errno.into(),
            })?;
            let name = entry.file_name().to_bytes();
            let fileid = if at_root && name == b".." { dir.fileid() } else { entry.ino() };
            let next = entry.next_entry_cookie();
            if each(DirEntry { name, fileid, cookie: next }).is_break() {
                return Ok((reached, false));
            }
            reached = next;
        }
        Ok((reached, true))
    }

    /// The directory open for reading, positioned at `cookie`. If `current`, the cookie is valid for any open
    /// directory.
    fn open_at(&self, dir: &Node, cookie: u64, current: bool) -> Result<OwnedFd> {
        let kept = if cookie == 0 { None } else { self.store.dirs.take(dir.handle(), cookie) };
        let file = match kept {
            Some(file) => file,
            None if cookie != 0 && !current => return Err(Error::BadCookie),
            None => self.reopen(dir.file(), OFlags::RDONLY | OFlags::DIRECTORY)?,
        };
        if cookie != 0 {
            seek(&file, SeekFrom::Start(cookie)).map_err(|_| Error::BadCookie)?;
        }
        Ok(file)
    }

    fn directory_verifier(&self, dir: &Node, status: &FileStatus) -> [u8; 8] {
        let store = self.store;
        let fileid = dir.id().fileid.to_be_bytes();
        let generation = dir.id().generation.to_be_bytes();
        let change = status.attributes.change.to_be_bytes();
        let (run, state): (&[u8], &[u8]) =
            if store.tree.filesystem.volatile_cookies { (&store.instance, &change) } else { (&[], &[]) };
        let who = store.key.hash(PURPOSE_DIRECTORY, &[&fileid, &generation, run]);
        let state = store.key.hash(PURPOSE_DIRECTORY_STATE, &[&fileid, &generation, state]);
        let mut verifier = [0; 8];
        verifier[..WHO].copy_from_slice(&who[..WHO]);
        verifier[WHO..].copy_from_slice(&state[..8 - WHO]);
        verifier
    }
}
