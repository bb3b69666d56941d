//! The choice of RWF_NOWAIT for reads of a granted file.
//!
//! A read that waits for a disk must not block an async executor. RWF_NOWAIT costs time on every read, so
//! reads use it only while others have missed the page cache recently, and otherwise once in [`PLAIN_READS`]
//! reads, to notice new misses. Some filesystems refuse the flag: those in memory, where nothing waits, and
//! others (overlayfs, FUSE), where every read may wait.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::lane::NowaitSupport;

/// Plain reads between two with RWF_NOWAIT.
const PLAIN_READS: u32 = 64;

/// Hits in succession after which reads are plain again.
const MIN_HITS: u32 = 8;

/// The way in which a read is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadMethod {
    /// pread(2), which may wait.
    Plain,
    /// preadv2(2) with RWF_NOWAIT.
    Nowait,
    /// On a thread for blocking calls.
    Thread,
}

/// A file's choice of [`ReadMethod`]. Threads may lose each other's updates: the cost is a needless
/// RWF_NOWAIT, or a read that waits.
#[derive(Debug)]
pub(super) struct NowaitChoice {
    /// From [`PLAIN_READS`] on, the number of hits until reads are plain is above it. Below, the number of
    /// plain reads until the next with RWF_NOWAIT.
    countdown: AtomicU32,
    /// A [`NowaitSupport`].
    support: AtomicU8,
}

impl NowaitChoice {
    /// `support` is what other files of the filesystem have shown.
    pub(super) const fn new(support: NowaitSupport) -> Self {
        Self { countdown: AtomicU32::new(PLAIN_READS + MIN_HITS), support: AtomicU8::new(support as u8) }
    }

    /// Chooses the method of the next read.
    #[inline]
    pub(super) fn next(&self) -> ReadMethod {
        let countdown = self.countdown.load(Relaxed);
        if countdown >= PLAIN_READS {
            return match NowaitSupport::from_u8(self.support.load(Relaxed)) {
                NowaitSupport::Assumed => ReadMethod::Nowait,
                NowaitSupport::InMemory => ReadMethod::Plain,
                NowaitSupport::Unsupported => ReadMethod::Thread,
            };
        }
        self.countdown.store(if countdown == 0 { PLAIN_READS } else { countdown - 1 }, Relaxed);
        ReadMethod::Plain
    }

    /// Notes whether a read with RWF_NOWAIT found all its data in the page cache.
    pub(super) fn note(&self, hit: bool) {
        let countdown = self.countdown.load(Relaxed).max(PLAIN_READS);
        self.countdown.store(if hit { countdown - 1 } else { PLAIN_READS + MIN_HITS }, Relaxed);
    }

    /// Notes that the filesystem refuses RWF_NOWAIT.
    pub(super) fn note_support(&self, support: NowaitSupport) {
        self.countdown.store(PLAIN_READS + MIN_HITS, Relaxed);
        self.support.store(support as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the next reads that use RWF_NOWAIT, all of them hits, while the others are plain.
    fn nowait_reads(choice: &NowaitChoice, reads: u32) -> usize {
        (0..reads)
            .filter(|_| {
                let method = choice.next();
                assert_ne!(method, ReadMethod::Thread);
                if method == ReadMethod::Nowait {
                    choice.note(true);
                }
                method == ReadMethod::Nowait
            })
            .count()
    }

    #[test]
    fn nowait_is_used_seldom_after_hits_and_always_after_misses() {
        let choice = NowaitChoice::new(NowaitSupport::Assumed);
        assert_eq!(nowait_reads(&choice, MIN_HITS + 1), MIN_HITS as usize + 1, "a new file");
        assert_eq!(nowait_reads(&choice, 10 * (PLAIN_READS + 1)), 10, "one in many");
        while choice.next() != ReadMethod::Nowait {}
        choice.note(false);
        assert_eq!(nowait_reads(&choice, MIN_HITS), MIN_HITS as usize, "after a miss");
    }

    #[test]
    fn without_nowait_reads_are_plain_in_memory_and_on_a_thread_otherwise() {
        assert_eq!(nowait_reads(&NowaitChoice::new(NowaitSupport::InMemory), 1000), 0);
        let choice = NowaitChoice::new(NowaitSupport::Assumed);
        assert_eq!(nowait_reads(&choice, MIN_HITS + 1 + PLAIN_READS / 2), MIN_HITS as usize + 1);
        choice.note_support(NowaitSupport::Unsupported);
        assert!((0..1000).all(|_| choice.next() == ReadMethod::Thread), "at once, and for every read");
    }
}
