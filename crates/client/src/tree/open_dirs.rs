//! Open directories between two pages of a listing, and the verifiers of the pages' cookies.
//!
//! A cookie is the filesystem's position in the directory (`d_off`). On filesystems where it is good for one
//! open directory only, or moves when entries are removed, a cookie is valid while the directory is still
//! open where the page ended, or hasn't changed. The first half of a verifier is the tree's: a server, and
//! another tree, refuses it. The second half identifies the directory's state where that matters.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;

use crate::types::Attributes;

/// How many directories are kept open.
const MAX_OPEN_DIRS: usize = 64;

/// The filesystem types of ext4, xfs, btrfs and f2fs in statfs(2), whose cookies stay valid.
const LASTING_COOKIES: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

#[derive(Debug)]
struct OpenDir {
    directory: Box<[u8]>,
    cookie: u64,
    file: OwnedFd,
    /// Kept since the last `close_idle`.
    is_new: bool,
}

/// The kept directories.
#[derive(Debug)]
pub(super) struct OpenDirs {
    kept: Mutex<VecDeque<OpenDir>>,
    /// Makes verifiers that no other tree makes.
    hasher: RandomState,
    cookies_last: bool,
}

impl OpenDirs {
    /// For the filesystem of this directory.
    pub(super) fn new(root: impl AsFd) -> Self {
        let stat = rustix::fs::fstatfs(root);
        let cookies_last = stat.is_ok_and(|stat| LASTING_COOKIES.contains(&(stat.f_type as u64)));
        Self { kept: Mutex::default(), hasher: RandomState::new(), cookies_last }
    }

    /// The verifier of a page that begins in a directory of this identity and state.
    pub(super) fn verifier(&self, identity: &[u8], attributes: &Attributes) -> [u8; 8] {
        let state = if self.cookies_last { 0 } else { attributes.change };
        let mut verifier = self.hasher.hash_one(identity).to_be_bytes();
        verifier[4..].copy_from_slice(&self.hasher.hash_one((identity, state)).to_be_bytes()[4..]);
        verifier
    }

    /// Whether a verifier is of this tree and directory.
    pub(super) fn is_own(&self, verifier: [u8; 8], ours: [u8; 8]) -> bool {
        verifier[..4] == ours[..4]
    }

    /// The directory of this identity, open at the cookie.
    pub(super) fn take(&self, identity: &[u8], cookie: u64) -> Option<OwnedFd> {
        let mut kept = self.kept.lock();
        let index = kept.iter().position(|open| open.cookie == cookie && *open.directory == *identity)?;
        kept.remove(index).map(|open| open.file)
    }

    /// Keeps a directory that is open at the cookie.
    pub(super) fn put(&self, identity: &[u8], cookie: u64, file: OwnedFd) {
        let mut kept = self.kept.lock();
        let oldest = if kept.len() >= MAX_OPEN_DIRS { kept.pop_front() } else { None };
        kept.push_back(OpenDir { directory: identity.into(), cookie, file, is_new: true });
        drop(kept);
        drop(oldest);
    }

    /// Closes the directories that were kept before the last call.
    pub(super) fn close_idle(&self) {
        self.kept.lock().retain_mut(|open| std::mem::take(&mut open.is_new));
    }
}
