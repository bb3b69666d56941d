//! [`PreservedFile`]: a file that clients have open, kept when it loses its last name
//! (`OPEN4_RESULT_PRESERVE_UNLINKED`, RFC 8881 section 18.16.4 and 18.25.3), as for a local process.
//!
//! A preserved file costs the descriptor of its node, so their number is bounded for the whole process.
//! Beyond the bound a file isn't preserved and is gone with its last name.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::inner::StoreInner;
use crate::node::Node;
use crate::store::Store;

/// How many files all stores of the process preserve.
static PRESERVED: AtomicUsize = AtomicUsize::new(0);

/// A file that keeps its handle until this is dropped, even without a name.
#[derive(Debug)]
pub struct PreservedFile {
    store: Arc<StoreInner>,
    node: Arc<Node>,
}

impl Store {
    /// Preserves a file; `None` when the process preserves [`DescriptorLimits::preserved`] already.
    ///
    /// [`DescriptorLimits::preserved`]: crate::DescriptorLimits::preserved
    #[must_use]
    pub fn preserve_unlinked(&self, node: &Arc<Node>) -> Option<PreservedFile> {
        let inner = self.inner();
        if PRESERVED.fetch_add(1, Ordering::Relaxed) >= inner.limits.preserved {
            PRESERVED.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(PreservedFile { store: Arc::clone(inner), node: inner.nodes.preserve(node) })
    }
}

impl Drop for PreservedFile {
    fn drop(&mut self) {
        self.store.nodes.end_preserving(&self.node);
        PRESERVED.fetch_sub(1, Ordering::Relaxed);
    }
}
