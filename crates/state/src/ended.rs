//! What NFSv4.0's clients had when they ended: a client that comes back too late is told that its lease has expired, and not that nobody
//! has ever heard of it. Clients' and states' numbers can't be mistaken for one another: only the former carry the server's run.

use std::collections::{HashSet, VecDeque};

/// How many are remembered.
const MOST: usize = 16_384;

/// The last numbers of clients and states that ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    numbers: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Ended {
    pub fn add(&mut self, number: u64) {
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
        if self.numbers.insert(number) {
            self.order.push_back(number);
        }
    }

    pub fn contains(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }
}
