//! Reads that may have to wait for a disk, and those that don't.
//!
//! Whoever reads for many is told before a read waits, so that others needn't wait with it. What is cached is
//! found by asking the kernel for the bytes on the condition that it doesn't wait (`RWF_NOWAIT`): a hit is
//! the read itself and costs nothing more. Filesystems that can't be asked (tmpfs, FUSE, some on the network)
//! say so once for a store, which is one filesystem; from then on their reads are plain.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::Acting;
use crate::error::Result;

/// How much of a range that isn't cached is read at a time; it is thrown away.
const STEP: usize = 64 << 10;

/// What came of asking for bytes without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// So many are here; fewer than asked are the file's last, or the rest isn't cached.
    Got(usize),
    /// None is cached.
    Miss,
    /// The filesystem doesn't know.
    NoAnswer,
}

/// Whether a filesystem can be asked what is cached. It can until it has said no.
#[derive(Debug, Default)]
pub(crate) struct Askable(AtomicBool);

impl Askable {
    /// Asks, unless it is known to be of no use.
    fn ask(&self, ask: impl FnOnce() -> Result<Asked>) -> Result<Asked> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(Asked::NoAnswer);
        }
        let asked = ask()?;
        if asked == Asked::NoAnswer {
            self.0.store(true, Ordering::Relaxed);
        }
        Ok(asked)
    }
}

impl Acting<'_> {
    /// Fills `buffer` from `offset`, calling `will_wait` before it waits for a disk. `size` is the file's, so
    /// that its end is known without a second look.
    pub(super) fn fill(
        &self,
        file: &OwnedFd,
        offset: u64,
        buffer: &mut [u8],
        size: u64,
        will_wait: impl FnOnce(),
    ) -> Result<usize> {
        let done = match self.store.askable.ask(|| now(file, offset, buffer))? {
            Asked::NoAnswer => 0,
            Asked::Got(count) if count == buffer.len() || offset.saturating_add(count as u64) >= size => {
                return Ok(count);
            }
            Asked::Got(count) => {
                will_wait();
                count
            }
            Asked::Miss => {
                will_wait();
                0
            }
        };
        let rest = offset.saturating_add(done as u64);
        match ::io::read_at(file, &mut buffer[done..], rest) {
            Ok(count) => Ok(done + count),
            // The next read meets it again.
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error.into()),
        }
    }

    /// Sees to it that `length` bytes at `offset` are cached, as far as the file has them, so that sending
    /// them from the file doesn't wait for a disk. Calls `will_wait` before it waits itself. It looks at both
    /// ends of the range: what was read in one piece is mostly there in one piece or not at all. Where the
    /// filesystem can't be asked nothing is done.
    ///
    /// # Errors
    /// `Io`: the range can't be read.
    pub fn warm(&self, file: &OwnedFd, offset: u64, length: u32, will_wait: impl FnOnce()) -> Result<()> {
        let Some(last) = length.checked_sub(1) else { return Ok(()) };
        // The first before the last: the kernel tells by the order who reads on where he stopped.
        for at in [offset, offset.saturating_add(last.into())] {
            match self.store.askable.ask(|| now(file, at, &mut [0]))? {
                Asked::Got(_) => {}
                Asked::NoAnswer => return Ok(()),
                Asked::Miss => {
                    will_wait();
                    return fetch(file, offset, length);
                }
            }
        }
        Ok(())
    }
}

/// Reads what is cached.
fn now(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<Asked> {
    let range = offset.checked_add(buffer.len() as u64);
    if range.is_none_or(|end| end > ::io::MAX_OFFSET) {
        // Beyond any file; `read_at` knows what to do there. Nothing waits.
        return Ok(Asked::Got(::io::read_at(file, buffer, offset)?));
    }
    loop {
        return match preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(Asked::Got(count)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(Asked::Miss),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Asked::NoAnswer),
            Err(error) => Err(error.into()),
        };
    }
}

/// Brings a range into the page cache and waits for it.
fn fetch(file: &OwnedFd, offset: u64, length: u32) -> Result<()> {
    // All of it is asked for at once; whether that works the reads will show.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(length.into()), Advice::WillNeed);
    let mut scrap = vec![0; STEP.min(length as usize)];
    let mut left = length as usize;
    let mut at = offset;
    while left > 0 {
        let part = left.min(scrap.len());
        let count = ::io::read_at(file, &mut scrap[..part], at)?;
        if count < part {
            break;
        }
        left -= part;
        at += part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn who_has_no_answer_is_asked_once() {
        let askable = Askable::default();
        let ask = |asked| askable.ask(|| asked);
        assert_eq!(ask(Ok(Asked::Got(3))), Ok(Asked::Got(3)));
        assert_eq!(ask(Ok(Asked::Miss)), Ok(Asked::Miss));
        assert_eq!(ask(Err(Error::Stale)), Err(Error::Stale), "an error is no answer to this question");
        assert_eq!(ask(Ok(Asked::NoAnswer)), Ok(Asked::NoAnswer));
        assert_eq!(askable.ask(|| panic!("asked again")), Ok(Asked::NoAnswer));
    }
}
