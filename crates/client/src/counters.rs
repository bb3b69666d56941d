//! What a session has done: per procedure on the wire, and per road.
//!
//! "Is it local?" is answered by these numbers, not by a log line: over a lane the READ, WRITE and COMMIT counters of the
//! wire stand still.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use proto::nfs3::Procedure;

/// What went over one road.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoadCounters {
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
pub struct Counters {
    pub(crate) calls: [u64; 22],
    /// What went over the wire.
    pub wire: RoadCounters,
    /// What went over the lane.
    pub lane: RoadCounters,
    /// Bytes of unstable data that were written again because the server had forgotten them.
    pub bytes_resent: u64,
    /// Connections made after the first.
    pub reconnects: u64,
    /// RPC calls that were sent again after a reconnect.
    pub retransmits: u64,
    /// Times a lane was looked for.
    pub probes: u64,
    /// Times an open file changed from one road to the other.
    pub road_changes: u64,
}

impl Counters {
    /// NFS calls of this procedure that were made over the wire.
    #[must_use]
    pub const fn calls(&self, procedure: Procedure) -> u64 {
        self.calls[procedure as usize]
    }
}

/// The live side of [`RoadCounters`].
#[derive(Debug, Default)]
pub(crate) struct Road {
    pub(crate) opens: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) round_trips: AtomicU64,
}

impl Road {
    fn snapshot(&self) -> RoadCounters {
        RoadCounters {
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

/// The live side of [`Counters`].
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) calls: [AtomicU64; 22],
    pub(crate) wire: Road,
    pub(crate) lane: Road,
    pub(crate) bytes_resent: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) road_changes: AtomicU64,
}

/// One more.
pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

/// `by` more.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl Live {
    /// One call of `procedure` goes out.
    pub(crate) fn call(&self, procedure: Procedure) {
        bump(&self.calls[procedure as usize]);
        bump(&self.wire.round_trips);
    }

    pub(crate) fn snapshot(&self) -> Counters {
        Counters {
            calls: std::array::from_fn(|index| self.calls[index].load(Relaxed)),
            wire: self.wire.snapshot(),
            lane: self.lane.snapshot(),
            bytes_resent: self.bytes_resent.load(Relaxed),
            probes: self.probes.load(Relaxed),
            road_changes: self.road_changes.load(Relaxed),
            ..Counters::default()
        }
    }
}
