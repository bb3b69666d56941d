//! READ, WRITE, FLUSH and FSYNC of files that aren't passed through.

use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::{Attributes, File, Road, Stability, Timestamp};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::Filesystem;
use crate::fuse::abi;
use crate::fuse::answer::Answer;
use crate::fuse::request::Io;
use crate::inodes::Node;
use crate::open::OpenFile;
use crate::privileges::keeping_set_id;

impl Filesystem {
    pub(super) fn opened(&self, fh: u64) -> Result<std::sync::Arc<OpenFile>, Errno> {
        self.files.get(fh).ok_or(Errno::BADF)
    }

    pub(crate) async fn read(&self, io: &Io) -> Result<Answer, Errno> {
        let open = self.opened(io.fh)?;
        if !OFlags::from_bits_retain(io.flags).contains(OFlags::DIRECT) {
            open.node.pages.fill();
        }
        let buffer = self.buffers.take();
        let read = open.file.read_into(buffer, io.offset, io.size as usize).await;
        if !self.options.noatime && !open.node.read_since.load(Relaxed) {
            // A granted file is asked for nothing. The server is asked only if it will have another time, as
            // far as can be told.
            let changes = open.file.road() == Road::Lane
                || open.node.attributes().is_none_or(|attributes| reading_changes(&attributes));
            open.node.read_since.store(changes, Relaxed);
        }
        read.map(Answer).map_err(|error| self.errno(&error))
    }

    pub(crate) async fn write(&self, io: &Io, data: Bytes) -> Result<Answer, Errno> {
        let open = self.opened(io.fh)?;
        let flags = OFlags::from_bits_retain(io.flags);
        let stability = if flags.contains(OFlags::SYNC) || self.options.sync {
            Stability::FileSync
        } else if flags.contains(OFlags::DSYNC) {
            Stability::DataSync
        } else {
            Stability::Unstable
        };
        let from_cache = io.how & abi::WRITE_CACHE != 0;
        let direct = flags.contains(OFlags::DIRECT) && !from_cache;
        if !direct {
            open.node.pages.fill();
        }
        let append = flags.contains(OFlags::APPEND) && !from_cache;
        let begun = Instant::now();
        let known = if append { self.good(&open.node, begun) } else { None };
        let keep_set_id = {
            let mut state = open.node.state.lock();
            state.cache.write(begun);
            io.how & abi::WRITE_KILL_SUIDGID == 0 && state.has_set_id()
        };
        let how = How { stability, keep_set_id };
        let written = if append {
            let end = known.map(|attributes| attributes.size);
            // In a box: rare, and large.
            Box::pin(self.append(&open.file, end, data, how)).await
        } else {
            self.overwrite(&open.file, data, io.offset, how).await
        };
        if open.file.road() == Road::Lane {
            // No reply tells what this has done.
            open.node.state.lock().cache.write(Instant::now());
        }
        self.forget_set_id(&open.node);
        if direct {
            self.drop_pages(&open.node, io.offset, io.size).await;
        }
        let count = match written {
            Ok(()) => io.size,
            // As write(2) on a local disk: what was written is told first, and the error to whoever writes
            // on.
            Err(client::Error::Partly { done, source }) => {
                if stability > Stability::Unstable {
                    open.file.commit().await.map_err(|error| self.errno(&error))?;
                }
                tracing::debug!(%source, done, "written in part");
                u32::try_from(done).unwrap_or(io.size)
            }
            Err(error) => return Err(self.errno(&error)),
        };
        Ok(Answer::with_capacity(8).written(count))
    }

    async fn overwrite(&self, file: &File, data: Bytes, offset: u64, how: How) -> client::Result<()> {
        let all = data.clone();
        let write = move |file: &File| keeping_set_id(how.keep_set_id, || file.write_now(&all, offset));
        match self.disks.call(file, write).await.map_err(local)? {
            Some(Ok(())) if how.stability > Stability::Unstable => file.commit().await,
            Some(written) => written,
            None => file.write_stable(data, offset, how.stability).await,
        }
    }

    /// Writes behind the end of the file. Over the lane the filesystem knows where that is; over the wire it
    /// is where the server last said (`end`, if that can be relied on), and two clients that append at once
    /// overwrite each other, as with every NFS client (open(2)).
    async fn append(&self, file: &File, end: Option<u64>, data: Bytes, how: How) -> client::Result<()> {
        let all = data.clone();
        let append = move |file: &File| keeping_set_id(how.keep_set_id, || append_granted(file, &all));
        let appended = self.disks.call(file, append).await.map_err(local)?;
        let (done, failed) = appended.unwrap_or((0, None));
        if let Some(errno) = failed {
            return Err(local(errno).after(done));
        }
        let rest = data.slice(done..);
        if rest.is_empty() {
            return if how.stability == Stability::Unstable { Ok(()) } else { file.commit().await };
        }
        // What went over the lane has moved it.
        let written = match end.filter(|_| done == 0) {
            Some(end) => file.write_stable(rest, end, how.stability).await,
            None => match file.size().await {
                Ok(end) => file.write_stable(rest, end, how.stability).await,
                Err(error) => Err(error),
            },
        };
        written.map_err(|error| error.after(done))
    }

    /// Cuts an open file off at `len`, or fills it with zeros up to there; `kill`: whoever does it may not
    /// keep its set-id bits.
    pub(super) async fn cut(&self, node: &Node, file: &File, len: u64, kill: bool) -> Result<(), Errno> {
        let keep = !kill && node.state.lock().has_set_id();
        let cut = move |file: &File| keeping_set_id(keep, || file.set_len_now(len));
        let cut = match self.disks.call(file, cut).await? {
            Some(cut) => cut,
            None => file.set_len(len).await,
        };
        self.forget_set_id(node);
        cut.map_err(|error| self.errno(&error))
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

/// Whether reading sets the time of access, as filesystems do it unless they are told otherwise (mount(8),
/// relatime): once after each change, and once a day.
fn reading_changes(attributes: &Attributes) -> bool {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let stamp = |time: Timestamp| (time.seconds, time.nanoseconds);
    let (access, change) = (stamp(attributes.atime), stamp(attributes.mtime).max(stamp(attributes.ctime)));
    let accessed = UNIX_EPOCH + Duration::from_secs(u64::try_from(access.0).unwrap_or(0));
    access <= change || SystemTime::now().duration_since(accessed).is_ok_and(|age| age > DAY)
}

/// How something is written.
#[derive(Debug, Clone, Copy)]
struct How {
    stability: Stability,
    /// The writer may keep set-id bits, and the file has some.
    keep_set_id: bool,
}

/// A system call of this process failed.
fn local(errno: Errno) -> client::Error {
    client::Error::Local { object: "the granted file".to_owned(), source: errno.into() }
}

/// Appends to a granted file: how much of `data` went there before there was no grant any more, or before an
/// error. `None`: there is no grant.
fn append_granted(file: &File, data: &[u8]) -> Option<(usize, Option<Errno>)> {
    let mut done = 0;
    while done < data.len() {
        let appended = file.pass_granted(|fd| {
            rustix::io::pwritev2(fd, &[IoSlice::new(&data[done..])], 0, ReadWriteFlags::APPEND)
        });
        match appended {
            Some(Ok(count)) => done += count,
            Some(Err(Errno::INTR)) => {}
            Some(Err(errno)) => return Some((done, Some(errno))),
            None => break,
        }
    }
    Some((done, None))
}
