//! Byte-range locks of an open file. They are always the server's, also while data takes the lane. A file
//! whose locks may be lost takes the wire ([`super::lane_io`]).

use client_state::{ByteRange, LockKind};

use super::File;
use crate::error::{Result, not_supported};
use crate::operations::{LockConflict, LockOwner, LockRequest, Operations as _};

impl File {
    /// Locks bytes of the file, instead of what the owner has locked of them before. The file's end releases
    /// what an owner has locked through it last, in the background: [`File::unlock`] waits for the server.
    ///
    /// A caller that stops waiting has no lock.
    ///
    /// # Errors
    /// [`Status::Locked`](crate::Status::Locked) if another owner's lock conflicts and the request doesn't
    /// wait; [`Status::NotSupported`](crate::Status::NotSupported) by NFSv3;
    /// [`Status::Io`](crate::Status::Io) if the owner has lost locks on the file; the server's or the call's.
    pub async fn lock(&self, request: LockRequest) -> Result<()> {
        let inner = &self.inner;
        let Some(open) = &inner.open_on_wire().await?.open else { return Err(not_supported("LOCK")) };
        inner.settle_writes().await;
        let files = [&inner.handle];
        let caller = &inner.session.caller;
        let locked = caller.perform(&files, |nfs, user| nfs.lock(user, &inner.handle, open, request)).await;
        locked.map_err(|error| error.about(|| inner.display_name()))
    }

    /// Unlocks bytes of the file, or, with `None`, everything: the owner has closed it.
    ///
    /// # Errors
    /// [`Status::NotSupported`](crate::Status::NotSupported) by NFSv3; the server's or the call's.
    pub async fn unlock(&self, owner: LockOwner, range: Option<ByteRange>) -> Result<()> {
        let inner = &self.inner;
        // What the lock has protected must be at the server when another owner gets it, and be durable there
        // (RFC 8881 section 10.3.2): written again after a restart, it would replace what that owner writes.
        // A failure is reported by the next fsync or close.
        if range.is_some() {
            inner.commit_silently().await;
        } else {
            inner.settle_writes().await;
        }
        let caller = &inner.session.caller;
        // Every close of a file comes here. A handle that needs a seal was in no call yet, and so in no LOCK.
        let unlocked = caller.perform(&[], |nfs, user| nfs.unlock(user, &inner.handle, owner, range)).await;
        unlocked.map_err(|error| error.about(|| inner.display_name()))
    }

    /// A lock of another owner that keeps this one from locking the range.
    ///
    /// # Errors
    /// [`Status::NotSupported`](crate::Status::NotSupported) by NFSv3; the server's or the call's.
    pub async fn test_lock(
        &self,
        owner: LockOwner,
        range: ByteRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>> {
        let inner = &self.inner;
        let files = [&inner.handle];
        let caller = &inner.session.caller;
        let lock = (range, kind);
        let tested =
            caller.perform(&files, |nfs, user| nfs.test_lock(user, &inner.handle, owner, lock)).await;
        tested.map_err(|error| error.about(|| inner.display_name()))
    }
}
