//! Execution of plans.
//!
//! A segment that fails or is short ends the request with the count so far, and nothing after it is written:
//! a client that is told a count must find the bytes after it unchanged.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

use crate::IoMode;
use crate::aligned_buffer::{AlignedBuffer, Payload};
use crate::alignment::Alignment;
use crate::buffered::{self, write_stably_at};
use crate::io_fallbacks::IoFallbacks;
use crate::plan::{self, Segment};
use crate::{MAX_OFFSET, Stability, trace};

/// `RWF_DONTCACHE` (Linux 6.14), which rustix doesn't define yet. Older kernels and filesystems without it
/// return `EOPNOTSUPP`.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// The descriptors of one file.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// For the page cache.
    pub buffered: BorrowedFd<'a>,
    /// With `O_DIRECT`, and the alignment it needs; `None` where direct I/O isn't wanted or its alignment
    /// isn't known.
    pub direct: Option<(BorrowedFd<'a>, Alignment)>,
    /// The file's NFS handle, for trace events.
    pub handle: &'a [u8],
}

impl<'a> Files<'a> {
    fn alignment(&self) -> Option<Alignment> {
        self.direct.map(|(_, alignment)| alignment)
    }

    fn with(&self, mode: IoMode) -> BorrowedFd<'a> {
        match self.direct {
            Some((file, _)) if mode == IoMode::Direct => file,
            _ => self.buffered,
        }
    }
}

/// Writes `data` at `offset` as planned by [`plan::write`] for `mode`, with the durability that `stability`
/// asks for. Returns how many bytes were written, from the front.
///
/// If an error follows after some bytes, an unstable write returns their count, and the next write returns
/// the error. A stable write returns the error, because it may belong to an earlier write-back, which the
/// kernel reports only once. If the filesystem doesn't support the mode, this and all later writes are
/// buffered.
///
/// # Errors
/// Those of pwritev2(2) and fsync(2); `EFBIG` when `offset` or the end of the write is beyond [`MAX_OFFSET`].
pub fn write(
    files: Files<'_>,
    mode: IoMode,
    data: &[u8],
    offset: u64,
    stability: Stability,
    fallbacks: &IoFallbacks,
) -> io::Result<usize> {
    let mode = fallbacks.instead_of(mode);
    if mode == IoMode::Buffered {
        trace::write_vector(files.handle, offset, data.len() as u64);
        return write_stably_at(files.buffered, data, offset, stability);
    }
    if !data.is_empty() && offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(Errno::FBIG.into());
    }
    let plan = plan::write(offset, data.len(), data.as_ptr().addr(), mode, files.alignment());
    let mut done = 0;
    for segment in plan.segments() {
        let bytes = &data[segment.start..segment.start + segment.length];
        let run = Run { files, bytes, at: offset + segment.start as u64, stability, fallbacks };
        match run.write(segment) {
            Ok(count) => {
                done += count;
                if count < segment.length {
                    break;
                }
            }
            Err(_) if done > 0 && stability == Stability::Unstable => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A segment to be written.
struct Run<'a> {
    files: Files<'a>,
    bytes: &'a [u8],
    at: u64,
    stability: Stability,
    fallbacks: &'a IoFallbacks,
}

impl Run<'_> {
    /// Writes the segment; returns how many of its bytes were written.
    fn write(&self, segment: &Segment) -> io::Result<usize> {
        let event = if segment.mode == IoMode::Direct { trace::write_direct } else { trace::write_vector };
        event(self.files.handle, self.at, self.bytes.len() as u64);
        let written = match segment.mode {
            IoMode::Buffered => return self.buffered(),
            IoMode::DontCache => self.once(self.files.buffered, self.bytes, DONTCACHE),
            IoMode::Direct if segment.copy => {
                self.fallbacks.copied();
                let mut aligned = AlignedBuffer::new(self.bytes.len());
                aligned.copy_from_slice(self.bytes);
                self.once(self.files.with(IoMode::Direct), &aligned, ReadWriteFlags::empty())
            }
            IoMode::Direct => self.once(self.files.with(IoMode::Direct), self.bytes, ReadWriteFlags::empty()),
        };
        match written {
            Ok(count) => Ok(count),
            Err(errno) if is_refusal(errno, segment.mode) => {
                self.fallbacks.refused(segment.mode);
                self.buffered()
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn buffered(&self) -> io::Result<usize> {
        write_stably_at(self.files.buffered, self.bytes, self.at, self.stability)
    }

    /// One system call, repeated when interrupted by a signal.
    fn once(&self, file: BorrowedFd<'_>, bytes: &[u8], flags: ReadWriteFlags) -> Result<usize, Errno> {
        let flags = flags | buffered::sync_flags(self.stability);
        loop {
            match pwritev2(file, &[IoSlice::new(bytes)], self.at, flags) {
                Ok(0) => return Err(Errno::IO),
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }
}

/// Whether an error means that the filesystem doesn't support `mode`.
fn is_refusal(errno: Errno, mode: IoMode) -> bool {
    match mode {
        IoMode::Buffered => false,
        IoMode::DontCache => matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS),
        IoMode::Direct => matches!(errno, Errno::INVAL | Errno::OPNOTSUPP),
    }
}

/// Reads `length` bytes at `offset` into new memory, as planned by [`plan::read`] for `mode`. The requested
/// bytes are in the middle of that memory and needn't be copied. Fewer bytes are the file's last.
///
/// # Errors
/// Those of preadv2(2), when nothing was read.
pub fn fetch(
    files: Files<'_>,
    mode: IoMode,
    offset: u64,
    length: usize,
    fallbacks: &IoFallbacks,
) -> io::Result<Payload> {
    let plan = plan::read(offset, length, fallbacks.instead_of(mode), files.alignment());
    let mut buffer = AlignedBuffer::new(plan.length);
    let got = fill(files, plan.mode, &mut buffer, plan.offset, fallbacks)?;
    let count = plan.of_use(got);
    Ok(Payload { buffer, range: plan.skip..plan.skip + count })
}

/// Reads at `offset` until `buffer` is full or the file ends; returns how many bytes were read. A direct read
/// uses `buffer` itself if that and the range are aligned, else other memory.
///
/// # Errors
/// As for [`fetch`].
pub fn read(
    files: Files<'_>,
    mode: IoMode,
    buffer: &mut [u8],
    offset: u64,
    fallbacks: &IoFallbacks,
) -> io::Result<usize> {
    let mode = fallbacks.instead_of(mode);
    let plan = plan::read(offset, buffer.len(), mode, files.alignment());
    let suits = files.alignment().is_none_or(|a| buffer.as_ptr().addr().is_multiple_of(a.memory()));
    if plan.mode != IoMode::Direct || (suits && plan.length == buffer.len()) {
        return fill(files, plan.mode, buffer, offset, fallbacks);
    }
    let payload = fetch(files, mode, offset, buffer.len(), fallbacks)?;
    buffer[..payload.len()].copy_from_slice(&payload);
    Ok(payload.len())
}

/// Reads until `into` is full or the file ends. If an error follows after some bytes, returns their count,
/// and the next call returns the error.
fn fill(
    files: Files<'_>,
    mode: IoMode,
    into: &mut [u8],
    offset: u64,
    fallbacks: &IoFallbacks,
) -> io::Result<usize> {
    let flags = match mode {
        IoMode::Buffered => {
            trace::read_vector(files.handle, offset, into.len() as u64);
            return buffered::read_at(files.buffered, into, offset);
        }
        IoMode::DontCache => {
            trace::read_vector(files.handle, offset, into.len() as u64);
            DONTCACHE
        }
        IoMode::Direct => {
            trace::read_direct(files.handle, offset, into.len() as u64);
            ReadWriteFlags::empty()
        }
    };
    let block = files.alignment().map_or(1, |alignment| alignment.offset() as usize);
    let mut done = 0;
    while done < into.len() {
        let at = offset.saturating_add(done as u64);
        if at > MAX_OFFSET {
            break;
        }
        let room = (into.len() - done).min(usize::try_from(MAX_OFFSET - at).unwrap_or(usize::MAX));
        match preadv2(files.with(mode), &mut [IoSliceMut::new(&mut into[done..done + room])], at, flags) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                // The file's last block. A direct read can't continue inside a block.
                if mode == IoMode::Direct && !count.is_multiple_of(block) {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(errno) if is_refusal(errno, mode) => {
                fallbacks.refused(mode);
                return buffered::read_at(files.buffered, &mut into[done..], at).map(|count| done + count);
            }
            Err(_) if done > 0 => break,
            // XFS also returns this for a read across the end of a file where it has preallocated blocks
            // ("Direct I/O collision with buffered writes"). If the device has failed, the buffered read
            // fails, too.
            Err(Errno::IO) if mode == IoMode::Direct => {
                trace::read_vector(files.handle, offset, into.len() as u64);
                return buffered::read_at(files.buffered, into, offset);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// A descriptor that fails every write.
    fn failing() -> std::os::fd::OwnedFd {
        rustix::fs::open("/dev/full", rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())
            .expect("a device")
    }

    #[test]
    fn nothing_is_written_after_a_failed_segment() {
        let file = tempfile::tempfile().expect("a scratch file");
        buffered::write_at(&file, &[b'.'; 4096], 0).expect("writes");
        let broken = failing();
        let alignment = Alignment::new(1, 512).expect("powers of two");
        let files = Files { buffered: file.as_fd(), direct: Some((broken.as_fd(), alignment)), handle: b"" };
        // Edge, middle, edge: the middle fails with ENOSPC.
        let wrote =
            write(files, IoMode::Direct, &[b'x'; 1600], 500, Stability::Unstable, &IoFallbacks::default())
                .expect("a count so far");
        assert_eq!(wrote, 12);
        let mut after = [0; 4096];
        buffered::read_at(&file, &mut after, 0).expect("reads");
        assert!(after[500..512].iter().all(|b| *b == b'x'));
        assert!(after[512..].iter().all(|b| *b == b'.'), "the suffix must not have been written");
    }

    #[test]
    fn an_error_in_the_first_segment_is_returned() {
        let file = tempfile::tempfile().expect("a scratch file");
        let broken = failing();
        let alignment = Alignment::new(1, 512).expect("powers of two");
        let files = Files { buffered: file.as_fd(), direct: Some((broken.as_fd(), alignment)), handle: b"" };
        let error =
            write(files, IoMode::Direct, &[1; 600], 512, Stability::Unstable, &IoFallbacks::default())
                .expect_err("full");
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        assert_eq!(file.metadata().expect("there").len(), 0);
    }

    #[test]
    fn offsets_at_the_edges_read_nothing_and_write_nothing() {
        let file = tempfile::tempfile().expect("a scratch file");
        let files = Files { buffered: file.as_fd(), direct: None, handle: b"" };
        let fallbacks = IoFallbacks::default();
        for mode in [IoMode::Buffered, IoMode::DontCache, IoMode::Direct] {
            for offset in [u64::MAX, MAX_OFFSET + 1, MAX_OFFSET, MAX_OFFSET - 3] {
                assert_eq!(
                    fetch(files, mode, offset, 32, &fallbacks).expect("reads").len(),
                    0,
                    "{offset:#x}"
                );
                let error = write(files, mode, b"1234", offset, Stability::Unstable, &fallbacks)
                    .expect_err("too big");
                assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()), "at {offset:#x}");
            }
        }
    }
}
