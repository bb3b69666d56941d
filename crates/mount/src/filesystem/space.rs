//! FALLOCATE, LSEEK and COPY_FILE_RANGE. NFSv3 has none of them; on a granted file the system calls of the
//! same name do it, and over the wire what can be told is told, and the rest is `EOPNOTSUPP`, which makes the
//! kernel copy by reading and writing.

use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::{Call, Filesystem};
use crate::fuse::answer::Answer;
use crate::fuse::request::CopyRange;
use crate::inodes::Node;
use crate::privileges::keeping_set_id;

/// As much as one COPY_FILE_RANGE copies: the server waits for its end before it stops.
const COPY_MAX: u64 = 64 << 20;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Filesystem {
    pub(crate) async fn fallocate(
        &self,
        call: &Call,
        fh: u64,
        (offset, len): (u64, u64),
        mode: u32,
    ) -> Result<Answer, Errno> {
        let open = self.opened(fh)?;
        let keep = keeps_set_id(call, &open.node);
        let mode = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        let done = self.disks.call(&open.file, move |file| {
            keeping_set_id(keep, || file.pass_granted(|fd| rustix::fs::fallocate(fd, mode, offset, len)))
        });
        let done = done.await?.ok_or(Errno::OPNOTSUPP)?;
        self.forget_set_id(&open.node);
        done?;
        open.node.state.lock().cache.write(Instant::now());
        Ok(Answer::default())
    }

    pub(crate) async fn seek(&self, fh: u64, offset: u64, whence: u32) -> Result<Answer, Errno> {
        let open = self.opened(fh)?;
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        let found =
            self.disks.call(&open.file, move |file| file.with_granted(|fd| rustix::fs::seek(fd, to))).await?;
        if let Some(found) = found {
            return Ok(Answer::default().offset(found?));
        }
        // All of it is data, and behind it there is a hole: lseek(2) allows that much ignorance.
        let size = open.file.size().await.map_err(|error| self.errno(&error))?;
        match whence {
            _ if offset >= size => Err(Errno::NXIO),
            SEEK_DATA => Ok(Answer::default().offset(offset)),
            _ => Ok(Answer::default().offset(size)),
        }
    }

    pub(crate) async fn copy_range(&self, call: &Call, range: &CopyRange) -> Result<Answer, Errno> {
        let (from, to) = (self.opened(range.from)?, self.opened(range.to)?);
        let keep = keeps_set_id(call, &to.node);
        if range.flags != 0 {
            return Err(Errno::INVAL);
        }
        let len = usize::try_from(range.len.min(COPY_MAX)).unwrap_or(usize::MAX);
        let (mut from_offset, mut to_offset) = (range.from_offset, range.to_offset);
        let source = from.file.clone();
        let copied = self.disks.call(&to.file, move |target| {
            source.with_granted(|source| {
                target.pass_granted(|target| {
                    let (from, to) = (Some(&mut from_offset), Some(&mut to_offset));
                    keeping_set_id(keep, || rustix::fs::copy_file_range(source, from, target, to, len))
                })
            })
        });
        let copied = copied.await?.flatten().ok_or(Errno::OPNOTSUPP)?;
        self.forget_set_id(&to.node);
        let count = copied?;
        let node = Arc::clone(&to.node);
        node.state.lock().cache.write(Instant::now());
        Ok(Answer::with_capacity(8).written(u32::try_from(count).unwrap_or(u32::MAX)))
    }
}

/// Whether who calls may keep set-id bits of what they change, and there are any. The protocol doesn't say
/// whether the caller has CAP_FSETID, as it does for WRITE.
fn keeps_set_id(call: &Call, node: &Node) -> bool {
    call.header.uid == 0 && node.state.lock().has_set_id()
}
