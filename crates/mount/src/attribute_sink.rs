//! The session's attribute sink: what replies carry goes into the inode table.

use std::sync::Arc;
use std::time::Instant;

use client::{AttributeSink, AttributeUpdate, Handle, LaneReport};

use crate::inodes::Inodes;
use crate::report::Changes;
use crate::settings::AttributeTimes;

/// Updates the inode table and the list of lane changes.
#[derive(Debug)]
pub(crate) struct InodeUpdater {
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) times: AttributeTimes,
    pub(crate) changes: Arc<Changes>,
}

impl AttributeSink for InodeUpdater {
    fn attributes(&self, file: &Handle, update: &AttributeUpdate) {
        if let Some(node) = self.inodes.find(file) {
            node.learn(update, Instant::now(), &self.times);
        }
    }

    fn lane_changed(&self, report: &LaneReport) {
        self.changes.note(report);
    }
}
