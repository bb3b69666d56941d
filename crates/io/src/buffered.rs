//! Reads, writes and syncs through the page cache.
//!
//! Every function completes its whole range: short transfers are continued and interrupted calls repeated.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::{MAX_OFFSET, Stability};

/// Reads at `offset` until `buffer` is full or the file ends; returns how many bytes were read.
///
/// If an error follows after some bytes, returns their count, and the next call returns the error. An offset
/// beyond [`MAX_OFFSET`] is beyond the end of any file: 0 bytes.
///
/// # Errors
/// Those of pread(2), when nothing was read.
pub fn read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let file = file.as_fd();
    let mut done = 0;
    while done < buffer.len() {
        let Some(at) = position(offset, done) else { break };
        let room = room_below_max(at, buffer.len() - done);
        match rustix::io::pread(file, &mut buffer[done..done + room], at) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Reads at `offset` without waiting for a disk. `None` when the bytes aren't in the page cache (or the
/// filesystem doesn't support it), else the count, which may be short. 0 is the end of the file.
///
/// # Errors
/// Those of preadv2(2), except `EAGAIN` and `EOPNOTSUPP`, which are `None`.
pub fn try_read_at(file: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    if offset > MAX_OFFSET {
        return Ok(Some(0));
    }
    let room = room_below_max(offset, buffer.len());
    let mut parts = [io::IoSliceMut::new(&mut buffer[..room])];
    loop {
        return match rustix::io::preadv2(file.as_fd(), &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
}

/// Writes `data` at `offset`; returns how many bytes were written.
///
/// If an error follows after some bytes, returns their count, and the next write returns the error.
///
/// # Errors
/// Those of pwrite(2), when nothing was written; `EFBIG` when `offset` or the end of the write is beyond
/// [`MAX_OFFSET`].
pub fn write_at(file: impl AsFd, data: &[u8], offset: u64) -> io::Result<usize> {
    let file = file.as_fd();
    if !data.is_empty() && offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(Errno::FBIG.into());
    }
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
            Ok(0) if done == 0 => return Err(Errno::IO.into()),
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Makes all data written to `file` as durable as `stability` requires; `Unstable` does nothing.
///
/// # Errors
/// Those of fsync(2). The kernel reports a failed write-back only once: a caller that gets an error must
/// treat all uncommitted data of the file as lost.
pub fn sync(file: impl AsFd, stability: Stability) -> io::Result<()> {
    let once: fn(BorrowedFd<'_>) -> rustix::io::Result<()> = match stability {
        Stability::Unstable => return Ok(()),
        Stability::DataSync => |file| rustix::fs::fdatasync(file),
        Stability::FileSync => |file| rustix::fs::fsync(file),
    };
    loop {
        match once(file.as_fd()) {
            Err(Errno::INTR) => {}
            result => return result.map_err(Into::into),
        }
    }
}

/// Writes `data` at `offset` with the durability that `stability` asks for, and returns how many bytes were
/// written.
///
/// One system call writes and syncs (`RWF_DSYNC` for fdatasync(2), `RWF_SYNC` for fsync(2), with the time
/// stamps also on filesystems mounted `lazytime`). That saves a call compared to write and fsync(2), and
/// flushes only the written range: a small stable write to a file with much unstable data doesn't wait for
/// all of it.
///
/// Continues short and interrupted calls. An unstable write that fails after some bytes returns the count so
/// far. A stable one returns the error, because it may belong to an earlier write-back, which the kernel
/// reports only once.
///
/// # Errors
/// Those of pwritev2(2) and fsync(2); `EFBIG` when `offset` or the end of the write is beyond [`MAX_OFFSET`].
pub fn write_stably_at(file: impl AsFd, data: &[u8], offset: u64, stability: Stability) -> io::Result<usize> {
    let file = file.as_fd();
    if stability == Stability::Unstable {
        return write_at(file, data, offset);
    }
    if !data.is_empty() && offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(Errno::FBIG.into());
    }
    let flags = sync_flags(stability);
    let mut done = 0;
    while done < data.len() {
        match pwritev2(file, &[IoSlice::new(&data[done..])], offset + done as u64, flags) {
            Ok(0) => return Err(Errno::IO.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // This kind of file has no synchronous writes.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_then_sync(file, data, offset, stability),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

fn write_then_sync(
    file: BorrowedFd<'_>,
    data: &[u8],
    offset: u64,
    stability: Stability,
) -> io::Result<usize> {
    let count = write_at(file, data, offset)?;
    sync(file, stability)?;
    Ok(count)
}

/// The pwritev2(2) flags for `stability`.
pub(crate) fn sync_flags(stability: Stability) -> ReadWriteFlags {
    match stability {
        Stability::Unstable => ReadWriteFlags::empty(),
        Stability::DataSync => ReadWriteFlags::DSYNC,
        Stability::FileSync => ReadWriteFlags::SYNC,
    }
}

/// `offset + done`, unless that is beyond any file.
fn position(offset: u64, done: usize) -> Option<u64> {
    offset.checked_add(done as u64).filter(|at| *at <= MAX_OFFSET)
}

/// How much of `want` bytes fits between `at` and [`MAX_OFFSET`]; the kernel refuses a range that crosses it.
fn room_below_max(at: u64, want: usize) -> usize {
    usize::try_from(MAX_OFFSET - at).map_or(want, |room| want.min(room))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(contents: &[u8]) -> std::fs::File {
        let file = tempfile::tempfile().expect("a scratch file");
        assert_eq!(write_at(&file, contents, 0).expect("writes"), contents.len());
        file
    }

    #[test]
    fn reads_what_was_written_up_to_the_end() {
        let file = scratch(b"hello, lane");
        let mut buffer = [0; 32];
        assert_eq!(read_at(&file, &mut buffer, 7).expect("reads"), 4);
        assert_eq!(&buffer[..4], b"lane");
        assert_eq!(read_at(&file, &mut buffer, 11).expect("reads"), 0);
    }

    #[test]
    fn offsets_at_the_edges_read_nothing_and_write_nothing() {
        let file = scratch(b"x");
        let mut buffer = [0; 32];
        for offset in [u64::MAX, MAX_OFFSET + 1, MAX_OFFSET, MAX_OFFSET - 3] {
            assert_eq!(read_at(&file, &mut buffer, offset).expect("reads"), 0, "at {offset:#x}");
            let tried = try_read_at(&file, &mut buffer, offset).expect("reads");
            assert!(matches!(tried, None | Some(0)), "at {offset:#x}");
            let error = write_at(&file, b"1234", offset).expect_err("too big");
            assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()), "at {offset:#x}");
            assert_eq!(write_at(&file, b"", offset).expect("nothing to write"), 0);
        }
    }

    #[test]
    fn try_read_returns_cached_bytes_or_none() {
        let file = scratch(b"cached");
        let mut buffer = [0; 6];
        if let Some(count) = try_read_at(&file, &mut buffer, 0).expect("reads") {
            assert_eq!(&buffer[..count], &b"cached"[..count]);
        }
    }

    #[test]
    fn every_stability_is_accepted() {
        let file = scratch(b"stable");
        for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
            sync(&file, stability).expect("syncs");
        }
        assert!(Stability::Unstable < Stability::DataSync && Stability::DataSync < Stability::FileSync);
    }

    #[test]
    fn writing_a_read_only_file_fails() {
        let named = tempfile::NamedTempFile::new().expect("a scratch file");
        let read_only = std::fs::File::open(named.path()).expect("opens");
        let error = write_at(&read_only, b"x", 0).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }

    #[test]
    fn every_stability_writes_the_same_bytes() {
        for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
            let file = tempfile::tempfile().expect("a scratch file");
            assert_eq!(write_stably_at(&file, b"stable", 3, stability).expect("writes"), 6);
            assert_eq!(write_stably_at(&file, b"", 3, stability).expect("nothing to write"), 0);
            let mut back = [1; 16];
            assert_eq!(read_at(&file, &mut back, 0).expect("reads"), 9);
            assert_eq!(&back[..9], b"\0\0\0stable");
            let error = write_stably_at(&file, b"12", MAX_OFFSET - 1, stability).expect_err("too big");
            assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
        }
    }

    #[test]
    fn a_failed_stable_write_reports_its_error() {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let error = write_stably_at(&full, b"x", 0, Stability::FileSync).expect_err("it is full");
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    }
}
