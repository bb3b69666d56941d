//! The two ends of a copy.
//!
//! Small requests of a local file are made by the task itself if nothing can wait there: reads of what the
//! page cache has, and all requests of a filesystem in memory. Another thread's wake-up takes longer.
//! Others go to another thread, because a disk or a network filesystem may keep them waiting.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::file::File;
use crate::in_memory::is_in_memory;
use crate::types::SeekTo;

/// The bytes up to which a request of a local file is small.
pub(super) const SMALL: usize = 64 << 10;

/// One end of a copy.
#[derive(Clone)]
pub(super) enum End {
    Remote(File),
    Local(Arc<fs::File>),
}

pub(super) fn local(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Local { object: what.to_owned(), source }
}

/// Runs a closure that may wait for a disk on a thread for blocking calls.
pub(super) async fn run_blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(local(what)),
        Err(error) => Err(local(what)(std::io::Error::other(error))),
    }
}

/// A part of the source to be read.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub offset: u64,
    /// The bytes that the source had there at the beginning.
    pub expected: usize,
    /// The bytes asked for. The last request asks for one more than is expected, to see whether the source
    /// has grown.
    pub len: usize,
}

/// Reads from a local file until the request has the expected bytes. Fewer are the file's end.
fn read_local(file: &fs::File, request: Request) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; request.len];
    let mut count = 0;
    while count < request.expected.max(1) {
        match rustix::io::pread(file, &mut buffer[count..], request.offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    buffer.truncate(count);
    Ok(buffer)
}

/// As [`read_local`], without waiting. `None` if the page cache lacks expected bytes, or may lack them.
fn read_cached(file: &fs::File, request: Request) -> std::io::Result<Option<Vec<u8>>> {
    // Filesystems in memory may refuse RWF_NOWAIT.
    if is_in_memory(file) {
        return read_local(file, request).map(Some);
    }
    let mut buffer = vec![0; request.len];
    let count = io::try_read_at(file, &mut buffer, request.offset)?;
    Ok(count.filter(|count| *count >= request.expected).map(|count| {
        buffer.truncate(count);
        buffer
    }))
}

/// Writes all of `data`.
fn write_all(file: &fs::File, data: &[u8], offset: u64) -> std::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        done += io::write_at(file, &data[done..], offset + done as u64)?;
    }
    Ok(())
}

/// lseek(2) to data or a hole. Reads and writes don't use the file's own offset, which this moves.
fn search_local(file: &fs::File, to: SeekTo, offset: u64) -> std::io::Result<Option<u64>> {
    let from = match to {
        SeekTo::Data => SeekFrom::Data(offset),
        SeekTo::Hole => SeekFrom::Hole(offset),
    };
    match rustix::fs::seek(file, from) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl End {
    /// The size in bytes, and the bytes of space that are used.
    pub async fn size_and_used(&self) -> Result<(u64, u64)> {
        match self {
            Self::Remote(file) => {
                file.attributes().await.map(|attributes| (attributes.size, attributes.used))
            }
            Self::Local(file) => {
                let data = file.metadata().map_err(local("the local file"))?;
                Ok((data.len(), data.blocks().saturating_mul(512)))
            }
        }
    }

    pub async fn size(&self) -> Result<u64> {
        match self {
            Self::Remote(file) => file.size().await,
            Self::Local(file) => file.metadata().map(|data| data.len()).map_err(local("the local file")),
        }
    }

    /// Whether this is a regular file without data, in which everything that isn't written reads as zeros.
    pub async fn is_empty_file(&self) -> Result<bool> {
        match self {
            Self::Remote(file) => file.size().await.map(|size| size == 0),
            Self::Local(file) => {
                let data = file.metadata().map_err(local("the local file"))?;
                Ok(data.is_file() && data.len() == 0)
            }
        }
    }

    /// The first data or hole at `offset` or behind it, as [`File::seek`].
    pub async fn seek(&self, to: SeekTo, offset: u64) -> Result<Option<u64>> {
        match self {
            Self::Remote(file) => file.seek(to, offset).await,
            Self::Local(file) if is_in_memory(file) => {
                search_local(file, to, offset).map_err(local("the local file"))
            }
            Self::Local(file) => {
                let file = file.clone();
                run_blocking("the local file", move || search_local(&file, to, offset)).await
            }
        }
    }

    pub async fn read(&self, request: Request) -> Result<Vec<u8>> {
        match self {
            Self::Remote(file) => file.read_into(Vec::new(), request.offset, request.len).await,
            Self::Local(file) => {
                if request.len <= SMALL
                    && let Some(data) = read_cached(file, request).map_err(local("the local file"))?
                {
                    return Ok(data);
                }
                let file = file.clone();
                run_blocking("the local file", move || read_local(&file, request)).await
            }
        }
    }

    pub async fn write(&self, data: Vec<u8>, offset: u64) -> Result<()> {
        match self {
            Self::Remote(file) => file.write_bytes(Bytes::from(data), offset).await,
            Self::Local(file) if data.len() <= SMALL && is_in_memory(file) => {
                write_all(file, &data, offset).map_err(local("the local file"))
            }
            Self::Local(file) => {
                let file = file.clone();
                run_blocking("the local file", move || write_all(&file, &data, offset)).await
            }
        }
    }

    pub async fn set_len(&self, len: u64) -> Result<()> {
        match self {
            Self::Remote(file) => file.set_len(len).await,
            Self::Local(file) => {
                let file = file.clone();
                run_blocking("the local file", move || file.set_len(len)).await
            }
        }
    }

    pub async fn commit(&self) -> Result<()> {
        match self {
            Self::Remote(file) => file.commit().await,
            Self::Local(file) => {
                let file = file.clone();
                run_blocking("the local file", move || file.sync_all()).await
            }
        }
    }
}
