//! The handler of each operation.

use rustix::io::Errno;

use super::{Filesystem, Outcome, RequestContext};
use crate::fuse::reply::ReplyEntries;
use crate::fuse::request::{FileOperation, ReadDirArgs};

impl Filesystem {
    /// Handles a request.
    ///
    /// # Errors
    /// The error that the application gets.
    pub(crate) async fn handle(
        &self,
        request: &RequestContext,
        operation: FileOperation,
    ) -> Result<Outcome, Errno> {
        // Each request's future has room for the largest handler that isn't boxed. Most requests are reads.
        match operation {
            FileOperation::Read(args) => self.read(&args).await.map(Outcome::from),
            FileOperation::Write(args) => Box::pin(self.write(args)).await.map(Outcome::from),
            other => Box::pin(self.handle_any(request, other)).await,
        }
    }

    async fn handle_any(&self, request: &RequestContext, operation: FileOperation) -> Result<Outcome, Errno> {
        let entries = operation.entries();
        let reply = match operation {
            FileOperation::Open(args) => return self.open(request, &args).await,
            FileOperation::Create { name, mode, open } => {
                return self.create(request, &name, mode, &open).await;
            }
            FileOperation::OpenDir => return self.open_dir(request).await,
            FileOperation::Lookup { name } => self.lookup(request, &name).await,
            FileOperation::GetAttr { fh } => self.get_attributes(request, fh).await,
            FileOperation::Statx { fh } => Box::pin(self.statx(request, fh)).await,
            FileOperation::SetAttr(args) => self.set_attributes(request, &args).await,
            FileOperation::ReadLink => self.read_link(request).await,
            FileOperation::Symlink { name, target } => Box::pin(self.symlink(request, &name, &target)).await,
            FileOperation::MkNod { name, kind, mode, rdev } => {
                Box::pin(self.make_node(request, &name, kind, mode, rdev)).await
            }
            FileOperation::MkDir { name, mode } => Box::pin(self.make_dir(request, &name, mode)).await,
            FileOperation::Unlink { name } => self.unlink(request, &name).await,
            FileOperation::RmDir { name } => self.remove_dir(request, &name).await,
            FileOperation::Rename(args) => self.rename(request, &args).await,
            FileOperation::Link { from, name } => Box::pin(self.link(request, from, &name)).await,
            FileOperation::Read(args) => self.read(&args).await,
            FileOperation::Write(args) => Box::pin(self.write(args)).await,
            FileOperation::Flush { fh, owner } => Box::pin(self.flush(fh, owner)).await,
            FileOperation::GetLock(args) => Box::pin(self.get_lock(&args)).await,
            FileOperation::SetLock { lock, waits } => Box::pin(self.set_lock(request, &lock, waits)).await,
            FileOperation::FSync { fh } => Box::pin(self.fsync(fh)).await,
            FileOperation::ReadDir(args) => Box::pin(self.read_dir(&args)).await,
            FileOperation::ReleaseDir { fh } => self.release_dir(fh),
            FileOperation::FSyncDir => self.fsync_dir(request).await,
            FileOperation::StatFs => self.stat_fs(request).await,
            FileOperation::Access { mask } => self.access(request, mask).await,
            FileOperation::SetXattr { name, value, how } => {
                Box::pin(self.set_xattr(request, &name, &value, how)).await
            }
            FileOperation::GetXattr { name, room } => Box::pin(self.get_xattr(request, &name, room)).await,
            FileOperation::ListXattr { room } => Box::pin(self.list_xattrs(request, room)).await,
            FileOperation::RemoveXattr { name } => Box::pin(self.remove_xattr(request, &name)).await,
            FileOperation::FAllocate(args) => Box::pin(self.fallocate(request, &args)).await,
            FileOperation::LSeek { fh, offset, to } => Box::pin(self.seek(fh, offset, to)).await,
            FileOperation::CopyFileRange(args) => Box::pin(self.copy_range(request, &args)).await,
        };
        reply.map(|reply| Outcome { entries, ..Outcome::from(reply) })
    }
}

impl FileOperation {
    /// What the reply has of nodes.
    const fn entries(&self) -> ReplyEntries {
        match self {
            Self::Lookup { .. }
            | Self::Symlink { .. }
            | Self::MkNod { .. }
            | Self::MkDir { .. }
            | Self::Link { .. } => ReplyEntries::One,
            Self::ReadDir(ReadDirArgs { plus: true, .. }) => ReplyEntries::Listing,
            _ => ReplyEntries::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that a handler returns.
    fn size<'a, F: Future>(_: impl FnOnce(&'a Filesystem, &'a RequestContext, FileOperation) -> F) -> usize {
        size_of::<F>()
    }

    /// Each request allocates and copies its future.
    #[test]
    fn futures_have_no_room_for_what_is_rare() {
        let (read, other) = (size(Filesystem::handle), size(Filesystem::handle_any));
        assert!(read <= 512 && other <= 2048, "READ: {read} bytes; other requests: {other} bytes");
    }
}
