//! What has to be done because of what was decided, by whoever holds the engine and after letting go of it.

use std::sync::Arc;

/// What has to be done. Dropping it closes [`Effects::released`].
#[derive(Debug)]
#[must_use]
pub struct Effects<L> {
    /// Lock owners' files without a lock any more: to be closed.
    pub released: Vec<Arc<L>>,
    /// Clients that mustn't reclaim any more (by their owner string): to be taken off stable storage before the operation is answered, and
    /// before [`Effects::remember`] is looked at.
    pub forget: Vec<Vec<u8>>,
    /// Clients that may reclaim after a restart from now on: to be put on stable storage before the operation is answered.
    pub remember: Vec<Vec<u8>>,
}

impl<L> Default for Effects<L> {
    fn default() -> Self {
        Self { released: Vec::new(), remember: Vec::new(), forget: Vec::new() }
    }
}
