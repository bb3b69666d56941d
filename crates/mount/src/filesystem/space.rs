//! FALLOCATE, LSEEK and COPY_FILE_RANGE.
//!
//! On a granted file the system call of the same name does it. Over the wire NFSv4.2 has operations for them.
//! NFSv3 and 4.1 have none: LSEEK then knows the file's size only, and the others fail with `EOPNOTSUPP`,
//! upon which the kernel copies by reading and writing.

use std::time::Instant;

use client::{Fallocate, SeekTo};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use user_ids::with_set_id_kept;

use super::{Filesystem, RequestContext};
use crate::fuse::reply::FuseReply;
use crate::fuse::request::{CopyRangeArgs, FallocateArgs};
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
        let allocated = match allocated.await? {
            Some(allocated) => allocated,
            None => {
                let changed = open.file.fallocate(over_the_wire(mode)?, offset, len).await;
                changed.map_err(|error| self.errno(&error))
            }
        };
        self.kernel.invalidate_set_id(&open.inode);
        allocated?;
        open.inode.lock().attributes.note_write(Instant::now());
        Ok(FuseReply::default())
    }

    pub(super) async fn seek(&self, fh: u64, offset: u64, to: SeekTo) -> Result<FuseReply, Errno> {
        let open = self.open_file(fh)?;
        let from = match to {
            SeekTo::Data => SeekFrom::Data(offset),
            SeekTo::Hole => SeekFrom::Hole(offset),
        };
        let seek = move |file: &client::File| file.with_granted_fd(|fd| rustix::fs::seek(fd, from));
        if let Some(found) = self.blocking.run(&open.file, seek).await? {
            return Ok(FuseReply::default().offset(found?));
        }
        let found = open.file.seek(to, offset).await.map_err(|error| self.errno(&error))?;
        Ok(FuseReply::default().offset(found.ok_or(Errno::NXIO)?))
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
        let copied = match copied.await?.flatten() {
            Some(copied) => copied,
            None => {
                let (from_offset, to_offset) = (args.from_offset, args.to_offset);
                let copied = from.file.copy_range(from_offset, &to.file, to_offset, len as u64).await;
                copied.map(|count| count as usize).map_err(|error| self.errno(&error))
            }
        };
        self.kernel.invalidate_set_id(&to.inode);
        let count = copied?;
        to.inode.lock().attributes.note_write(Instant::now());
        Ok(FuseReply::with_capacity(8).written(u32::try_from(count).unwrap_or(u32::MAX)))
    }
}

/// What a mode of fallocate(2) is over the wire.
fn over_the_wire(mode: FallocateFlags) -> Result<Fallocate, Errno> {
    const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    match mode {
        mode if mode.is_empty() => Ok(Fallocate::Allocate),
        PUNCH_HOLE => Ok(Fallocate::PunchHole),
        FallocateFlags::ZERO_RANGE => Ok(Fallocate::ZeroRange),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Whether the file has set-id bits and the caller may keep them. Unlike WRITE, these requests don't say
/// whether the caller has CAP_FSETID, so root is taken to have it.
fn keeps_set_id(request: &RequestContext, inode: &Inode) -> bool {
    request.header.uid == 0 && inode.lock().has_set_id()
}
