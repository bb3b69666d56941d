//! GETLK, SETLK and SETLKW: fcntl(2) locks, those of open file descriptions, and flock(2), all of them byte
//! ranges at the server.
//!
//! The kernel names an owner by a number: a process for fcntl(2), and an open file description for the
//! others. A process's locks end with each of its close(2)s of the file (FLUSH), and all that were made
//! through an open at the latest with its RELEASE, when the client closes the file at the server.
//!
//! A lock is used to see what others have written before they gave it back, so the kernel's cached data of
//! the file is dropped when one is had, and its new attributes are fetched before that. Under a write
//! delegation that is done with the first lock only, because nobody else writes until it is recalled.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use client::{ByteRange, LockKind, LockOwner, LockRequest, Status};
use rustix::io::Errno;

use super::{Filesystem, RequestContext};
use crate::fuse::reply::FuseReply;
use crate::fuse::request::LockArgs;
use crate::inode::Inode;
use crate::open_table::OpenFile;

/// Which locks go to the server. The kernel keeps the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RemoteLocks {
    /// fcntl(2)'s, and those of open file descriptions.
    pub(crate) posix: bool,
    /// flock(2)'s.
    pub(crate) flock: bool,
}

impl Filesystem {
    /// GETLK.
    pub(super) async fn get_lock(&self, args: &LockArgs) -> Result<FuseReply, Errno> {
        let open = self.open_file(args.fh)?;
        let kind = args.kind.ok_or(Errno::INVAL)?;
        let test = || open.file.test_lock(args.owner, args.range, kind);
        let found = self.ask_after_closes(&open.inode, test, |found| matches!(found, Ok(Some(_)))).await;
        let found = found.map_err(|error| self.errno(&error))?;
        Ok(FuseReply::with_capacity(24).lock(found.map(|found| (found.range, found.kind))))
    }

    /// SETLK, and SETLKW, which waits.
    pub(super) async fn set_lock(
        &self,
        request: &RequestContext,
        args: &LockArgs,
        waits: bool,
    ) -> Result<FuseReply, Errno> {
        let open = self.open_file(args.fh)?;
        match args.kind {
            // As the kernel's client. flock(1) then opens the file again for writing.
            Some(LockKind::Read) if !open.read => return Err(Errno::BADF),
            Some(LockKind::Write) if !open.write => return Err(Errno::BADF),
            Some(kind) => self.lock(request, &open, (args.owner, args.range, kind), waits).await?,
            None => {
                // What was written through a mapping belongs to what the lock has protected.
                self.kernel.write_back_mappings(&open.inode).await;
                let unlocked = open.file.unlock(args.owner, Some(args.range)).await;
                unlocked.map_err(|error| self.errno(&error))?;
            }
        }
        Ok(FuseReply::default())
    }

    async fn lock(
        &self,
        context: &RequestContext,
        open: &OpenFile,
        (owner, range, kind): (LockOwner, ByteRange, LockKind),
        waits: bool,
    ) -> Result<(), Errno> {
        let is_denied = |locked: &client::Result<()>| {
            locked.as_ref().is_err_and(|error| error.status() == Some(Status::Locked))
        };
        let mut request = LockRequest { owner, range, kind, waits: false };
        open.had_lock.store(true, Relaxed);
        let mut locked = self.ask_after_closes(&open.inode, || open.file.lock(request), is_denied).await;
        if is_denied(&locked) {
            if !waits {
                return Err(Errno::AGAIN);
            }
            // A request that waits must leave room for the one that ends its wait.
            let _permit = self.lock_waits.try_acquire().map_err(|_| Errno::NOLCK)?;
            request.waits = true;
            locked = open.file.lock(request).await;
        }
        locked.map_err(|error| self.errno(&error))?;
        let _granted = self.granted_locks.enter(context.header.unique);
        let now = Instant::now();
        let delegated = self.session.write_delegated_since(&open.inode.handle);
        if delegated.is_none_or(|since| open.inode.lock().synchronized < Some(since)) {
            self.drop_old_data(open).await;
            open.inode.lock().synchronized = delegated.map(|_| now);
        }
        Ok(())
    }

    /// Asks for a lock, or about one, and doesn't let locks of closed descriptions deny it: close(2) releases
    /// the locks of flock(2) and of open file descriptions before it returns, and RELEASE comes after that.
    async fn ask_after_closes<T, F: Future<Output = T>>(
        &self,
        inode: &Inode,
        ask: impl Fn() -> F,
        is_denied: impl Fn(&T) -> bool,
    ) -> T {
        let released = inode.lock().opens.released();
        self.closes.wait_until_idle(&inode.number).await;
        let answer = ask().await;
        if !is_denied(&answer) {
            return answer;
        }
        self.receive_releases().await;
        if inode.lock().opens.released() == released {
            return answer;
        }
        self.closes.wait_until_idle(&inode.number).await;
        ask().await
    }

    /// Makes the kernel forget what it knows of a file. Its next GETATTR must not be the first to show a
    /// change: the kernel would be told to drop its data before it has the reply, and then ignore the reply
    /// (fs/fuse/inode.c, `fuse_change_attributes_i`). A read that needs the new length would end at the old
    /// one.
    async fn drop_old_data(&self, open: &OpenFile) {
        open.inode.lock().attributes.expire(Instant::now());
        let asked = Instant::now();
        // A failure is left to the next request that uses the file.
        if let Ok(attributes) = open.file.attributes().await {
            self.update_attributes(&open.inode, attributes, asked);
        }
        open.inode.lock().attributes.take_stale_data();
        self.kernel.drop_data(&open.inode).await;
    }

    /// A process has closed the file: its fcntl(2) locks on it end, whichever open they were made through.
    pub(super) async fn end_process_locks(&self, open: &OpenFile, owner: LockOwner) {
        if self.remote_locks.posix
            && let Err(error) = open.file.unlock(owner, None).await
        {
            tracing::warn!(%error, "locks may last until the server takes them back");
        }
    }
}
