//! The lanes that there are, and how the users of this host share them.
//!
//! A lane costs a thread and two descriptors, so there are only so many. A user who has more of them than the
//! others makes way for who comes: its idlest lane ends, and the client behind that goes on over the wire.

use super::lane::LaneShared;
use fairness::{Peer, Shares, Standing};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The lanes by number.
pub(super) struct Lanes {
    open: BTreeMap<u64, Arc<LaneShared>>,
    shares: Shares,
    last: u64,
    pub(super) stopping: bool,
}

/// Room for a lane: its number, and a lane that has lost its own and must be ended.
pub(super) struct Room {
    pub(super) number: u64,
    pub(super) displaced: Option<Arc<LaneShared>>,
}

impl Lanes {
    /// None yet, at most so many, of which a quarter is kept for root of this host.
    pub(super) fn new(limit: usize) -> Self {
        let shares = Shares::new(limit).with_reserves(0, limit / 4);
        Self { open: BTreeMap::new(), shares, last: 0, stopping: false }
    }

    /// Room for a lane of this user, if its share has any, or one of the user that has the most makes way.
    pub(super) fn take(&mut self, peer: Peer) -> Option<Room> {
        let mut displaced = None;
        if !self.shares.may_take(&peer, Standing::of_admitted(&peer), 1) {
            let greedy = self.shares.displaced_by(&peer, 1)?;
            let (_, number) = self.idlest_of(greedy)?;
            displaced = self.remove(number);
        }
        self.shares.charge(&peer, 1);
        self.last += 1;
        Some(Room { number: self.last, displaced })
    }

    /// The room wasn't used.
    pub(super) fn give_back(&mut self, peer: Peer) {
        self.shares.give_back(&peer, 1);
    }

    /// A user's lane with the fewest open grants, none of which serves a request just now: its thread ends at
    /// once.
    fn idlest_of(&self, peer: Peer) -> Option<(usize, u64)> {
        let lanes = self.open.iter().filter(|(_, lane)| lane.share == peer);
        lanes.filter_map(|(number, lane)| Some((lane.idle_grants()?, *number))).min()
    }

    /// The lane that the room was taken for.
    pub(super) fn insert(&mut self, lane: Arc<LaneShared>) {
        self.open.insert(lane.bound.lane, lane);
    }

    /// Takes a lane off the list, if it is still there.
    pub(super) fn remove(&mut self, number: u64) -> Option<Arc<LaneShared>> {
        let lane = self.open.remove(&number)?;
        self.shares.give_back(&lane.share, 1);
        Some(lane)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<LaneShared>> {
        self.open.values()
    }
}
