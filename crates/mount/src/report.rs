//! The status of a mount: its data path since when, and why it isn't a better one.

use std::collections::VecDeque;
use std::time::Instant;

use client::LaneReport;
use parking_lot::Mutex;

use crate::mount_grant::MountGrantState;

/// Changes of the lane that are kept.
const MAX_CHANGES: usize = 16;

/// A change of the lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneChange {
    /// The time of the change.
    pub at: Instant,
    /// Whether there was a lane from then on.
    pub local: bool,
    /// Why there was none.
    pub reasons: Vec<String>,
}

/// The last changes of a mount's lane.
#[derive(Debug, Default)]
pub(crate) struct LaneHistory(Mutex<VecDeque<LaneChange>>);

impl LaneHistory {
    /// Enters the lane's present state, and logs it if it has changed.
    pub(crate) fn note(&self, report: &LaneReport) {
        let mut changes = self.0.lock();
        if changes.back().is_some_and(|last| last.local == report.local && last.reasons == report.reasons) {
            return;
        }
        let is_first = changes.is_empty();
        if changes.len() >= MAX_CHANGES {
            changes.pop_front();
        }
        changes.push_back(LaneChange {
            at: Instant::now(),
            local: report.local,
            reasons: report.reasons.clone(),
        });
        if report.local {
            tracing::info!(through = report.through.as_deref().unwrap_or(""), "on the lane");
        } else if !is_first {
            tracing::info!(reason = %report.reasons.join("; "), "on the wire");
        }
    }

    pub(crate) fn list(&self) -> Vec<LaneChange> {
        self.0.lock().iter().cloned().collect()
    }
}

control::metrics! {
    /// What the kernel asked of a mount.
    pub struct MountCounters {
        /// Open files.
        open_files: Gauge<Count> = "open files",
        /// Opens that were passed through. No counter has the reads and writes of passed-through files,
        /// because the kernel handles them.
        opens_passed_through: Counter<Count> = "opens passed through",
        /// Opens whose backing file the kernel refused.
        opens_refused: Counter<Count> = "opens refused",
        /// Inodes that the kernel knows.
        inodes: Gauge<Count> = "inodes",
        /// Requests that were read from the kernel.
        requests: Counter<Count> = "requests",
        /// Requests without a reply yet. One that stays so waits for a server.
        requests_under_way: Gauge<Count> = "requests under way",
    }
}

/// The transport of the kernel's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FuseTransport {
    /// io_uring, with a queue for each CPU.
    Uring,
    /// Reads of /dev/fuse, and why it isn't io_uring.
    Device {
        /// In words, with the next step if there is one.
        reason: String,
    },
}

/// The status of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountReport {
    /// How the kernel's requests arrive.
    pub transport: FuseTransport,
    /// Whether there is a lane, and if not, why not.
    pub lane: LaneReport,
    /// Why the last open of a granted file wasn't passed through; `None` if it was.
    pub not_passed: Option<String>,
    /// Whether the export's own mount is attached.
    pub mount_grant: MountGrantState,
    /// What the kernel asked.
    pub kernel: MountCounters,
    /// Changes of the lane, the oldest first; the last one is the present state.
    pub changes: Vec<LaneChange>,
    /// What this process transferred, by data path.
    pub counters: client::Counters,
}
