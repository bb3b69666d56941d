//! The counters of a session: the calls of each operation, and the I/O on each data path with its times.
//!
//! They show whether a session is local: while it uses a lane, the READ, WRITE and COMMIT counters of the
//! wire don't change.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use control::{Latencies, LatencyCounters};
use sys::thread_slot::THREAD_SLOTS;

use crate::types::Operation;

/// Each thread times one of so many reads and of so many writes over the lane: reading the clock twice for
/// each would be more than a hundredth of a small read.
const TIMED: u64 = 16;

control::metrics! {
    /// The I/O on one data path.
    pub struct DataPathCounters, counted by AtomicDataPathCounters {
        /// Files opened.
        opens: Counter<Count> = "opens",
        /// Reads: READ calls on the wire, preads on the lane.
        reads: Counter<Count> = "reads",
        /// Bytes read.
        bytes_read: Counter<Bytes> = "bytes read",
        /// Writes: WRITE calls on the wire, `pwrite`s on the lane.
        writes: Counter<Count> = "writes",
        /// Bytes written.
        bytes_written: Counter<Bytes> = "bytes written",
        /// Commits: COMMIT calls on the wire, `fsync`s on the lane.
        commits: Counter<Count> = "commits",
        /// Requests to the server: RPC calls on the wire; on the lane messages, and RPC calls on its call
        /// socket.
        round_trips: Counter<Count> = "round trips",
    }
}

control::metrics! {
    /// Events of a session other than I/O.
    pub struct SessionEvents {
        /// Connections made after the first.
        reconnects: Counter<Count> = "reconnects",
        /// RPC calls that were sent again after a reconnect.
        retransmits: Counter<Count> = "retransmits",
        /// Bytes of unstable data that were written again because the server had lost them.
        bytes_resent: Counter<Bytes> = "resent",
        /// Round trips of the lane that were RPC calls on its call socket.
        lane_calls: Counter<Count> = "calls on the lane",
        /// Probes for a lane.
        probes: Counter<Count> = "probes",
        /// Changes of an open file from one data path to the other.
        data_path_changes as "road_changes": Counter<Count> = "data path changes",
        /// Operations on names and attributes that were performed in the directory tree, without the server.
        tree_operations: Counter<Count> = "operations in the tree",
    }
}

/// The times of I/O on one data path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataPathTimes {
    /// Reads: READ calls on the wire, on the lane one pread(2) in sixteen.
    pub reads: Latencies,
    /// Writes: WRITE calls on the wire, on the lane one write in sixteen.
    pub writes: Latencies,
    /// Commits: COMMIT calls on the wire, fsync(2) on the lane.
    pub commits: Latencies,
}

/// [`DataPathTimes`] that change.
#[derive(Debug, Default)]
pub(crate) struct DataPathTimers {
    pub(crate) reads: LatencyCounters,
    pub(crate) writes: LatencyCounters,
    pub(crate) commits: LatencyCounters,
}

impl DataPathTimers {
    fn snapshot(&self) -> DataPathTimes {
        DataPathTimes {
            reads: self.reads.totals(),
            writes: self.writes.totals(),
            commits: self.commits.totals(),
        }
    }
}

/// A value for each operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PerOperation<T>([T; Operation::ALL.len()]);

impl<T: Default> Default for PerOperation<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

/// A session's counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    pub(crate) calls: PerOperation<u64>,
    /// I/O over the wire.
    pub wire: DataPathCounters,
    /// I/O over the lane.
    pub lane: DataPathCounters,
    /// The times of I/O over the wire.
    pub wire_times: DataPathTimes,
    /// The times of I/O over the lane. What the kernel passes through isn't among them.
    pub lane_times: DataPathTimes,
    /// Other events.
    pub events: SessionEvents,
}

impl Counters {
    /// Calls of this operation to the server, over the wire or the lane.
    #[must_use]
    pub const fn calls(&self, operation: Operation) -> u64 {
        self.calls.0[operation as usize]
    }
}

/// A thread's share of the reads and writes over the lane.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    reads: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Reads and writes over the lane. A locked instruction would slow them down, so each thread counts in a
/// shard that only it writes, with a plain load and store. Threads without a slot share the last shard.
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
    fn shard(&self, slot: Option<usize>) -> &Shard {
        &self.shards[slot.map_or(THREAD_SLOTS, |slot| slot.min(THREAD_SLOTS))]
    }

    /// The time, if the next read is to be timed.
    #[inline]
    pub(crate) fn begin_read(&self, slot: Option<usize>) -> Option<Instant> {
        Self::begin(&self.shard(slot).reads)
    }

    /// The time, if the next write is to be timed.
    #[inline]
    pub(crate) fn begin_write(&self, slot: Option<usize>) -> Option<Instant> {
        Self::begin(&self.shard(slot).writes)
    }

    #[inline]
    fn begin(count: &AtomicU64) -> Option<Instant> {
        count.load(Relaxed).is_multiple_of(TIMED).then(Instant::now)
    }

    #[inline]
    fn count(&self, slot: Option<usize>, bytes: u64, which: impl Fn(&Shard) -> (&AtomicU64, &AtomicU64)) {
        let (ops, sum) = which(self.shard(slot));
        if slot.is_some() {
            ops.store(ops.load(Relaxed).wrapping_add(1), Relaxed);
            sum.store(sum.load(Relaxed).wrapping_add(bytes), Relaxed);
        } else {
            bump(ops);
            add(sum, bytes);
        }
    }

    /// Counts a read of `bytes` bytes. No other thread may use `slot` at the time.
    #[inline]
    pub(crate) fn read(&self, slot: Option<usize>, bytes: u64) {
        self.count(slot, bytes, |shard| (&shard.reads, &shard.bytes_read));
    }

    /// Counts a write of `bytes` bytes, as [`LaneIoCounters::read`].
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

/// [`Counters`] that change.
#[derive(Debug, Default)]
pub(crate) struct SessionCounters {
    pub(crate) calls: PerOperation<AtomicU64>,
    pub(crate) wire: AtomicDataPathCounters,
    pub(crate) lane: AtomicDataPathCounters,
    /// The reads and writes of `lane`.
    pub(crate) lane_io: LaneIoCounters,
    pub(crate) wire_times: DataPathTimers,
    pub(crate) lane_times: DataPathTimers,
    pub(crate) bytes_resent: AtomicU64,
    pub(crate) lane_calls: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) data_path_changes: AtomicU64,
    pub(crate) tree_operations: AtomicU64,
    /// The lock owners of files that have locked something, until they release the file: whether I/O over
    /// the lane has to ask for lost locks. It is here because that I/O loads its counters in any case.
    pub(crate) lockers: AtomicU64,
}

/// Adds 1.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `by`.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl SessionCounters {
    /// Counts one call of `operation`. Its round trips are counted where it is sent.
    pub(crate) fn call(&self, operation: Operation) {
        bump(&self.calls.0[operation as usize]);
    }

    /// The counters as they stand, with those of the session's connections.
    pub(crate) fn snapshot(&self, connections: rpc::client::Stats) -> Counters {
        let mut lane = self.lane.snapshot();
        self.lane_io.add_to(&mut lane);
        Counters {
            calls: PerOperation(std::array::from_fn(|index| self.calls.0[index].load(Relaxed))),
            wire: self.wire.snapshot(),
            lane,
            wire_times: self.wire_times.snapshot(),
            lane_times: self.lane_times.snapshot(),
            events: SessionEvents {
                reconnects: connections.reconnects,
                retransmits: connections.retransmits,
                bytes_resent: self.bytes_resent.load(Relaxed),
                lane_calls: self.lane_calls.load(Relaxed),
                probes: self.probes.load(Relaxed),
                data_path_changes: self.data_path_changes.load(Relaxed),
                tree_operations: self.tree_operations.load(Relaxed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::thread_slot::current;

    #[test]
    fn no_count_of_any_thread_is_lost() {
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
