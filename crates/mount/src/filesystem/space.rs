//! FALLOCATE, LSEEK and COPY_FILE_RANGE.
//!
//! NFSv3 has none of them. On a granted file the system call of the same name does it. Over the wire LSEEK
//! knows the file's size only, and the others fail with `EOPNOTSUPP`, upon which the kernel copies by reading
//! and writing.

use std::time::Instant;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use user_ids::with_set_id_kept;

use super::{Filesystem, RequestContext};
use crate::fuse::reply::FuseReply;
use crate::fuse::request::{CopyRangeArgs, FallocateArgs, SeekWhence};
use crate::inode::Inode;

/// The largest COPY_FILE_RANGE, in bytes: the server waits for its end before it stops.
const MAX_COPY: u64 = 64 << 20;

impl Filesystem {
    pub(super) async fn fallocate(
        &self,
        request: &RequestContext,
        args: &FallocateArgs,
    ) -> Result<FuseReply, Errno> {
        let open = self.open_file(args.fh)?;
        let keep = keeps_set_id(request, &open.inode);
        let FallocateArgs { offset, len, mode, .. } = *args;
        let allocated = self.blocking.run(&open.file, move |file| {
            with_set_id_kept(keep, || {
                file.share_granted_fd(|fd| rustix::fs::fallocate(fd, mode, offset, len))
            })
        });
        let allocated = allocated.await?.ok_or(Errno::OPNOTSUPP)?;
        self.kernel.invalidate_set_id(&open.inode);
        allocated?;
        open.inode.lock().attributes.note_write(Instant::now());
        Ok(FuseReply::default())
    }

    pub(super) async fn seek(&self, fh: u64, offset: u64, whence: SeekWhence) -> Result<FuseReply, Errno> {
        let open = self.open_file(fh)?;
        let to = match whence {
            SeekWhence::Data => SeekFrom::Data(offset),
            SeekWhence::Hole => SeekFrom::Hole(offset),
        };
        let seek = move |file: &client::File| file.with_granted_fd(|fd| rustix::fs::seek(fd, to));
        if let Some(found) = self.blocking.run(&open.file, seek).await? {
            return Ok(FuseReply::default().offset(found?));
        }
        // lseek(2) permits the answer that the whole file is data, with a hole behind it.
        let size = open.file.size().await.map_err(|error| self.errno(&error))?;
        match whence {
            _ if offset >= size => Err(Errno::NXIO),
            SeekWhence::Data => Ok(FuseReply::default().offset(offset)),
            SeekWhence::Hole => Ok(FuseReply::default().offset(size)),
        }
    }

    pub(super) async fn copy_range(
        &self,
        request: &RequestContext,
        args: &CopyRangeArgs,
    ) -> Result<FuseReply, Errno> {
        let (from, to) = (self.open_file(args.from)?, self.open_file(args.to)?);
        let keep = keeps_set_id(request, &to.inode);
        if args.flags != 0 {
            return Err(Errno::INVAL);
        }
        let len = usize::try_from(args.len.min(MAX_COPY)).unwrap_or(usize::MAX);
        let (mut from_offset, mut to_offset) = (args.from_offset, args.to_offset);
        let source = from.file.clone();
        let copied = self.blocking.run(&to.file, move |target| {
            source.with_granted_fd(|source| {
                target.share_granted_fd(|target| {
                    let (from, to) = (Some(&mut from_offset), Some(&mut to_offset));
                    with_set_id_kept(keep, || rustix::fs::copy_file_range(source, from, target, to, len))
                })
            })
        });
        let copied = copied.await?.flatten().ok_or(Errno::OPNOTSUPP)?;
        self.kernel.invalidate_set_id(&to.inode);
        let count = copied?;
        to.inode.lock().attributes.note_write(Instant::now());
        Ok(FuseReply::with_capacity(8).written(u32::try_from(count).unwrap_or(u32::MAX)))
    }
}

/// Whether the file has set-id bits and the caller may keep them. Unlike WRITE, these requests don't say
/// whether the caller has CAP_FSETID, so root is taken to have it.
fn keeps_set_id(request: &RequestContext, inode: &Inode) -> bool {
    request.header.uid == 0 && inode.lock().has_set_id()
}
