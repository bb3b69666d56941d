//! Whether a read asks the kernel not to wait (RWF_NOWAIT).
//!
//! A read that has to wait for a disk should not hold up an async executor. Asking costs something on every
//! read, so it is only done while reads have been missing the page cache lately, and for one in [`PLAIN`]
//! reads otherwise, to notice when they begin to. Some filesystems can't be asked: those in memory, where
//! there is nothing to wait for, and others (overlayfs, FUSE), where every read may.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::lane::NowaitSupport;

/// Plain reads between two that ask.
const PLAIN: u32 = 64;

/// Hits in a row after which reads are plain again.
const HITS: u32 = 8;

/// How a read is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It waits if it must.
    Plain,
    /// It asks.
    Asking,
    /// Where nobody else waits.
    Elsewhere,
}

/// What a file's reads have met. Several threads may lose each other's counts: that costs a read that asks in
/// vain, or one that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Reads to come: from [`PLAIN`] on ones that ask, below it plain ones.
    turn: AtomicU32,
    /// A [`NowaitSupport`].
    medium: AtomicU8,
}

impl Waiting {
    /// `medium`: as other files of the filesystem have shown.
    pub(super) const fn new(medium: NowaitSupport) -> Self {
        Self { turn: AtomicU32::new(PLAIN + HITS), medium: AtomicU8::new(medium as u8) }
    }

    /// How the next read is to be made.
    #[inline]
    pub(super) fn how(&self) -> How {
        let turn = self.turn.load(Relaxed);
        if turn >= PLAIN {
            return match NowaitSupport::of(self.medium.load(Relaxed)) {
                NowaitSupport::Assumed => How::Asking,
                NowaitSupport::InMemory => How::Plain,
                NowaitSupport::Unsupported => How::Elsewhere,
            };
        }
        self.turn.store(if turn == 0 { PLAIN } else { turn - 1 }, Relaxed);
        How::Plain
    }

    /// How a read that asked went: whether it found all it wanted in the page cache.
    pub(super) fn went(&self, hit: bool) {
        let turn = self.turn.load(Relaxed).max(PLAIN);
        self.turn.store(if hit { turn - 1 } else { PLAIN + HITS }, Relaxed);
    }

    /// The filesystem knows no such question.
    pub(super) fn cannot_be_asked(&self, medium: NowaitSupport) {
        self.turn.store(PLAIN + HITS, Relaxed);
        self.medium.store(medium as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next reads ask, all of them hits, the others plain.
    fn asking(waiting: &Waiting, reads: u32) -> usize {
        (0..reads)
            .filter(|_| {
                let how = waiting.how();
                assert_ne!(how, How::Elsewhere);
                if how == How::Asking {
                    waiting.went(true);
                }
                how == How::Asking
            })
            .count()
    }

    #[test]
    fn reads_of_cached_files_ask_seldom_and_those_that_missed_every_time() {
        let waiting = Waiting::new(NowaitSupport::Assumed);
        assert_eq!(asking(&waiting, HITS + 1), HITS as usize + 1, "a new file's");
        assert_eq!(asking(&waiting, 10 * (PLAIN + 1)), 10, "one in many");
        while waiting.how() != How::Asking {}
        waiting.went(false);
        assert_eq!(asking(&waiting, HITS), HITS as usize, "as long as misses are near");
    }

    #[test]
    fn who_cannot_be_asked_is_read_plainly_in_memory_and_elsewhere_otherwise() {
        assert_eq!(asking(&Waiting::new(NowaitSupport::InMemory), 1000), 0);
        let waiting = Waiting::new(NowaitSupport::Assumed);
        assert_eq!(asking(&waiting, HITS + 1 + PLAIN / 2), HITS as usize + 1);
        waiting.cannot_be_asked(NowaitSupport::Unsupported);
        assert!((0..1000).all(|_| waiting.how() == How::Elsewhere), "from then on, and not only in turn");
    }
}
