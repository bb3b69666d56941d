//! Whether a read asks the kernel not to wait (RWF_NOWAIT).
//!
//! A read that has to wait for a disk should not hold up an async executor. Asking costs something on every read, so it is
//! only done while reads have been missing the page cache lately, and for one in [`PLAIN`] reads otherwise, to notice when
//! they begin to.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Plain reads between two that ask.
const PLAIN: u32 = 64;

/// Hits in a row after which reads are plain again.
const HITS: u32 = 8;

/// What a file's reads have met. Several threads may lose each other's counts: that costs a read that asks in vain, or
/// one that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Reads to come: from [`PLAIN`] on ones that ask, below it plain ones.
    turn: AtomicU32,
    /// The filesystem can't be asked.
    always: AtomicBool,
}

impl Waiting {
    /// `always`: other files of the filesystem couldn't be asked.
    pub(super) const fn new(always: bool) -> Self {
        Self { turn: AtomicU32::new(PLAIN + HITS), always: AtomicBool::new(always) }
    }

    /// Whether the next read is to ask.
    #[inline]
    pub(super) fn asks(&self) -> bool {
        let turn = self.turn.load(Relaxed);
        if turn >= PLAIN {
            return !self.always.load(Relaxed);
        }
        self.turn.store(if turn == 0 { PLAIN } else { turn - 1 }, Relaxed);
        false
    }

    /// How a read that asked went: whether it found all it wanted in the page cache.
    pub(super) fn went(&self, hit: bool) {
        let turn = self.turn.load(Relaxed).max(PLAIN);
        self.turn.store(if hit { turn - 1 } else { PLAIN + HITS }, Relaxed);
    }

    /// The filesystem knows no such question.
    pub(super) fn cannot_be_asked(&self) {
        self.always.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the next reads ask, all of them hits.
    fn asking(waiting: &Waiting, reads: u32) -> usize {
        (0..reads)
            .filter(|_| {
                let asks = waiting.asks();
                if asks {
                    waiting.went(true);
                }
                asks
            })
            .count()
    }

    #[test]
    fn reads_of_cached_files_ask_seldom_and_those_that_missed_every_time() {
        let waiting = Waiting::new(false);
        assert_eq!(asking(&waiting, HITS + 1), HITS as usize + 1, "a new file's");
        assert_eq!(asking(&waiting, 10 * (PLAIN + 1)), 10, "one in many");
        while !waiting.asks() {}
        waiting.went(false);
        assert_eq!(asking(&waiting, HITS), HITS as usize, "as long as misses are near");
    }

    #[test]
    fn a_filesystem_that_knows_no_such_question_is_not_asked() {
        assert_eq!(asking(&Waiting::new(true), 1000), 0);
        let waiting = Waiting::new(false);
        assert!(waiting.asks());
        waiting.cannot_be_asked();
        assert_eq!(asking(&waiting, 1000), 0);
    }
}
