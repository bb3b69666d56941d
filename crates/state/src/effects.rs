//! What has to be done because of what was decided, by whoever holds the engine and after letting go of it.

use std::sync::Arc;

use crate::conflicts::Recall;
use crate::ids::ClientId;
use crate::waiting::LockNotice;

/// What has to be done. Dropping it closes [`Effects::released`].
#[derive(Debug)]
#[must_use]
pub struct Effects<K, L> {
    /// What was kept for lock owners without a lock any more, and for delegations that have ended: to be
    /// closed.
    pub released: Vec<Arc<L>>,
    /// Files that nobody has open, locked or granted any more.
    pub closed: Vec<K>,
    /// Clients that mustn't reclaim any more (by their [`crate::instance`]): to be taken off stable storage
    /// before the operation is answered, and before [`Effects::remember`] is looked at.
    pub forget: Vec<Vec<u8>>,
    /// Clients (the same) that may reclaim after a restart from now on: to be put on stable storage before
    /// the operation is answered.
    pub remember: Vec<Vec<u8>>,
    /// Delegations that are in somebody's way: their clients are to be told, and nobody waits for that.
    pub recalls: Vec<Recall<K>>,
    /// Clients with too many delegations, and how many each may keep.
    pub recall_any: Vec<(ClientId, usize)>,
    /// Owners that may have the locks they wait for: their clients are to be told, and nobody waits for that.
    pub notices: Vec<LockNotice<K>>,
    /// Clients that have ended.
    pub ended: Vec<ClientId>,
}

impl<K, L> Default for Effects<K, L> {
    fn default() -> Self {
        let (released, closed, remember, forget) = Default::default();
        let (recalls, recall_any, notices, ended) = Default::default();
        Self { released, closed, remember, forget, recalls, recall_any, notices, ended }
    }
}
