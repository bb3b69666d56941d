//! The grants of one lane as a state machine: given, received, released.
//!
//! A grant's life:
//! 1. [`GrantTable::give`] numbers it, if the lane has room, and the server sends it.
//! 2. The client acknowledges it. Grants are acknowledged in the order in which they were sent, so the lane's
//!    count of receipts suffices ([`GrantTable::received`]). Until then the grant is *undelivered*: it counts
//!    against the smaller bound of outstanding ones, and a client that leaves one undelivered for too long
//!    loses its lane ([`GrantTable::overdue`]).
//! 3. The client releases it ([`GrantTable::release`]), or the lane ends and its remaining grants with it.
//!
//! The lane of root's mount serves many users. They share its grants ([`fairness::Shares`]), so that a user
//! with thousands of open files leaves grants for the others.
//!
//! Prefetched grants have bounds of their own ([`MAX_UNDELIVERED_PREFETCHES`], and half of all grants), so
//! that they never displace a grant for an Open.
//!
//! A grant whose reply could not be sent is taken back ([`GrantTable::take_back`]), so that nothing leaks. No
//! clock, no sockets.

use fairness::{Shares, Standing};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The most prefetched grants that may be unacknowledged.
pub const MAX_UNDELIVERED_PREFETCHES: usize = 64;

/// Why a grant was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An Open.
    Open,
    /// A file that is likely to be opened next.
    Prefetch,
}

/// The grants of one lane. `H` is the server's state for each.
#[derive(Debug)]
pub struct GrantTable<H> {
    most_undelivered: u32,
    next: u64,
    /// The user that each was opened for, and the server's state.
    open: HashMap<u64, (u32, H)>,
    /// The number of open grants by user, with their limit.
    users: Shares<u32>,
    /// When each undelivered grant was sent, and why, oldest first.
    undelivered: VecDeque<(Instant, Purpose)>,
    /// The number of prefetched ones among them.
    undelivered_prefetches: usize,
    /// Grants that the client has acknowledged.
    receipts: u64,
}

/// The lane is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// An impossible claim of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A grant was released that isn't open.
    #[error("grant {0} was released, but is not open")]
    NotOpen(u64),
    /// More receipts than grants, or fewer than before.
    #[error("{receipts} receipts for {grants} grants")]
    Receipts {
        /// The number that the client claims.
        receipts: u64,
        /// The number of grants that were sent.
        grants: u64,
    },
}

impl<H> GrantTable<H> {
    /// An empty table for at most `most` open grants, which the users share and an eighth of which is
    /// reserved for root, and at most `most_undelivered` unacknowledged ones.
    #[must_use]
    pub fn new(most: u32, most_undelivered: u32) -> Self {
        Self {
            most_undelivered,
            next: 1,
            open: HashMap::new(),
            users: Shares::new(most as usize).with_reserves(0, most as usize / 8),
            undelivered: VecDeque::new(),
            undelivered_prefetches: 0,
            receipts: 0,
        }
    }

    /// Whether [`GrantTable::give`] would succeed for a file opened as this user. Checked before the file is
    /// opened.
    #[must_use]
    pub fn has_room(&self, user: u32, wanted: Purpose) -> bool {
        let standing = if user == 0 { Standing::LocalRoot } else { Standing::Admitted };
        if !self.users.may_take(&user, standing, 1) {
            return false;
        }
        match wanted {
            Purpose::Open => {
                self.undelivered.len() - self.undelivered_prefetches < self.most_undelivered as usize
            }
            Purpose::Prefetch => {
                self.open.len() < self.users.limit() / 2
                    && self.undelivered_prefetches < MAX_UNDELIVERED_PREFETCHES
            }
        }
    }

    /// Adds a grant for this user, which is about to be sent. Returns its number.
    ///
    /// # Errors
    /// [`Full`].
    pub fn give(&mut self, held: H, user: u32, wanted: Purpose, now: Instant) -> Result<u64, Full> {
        if !self.has_room(user, wanted) {
            return Err(Full);
        }
        let id = self.next;
        self.next += 1;
        self.users.charge(&user, 1);
        self.open.insert(id, (user, held));
        self.undelivered.push_back((now, wanted));
        self.undelivered_prefetches += usize::from(wanted == Purpose::Prefetch);
        Ok(id)
    }

    /// Takes the last grant back, which could not be sent.
    pub fn take_back(&mut self, id: u64) -> Option<H> {
        if id + 1 == self.next {
            self.next = id;
            let sent = self.undelivered.pop_back();
            self.delivered(sent);
        }
        self.remove(id)
    }

    fn remove(&mut self, id: u64) -> Option<H> {
        let (user, held) = self.open.remove(&id)?;
        self.users.give_back(&user, 1);
        Some(held)
    }

    /// Notes that the client has acknowledged `receipts` grants since the lane began. Returns how many
    /// undelivered grants are delivered now.
    ///
    /// # Errors
    /// [`ProtocolError::Receipts`]: end the lane.
    pub fn received(&mut self, receipts: u64) -> Result<usize, ProtocolError> {
        let grants = self.next - 1;
        if receipts > grants || receipts < self.receipts {
            return Err(ProtocolError::Receipts { receipts, grants });
        }
        // At most the queue's length: receipts + undelivered == grants. After `end` the queue is empty, so
        // that receipts which are noted late count nothing.
        let undelivered = self.undelivered.len();
        for _ in self.receipts..receipts {
            let sent = self.undelivered.pop_front();
            self.delivered(sent);
        }
        self.receipts = receipts;
        Ok(undelivered - self.undelivered.len())
    }

    fn delivered(&mut self, sent: Option<(Instant, Purpose)>) {
        self.undelivered_prefetches -=
            usize::from(sent.is_some_and(|(_, wanted)| wanted == Purpose::Prefetch));
    }

    /// Removes a grant that the client has released.
    ///
    /// # Errors
    /// [`ProtocolError::NotOpen`]: end the lane.
    pub fn release(&mut self, id: u64) -> Result<H, ProtocolError> {
        self.remove(id).ok_or(ProtocolError::NotOpen(id))
    }

    /// Whether a grant has waited for its receipt for longer than `bound`.
    #[must_use]
    pub fn overdue(&self, now: Instant, bound: Duration) -> bool {
        self.undelivered.front().is_some_and(|(sent, _)| now.saturating_duration_since(*sent) > bound)
    }

    /// The number of open grants.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// The number of grants that were sent and not acknowledged.
    #[must_use]
    pub fn undelivered(&self) -> usize {
        self.undelivered.len()
    }

    /// Removes all grants at the end of the lane.
    pub fn end(&mut self) -> impl Iterator<Item = H> {
        self.undelivered.clear();
        self.undelivered_prefetches = 0;
        for (user, _) in self.open.values() {
            self.users.give_back(user, 1);
        }
        std::mem::take(&mut self.open).into_values().map(|(_, held)| held)
    }
}
