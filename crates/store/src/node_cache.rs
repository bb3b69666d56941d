//! The cache of nodes in use.
//!
//! A deleted file's space stays taken while any of a node's descriptors is open, so nodes don't live on their
//! own account:
//!
//! 1. A node is made by a look-up or from a handle, and stays in the cache under its handle.
//! 2. Any operation that finds the link count at 0 takes it out and answers `Stale`.
//! 3. The tidying thread (see `tidy`) closes data descriptors idle for some seconds (those that keep a
//!    program from being started sooner), takes out nodes whose file is gone and those idle for longer.
//! 4. A node with unstable data is pinned (see `uncommitted`): it may leave the cache, but is found again, and
//!    its descriptor for writing stays until the data was synced: by a client's COMMIT, or in the end by the
//!    tidying thread.
//! 5. What is in use when its node leaves the cache is closed with the last use.
//! 6. A node that a client has open is held (see [`Held`]): it stays what it is when its last name goes, and
//!    is found by its handle until it is let go of.

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

/// The nodes in use, at most as many as it was made for.
#[derive(Debug)]
pub(crate) struct NodeCache {
    nodes: Cache<FileHandle, Arc<Node>>,
    /// Those with unstable data, in the cache or not.
    pub pins: Arc<PinnedNodes>,
    /// Those with a lease, in the cache or not.
    pub leased: Arc<LeasedNodes>,
    /// Those that clients have open, in the cache or not.
    preserved: Mutex<HashMap<FileHandle, Arc<Node>>>,
    /// Goes up with every round of tidying.
    tick: AtomicU32,
}

/// The smallest capacity: what one call may have in use.
const LEAST: usize = 4;
/// Rounds (seconds) for which an idle data descriptor is kept.
const DATA_IDLE: u32 = 3;
/// The same for one through which unstable data went: the kernel writes back within 30 s.
const DIRTY_IDLE: u32 = 45;
/// The same for one that keeps a program from being started; 2 is at least one second.
const PROGRAM_IDLE: u32 = 2;
/// Rounds for which an idle node is kept.
const NODE_IDLE: u32 = 60;
/// Every so many rounds all nodes are asked whether their file still exists.
const GONE_EVERY: u32 = 4;

impl NodeCache {
    pub fn new(capacity: usize) -> NodeCache {
        let capacity = capacity.max(LEAST);
        NodeCache {
            nodes: Cache::new(capacity),
            pins: Arc::new(PinnedNodes::new(capacity / 2)),
            leased: Arc::default(),
            preserved: Mutex::default(),
            tick: AtomicU32::new(0),
        }
    }

    /// As [`NodeCache::new`] with another capacity; what is too many goes at once. Pins that are there stay.
    pub fn set_capacity(&self, capacity: usize) {
        let capacity = capacity.max(LEAST);
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

    /// The node for its handle: the one that is there already, or this.
    pub fn put(&self, node: Node) -> Arc<Node> {
        if let Some(existing) = self.get(node.handle()) {
            return existing;
        }
        node.touch(self.tick.load(Ordering::Relaxed));
        let node = Arc::new(node);
        self.nodes.insert(*node.handle(), Arc::clone(&node));
        node
    }

    /// Takes out a node whose file is gone.
    pub fn remove(&self, handle: &FileHandle) {
        self.nodes.remove(handle);
        self.pins.forget(handle);
    }

    /// Keeps a node when its file loses its last name, until as many calls of [`NodeCache::end_preserving`].
    /// Returns the node that is preserved, should the cache have made another since.
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

    /// Closes the descriptors for data that no promise and no lease needs, and lets go of the files that
    /// nobody uses now. How many descriptors that were, about.
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
            // The cache's own, and the one here.
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

    /// One round of tidying; `sync` makes a file's unstable data durable, as
    /// [`FileSyncs::try_whole`](crate::uncommitted::FileSyncs::try_whole).
    pub fn reap(&self, privileged: bool, sync: &dyn Fn(&Node, &OwnedFd)) {
        if self.nodes.is_empty() && self.pins.is_empty() {
            return;
        }
        let now = self.tick.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut gone = Vec::new();
        let mut idle = Vec::new();
        for (handle, node) in self.nodes.iter() {
            if now.is_multiple_of(GONE_EVERY) && is_gone(&node) {
                gone.push(handle);
            } else if node.idle(now) >= NODE_IDLE {
                idle.push(handle);
            }
            if node.idle(now) >= DATA_IDLE && !node.is_leased() {
                node.data_file(false).take();
                node.direct().file(false).take();
                node.direct().file(true).take();
            }
            if node.data_file(true).is_kept()
                && (node.idle(now) >= DATA_IDLE || blocks_a_program(&node, now, privileged))
            {
                self.pins.close_unless_pinned(&node);
            }
        }
        for handle in idle {
            self.nodes.remove(&handle);
        }
        for node in self.pins.all() {
            if now.is_multiple_of(GONE_EVERY) && is_gone(&node) {
                gone.push(*node.handle());
            } else if (node.idle(now) >= DIRTY_IDLE || blocks_a_program(&node, now, privileged))
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

/// Whether the node's descriptor for writing keeps somebody from starting a program, without being used any
/// more.
fn blocks_a_program(node: &Node, now: u32, privileged: bool) -> bool {
    node.idle(now) >= PROGRAM_IDLE
        && node.live(0).is_ok_and(|status| is_program(status.attributes.mode, privileged))
}

fn is_gone(node: &Node) -> bool {
    node.live(0).is_err()
}
