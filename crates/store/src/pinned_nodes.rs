//! The nodes with uncommitted data. They stay open for writing until a sync (see `uncommitted`).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahash::HashMap;
use parking_lot::Mutex;

use crate::handle::FileHandle;
use crate::node::Node;
use crate::uncommitted::UncommittedWrite;

/// The pinned nodes, up to a limit.
#[derive(Debug)]
pub(crate) struct PinnedNodes {
    nodes: Mutex<HashMap<FileHandle, Arc<Node>>>,
    /// The number of nodes, readable without the lock.
    count: AtomicUsize,
    limit: AtomicUsize,
}

impl PinnedNodes {
    pub fn new(limit: usize) -> PinnedNodes {
        PinnedNodes { nodes: Mutex::default(), count: AtomicUsize::new(0), limit: AtomicUsize::new(limit) }
    }

    /// Changes the limit.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Pins the node and its descriptor before uncommitted data is written through `file`. `None` when the
    /// limit is reached.
    pub fn promise<'n>(&self, node: &'n Arc<Node>, file: &Arc<OwnedFd>) -> Option<UncommittedWrite<'n>> {
        let writing = node.uncommitted().enter();
        if writing.pinned {
            return Some(writing);
        }
        let mut nodes = self.nodes.lock();
        if nodes.len() >= self.limit.load(Ordering::Relaxed) && !nodes.contains_key(node.handle()) {
            return None;
        }
        nodes.insert(*node.handle(), Arc::clone(node));
        self.count.store(nodes.len(), Ordering::Release);
        node.data_file(true).hold(file);
        node.uncommitted().pin();
        Some(writing)
    }

    /// Unpins the node after a sync, unless it has been written to since.
    pub fn release(&self, node: &Node) {
        if !node.uncommitted().is_pinned() {
            return;
        }
        let mut nodes = self.nodes.lock();
        if node.uncommitted().unpin_if_clean() {
            nodes.remove(node.handle());
            self.count.store(nodes.len(), Ordering::Release);
        }
    }

    /// Unpins the node of a deleted file.
    pub fn forget(&self, handle: &FileHandle) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut nodes = self.nodes.lock();
        let gone = nodes.remove(handle);
        self.count.store(nodes.len(), Ordering::Release);
        if let Some(node) = &gone {
            node.uncommitted().unpin();
        }
        drop(nodes);
    }

    /// The node, if it is pinned.
    pub fn get(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.nodes.lock().get(handle).cloned()
    }

    /// Closes the node's descriptor for writing, unless uncommitted data or a lease needs it.
    pub fn close_unless_pinned(&self, node: &Node) {
        // The lock keeps other threads from pinning the node between the check and the close.
        let nodes = self.nodes.lock();
        let kept = node.uncommitted().is_pinned() || node.is_leased();
        let closed = if kept { None } else { node.data_file(true).take() };
        drop(nodes);
        drop((closed, node.direct().file(true).take()));
    }

    /// All pinned nodes.
    pub fn all(&self) -> Vec<Arc<Node>> {
        if self.is_empty() { Vec::new() } else { self.nodes.lock().values().cloned().collect() }
    }

    /// Whether no node is pinned.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}
