//! The receive memory that all connections share, and the order in which requests for it are granted. Pure.
//!
//! A peer may hold its share ([`Shares`]). A request beyond that waits in its peer's line, in the order of
//! arrival. When memory is released the lines take turns: each line whose first request fits has it granted,
//! until none fits. So a peer whose connections hold its whole share without progress delays no other peer.

use std::collections::{HashMap, VecDeque};

use fairness::{Peer, Shares, Standing};

/// A request for memory for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRequest {
    /// The connection of the call.
    pub connection: u64,
    /// The peer to charge.
    pub peer: Peer,
    /// The reserves that the peer may use.
    pub standing: Standing,
    /// The amount in bytes: at most what the standing may use when nothing is held.
    pub bytes: usize,
}

/// The memory, with the lines of waiting requests.
#[derive(Debug)]
pub struct Budget {
    shares: Shares<Peer>,
    peak: usize,
    lines: HashMap<Peer, VecDeque<MemoryRequest>>,
    /// The peers that have a line, in the order of their turns.
    turns: VecDeque<Peer>,
    /// Requests that are charged but not fetched yet.
    granted: VecDeque<MemoryRequest>,
}

impl Budget {
    /// A budget of the bytes of `shares`, all free.
    pub fn new(shares: Shares<Peer>) -> Self {
        Self { shares, peak: 0, lines: HashMap::new(), turns: VecDeque::new(), granted: VecDeque::new() }
    }

    /// Requests memory. If false, the request waits in its peer's line and will be returned by
    /// [`Budget::next_granted`].
    pub fn request(&mut self, request: MemoryRequest) -> bool {
        if !self.lines.contains_key(&request.peer) && self.take(&request) {
            return true;
        }
        let line = self.lines.entry(request.peer).or_default();
        if line.is_empty() {
            self.turns.push_back(request.peer);
        }
        line.push_back(request);
        false
    }

    /// Releases `bytes` of `peer`, and grants waiting requests.
    pub fn release(&mut self, peer: &Peer, bytes: usize) {
        self.shares.give_back(peer, bytes);
        self.advance();
    }

    /// Cancels the requests of a connection of `peer` that haven't been fetched.
    pub fn cancel(&mut self, peer: &Peer, connection: u64) {
        if let Some(line) = self.lines.get_mut(peer) {
            line.retain(|request| request.connection != connection);
            if line.is_empty() {
                self.lines.remove(peer);
                self.turns.retain(|other| other != peer);
            }
        }
        let shares = &mut self.shares;
        self.granted.retain(|request| {
            let stays = request.connection != connection;
            if !stays {
                shares.give_back(&request.peer, request.bytes);
            }
            stays
        });
        self.advance(); // the cancelled request may have been first in its peer's line
    }

    /// The next granted request. It is charged already.
    pub fn next_granted(&mut self) -> Option<MemoryRequest> {
        self.granted.pop_front()
    }

    /// Whether [`Budget::next_granted`] has a request.
    pub fn has_granted(&self) -> bool {
        !self.granted.is_empty()
    }

    /// Whether any request waits.
    pub fn has_waiting(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Bytes in use now.
    pub const fn used(&self) -> usize {
        self.shares.total()
    }

    /// The largest number of bytes in use at any time.
    pub const fn peak(&self) -> usize {
        self.peak
    }

    fn take(&mut self, request: &MemoryRequest) -> bool {
        let taken = self.shares.take(&request.peer, request.standing, request.bytes);
        self.peak = self.peak.max(self.shares.total());
        taken
    }

    /// Grants what fits, by turns. A peer with a granted request goes to the end; a peer whose request
    /// doesn't fit keeps its place.
    fn advance(&mut self) {
        let mut at = 0;
        while at < self.turns.len() && self.shares.free(Standing::LocalRoot) > 0 {
            let peer = self.turns[at];
            let first = self.lines.get(&peer).and_then(VecDeque::front).copied();
            let Some(first) = first.filter(|first| self.take(first)) else {
                at += 1;
                continue;
            };
            self.granted.push_back(first);
            self.turns.remove(at);
            let line = self.lines.entry(peer).or_default();
            line.pop_front();
            if line.is_empty() {
                self.lines.remove(&peer);
            } else {
                self.turns.push_back(peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: usize = 100;

    fn peer(host: u8) -> Peer {
        Peer::V4([192, 0, 2, host])
    }

    /// A request of `host` on its connection number `connection`.
    fn of(host: u8, connection: u64, bytes: usize) -> MemoryRequest {
        MemoryRequest { connection, peer: peer(host), standing: Standing::Admitted, bytes }
    }

    fn budget() -> Budget {
        Budget::new(Shares::new(TOTAL))
    }

    fn granted(budget: &mut Budget) -> Vec<u64> {
        std::iter::from_fn(|| budget.next_granted()).map(|request| request.connection).collect()
    }

    #[test]
    fn first_come_first_served_within_a_peer() {
        let mut budget = budget();
        assert!(budget.request(of(1, 1, 50)));
        assert!(!budget.request(of(1, 2, 30)));
        assert!(!budget.request(of(1, 3, 1)), "2 was first");
        budget.release(&peer(1), 50);
        assert_eq!(granted(&mut budget), [2, 3]);
        assert_eq!((budget.used(), budget.peak()), (31, 50));
    }

    #[test]
    fn a_stalled_peer_does_not_delay_others() {
        let mut budget = budget();
        let connections = 1..=300;
        let held = connections.filter(|connection| budget.request(of(1, *connection, 10))).count();
        assert_eq!(held, 5, "half of it");
        assert!(budget.request(of(2, 1000, 25)));
        assert!(budget.request(of(3, 2000, 12)));
        assert!(!budget.request(of(3, 2001, 12)));
        // What the second peer releases goes to the third, though the first has waited for longer.
        budget.release(&peer(2), 25);
        assert_eq!(granted(&mut budget), [2001]);
    }

    #[test]
    fn peers_take_turns() {
        let mut budget = budget();
        assert!(budget.request(of(9, 1, TOTAL)));
        for number in 0..3 {
            for host in 1..=3 {
                assert!(!budget.request(of(host, u64::from(host) * 10 + number, 10)));
            }
        }
        budget.release(&peer(9), TOTAL);
        assert_eq!(granted(&mut budget)[..6], [10, 20, 30, 11, 21, 31]);
    }

    #[test]
    fn a_cancelled_request_does_not_delay_others() {
        let mut budget = budget();
        assert!(budget.request(of(1, 1, 50)));
        assert!(!budget.request(of(1, 2, 60)));
        assert!(!budget.request(of(1, 3, 20)));
        budget.release(&peer(1), 20);
        budget.cancel(&peer(1), 2);
        assert_eq!(granted(&mut budget), [3]);
        assert!(!budget.request(of(1, 4, 5)));
        budget.release(&peer(1), 30);
        budget.cancel(&peer(1), 4); // granted, not told yet
        assert_eq!((granted(&mut budget), budget.used()), (vec![], 20));
        assert!(!budget.has_waiting() && budget.lines.is_empty());
    }

    proptest! {
        /// For any sequence of requests: no more is in use than exists, each peer's requests are granted in
        /// order, no waiting request is lost, and none waits without a reason.
        #[test]
        fn every_request_is_granted_in_order(
            steps in prop::collection::vec(
                (0u8..5, 1u8..=4, 1usize..=40, any::<prop::sample::Index>()),
                1..120,
            ),
        ) {
            let mut budget = budget();
            let (mut held, mut waiting): (Vec<MemoryRequest>, Vec<MemoryRequest>) = (Vec::new(), Vec::new());
            let number = |at: usize| at as u64;
            for (at, (what, host, bytes, which)) in steps.into_iter().enumerate() {
                match what {
                    0..=2 => {
                        let request = of(host, number(at), bytes);
                        let list = if budget.request(request) { &mut held } else { &mut waiting };
                        list.push(request);
                    }
                    3 if !held.is_empty() => {
                        let gone = held.swap_remove(which.index(held.len()));
                        budget.release(&gone.peer, gone.bytes);
                    }
                    4 if !waiting.is_empty() => {
                        let gone = waiting.remove(which.index(waiting.len()));
                        budget.cancel(&gone.peer, gone.connection);
                    }
                    _ => {}
                }
                while let Some(request) = budget.next_granted() {
                    let first = waiting.iter().position(|other| other.peer == request.peer);
                    prop_assert_eq!(first.map(|first| waiting.remove(first)), Some(request), "in order");
                    held.push(request);
                }
                prop_assert_eq!(budget.used(), held.iter().map(|request| request.bytes).sum::<usize>());
                prop_assert!(budget.used() <= TOTAL && budget.peak() <= TOTAL);
                for host in 1..=4 {
                    if let Some(first) = waiting.iter().find(|request| request.peer == peer(host)) {
                        prop_assert!(!budget.shares.may_take(&first.peer, first.standing, first.bytes));
                    }
                }
            }
            while let Some(request) = held.pop() {
                budget.release(&request.peer, request.bytes);
                while let Some(request) = budget.next_granted() {
                    waiting.retain(|other| other != &request);
                    held.push(request);
                }
            }
            prop_assert!(waiting.is_empty() && budget.used() == 0 && !budget.has_waiting());
            prop_assert!(budget.lines.is_empty());
        }

        /// Whatever one peer does, the first request of another one, up to half of the memory, is granted at
        /// once.
        #[test]
        fn a_newcomer_is_served_at_once(
            steps in prop::collection::vec((any::<bool>(), 1usize..=TOTAL), 1..60),
            bytes in 1usize..=TOTAL / 2,
        ) {
            let mut budget = budget();
            let mut held = Vec::new();
            for (at, (asks, bytes)) in steps.into_iter().enumerate() {
                // A first request is granted from whatever is free; in the engine it is a sixteenth of the
                // memory at most.
                let bytes = bytes.div_ceil(2);
                if asks {
                    if budget.request(of(1, at as u64, bytes)) {
                        held.push(bytes);
                    }
                } else if let Some(bytes) = held.pop() {
                    budget.release(&peer(1), bytes);
                }
                held.extend(std::iter::from_fn(|| budget.next_granted()).map(|request| request.bytes));
            }
            prop_assert!(budget.request(of(2, 1000, bytes)));
        }
    }
}
