//! The cache of nodes.
//!
//! The space of a deleted file is only freed when all descriptors are closed, so the lifetime of nodes is
//! bounded:
//!
//! 1. A node is made by a look-up or from a handle, and is cached under its handle.
//! 2. An operation that finds a link count of 0 removes the node and returns `Stale`.
//! 3. The reaper (see `reaper`) closes data descriptors that have been idle for some seconds (sooner if they
//!    prevent a program from being executed), and removes nodes whose file is gone and idle nodes.
//! 4. A node with uncommitted data is pinned (see `uncommitted`). It may leave the cache, but is still found,
//!    and its descriptor for writing stays open until a client's COMMIT or the reaper has synced the data.
//! 5. A node that leaves the cache while in use is closed after its last use.
//! 6. A node that a client has open is preserved (see [`crate::PreservedFile`]). It survives the removal of
//!    its last name, and is found by its handle.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::handle::FileHandle;
use crate::leases::LeasedNodes;
use crate::node::{Node, is_program};
use crate::pinned_nodes::PinnedNodes;

/// The nodes in use, up to a capacity.
#[derive(Debug)]
pub(crate) struct NodeCache {
    nodes: Cache<FileHandle, Arc<Node>>,
    /// The nodes with uncommitted data, cached or not.
    pub pins: Arc<PinnedNodes>,
    /// The nodes with a write lease, cached or not.
    pub leased: Arc<LeasedNodes>,
    /// The nodes that clients have open, cached or not.
    preserved: Mutex<HashMap<FileHandle, Arc<Node>>>,
    /// Incremented by every round of the reaper.
    tick: AtomicU32,
}

/// The smallest capacity: the number of nodes that one call may use.
const MIN_CAPACITY: usize = 4;
/// Rounds (seconds) before an idle data descriptor is closed.
const DATA_IDLE_ROUNDS: u32 = 3;
/// The same for a descriptor through which uncommitted data was written: the kernel writes back within 30 s.
const UNCOMMITTED_IDLE_ROUNDS: u32 = 45;
/// The same for a descriptor that prevents a program from being executed; 2 rounds are at least one second.
const PROGRAM_IDLE_ROUNDS: u32 = 2;
/// Rounds before an idle node is removed.
const NODE_IDLE_ROUNDS: u32 = 60;
/// Every so many rounds all nodes are checked for deleted files.
const GONE_CHECK_INTERVAL: u32 = 4;

impl NodeCache {
    pub fn new(capacity: usize) -> NodeCache {
        let capacity = capacity.max(MIN_CAPACITY);
        NodeCache {
            nodes: Cache::new(capacity),
            pins: Arc::new(PinnedNodes::new(capacity / 2)),
            leased: Arc::default(),
            preserved: Mutex::default(),
            tick: AtomicU32::new(0),
        }
    }

    /// Changes the capacity and removes excess nodes at once. Pinned nodes stay.
    pub fn set_capacity(&self, capacity: usize) {
        let capacity = capacity.max(MIN_CAPACITY);
        self.nodes.set_capacity(capacity as u64);
        self.pins.set_limit(capacity / 2);
    }

    pub fn get(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        let node = self.nodes.get(handle).or_else(|| {
            let preserved = || self.leased.get(handle).or_else(|| self.preserved.lock().get(handle).cloned());
            let node = self.pins.get(handle).or_else(preserved)?;
            self.nodes.insert(*handle, Arc::clone(&node));
            Some(node)
        })?;
        node.touch(self.tick.load(Ordering::Relaxed));
        Some(node)
    }

    /// Caches a node. Returns the one with the same handle that is cached already, or this one.
    pub fn put(&self, node: Node) -> Arc<Node> {
        if let Some(existing) = self.get(node.handle()) {
            return existing;
        }
        node.touch(self.tick.load(Ordering::Relaxed));
        let node = Arc::new(node);
        self.nodes.insert(*node.handle(), Arc::clone(&node));
        node
    }

    /// Removes a node whose file is gone.
    pub fn remove(&self, handle: &FileHandle) {
        self.nodes.remove(handle);
        self.pins.forget(handle);
    }

    /// Keeps a node when its file loses its last name, until as many calls of [`NodeCache::end_preserving`].
    /// Returns the node that is preserved already, should the cache have made another since.
    pub fn preserve(&self, node: &Arc<Node>) -> Arc<Node> {
        let mut preserved = self.preserved.lock();
        let node = Arc::clone(preserved.entry(*node.handle()).or_insert_with(|| Arc::clone(node)));
        node.preservations().fetch_add(1, Ordering::AcqRel);
        node
    }

    /// Undoes one [`NodeCache::preserve`].
    pub fn end_preserving(&self, node: &Node) {
        let mut preserved = self.preserved.lock();
        if node.preservations().fetch_sub(1, Ordering::AcqRel) == 1 {
            preserved.remove(node.handle());
        }
        drop(preserved);
        if node.live(0).is_err() {
            self.remove(node.handle());
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Closes data descriptors that neither uncommitted data nor a lease needs, and removes nodes that no
    /// call uses. Returns about how many descriptors were closed.
    pub fn release_descriptors(&self) -> usize {
        let (mut closed, mut unused) = (0, Vec::new());
        for (handle, node) in self.nodes.iter() {
            if node.is_leased() {
                continue;
            }
            let reading = [node.data_file(false).take(), node.direct().file(false).take()];
            closed += reading.iter().flatten().count();
            closed += usize::from(node.data_file(true).is_kept());
            self.pins.close_unless_pinned(&node);
            // One reference is the cache's, one is this loop's.
            if Arc::strong_count(&node) <= 2 {
                unused.push(handle);
            }
        }
        closed += unused.len();
        for handle in unused {
            self.nodes.remove(&handle);
        }
        closed
    }

    /// One round of the reaper. `sync` makes a file's uncommitted data durable, as
    /// [`FileSyncs::try_whole`](crate::uncommitted::FileSyncs::try_whole).
    pub fn reap(&self, privileged: bool, sync: &dyn Fn(&Node, &OwnedFd)) {
        if self.nodes.is_empty() && self.pins.is_empty() {
            return;
        }
        let now = self.tick.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut gone = Vec::new();
        let mut idle = Vec::new();
        for (handle, node) in self.nodes.iter() {
            if now.is_multiple_of(GONE_CHECK_INTERVAL) && is_gone(&node) {
                gone.push(handle);
            } else if node.idle(now) >= NODE_IDLE_ROUNDS {
                idle.push(handle);
            }
            if node.idle(now) >= DATA_IDLE_ROUNDS && !node.is_leased() {
                node.data_file(false).take();
                node.direct().file(false).take();
                node.direct().file(true).take();
            }
            if node.data_file(true).is_kept()
                && (node.idle(now) >= DATA_IDLE_ROUNDS || blocks_a_program(&node, now, privileged))
            {
                self.pins.close_unless_pinned(&node);
            }
        }
        for handle in idle {
            self.nodes.remove(&handle);
        }
        for node in self.pins.all() {
            if now.is_multiple_of(GONE_CHECK_INTERVAL) && is_gone(&node) {
                gone.push(*node.handle());
            } else if (node.idle(now) >= UNCOMMITTED_IDLE_ROUNDS || blocks_a_program(&node, now, privileged))
                && let Some(file) = node.data_file(true).get()
            {
                sync(&node, &file);
                self.pins.close_unless_pinned(&node);
            }
        }
        for handle in gone {
            self.remove(&handle);
        }
    }
}

/// Whether the node's idle descriptor for writing prevents a program from being executed (`ETXTBSY`).
fn blocks_a_program(node: &Node, now: u32, privileged: bool) -> bool {
    node.idle(now) >= PROGRAM_IDLE_ROUNDS
        && node.live(0).is_ok_and(|status| is_program(status.attributes.mode, privileged))
}

fn is_gone(node: &Node) -> bool {
    node.live(0).is_err()
}
