//! What the session learns in passing goes into the table of nodes.

use std::sync::Arc;
use std::time::Instant;

use client::{Handle, LaneReport, Observer, Seen};

use crate::inodes::Inodes;
use crate::report::Changes;
use crate::settings::AttributeTimes;

/// Listens to the session.
#[derive(Debug)]
pub(crate) struct Ears {
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) times: AttributeTimes,
    pub(crate) changes: Arc<Changes>,
}

impl Observer for Ears {
    fn seen(&self, file: &Handle, seen: &Seen) {
        if let Some(node) = self.inodes.find(file) {
            node.learn(seen, Instant::now(), &self.times);
        }
    }

    fn road(&self, report: &LaneReport) {
        self.changes.note(report);
    }
}
