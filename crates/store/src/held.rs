//! Files that clients have open: one that loses its last name stays what it was for who has it open, as for a
//! local process (RFC 8881 section 18.25.3), whoever took the name away.
//!
//! A held file costs the descriptor that its node has; holds are bounded by what the process may open, and
//! where there is no room for one the file isn't held: then it is gone with its last name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::handle::FileHandle;
use crate::node::Node;
use crate::open::{Inner, Store};

/// How many files all stores of the process hold.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The held files of a store.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HashMap<FileHandle, Arc<Node>>>);

impl Holds {
    pub fn get(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        self.0.lock().get(handle).cloned()
    }
}

/// A file that stays what it is until this is dropped.
#[derive(Debug)]
pub struct Held {
    store: Arc<Inner>,
    node: Arc<Node>,
}

impl Store {
    /// Holds a file, if there is room.
    #[must_use]
    pub fn hold(&self, node: &Arc<Node>) -> Option<Held> {
        let inner = self.inner();
        if HELD.fetch_add(1, Ordering::Relaxed) >= inner.limits.held {
            HELD.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut held = inner.nodes.held.0.lock();
        // The node that is held already, should the cache have made another since.
        let node = Arc::clone(held.entry(*node.handle()).or_insert_with(|| Arc::clone(node)));
        node.holds().fetch_add(1, Ordering::AcqRel);
        drop(held);
        Some(Held { store: Arc::clone(inner), node })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.store.nodes.held.0.lock();
        if self.node.holds().fetch_sub(1, Ordering::AcqRel) == 1 {
            held.remove(self.node.handle());
        }
        drop(held);
        HELD.fetch_sub(1, Ordering::Relaxed);
        // The cache mustn't keep it when it is gone.
        if self.node.live(0).is_err() {
            self.store.nodes.remove(self.node.handle());
        }
    }
}
