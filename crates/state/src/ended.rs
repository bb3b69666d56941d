//! What NFSv4.0's clients had when they ended: a client that comes back too late is told that its lease has expired, and not that nobody
//! has ever heard of it. Clients' and states' numbers can't be mistaken for one another: only the former carry the server's run.

use std::collections::{HashMap, VecDeque};

use crate::ids::ClientId;

/// How many are remembered.
const MOST: usize = 16_384;

/// The last numbers of clients and states that ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// With the client whose state it was, if that lives on.
    numbers: HashMap<u64, Option<ClientId>>,
    order: VecDeque<u64>,
}

impl Ended {
    pub fn add(&mut self, number: u64, whose: Option<ClientId>) {
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
        if self.numbers.insert(number, whose).is_none() {
            self.order.push_back(number);
        }
    }

    pub fn contains(&self, number: u64) -> bool {
        self.numbers.contains_key(&number)
    }

    pub fn whose(&self, number: u64) -> Option<ClientId> {
        self.numbers.get(&number).copied().flatten()
    }
}
