//! Open directories between two pages of READDIR.
//!
//! A client reads a large directory with many calls. Seeking in an open directory is cheap on every
//! filesystem, and the only way where cookies are valid for one open directory only (overlayfs). So the
//! descriptor is kept under (directory, cookie) at the end of a page and reused by the call that continues
//! there.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;

use crate::data_file::DataFilePermit;
use crate::handle::FileHandle;

/// How many are kept.
const MAX_OPEN_DIRS: usize = 64;
/// Rounds of the reaper before one is closed.
const MAX_AGE_ROUNDS: u32 = 10;

struct OpenDir {
    directory: FileHandle,
    cookie: u64,
    age: u32,
    file: OwnedFd,
    _share: DataFilePermit,
}

/// The kept directories.
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

    /// Keeps the descriptor, unless the process keeps `limit` data descriptors already.
    pub fn put(&self, directory: FileHandle, cookie: u64, file: OwnedFd, limit: usize) {
        let Some(share) = DataFilePermit::take(limit) else { return };
        let mut all = self.0.lock();
        let oldest = if all.len() >= MAX_OPEN_DIRS { all.pop_front() } else { None };
        all.push_back(OpenDir { directory, cookie, age: 0, file, _share: share });
        drop(all);
        drop(oldest);
    }

    /// Closes all of them; returns how many there were.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut *self.0.lock()).len()
    }

    pub fn reap(&self) {
        let mut all = self.0.lock();
        all.iter_mut().for_each(|open| open.age += 1);
        all.retain(|open| open.age < MAX_AGE_ROUNDS);
    }
}
