//! Ids of NFSv4.0 that aren't valid any more and still mean something.
//!
//! A client that comes back too late is told that its lease has expired (`NFS4ERR_EXPIRED`), and not that its
//! ids are unknown. A retried CLOSE names the open that it has closed.
//!
//! Invariant: at most [`MAX_EXPIRED`] expired ids are remembered, the last ones.

use std::collections::VecDeque;

use ahash::HashMap;

use crate::ids::ClientId;
use crate::v40_owners::StateOwner;

/// The most expired ids that are remembered.
const MAX_EXPIRED: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ExpiredId {
    Client(ClientId),
    State(u64),
}

/// Expired clients and states, and closed opens.
#[derive(Debug, Default)]
pub(crate) struct ExpiredIds {
    /// A revoked state has the client that held it, which lives on.
    expired: HashMap<ExpiredId, Option<ClientId>>,
    /// Oldest first.
    order: VecDeque<ExpiredId>,
    /// The open that each open owner closed by its last CLOSE.
    closed: HashMap<u64, (ClientId, StateOwner)>,
}

impl ExpiredIds {
    fn add(&mut self, id: ExpiredId, holder: Option<ClientId>) {
        if self.expired.insert(id, holder).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > MAX_EXPIRED
            && let Some(oldest) = self.order.pop_front()
        {
            self.expired.remove(&oldest);
        }
    }

    pub fn add_client(&mut self, client: ClientId) {
        self.add(ExpiredId::Client(client), None);
    }

    /// A state of an expired client, or one that was revoked from `holder`.
    pub fn add_state(&mut self, number: u64, holder: Option<ClientId>) {
        self.add(ExpiredId::State(number), holder);
    }

    pub fn has_client(&self, client: ClientId) -> bool {
        self.expired.contains_key(&ExpiredId::Client(client))
    }

    pub fn has_state(&self, number: u64) -> bool {
        self.expired.contains_key(&ExpiredId::State(number))
    }

    /// The client from which a state was revoked.
    pub fn holder_of(&self, number: u64) -> Option<ClientId> {
        self.expired.get(&ExpiredId::State(number)).copied().flatten()
    }

    /// An owner has closed an open.
    pub fn add_closed(&mut self, number: u64, client: ClientId, owner: StateOwner) {
        self.closed.insert(number, (client, owner));
    }

    /// The owner has closed another open, or is forgotten.
    pub fn remove_closed(&mut self, number: u64) {
        self.closed.remove(&number);
    }

    /// The owner that has closed an open.
    pub fn closed(&self, number: u64) -> Option<&(ClientId, StateOwner)> {
        self.closed.get(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_are_remembered() {
        let mut ids = ExpiredIds::default();
        ids.add_client(ClientId(1));
        for number in 0..MAX_EXPIRED as u64 {
            ids.add_state(number, Some(ClientId(2)));
            ids.add_state(number, Some(ClientId(3)));
        }
        assert!(!ids.has_client(ClientId(1)) && !ids.has_client(ClientId(0)));
        assert_eq!((ids.holder_of(0), ids.has_state(0)), (Some(ClientId(3)), true));
        assert_eq!((ids.expired.len(), ids.order.len()), (MAX_EXPIRED, MAX_EXPIRED));
        ids.add_state(u64::MAX, None);
        assert!(!ids.has_state(0) && ids.has_state(1) && ids.has_state(u64::MAX));
    }
}
