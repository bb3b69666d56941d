//! What can be done with a granted file without leaving the thread: for a caller that has threads of its own,
//! like a mounted filesystem, and for whom `None` (there is no lane now) means to go the async way.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::fs::{AtFlags, StatxFlags};

use super::File;
use crate::attribute_sink::AttributeUpdate;
use crate::error::Result;
use crate::types::Attributes;

impl File {
    /// As [`File::write_at`] over the lane, on this thread.
    #[inline]
    #[must_use]
    pub fn write_now(&self, data: &[u8], offset: u64) -> Option<Result<()>> {
        if let Err(error) = self.inner.writable() {
            return Some(Err(error));
        }
        self.inner.write_granted(data, offset)
    }

    /// As [`File::set_len`] over the lane, on this thread.
    #[must_use]
    pub fn set_len_now(&self, len: u64) -> Option<Result<()>> {
        if let Err(error) = self.inner.writable() {
            return Some(Err(error));
        }
        self.inner.set_len_granted(len)
    }

    /// Whether the granted file is in memory and nowhere else, so that no call on it waits for a disk (tmpfs;
    /// not for what is swapped out).
    #[must_use]
    pub fn is_in_memory(&self) -> Option<bool> {
        self.inner.look_at_grant(|granted| granted.is_in_memory())
    }

    /// As [`File::attributes`], asked of the granted file. Also `None` if the owner is another one than when
    /// the file was opened.
    #[must_use]
    pub fn attributes_now(&self) -> Option<Result<Attributes>> {
        let inner = &self.inner;
        let opened_as = inner.opened_as?;
        let asked = Instant::now();
        let stat =
            inner.look(|file| rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS))?;
        // A server in another user namespace calls the owner by another number: then only it can tell.
        if stat.is_ok_and(|stat| (stat.stx_uid, stat.stx_gid) != (opened_as.uid, opened_as.gid)) {
            return None;
        }
        Some(stat.map_err(|error| inner.local(error.into())).map(|stat| {
            // And it has its own number for the filesystem.
            let attributes = Attributes::of(&stat, opened_as.fsid);
            if let Some(sink) = &inner.session.inner.options.attribute_sink {
                let seen = AttributeUpdate { before: None, attributes: Some(attributes), asked };
                sink.attributes(&inner.handle, &seen);
            }
            attributes
        }))
    }

    /// Runs `f` with the granted descriptor, which has exactly the access that the file was opened with, for
    /// system calls that the library has no method for. The server waits for its end (bounded) before it
    /// goes: no long affairs.
    pub fn with_granted<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.inner.lend(false, f)
    }

    /// As [`File::with_granted`] for a caller who hands the descriptor on, as FUSE passthrough does: others
    /// may write through it, so from now on each [`File::commit`] syncs it, also when the server has taken
    /// the grant back.
    pub fn pass_granted<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        self.inner.lend(true, f)
    }

    /// Why the lane gave no grant for this file when it was last asked, if it was: [`crate::Session::lane`]
    /// says why there is no lane at all.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let refused = *self.inner.refused.lock();
        refused.filter(|_| !self.inner.has_grant()).map(|status| status.to_string())
    }
}
