//! Copies of whole files, with several requests in flight.
//!
//! Between two files of one session the server copies, or the kernel if both are granted, where they can.
//! From a granted file to a local one of the same filesystem the kernel copies.
//!
//! The source is read in chunks, several at once, and each chunk is written as soon as it arrives. The
//! source's size at the beginning determines the number of chunks. Data that is appended meanwhile is copied
//! afterwards, one chunk after the other.
//!
//! Small requests of a local file are made by the task itself if nothing can wait there: reads of what the
//! page cache has, and all requests of a filesystem in memory. Another thread's wake-up takes longer.
//! Others go to another thread, because a disk or a network filesystem may keep them waiting.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::file::File;
use crate::in_memory::is_in_memory;

/// The progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes copied so far.
    pub bytes: u64,
    /// The source's size in bytes at the beginning, or `bytes` if that is more.
    pub total: u64,
}

/// The options of a copy.
#[derive(Clone)]
#[non_exhaustive]
pub struct CopyOptions {
    /// The bytes of a request, at most 16 MiB. `None` is the session's rsize or wsize.
    pub chunk: Option<usize>,
    /// The maximum number of requests in flight, 1 to 64. The default is 8.
    pub window: usize,
    /// Whether to make the copy durable before it ends. The default is true.
    pub commit: bool,
    /// Called after every request.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self { chunk: None, window: 8, commit: true, progress: None }
    }
}

impl CopyOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`chunk`](field@Self::chunk).
    #[must_use]
    pub fn chunk(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes);
        self
    }

    /// Sets [`window`](field@Self::window).
    #[must_use]
    pub fn window(mut self, requests: usize) -> Self {
        self.window = requests;
        self
    }

    /// Sets [`commit`](field@Self::commit).
    #[must_use]
    pub fn commit(mut self, commit: bool) -> Self {
        self.commit = commit;
        self
    }

    /// Sets [`progress`](field@Self::progress).
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }
}

impl std::fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyOptions")
            .field("chunk", &self.chunk)
            .field("window", &self.window)
            .field("commit", &self.commit)
            .finish_non_exhaustive()
    }
}

/// The bytes up to which a request of a local file is small.
const SMALL: usize = 64 << 10;

/// One end of a copy.
#[derive(Clone, Copy)]
enum End<'a> {
    Remote(&'a File),
    Local(&'a Arc<fs::File>),
}

fn local(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Local { object: what.to_owned(), source }
}

/// Runs a closure that may wait for a disk on a thread for blocking calls.
async fn run_blocking<T: Send + 'static>(
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
struct Request {
    offset: u64,
    /// The bytes that the source had there at the beginning.
    expected: usize,
    /// The bytes asked for. The last request asks for one more than is expected, to see whether the source
    /// has grown.
    len: usize,
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

impl End<'_> {
    async fn size(self) -> Result<u64> {
        match self {
            Self::Remote(file) => file.size().await,
            Self::Local(file) => file.metadata().map(|data| data.len()).map_err(local("the local file")),
        }
    }

    async fn read(self, request: Request) -> Result<Vec<u8>> {
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

    async fn write(self, data: Vec<u8>, offset: u64) -> Result<()> {
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

    async fn commit(self) -> Result<()> {
        match self {
            Self::Remote(file) => file.commit().await,
            Self::Local(file) => {
                let file = file.clone();
                run_blocking("the local file", move || file.sync_all()).await
            }
        }
    }
}

/// Copies the whole of `from` to the beginning of `to`. The two may be on different servers. Returns the
/// number of bytes copied.
///
/// ```
/// use samehost_client::{CopyOptions, OpenOptions, copy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
/// # let server = example::ExampleServer::start();
/// # use samehost_client::{Options, Session};
/// # let session = Session::connect(&server.url(), Options::new()).await?;
/// let from = session.open(b"greeting", &OpenOptions::reading()).await?;
/// let to = session.open(b"backup", &OpenOptions::replacing()).await?;
/// assert_eq!(copy(&from, &to, &CopyOptions::new().window(4)).await?, 6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The first error of either side.
pub async fn copy(from: &File, to: &File, options: &CopyOptions) -> Result<u64> {
    if let Some(done) = copy_within(from, to, options).await? {
        return Ok(done);
    }
    let chunk = from.session().transfer_sizes().0.min(to.session().transfer_sizes().1);
    transfer(End::Remote(from), End::Remote(to), chunk, options).await
}

/// The bytes of a request to copy within the server. Each shows its progress, and none takes long.
const COPY_STEP: u64 = 16 << 20;

/// As [`copy`], without the data passing through this client. `None` if that isn't possible; nothing is
/// copied then.
async fn copy_within(from: &File, to: &File, options: &CopyOptions) -> Result<Option<u64>> {
    let step = options.chunk.map_or(COPY_STEP, |chunk| chunk.max(1) as u64);
    let (mut done, mut total) = (0, None);
    loop {
        match from.copy_range(done, to, done, step).await {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if done == 0 && is_left_to_the_client(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        if let Some(progress) = &options.progress {
            let total = match total {
                Some(total) => total,
                None => *total.insert(from.size().await?),
            };
            progress(Progress { bytes: done, total: total.max(done) });
        }
    }
    if options.commit {
        to.commit().await?;
    }
    Ok(Some(done))
}

/// Whether this is the error of a copy that neither the server nor the kernel can make.
fn is_left_to_the_client(error: &Error) -> bool {
    is_no_copy(Errno::from_raw_os_error(error.errno()))
}

/// Whether copy_file_range(2) fails so for files that it can't copy.
fn is_no_copy(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOSYS | Errno::INVAL)
}

/// Copies the whole of `from` to the local file `to`. Returns the number of bytes copied.
///
/// # Errors
/// The first error of either side.
pub async fn read_from(from: &File, to: &Arc<fs::File>, options: &CopyOptions) -> Result<u64> {
    if let Some(done) = copy_to_local(from, to, options).await? {
        return Ok(done);
    }
    transfer(End::Remote(from), End::Local(to), from.session().transfer_sizes().0, options).await
}

/// As [`read_from`], by copy_file_range(2), for which a filesystem may share blocks. `None` without a grant,
/// or if the kernel can't copy between the two; what it has copied is then copied again.
async fn copy_to_local(from: &File, to: &Arc<fs::File>, options: &CopyOptions) -> Result<Option<u64>> {
    let Some(in_memory) = from.is_in_memory() else { return Ok(None) };
    let size = from.size().await?;
    if size == 0 {
        // A file without a size may have data nevertheless.
        return Ok(None);
    }
    // As for a read and a write, a short copy that can't wait for a disk is made here.
    let is_quick = in_memory && size <= SMALL as u64 && is_in_memory(to);
    let step = options.chunk.map_or(COPY_STEP, |chunk| chunk.clamp(1, 16 << 20) as u64) as usize;
    let mut done = 0;
    loop {
        let (source, target) = (from.clone(), to.clone());
        let copy = move || {
            let (mut at, mut to_at) = (done, done);
            let copy =
                |fd: BorrowedFd<'_>| copy_file_range(fd, Some(&mut at), &target, Some(&mut to_at), step);
            source.with_granted_fd(copy)
        };
        let copied =
            if is_quick { copy() } else { run_blocking("the local file", move || Ok(copy())).await? };
        match copied {
            // Some filesystems copy nothing instead of failing.
            None | Some(Ok(0)) if done < size => return Ok(None),
            None | Some(Ok(0)) => break,
            Some(Ok(count)) => done += count as u64,
            Some(Err(errno)) if is_no_copy(errno) && done == 0 => return Ok(None),
            Some(Err(errno)) => return Err(local("the copy to the local file")(errno.into())),
        }
        if let Some(progress) = &options.progress {
            progress(Progress { bytes: done, total: size.max(done) });
        }
    }
    if options.commit {
        End::Local(to).commit().await?;
    }
    Ok(Some(done))
}

/// Copies the whole of the local file `from` to `to`. Returns the number of bytes copied.
///
/// # Errors
/// The first error of either side.
pub async fn write_to(from: &Arc<fs::File>, to: &File, options: &CopyOptions) -> Result<u64> {
    transfer(End::Local(from), End::Remote(to), to.session().transfer_sizes().1, options).await
}

async fn transfer(from: End<'_>, to: End<'_>, chunk: usize, options: &CopyOptions) -> Result<u64> {
    let chunk = options.chunk.unwrap_or(chunk).clamp(1, 16 << 20);
    let total = from.size().await?;
    let done = AtomicU64::new(0);
    // Copies what a request reads, and returns where that ended in the source.
    let one = |request: Request| {
        let done = &done;
        async move {
            let data = from.read(request).await?;
            let count = data.len();
            if count > 0 {
                to.write(data, request.offset).await?;
                let bytes = done.fetch_add(count as u64, Relaxed) + count as u64;
                if let Some(progress) = &options.progress {
                    progress(Progress { bytes, total: total.max(bytes) });
                }
            }
            Ok::<_, Error>(request.offset + count as u64)
        }
    };
    let requests = (0..=total / chunk as u64).map(|index| {
        let offset = index * chunk as u64;
        let expected = usize::try_from(total - offset).map_or(chunk, |left| left.min(chunk));
        Request { offset, expected, len: chunk.min(expected.saturating_add(1)) }
    });
    let mut end = stream::iter(requests)
        .map(one)
        .buffer_unordered(options.window.clamp(1, 64))
        .try_fold(0, |end, reached| async move { Ok(reached.max(end)) })
        .await?;
    // Data that was appended meanwhile.
    while end > total {
        let reached = one(Request { offset: end, expected: chunk, len: chunk }).await?;
        if reached == end {
            break;
        }
        end = reached;
    }
    if options.commit {
        to.commit().await?;
    }
    Ok(done.into_inner())
}
