//! What a mount says about itself: which road it is on, since when, and why not the best one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use client::LaneReport;
use parking_lot::Mutex;

use crate::backing::Refusal;

/// Changes of road that are remembered.
const CHANGES: usize = 16;

/// Whether opens are passed through, and what became of those that were to be.
#[derive(Debug)]
pub(crate) struct Passing {
    allowed: AtomicBool,
    why_not: Mutex<WhyNot>,
    passed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct WhyNot {
    /// Why the last open that was to be passed through wasn't; `None`: it was.
    last: Option<String>,
    /// What the log was told last.
    told: Option<String>,
}

impl Passing {
    /// Allowed unless there is a reason why not.
    pub(crate) fn new(reason: Option<String>) -> Self {
        Self {
            allowed: AtomicBool::new(reason.is_none()),
            why_not: Mutex::new(WhyNot { last: reason, told: None }),
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
        self.why_not.lock().last = None;
    }

    /// The kernel didn't take a backing file.
    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refused.fetch_add(1, Relaxed);
        if refusal.for_good {
            self.allowed.store(false, Relaxed);
        }
        let mut why_not = self.why_not.lock();
        if why_not.told.as_ref() != Some(&refusal.reason) {
            tracing::info!(reason = %refusal.reason, "not passed through: this process reads and writes \
                                                      granted files");
            why_not.told = Some(refusal.reason.clone());
        }
        why_not.last = Some(refusal.reason);
    }

    /// What became of opens: why the last one wasn't passed through, how many were, how many the kernel
    /// refused.
    pub(crate) fn state(&self) -> (Option<String>, u64, u64) {
        (self.why_not.lock().last.clone(), self.passed.load(Relaxed), self.refused.load(Relaxed))
    }
}

/// One change of road.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Instant,
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
            at: Instant::now(),
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
    /// Why files that are granted aren't passed through in the kernel, as the last open has shown; `None`:
    /// they are. What goes that way is seen by nobody and isn't in any counter.
    pub not_passed: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: &str, for_good: bool) -> Refusal {
        Refusal { reason: reason.to_owned(), for_good }
    }

    #[test]
    fn the_last_open_says_how_things_are() {
        let passing = Passing::new(None);
        assert_eq!(passing.state(), (None, 0, 0));
        passing.refused(refusal("too deep", false));
        assert_eq!(passing.state(), (Some("too deep".to_owned()), 0, 1));
        assert!(passing.is_allowed(), "the next file may be on another filesystem");
        passing.passed();
        assert_eq!(passing.state(), (None, 1, 1));
        passing.refused(refusal("not permitted", true));
        assert_eq!(passing.state(), (Some("not permitted".to_owned()), 1, 2));
        assert!(!passing.is_allowed());
    }
}
