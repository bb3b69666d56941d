//! READ, WRITE, FLUSH and FSYNC of files that aren't passed through.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::{Attributes, DataPath, File, LockOwner, Stability, Timestamp};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use user_ids::with_set_id_kept;

use super::Filesystem;
use crate::fuse::reply::FuseReply;
use crate::fuse::request::{ReadArgs, WriteArgs};
use crate::inode::{Inode, IoHold};
use crate::open_table::OpenFile;

impl Filesystem {
    pub(super) fn open_file(&self, fh: u64) -> Result<Arc<OpenFile>, Errno> {
        self.files.get(fh).ok_or(Errno::BADF)
    }

    pub(super) async fn read(&self, args: &ReadArgs) -> Result<FuseReply, Errno> {
        let open = self.open_file(args.fh)?;
        if !args.flags.contains(OFlags::DIRECT) {
            open.inode.pages.note_cached();
            open.inode.pages.note_read();
        }
        let read = match self.read_content(&open, args, Instant::now()) {
            Some(data) => Ok(data),
            None => open.file.read_into(self.buffers.take(), args.offset, args.size as usize).await,
        };
        if !self.options.noatime && !open.inode.is_atime_stale() {
            // A granted file's descriptor tells the new atime without the server. The server is asked only if
            // the atime is likely to have changed.
            let is_stale = open.file.data_path() == DataPath::Lane
                || open.inode.attributes().is_none_or(|attributes| is_atime_updated(&attributes));
            open.inode.set_atime_stale(is_stale);
        }
        read.map(FuseReply).map_err(|error| self.errno(&error))
    }

    pub(super) async fn write(&self, args: WriteArgs) -> Result<FuseReply, Errno> {
        let open = self.open_file(args.fh)?;
        let stability = if args.flags.contains(OFlags::SYNC) || self.options.sync {
            Stability::FileSync
        } else if args.flags.contains(OFlags::DSYNC) {
            Stability::DataSync
        } else {
            Stability::Unstable
        };
        let is_direct = args.flags.contains(OFlags::DIRECT) && !args.from_page_cache;
        if !is_direct {
            open.inode.pages.note_cached();
        }
        let is_append = args.flags.contains(OFlags::APPEND) && !args.from_page_cache;
        if is_append {
            // The end is behind what was written, also by other opens.
            open.file.settle().await;
        }
        let begun = Instant::now();
        let known = if is_append {
            let cached = self.cached_attributes(&open.inode, begun);
            cached.or_else(|| Self::delegated_attributes(&self.session, &open.inode))
        } else {
            None
        };
        let keep_set_id = {
            let mut state = open.inode.lock();
            state.attributes.note_write(begun);
            !args.kill_set_id && state.has_set_id()
        };
        // Other opens of the file write to it without this process. Data that is sent later, or again after
        // a restart of the server, would replace theirs.
        let is_beside_others = open.hold == IoHold::Passed && open.file.data_path() != DataPath::Lane;
        let stability = if is_beside_others { Stability::FileSync } else { stability };
        let waits = is_direct || stability > Stability::Unstable;
        let options = WriteOptions { stability, keep_set_id, waits };
        let size = args.data.len();
        let written = if is_append {
            let end = known.map(|attributes| attributes.size);
            // Boxed: it is rare, and large.
            Box::pin(self.append(&open.file, end, args.data, options)).await
        } else {
            self.write_at(&open.file, args.data, args.offset, options).await
        };
        if open.file.data_path() == DataPath::Lane {
            // No reply carries the attributes after this write.
            open.inode.lock().attributes.note_write(Instant::now());
        }
        self.kernel.invalidate_set_id(&open.inode);
        if is_direct {
            self.kernel.drop_pages(&open.inode, args.offset, size as u64).await;
        } else if is_append && open.hold == IoHold::None {
            // The kernel hasn't written through its cache, and before Linux 6.6 it keeps the old last page.
            let end = known.map_or(args.offset, |attributes| attributes.size.min(args.offset));
            self.kernel.drop_pages_behind(&open.inode, end).await;
        }
        let count = match written {
            Ok(()) => size,
            // As write(2) on a local disk: a short count now, and the error for the next write.
            Err(client::Error::Partly { done, source }) => {
                if stability > Stability::Unstable {
                    open.file.commit().await.map_err(|error| self.errno(&error))?;
                }
                tracing::debug!(%source, done, "written in part");
                done
            }
            Err(error) => return Err(self.write_errno(&open.inode, &error)),
        };
        Ok(FuseReply::with_capacity(8).written(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    async fn write_at(
        &self,
        file: &File,
        data: Bytes,
        offset: u64,
        options: WriteOptions,
    ) -> client::Result<()> {
        let all = data.clone();
        let write = move |file: &File| with_set_id_kept(options.keep_set_id, || file.write_now(&all, offset));
        match self.blocking.run(file, write).await.map_err(local_error)? {
            Some(Ok(())) if options.stability > Stability::Unstable => file.commit().await,
            Some(written) => written,
            None if options.waits => file.write_stable(data, offset, options.stability).await,
            None => file.write_behind(data, offset).await,
        }
    }

    /// Writes behind the end of the file. Over the lane the filesystem knows the end. Over the wire it is
    /// `end`, the size that the server has last told if that is current; two clients that append at the same
    /// time overwrite each other's data, as with every NFS client (open(2)).
    async fn append(
        &self,
        file: &File,
        end: Option<u64>,
        data: Bytes,
        options: WriteOptions,
    ) -> client::Result<()> {
        let all = data.clone();
        let append = move |file: &File| with_set_id_kept(options.keep_set_id, || append_granted(file, &all));
        let appended = self.blocking.run(file, append).await.map_err(local_error)?;
        let (done, failed) = appended.unwrap_or((0, None));
        if let Some(errno) = failed {
            return Err(local_error(errno).after(done));
        }
        let rest = data.slice(done..);
        if rest.is_empty() {
            return if options.stability == Stability::Unstable { Ok(()) } else { file.commit().await };
        }
        // What was written over the lane has moved the end.
        let written = match end.filter(|_| done == 0) {
            Some(end) => file.write_stable(rest, end, options.stability).await,
            None => match file.size().await {
                Ok(end) => file.write_stable(rest, end, options.stability).await,
                Err(error) => Err(error),
            },
        };
        written.map_err(|error| error.after(done))
    }

    /// Truncates an open file to `len`, or extends it with zeros. With `kill_set_id` the caller has no right
    /// to keep the file's set-id bits.
    pub(super) async fn truncate(
        &self,
        inode: &Inode,
        file: &File,
        len: u64,
        kill_set_id: bool,
    ) -> Result<(), Errno> {
        let keep_set_id = !kill_set_id && inode.lock().has_set_id();
        let truncate = move |file: &File| with_set_id_kept(keep_set_id, || file.set_len_now(len));
        let truncated = match self.blocking.run(file, truncate).await? {
            Some(truncated) => truncated,
            None => file.set_len(len).await,
        };
        self.kernel.invalidate_set_id(inode);
        truncated.map_err(|error| self.errno(&error))
    }

    pub(super) async fn flush(&self, fh: u64, owner: LockOwner) -> Result<FuseReply, Errno> {
        let open = self.open_file(fh)?;
        let flushed = open.file.flush().await;
        self.end_process_locks(&open, owner).await;
        flushed.map_err(|error| self.write_errno(&open.inode, &error))?;
        Ok(FuseReply::default())
    }

    pub(super) async fn fsync(&self, fh: u64) -> Result<FuseReply, Errno> {
        let open = self.open_file(fh)?;
        open.file.sync().await.map_err(|error| self.write_errno(&open.inode, &error))?;
        Ok(FuseReply::default())
    }

    /// The errno of a write. After one that was told to be done and has failed, the kernel's cached data
    /// isn't the file's.
    pub(super) fn write_errno(&self, inode: &Inode, error: &client::Error) -> Errno {
        if matches!(error, client::Error::EarlierWrite { .. }) {
            self.kernel.invalidate_data(inode);
        }
        self.errno(error)
    }
}

/// Whether a read updates the atime under mount(8)'s `relatime`, the default of most filesystems: once after
/// each change, and once a day.
fn is_atime_updated(attributes: &Attributes) -> bool {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let stamp = |time: Timestamp| (time.seconds, time.nanoseconds);
    let (access, change) = (stamp(attributes.atime), stamp(attributes.mtime).max(stamp(attributes.ctime)));
    let accessed = UNIX_EPOCH + Duration::from_secs(u64::try_from(access.0).unwrap_or(0));
    access <= change || SystemTime::now().duration_since(accessed).is_ok_and(|age| age > DAY)
}

#[derive(Debug, Clone, Copy)]
struct WriteOptions {
    stability: Stability,
    /// The file has set-id bits, and the writer has the right to keep them.
    keep_set_id: bool,
    /// write(2) waits for the server. Otherwise the next fsync(2) or close(2) does.
    waits: bool,
}

/// The error of a system call of this process.
fn local_error(errno: Errno) -> client::Error {
    client::Error::Local { object: "the granted file".to_owned(), source: errno.into() }
}

/// Appends to a granted file. Returns the number of bytes that were written before an error, or before the
/// grant ended; `None` if there is no grant.
fn append_granted(file: &File, data: &[u8]) -> Option<(usize, Option<Errno>)> {
    let mut done = 0;
    while done < data.len() {
        let appended = file.share_granted_fd(|fd| {
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
