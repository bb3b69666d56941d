//! Reads that announce a wait for the disk, so that other calls needn't wait behind them.
//!
//! A read first asks for the bytes without waiting (see `nowait_read`). For cached bytes that is already the
//! whole read.

use std::os::fd::OwnedFd;

use rustix::fs::{Advice, fadvise};

use super::context::UserContext;
use crate::error::Result;
use crate::node::Node;
use crate::nowait_read::{NowaitRead, read_nowait};

/// Bytes per read when a range is only read to be cached.
const STEP: usize = 64 << 10;

impl UserContext<'_> {
    /// Fills `buffer` from `offset`, calling `will_wait` before waiting for a disk. `size` is the file's
    /// size, so that its end is recognised without another call.
    pub(super) fn fill(
        &self,
        file: &OwnedFd,
        offset: u64,
        buffer: &mut [u8],
        size: u64,
        will_wait: impl FnOnce(),
    ) -> Result<usize> {
        let done = match self.store.nowait.ask(|| read_nowait(file, offset, buffer))? {
            NowaitRead::NoAnswer => 0,
            NowaitRead::Got(count)
                if count == buffer.len() || offset.saturating_add(count as u64) >= size =>
            {
                return Ok(count);
            }
            NowaitRead::Got(count) => {
                will_wait();
                count
            }
            NowaitRead::Miss => {
                will_wait();
                0
            }
        };
        let rest = offset.saturating_add(done as u64);
        match ::io::read_at(file, &mut buffer[done..], rest) {
            Ok(count) => Ok(done + count),
            // The next read will return the error.
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether `length` bytes at `offset` of the node's open file may be sent without a copy
    /// ([`UserContext::read_file`]). Brings them into the page cache first, as far as the file has them, so
    /// that sending them doesn't wait for a disk. Calls `will_wait` before waiting itself.
    ///
    /// False if a part can't be read, now or at an earlier send ([`Node::set_unsendable`]):
    /// [`UserContext::read_from`] returns what can be read, and the error.
    pub fn can_send(
        &self,
        node: &Node,
        file: &OwnedFd,
        offset: u64,
        length: u32,
        will_wait: impl FnOnce(),
    ) -> bool {
        if node.is_unsendable() {
            return false;
        }
        let warmed = self.warm(file, offset, length, will_wait);
        if warmed.is_err() {
            // Of the next range only the middle may be unreadable, which isn't checked.
            node.set_unsendable();
        }
        warmed.is_ok()
    }

    /// Makes sure that a range is cached. Only both ends of it are checked, because a range is mostly cached
    /// as a whole or not at all, and can be dropped from the cache before it is sent anyway. Does nothing
    /// where the filesystem has no reads without waiting.
    fn warm(&self, file: &OwnedFd, offset: u64, length: u32, will_wait: impl FnOnce()) -> Result<()> {
        let Some(last) = length.checked_sub(1) else { return Ok(()) };
        // The first byte before the last: the kernel's read-ahead detects sequential access by the order.
        for at in [offset, offset.saturating_add(last.into())] {
            match self.store.nowait.ask(|| read_nowait(file, at, &mut [0]))? {
                NowaitRead::Got(_) => {}
                NowaitRead::NoAnswer => return Ok(()),
                NowaitRead::Miss => {
                    will_wait();
                    return fetch(file, offset, length);
                }
            }
        }
        Ok(())
    }
}

/// Brings a range into the page cache and waits for it.
fn fetch(file: &OwnedFd, offset: u64, length: u32) -> Result<()> {
    // Requests all of it at once. A failure shows in the reads below.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(length.into()), Advice::WillNeed);
    let mut scrap = vec![0; STEP.min(length as usize)];
    let mut left = length as usize;
    let mut at = offset;
    while left > 0 {
        let part = left.min(scrap.len());
        let count = ::io::read_at(file, &mut scrap[..part], at)?;
        // After some bytes there may be an error, which the next read returns.
        if count == 0 {
            break;
        }
        left -= count;
        at += count as u64;
    }
    Ok(())
}
