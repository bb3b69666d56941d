//! READ, WRITE, FLUSH and FSYNC of files that aren't passed through.

use std::io::IoSlice;
use std::time::Instant;

use bytes::Bytes;
use client::{File, Road, Stability};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::Filesystem;
use crate::fuse::abi;
use crate::fuse::answer::Answer;
use crate::fuse::request::Io;
use crate::inodes::Node;
use crate::open::OpenFile;

impl Filesystem {
    pub(super) fn opened(&self, fh: u64) -> Result<std::sync::Arc<OpenFile>, Errno> {
        self.files.get(fh).ok_or(Errno::BADF)
    }

    pub(crate) async fn read(&self, io: &Io) -> Result<Answer, Errno> {
        let open = self.opened(io.fh)?;
        let buffer = self.buffers.take();
        let read = open.file.read_into(buffer, io.offset, io.size as usize).await;
        read.map(Answer).map_err(|error| self.errno(&error))
    }

    pub(crate) async fn write(&self, io: &Io, data: Bytes) -> Result<Answer, Errno> {
        let open = self.opened(io.fh)?;
        let flags = OFlags::from_bits_retain(io.flags);
        let count = io.size;
        let stability = if flags.contains(OFlags::SYNC) || self.options.sync {
            Stability::FileSync
        } else if flags.contains(OFlags::DSYNC) {
            Stability::DataSync
        } else {
            Stability::Unstable
        };
        let from_cache = io.how & abi::WRITE_CACHE != 0;
        if io.how & abi::WRITE_KILL_SUIDGID != 0 {
            self.drop_set_id(&open.node, &open.file).await?;
        }
        let append = flags.contains(OFlags::APPEND) && !from_cache;
        let begun = Instant::now();
        let known = if append { self.good(&open.node, begun) } else { None };
        open.node.state.lock().cache.write(begun);
        let written = if append {
            let end = known.map(|attributes| attributes.size);
            // In a box: rare, and large.
            Box::pin(self.append(&open.file, end, data, stability)).await
        } else {
            self.overwrite(&open.file, data, io.offset, stability).await
        };
        if open.file.road() == Road::Lane {
            // No reply tells what this has done.
            open.node.state.lock().cache.write(Instant::now());
        }
        written?;
        Ok(Answer::with_capacity(8).written(count))
    }

    async fn overwrite(
        &self,
        file: &File,
        data: Bytes,
        offset: u64,
        stability: Stability,
    ) -> Result<(), Errno> {
        let all = data.clone();
        let written = match self.disks.call(file, move |file| file.write_now(&all, offset)).await? {
            Some(Ok(())) if stability > Stability::Unstable => file.commit().await,
            Some(written) => written,
            None => file.write_stable(data, offset, stability).await,
        };
        written.map_err(|error| self.errno(&error))
    }

    /// Writes behind the end of the file. Over the lane the filesystem knows where that is; over the wire it is where the
    /// server last said (`end`, if that can be relied on), and two clients that append at once overwrite each other, as with
    /// every NFS client (open(2)).
    async fn append(
        &self,
        file: &File,
        end: Option<u64>,
        data: Bytes,
        stability: Stability,
    ) -> Result<(), Errno> {
        let all = data.clone();
        let done = self.disks.call(file, move |file| append_granted(file, &all)).await?.unwrap_or(Ok(0))?;
        let rest = data.slice(done..);
        let written = if rest.is_empty() {
            if stability == Stability::Unstable { Ok(()) } else { file.commit().await }
        } else {
            // What went over the lane has moved it.
            let end = match end.filter(|_| done == 0) {
                Some(end) => Ok(end),
                None => file.size().await,
            };
            match end {
                Ok(end) => file.write_stable(rest, end, stability).await,
                Err(error) => Err(error),
            }
        };
        written.map_err(|error| self.errno(&error))
    }

    /// Cuts an open file off at `len`, or fills it with zeros up to there.
    pub(super) async fn cut(&self, file: &File, len: u64) -> Result<(), Errno> {
        let cut = match self.disks.call(file, move |file| file.set_len_now(len)).await? {
            Some(cut) => cut,
            None => file.set_len(len).await,
        };
        cut.map_err(|error| self.errno(&error))
    }

    /// Takes set-id bits away from a granted file that is about to be changed by somebody who may not keep them: this process
    /// may, so the kernel wouldn't. Over the wire the server acts as the user, and sees to it.
    pub(super) async fn drop_set_id(&self, node: &Node, file: &File) -> Result<(), Errno> {
        if node.attributes().is_none_or(|attributes| attributes.mode & 0o6000 == 0) {
            return Ok(());
        }
        let dropped = self.disks.call(file, |file| {
            file.with_granted(|fd| {
                let mode = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_mode & 0o7777);
                // Without its x bit the set-group bit once meant mandatory locking, and stays.
                let gone = 0o4000 | if mode & 0o010 == 0 { 0 } else { 0o2000 };
                if mode & gone != 0 {
                    // A process that isn't root needn't: the kernel takes them from it.
                    let _ = rustix::fs::fchmod(fd, Mode::from_raw_mode(mode & !gone));
                }
            })
        });
        dropped.await.map(drop)
    }

    pub(crate) async fn flush(&self, fh: u64) -> Result<Answer, Errno> {
        let open = self.opened(fh)?;
        open.file.flush().await.map_err(|error| self.errno(&error))?;
        Ok(Answer::default())
    }

    pub(crate) async fn fsync(&self, fh: u64) -> Result<Answer, Errno> {
        let open = self.opened(fh)?;
        open.file.sync().await.map_err(|error| self.errno(&error))?;
        Ok(Answer::default())
    }
}

/// Appends to a granted file; how much of `data` went there before there was no grant any more.
fn append_granted(file: &File, data: &[u8]) -> Option<Result<usize, Errno>> {
    let mut done = 0;
    while done < data.len() {
        let appended = file.pass_granted(|fd| {
            rustix::io::pwritev2(fd, &[IoSlice::new(&data[done..])], 0, ReadWriteFlags::APPEND)
        });
        match appended {
            Some(Ok(count)) => done += count,
            Some(Err(Errno::INTR)) => {}
            Some(Err(errno)) => return Some(Err(errno)),
            None => break,
        }
    }
    Some(Ok(done))
}
