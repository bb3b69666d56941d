//! What a session has done: per procedure on the wire, and for each data path.
//!
//! "Is it local?" is answered by these numbers, not by a log line: over a lane the READ, WRITE and COMMIT
//! counters of the wire stand still.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sys::thread_slot::THREAD_SLOTS;

use crate::types::Operation;

/// What went over one data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DataPathCounters {
    /// Files opened.
    pub opens: u64,
    /// Reads: READ calls on the wire, `pread`s on the lane.
    pub reads: u64,
    /// Writes, likewise.
    pub writes: u64,
    /// Commits, likewise.
    pub commits: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests that waited for an answer from the server: RPC calls on the wire, messages on the lane.
    pub round_trips: u64,
}

/// A session's counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    pub(crate) calls: [u64; Operation::ALL.len()],
    /// What went over the wire.
    pub wire: DataPathCounters,
    /// What went over the lane.
    pub lane: DataPathCounters,
    /// Bytes of unstable data that were written again because the server had forgotten them.
    pub bytes_resent: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// RPC calls that were sent again after a reconnect.
    pub retransmits: u64,
    /// Times a lane was looked for.
    pub probes: u64,
    /// Times an open file changed from one data path to the other.
    pub data_path_changes: u64,
}

impl Counters {
    /// Calls of this operation over the wire.
    #[must_use]
    pub const fn calls(&self, operation: Operation) -> u64 {
        self.calls[operation as usize]
    }
}

/// The live side of [`DataPathCounters`].
#[derive(Debug, Default)]
pub(crate) struct AtomicDataPathCounters {
    pub(crate) opens: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) round_trips: AtomicU64,
}

impl AtomicDataPathCounters {
    fn snapshot(&self) -> DataPathCounters {
        DataPathCounters {
            opens: self.opens.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            commits: self.commits.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            round_trips: self.round_trips.load(Relaxed),
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Reads and writes over the lane. They are counted where a locked instruction would be felt, so every thread
/// counts for itself: only it writes its shard, and a plain load and store do. Threads without a slot share
/// the last one.
#[derive(Debug)]
pub(crate) struct LaneIoCounters {
    shards: Box<[Shard]>,
}

impl Default for LaneIoCounters {
    fn default() -> Self {
        Self { shards: (0..=THREAD_SLOTS).map(|_| Shard::default()).collect() }
    }
}

impl LaneIoCounters {
    #[inline]
    fn count(&self, slot: Option<usize>, bytes: u64, which: impl Fn(&Shard) -> (&AtomicU64, &AtomicU64)) {
        let (ops, sum) = which(&self.shards[slot.map_or(THREAD_SLOTS, |slot| slot.min(THREAD_SLOTS))]);
        if slot.is_some() {
            ops.store(ops.load(Relaxed).wrapping_add(1), Relaxed);
            sum.store(sum.load(Relaxed).wrapping_add(bytes), Relaxed);
        } else {
            bump(ops);
            add(sum, bytes);
        }
    }

    /// One read of so many bytes, by a thread that has `slot` to itself.
    #[inline]
    pub(crate) fn read(&self, slot: Option<usize>, bytes: u64) {
        self.count(slot, bytes, |shard| (&shard.reads, &shard.bytes_read));
    }

    /// One write of so many bytes, likewise.
    #[inline]
    pub(crate) fn write(&self, slot: Option<usize>, bytes: u64) {
        self.count(slot, bytes, |shard| (&shard.writes, &shard.bytes_written));
    }

    fn add_to(&self, data_path: &mut DataPathCounters) {
        for shard in &self.shards {
            data_path.reads += shard.reads.load(Relaxed);
            data_path.writes += shard.writes.load(Relaxed);
            data_path.bytes_read += shard.bytes_read.load(Relaxed);
            data_path.bytes_written += shard.bytes_written.load(Relaxed);
        }
    }
}

/// The live side of [`Counters`].
#[derive(Debug, Default)]
pub(crate) struct SessionCounters {
    pub(crate) calls: [AtomicU64; Operation::ALL.len()],
    pub(crate) wire: AtomicDataPathCounters,
    pub(crate) lane: AtomicDataPathCounters,
    /// The rest of `lane`.
    pub(crate) lane_io: LaneIoCounters,
    pub(crate) bytes_resent: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) data_path_changes: AtomicU64,
}

/// One more.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// `by` more.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl SessionCounters {
    /// Counts one call of `operation`.
    pub(crate) fn call(&self, operation: Operation) {
        bump(&self.calls[operation as usize]);
        bump(&self.wire.round_trips);
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let mut lane = self.lane.snapshot();
        self.lane_io.add_to(&mut lane);
        Counters {
            calls: std::array::from_fn(|index| self.calls[index].load(Relaxed)),
            wire: self.wire.snapshot(),
            lane,
            bytes_resent: self.bytes_resent.load(Relaxed),
            probes: self.probes.load(Relaxed),
            data_path_changes: self.data_path_changes.load(Relaxed),
            ..Counters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::thread_slot::current;

    #[test]
    fn every_thread_counts_and_nothing_is_lost() {
        let counters = LaneIoCounters::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..THREAD_SLOTS + 20 {
                    scope.spawn(|| (0..100).for_each(|_| counters.read(current(), 3)));
                }
                (0..100).for_each(|_| counters.write(current(), 5));
            });
        }
        let mut data_path = DataPathCounters::default();
        counters.add_to(&mut data_path);
        let reads = 3 * 100 * (THREAD_SLOTS as u64 + 20);
        assert_eq!((data_path.reads, data_path.bytes_read), (reads, reads * 3));
        assert_eq!((data_path.writes, data_path.bytes_written), (300, 1500));
    }
}
