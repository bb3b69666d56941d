//! Directories that are being read page by page.
//!
//! A client reads a large directory with many calls. Seeking in a directory that is already open is cheap on
//! every filesystem, and on those whose cookies mean something to one open directory only (overlayfs) it is
//! the only way. So the descriptor is put away under (directory, cookie) at the end of a page and taken out
//! by the call that goes on there.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use crate::data_file::DataFilePermit;
use crate::handle::FileHandle;

/// How many are kept.
const CAPACITY: usize = 64;
/// Rounds of tidying for which one is kept.
const KEPT: u32 = 10;

struct OpenDir {
    directory: FileHandle,
    cookie: u64,
    age: u32,
    file: OwnedFd,
    _share: DataFilePermit,
}

/// The bounded collection of them.
pub(crate) struct OpenDirs(Mutex<VecDeque<OpenDir>>);

impl std::fmt::Debug for OpenDirs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenDirs({})", self.0.lock().len())
    }
}

impl OpenDirs {
    pub fn new() -> OpenDirs {
        OpenDirs(Mutex::new(VecDeque::new()))
    }

    pub fn take(&self, directory: &FileHandle, cookie: u64) -> Option<OwnedFd> {
        let mut all = self.0.lock();
        let index = all.iter().position(|open| open.cookie == cookie && open.directory == *directory)?;
        all.remove(index).map(|open| open.file)
    }

    /// Keeps the descriptor, unless the process keeps `limit` for data already.
    pub fn put(&self, directory: FileHandle, cookie: u64, file: OwnedFd, limit: usize) {
        let Some(share) = DataFilePermit::take(limit) else { return };
        let mut all = self.0.lock();
        let oldest = if all.len() >= CAPACITY { all.pop_front() } else { None };
        all.push_back(OpenDir { directory, cookie, age: 0, file, _share: share });
        drop(all);
        drop(oldest);
    }

    /// Closes all of them. How many there were.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut *self.0.lock()).len()
    }

    pub fn reap(&self) {
        let mut all = self.0.lock();
        all.iter_mut().for_each(|open| open.age += 1);
        all.retain(|open| open.age < KEPT);
    }
}
