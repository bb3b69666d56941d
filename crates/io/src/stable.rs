//! Synchronous writes: one call that writes and makes durable what it wrote.
//!
//! Beside a write and an fsync(2) that is one system call less, and it flushes only its own range: in a file
//! with much unstable data a small stable write doesn't wait for all of it. `RWF_DSYNC` is fdatasync(2), data
//! and what is needed to find it again; `RWF_SYNC` is fsync(2), time stamps included, on a filesystem mounted
//! `lazytime`, too.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::{MAX_OFFSET, Stability, sync};

/// Writes `data` at `offset`, as durable as `stability` says when this returns; returns how many bytes went
/// into the file.
///
/// Interrupted and short calls are continued. An unstable write that meets an error after some bytes went
/// returns the count so far. A stable one returns the error: it may be that of an earlier write-back, which
/// the kernel tells but once, so that it mustn't be left for the next call.
///
/// # Errors
/// What pwritev2(2) and fsync(2) say; `EFBIG` when `offset` or the end of the write is beyond [`MAX_OFFSET`].
pub fn write_stably_at(file: impl AsFd, data: &[u8], offset: u64, stability: Stability) -> io::Result<usize> {
    let file = file.as_fd();
    if stability == Stability::Unstable {
        return crate::write_at(file, data, offset);
    }
    if !data.is_empty() && offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_OFFSET) {
        return Err(Errno::FBIG.into());
    }
    let flags = flags(stability);
    let mut done = 0;
    while done < data.len() {
        match pwritev2(file, &[IoSlice::new(&data[done..])], offset + done as u64, flags) {
            Ok(0) => return Err(Errno::IO.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // Not for this kind of file.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return in_two_steps(file, data, offset, stability),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

fn in_two_steps(file: BorrowedFd<'_>, data: &[u8], offset: u64, stability: Stability) -> io::Result<usize> {
    let count = crate::write_at(file, data, offset)?;
    sync(file, stability)?;
    Ok(count)
}

/// The flags that make a write as durable as `stability` says.
pub(crate) fn flags(stability: Stability) -> ReadWriteFlags {
    match stability {
        Stability::Unstable => ReadWriteFlags::empty(),
        Stability::DataSync => ReadWriteFlags::DSYNC,
        Stability::FileSync => ReadWriteFlags::SYNC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stability_writes_the_same_bytes() {
        for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
            let file = tempfile::tempfile().expect("a scratch file");
            assert_eq!(write_stably_at(&file, b"stable", 3, stability).expect("writes"), 6);
            assert_eq!(write_stably_at(&file, b"", 3, stability).expect("nothing to write"), 0);
            let mut back = [1; 16];
            assert_eq!(crate::read_at(&file, &mut back, 0).expect("reads"), 9);
            assert_eq!(&back[..9], b"\0\0\0stable");
            let error = write_stably_at(&file, b"12", MAX_OFFSET - 1, stability).expect_err("too big");
            assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
        }
    }

    #[test]
    fn what_knows_no_synchronous_write_fails_or_syncs_but_never_pretends() {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let error = write_stably_at(&full, b"x", 0, Stability::FileSync).expect_err("it is full");
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    }
}
