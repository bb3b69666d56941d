//! Reads that never wait for a disk (`RWF_NOWAIT`), on filesystems that support them.
//!
//! tmpfs, FUSE and some network filesystems refuse such reads. A store remembers the first refusal, and from
//! then on its reads are ordinary ones.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::error::Result;

/// The result of a read that doesn't wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NowaitRead {
    /// So many bytes. Fewer than requested are the file's last, or the rest isn't cached.
    Got(usize),
    /// No bytes are cached.
    Miss,
    /// The filesystem doesn't support it.
    NoAnswer,
}

/// Whether the filesystem supports reads without waiting. Assumed until it refuses one.
#[derive(Debug, Default)]
pub(crate) struct NowaitSupport(AtomicBool);

impl NowaitSupport {
    /// Calls `ask`, unless it is known not to be supported.
    pub fn ask(&self, ask: impl FnOnce() -> Result<NowaitRead>) -> Result<NowaitRead> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(NowaitRead::NoAnswer);
        }
        let asked = ask()?;
        if asked == NowaitRead::NoAnswer {
            self.0.store(true, Ordering::Relaxed);
        }
        Ok(asked)
    }
}

/// Reads what is cached.
pub(crate) fn read_nowait(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<NowaitRead> {
    let range = offset.checked_add(buffer.len() as u64);
    if range.is_none_or(|end| end > ::io::MAX_OFFSET) {
        // Beyond any file, where `read_at` returns without waiting.
        return Ok(NowaitRead::Got(::io::read_at(file, buffer, offset)?));
    }
    loop {
        return match preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(NowaitRead::Got(count)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(NowaitRead::Miss),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(NowaitRead::NoAnswer),
            Err(error) => Err(error.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn unsupported_nowait_is_tried_once() {
        let nowait = NowaitSupport::default();
        let ask = |asked| nowait.ask(|| asked);
        assert_eq!(ask(Ok(NowaitRead::Got(3))), Ok(NowaitRead::Got(3)));
        assert_eq!(ask(Ok(NowaitRead::Miss)), Ok(NowaitRead::Miss));
        assert_eq!(ask(Err(Error::Stale)), Err(Error::Stale), "an error is no answer to this question");
        assert_eq!(ask(Ok(NowaitRead::NoAnswer)), Ok(NowaitRead::NoAnswer));
        assert_eq!(nowait.ask(|| panic!("asked again")), Ok(NowaitRead::NoAnswer));
    }
}
