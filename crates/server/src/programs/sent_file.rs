//! Files that payloads are sent from without a copy.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rpc::server::PayloadFile;
use store::Node;

/// A node's open file, for a reply.
#[derive(Debug)]
pub(crate) struct SentFile {
    /// The node.
    pub node: Arc<Node>,
    /// Its open file, of which [`store::UserContext::can_send`] has said that it may be sent.
    pub file: Arc<OwnedFd>,
}

impl AsFd for SentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl PayloadFile for SentFile {
    fn failed(&self) {
        self.node.set_unsendable();
    }
}
