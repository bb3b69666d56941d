//! Copies of whole files, with several requests in flight.
//!
//! Between two files of one session the server copies, or the kernel if both are granted, where they can.
//! From a granted file to a local one of the same filesystem the kernel copies.
//!
//! The source is read in chunks, several at once, and each chunk is written as soon as it arrives. The
//! source's size at the beginning determines the number of chunks. Data that is appended meanwhile is copied
//! afterwards, one chunk after the other.
//!
//! If the source uses less space than its size, its holes are searched for, and an empty target keeps them:
//! nothing is written there. A server's COPY and the kernel would fill them, and so copy only the data. An
//! NFSv3 server can't tell its holes, and neither can some filesystems: those are copied as zeros.

mod end;
mod parts;

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::stream::{self, TryStreamExt as _};
use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::file::{DataPath, File};
use crate::in_memory::is_in_memory;
use end::{End, Request, SMALL, local, run_blocking};
use parts::{Part, Parts, Shape, TransferStep, TransferSteps};

/// The progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes copied so far, with those of holes.
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
    /// Called after every request and every hole.
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

/// What is copied, and where to.
struct Ends {
    from: End,
    to: End,
    /// That of `from`.
    shape: Shape,
}

impl Ends {
    async fn new(from: End, to: End) -> Result<Self> {
        let shape = Shape::new(&from, &to).await?;
        Ok(Self { from, to, shape })
    }
}

/// Copies the whole of `from` to the beginning of `to`. The two may be on different servers. Returns the
/// number of bytes copied.
///
/// If `to` is empty, holes of `from` stay holes where its server can tell them: over the lane and by
/// NFSv4.2.
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
    let ends = Ends::new(End::Remote(from.clone()), End::Remote(to.clone())).await?;
    let is_one_session = Arc::ptr_eq(&from.session().inner, &to.session().inner);
    if is_one_session && let Some(done) = copy_within(from, to, &ends, options).await? {
        return Ok(done);
    }
    let chunk = from.session().transfer_sizes().0.min(to.session().transfer_sizes().1);
    transfer(&ends, chunk, options).await
}

/// The bytes of a request to copy within the server. Each shows its progress, and none takes long.
const COPY_STEP: u64 = 16 << 20;

/// The bytes of a hole that a server is made to copy rather than to divide its copy. What it has copied over
/// the wire is durable after each request, which takes longer.
const MIN_HOLE_ON_WIRE: u64 = 1 << 20;

/// As [`copy`], without the data passing through this client. `None` if that isn't possible; nothing is
/// copied then.
async fn copy_within(from: &File, to: &File, ends: &Ends, options: &CopyOptions) -> Result<Option<u64>> {
    let step = options.chunk.map_or(COPY_STEP, |chunk| chunk.max(1) as u64);
    let size = ends.shape.size;
    let copy = |at, len: u64| async move {
        match from.copy_range(at, to, at, len.min(step)).await? {
            // Some filesystems copy nothing instead of failing.
            0 if at < size => Ok(None),
            count => Ok(Some(count)),
        }
    };
    let on_lane = [from, to].iter().all(|file| file.data_path() == DataPath::Lane);
    copy_by(ends, copy, if on_lane { 0 } else { MIN_HOLE_ON_WIRE }, options).await
}

/// Copies by a function that lets up to a number of bytes be copied from an offset on. It returns the number
/// of bytes copied, 0 at the source's end, and `None` if it can't copy between the two. Then the result is
/// `None`, too, and whatever it has copied is to be copied again. Shorter holes than `min_hole` are copied.
async fn copy_by<Copied: Future<Output = Result<Option<u64>>>>(
    ends: &Ends,
    copy: impl Fn(u64, u64) -> Copied,
    min_hole: u64,
    options: &CopyOptions,
) -> Result<Option<u64>> {
    let mut parts = Parts::new(&ends.from, ends.shape, min_hole);
    let (mut done, mut written) = (0, 0);
    let tell = |bytes: u64| {
        if let Some(progress) = &options.progress {
            progress(Progress { bytes, total: ends.shape.size.max(bytes) });
        }
    };
    'parts: while let Some(part) = parts.next().await? {
        match part {
            Part::Hole(hole) => {
                done = hole.end;
                tell(done);
            }
            Part::Data(data) => {
                while done < data.end {
                    match copy(done, data.end - done).await {
                        Ok(Some(0)) => break 'parts,
                        Ok(Some(count)) => done += count,
                        Ok(None) => return Ok(None),
                        Err(error) if written == 0 && is_left_to_the_client(&error) => return Ok(None),
                        Err(error) => return Err(error),
                    }
                    written = done;
                    tell(done);
                }
            }
        }
    }
    if done > written {
        ends.to.set_len(done).await?;
    }
    if options.commit {
        ends.to.commit().await?;
    }
    Ok(Some(done))
}

/// Whether this is the error of a copy that neither the server nor the kernel can make.
fn is_left_to_the_client(error: &Error) -> bool {
    let errno = Errno::from_raw_os_error(error.errno());
    matches!(errno, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOSYS | Errno::INVAL)
}

/// Copies the whole of `from` to the local file `to`. Returns the number of bytes copied. Holes stay holes as
/// by [`copy`].
///
/// # Errors
/// The first error of either side.
pub async fn read_from(from: &File, to: &Arc<fs::File>, options: &CopyOptions) -> Result<u64> {
    let ends = Ends::new(End::Remote(from.clone()), End::Local(to.clone())).await?;
    if let Some(done) = copy_to_local(from, to, &ends, options).await? {
        return Ok(done);
    }
    transfer(&ends, from.session().transfer_sizes().0, options).await
}

/// As [`read_from`], by copy_file_range(2), for which a filesystem may share blocks. `None` without a grant,
/// or if the kernel can't copy between the two; what it has copied is then copied again.
async fn copy_to_local(
    from: &File,
    to: &Arc<fs::File>,
    ends: &Ends,
    options: &CopyOptions,
) -> Result<Option<u64>> {
    let Some(in_memory) = from.is_in_memory() else { return Ok(None) };
    let size = ends.shape.size;
    if size == 0 {
        // A file without a size may have data nevertheless.
        return Ok(None);
    }
    // As for a read and a write, a short copy that can't wait for a disk is made here.
    let is_quick = in_memory && size <= SMALL as u64 && is_in_memory(to);
    let step = options.chunk.map_or(COPY_STEP, |chunk| chunk.clamp(1, 16 << 20) as u64);
    let copy = |done, len: u64| async move {
        let (source, target) = (from.clone(), to.clone());
        let len = usize::try_from(len.min(step)).unwrap_or(usize::MAX);
        let copy = move || {
            let (mut at, mut to_at) = (done, done);
            let copy =
                |fd: BorrowedFd<'_>| copy_file_range(fd, Some(&mut at), &target, Some(&mut to_at), len);
            source.with_granted_fd(copy)
        };
        let copied =
            if is_quick { copy() } else { run_blocking("the local file", move || Ok(copy())).await? };
        match copied {
            // Some filesystems copy nothing instead of failing.
            None | Some(Ok(0)) if done < size => Ok(None),
            None | Some(Ok(0)) => Ok(Some(0)),
            Some(Ok(count)) => Ok(Some(count as u64)),
            Some(Err(errno)) => Err(local("the copy to the local file")(errno.into())),
        }
    };
    copy_by(ends, copy, 0, options).await
}

/// Copies the whole of the local file `from` to `to`. Returns the number of bytes copied.
///
/// If `to` is empty, holes of `from` stay holes. The search for them moves the offset of `from` (lseek(2)).
///
/// # Errors
/// The first error of either side.
pub async fn write_to(from: &Arc<fs::File>, to: &File, options: &CopyOptions) -> Result<u64> {
    let ends = Ends::new(End::Local(from.clone()), End::Remote(to.clone())).await?;
    transfer(&ends, to.session().transfer_sizes().1, options).await
}

/// Where a step ended in the source. 0 if it found no data there, or was none of that kind.
#[derive(Clone, Copy, Default)]
struct Reached {
    data: u64,
    hole: u64,
}

/// Copies with the data passing through this client.
async fn transfer(ends: &Ends, chunk: usize, options: &CopyOptions) -> Result<u64> {
    let Ends { from, to, shape } = ends;
    let chunk = options.chunk.unwrap_or(chunk).clamp(1, 16 << 20);
    let total = shape.size;
    let done = AtomicU64::new(0);
    let advance = |count: u64| {
        let bytes = done.fetch_add(count, Relaxed) + count;
        if let Some(progress) = &options.progress {
            progress(Progress { bytes, total: total.max(bytes) });
        }
    };
    let one = |step: TransferStep| {
        let advance = &advance;
        async move {
            let request = match step {
                TransferStep::Copy(request) => request,
                TransferStep::Skip(hole) => {
                    advance(hole.end - hole.start);
                    return Ok::<_, Error>(Reached { hole: hole.end, data: 0 });
                }
            };
            let data = from.read(request).await?;
            let count = data.len() as u64;
            if count == 0 {
                return Ok(Reached::default());
            }
            to.write(data, request.offset).await?;
            advance(count);
            Ok(Reached { data: request.offset + count, hole: 0 })
        }
    };
    let steps = TransferSteps::new(Parts::new(from, *shape, 0), chunk);
    let steps = stream::try_unfold(steps, |mut steps| async move {
        let step = steps.next().await?;
        Ok(step.map(|step| (step, steps)))
    });
    let mut end = steps
        .map_ok(one)
        .try_buffer_unordered(options.window.clamp(1, 64))
        .try_fold(Reached::default(), |end, reached| async move {
            Ok(Reached { data: end.data.max(reached.data), hole: end.hole.max(reached.hole) })
        })
        .await?;
    if end.hole > end.data {
        to.set_len(end.hole).await?;
    }
    // Data that was appended meanwhile.
    while end.data > total {
        let request = Request { offset: end.data, expected: chunk, len: chunk };
        let reached = one(TransferStep::Copy(request)).await?;
        if reached.data == 0 {
            break;
        }
        end = reached;
    }
    if options.commit {
        to.commit().await?;
    }
    Ok(done.into_inner())
}
