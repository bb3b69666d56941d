//! What a mount says about itself: which road it is on, since when, and why not the best one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use client::LaneReport;
use parking_lot::Mutex;

use crate::backing::Refusal;

/// Changes of road that are remembered.
const CHANGES: usize = 16;

/// Whether opens are passed through, and what became of those that were to be.
#[derive(Debug)]
pub(crate) struct Passing {
    allowed: AtomicBool,
    /// Why not, as last heard.
    reason: Mutex<Option<String>>,
    passed: AtomicU64,
    refused: AtomicU64,
}

impl Passing {
    /// Allowed unless there is a reason why not.
    pub(crate) fn new(reason: Option<String>) -> Self {
        Self {
            allowed: AtomicBool::new(reason.is_none()),
            reason: Mutex::new(reason),
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed.load(Relaxed)
    }

    /// An open was passed through.
    pub(crate) fn passed(&self) {
        self.passed.fetch_add(1, Relaxed);
    }

    /// The kernel didn't take a backing file.
    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refused.fetch_add(1, Relaxed);
        let mut reason = self.reason.lock();
        if reason.as_ref() != Some(&refusal.reason) {
            tracing::info!(reason = %refusal.reason, "not passed through: this process reads and writes granted files");
            *reason = Some(refusal.reason);
        }
        if refusal.for_good {
            self.allowed.store(false, Relaxed);
        }
    }
}

/// One change of road.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: SystemTime,
    /// Whether there was a lane from then on.
    pub local: bool,
    /// Why there was none.
    pub reasons: Vec<String>,
}

/// The changes of road of a mount, the last ones.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<VecDeque<Change>>);

impl Changes {
    /// The road is this from now on.
    pub(crate) fn note(&self, report: &LaneReport) {
        let mut changes = self.0.lock();
        if changes.back().is_some_and(|last| last.local == report.local && last.reasons == report.reasons) {
            return;
        }
        let first = changes.is_empty();
        if changes.len() >= CHANGES {
            changes.pop_front();
        }
        changes.push_back(Change {
            at: SystemTime::now(),
            local: report.local,
            reasons: report.reasons.clone(),
        });
        if report.local {
            tracing::info!(through = report.through.as_deref().unwrap_or(""), "on the lane");
        } else if !first {
            tracing::info!(reason = %report.reasons.join("; "), "on the wire");
        }
    }

    pub(crate) fn list(&self) -> Vec<Change> {
        self.0.lock().iter().cloned().collect()
    }
}

/// What a mount says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The lane: whether there is one, and if not, why not.
    pub lane: LaneReport,
    /// Whether files that are granted are passed through in the kernel. What goes that way is seen by nobody and isn't in any
    /// counter.
    pub passthrough: bool,
    /// Why not, or why not always.
    pub passthrough_reason: Option<String>,
    /// Opens that were passed through so far.
    pub opens_passed: u64,
    /// Opens that were to be and that the kernel refused.
    pub opens_refused: u64,
    /// Files that are open now.
    pub open_files: usize,
    /// Files that the kernel knows of.
    pub inodes: usize,
    /// Requests that were read from the kernel so far.
    pub requests: u64,
    /// Requests under way.
    pub under_way: usize,
    /// Changes of road, the oldest first; the last one is the present state.
    pub changes: Vec<Change>,
    /// What went over which road through this process.
    pub counters: client::Counters,
}

impl Passing {
    /// Allowed, why not, passed, refused.
    pub(crate) fn state(&self) -> (bool, Option<String>, u64, u64) {
        (self.is_allowed(), self.reason.lock().clone(), self.passed.load(Relaxed), self.refused.load(Relaxed))
    }
}
