//! What NFSv4.0's clients had when they ended: a client that comes back too late is told that its lease has
//! expired, and not that nobody has ever heard of it.

use std::collections::{HashMap, VecDeque};

use crate::ids::ClientId;

/// How many are remembered.
const MOST: usize = 16_384;

/// What has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Gone {
    /// A client, by its id.
    Client(u64),
    /// A state, by its number.
    State(u64),
}

/// The last clients and states that ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// With the client whose state it was, if that lives on.
    names: HashMap<Gone, Option<ClientId>>,
    order: VecDeque<Gone>,
}

impl Ended {
    pub fn add(&mut self, name: Gone, whose: Option<ClientId>) {
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
        if self.names.insert(name, whose).is_none() {
            self.order.push_back(name);
        }
    }

    pub fn contains(&self, name: Gone) -> bool {
        self.names.contains_key(&name)
    }

    pub fn whose(&self, name: Gone) -> Option<ClientId> {
        self.names.get(&name).copied().flatten()
    }
}
