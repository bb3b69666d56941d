//! The session's attribute sink: the attributes that replies carry go into the inode table.

use std::sync::Arc;
use std::time::Instant;

use client::{AttributeSink, AttributeUpdate, Attributes, Handle, LaneReport, ReplyAcls};

use crate::inode::InodeTable;
use crate::report::LaneHistory;
use crate::settings::AttributeTimes;

/// Updates the inode table and the history of the lane.
#[derive(Debug)]
pub(crate) struct InodeUpdater {
    pub(crate) inodes: Arc<InodeTable>,
    pub(crate) times: AttributeTimes,
    pub(crate) history: Arc<LaneHistory>,
}

impl AttributeSink for InodeUpdater {
    fn attributes(&self, file: &Handle, update: &AttributeUpdate) {
        if let Some(inode) = self.inodes.find(file) {
            inode.update(update, Instant::now(), &self.times);
        }
    }

    fn acls(&self, file: &Handle, attributes: &Attributes, acls: &ReplyAcls, asked: Instant) {
        if let Some(inode) = self.inodes.find(file) {
            inode.learn_acls(attributes, acls, asked);
        }
    }

    fn lane_changed(&self, report: &LaneReport) {
        self.history.note(report);
    }
}
