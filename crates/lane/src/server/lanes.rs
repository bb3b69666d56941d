//! The lanes, and how the users of this host share them.
//!
//! A lane costs a thread and two descriptors, so their number is bounded. The idlest lane of the user that
//! has the most lanes is displaced for a user that has fewer; its client continues over the wire.

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

/// Room for a lane: its number, and a displaced lane that must be ended.
pub(super) struct Room {
    pub(super) number: u64,
    pub(super) displaced: Option<Arc<LaneShared>>,
}

impl Lanes {
    /// An empty set of at most `limit` lanes, of which a quarter is reserved for root of this host.
    pub(super) fn new(limit: usize) -> Self {
        let shares = Shares::new(limit).with_reserves(0, limit / 4);
        Self { open: BTreeMap::new(), shares, last: 0, stopping: false }
    }

    /// Room for a lane of this user, if its share has room or a lane of the user that has the most is
    /// displaced.
    pub(super) fn take(&mut self, peer: Peer) -> Option<Room> {
        let mut displaced = None;
        if !self.shares.may_take(&peer, Standing::of_admitted(&peer), 1) {
            let greedy = self.shares.displaced_by(&peer, 1)?;
            let (_, number) = self.idle_with_fewest_grants(greedy)?;
            displaced = self.remove(number);
        }
        self.shares.charge(&peer, 1);
        self.last += 1;
        Some(Room { number: self.last, displaced })
    }

    /// Gives unused room back.
    pub(super) fn give_back(&mut self, peer: Peer) {
        self.shares.give_back(&peer, 1);
    }

    /// The user's lane with the fewest open grants among those that serve no request, whose threads end at
    /// once.
    fn idle_with_fewest_grants(&self, peer: Peer) -> Option<(usize, u64)> {
        let lanes = self.open.iter().filter(|(_, lane)| lane.share == peer);
        lanes.filter_map(|(number, lane)| Some((lane.idle_grants()?, *number))).min()
    }

    /// Adds the lane that the room was taken for.
    pub(super) fn insert(&mut self, lane: Arc<LaneShared>) {
        self.open.insert(lane.bound.lane, lane);
    }

    /// Removes a lane, if it is still there.
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
