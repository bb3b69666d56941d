//! The effects of the engine's decisions: what the caller must do after it has dropped the engine's lock.

use std::sync::Arc;

use crate::client_table::ClientRecord;
use crate::conflicts::Recall;
use crate::ids::ClientId;
use crate::lock_queue::LockNotice;

/// What the caller must do. Dropping it closes [`Effects::released`].
#[derive(Debug)]
#[must_use]
pub struct Effects<K, L> {
    /// The resources of lock owners without locks, and of delegations that have ended: to be closed.
    pub released: Vec<Arc<L>>,
    /// Files that are no longer open, delegated or granted.
    pub closed: Vec<K>,
    /// Clients, by [`crate::instance`], that may not reclaim any more: to be removed from stable storage
    /// before the operation is answered, and before [`Effects::remember`] is applied.
    pub forget: Vec<Vec<u8>>,
    /// Clients that may reclaim after a restart: to be added to stable storage before the operation is
    /// answered, in the place of a record of the same instance.
    pub remember: Vec<ClientRecord>,
    /// Delegations to be recalled from their clients (CB_RECALL). Nothing waits for it.
    pub recalls: Vec<Recall<K>>,
    /// Clients with too many delegations, and how many each may keep (CB_RECALL_ANY).
    pub recall_any: Vec<(ClientId, usize)>,
    /// Lock owners that may have the lock they wait for (CB_NOTIFY_LOCK). Nothing waits for it.
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
