//! One lane's grants as a machine: given, received, released.
//!
//! A grant's life:
//! 1. [`Grants::give`] numbers it, if the lane has room; the server sends it;
//! 2. the client acknowledges it: grants are acknowledged in the order in which they were sent, so the lane's
//!    count of receipts is enough ([`Grants::received`]). Until then the grant is *undelivered*: it counts
//!    against the smaller bound of outstanding ones, and a client that leaves one so for too long loses its
//!    lane ([`Grants::overdue`]);
//! 3. the client releases it ([`Grants::release`]), or the lane ends and everything that is left goes with
//!    it.
//!
//! The lane of root's mount serves many users. They share its grants ([`fairness::Shares`]), so that one who
//! opens thousands of files leaves grants for the others.
//!
//! Grants that were asked for ahead are bounded apart ([`AHEAD_UNDELIVERED`], and half of all grants), so
//! that they never take the place of one that is wanted now.
//!
//! A grant whose reply could not be sent is taken back ([`Grants::take_back`]), so that nothing leaks. No
//! clock, no sockets.

use fairness::{Shares, Standing};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How many grants that were asked for ahead may be unacknowledged.
pub const AHEAD_UNDELIVERED: usize = 64;

/// What a grant was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// An Open.
    Now,
    /// Most likely an Open to come.
    Soon,
}

/// One lane's grants; `H` is what the server holds for each.
#[derive(Debug)]
pub struct Grants<H> {
    most_undelivered: u32,
    next: u64,
    /// For which user each was opened, and what is held for it.
    open: HashMap<u64, (u32, H)>,
    /// The same by user; the limit on open grants.
    users: Shares<u32>,
    /// When each undelivered grant was sent, and for what, oldest first.
    undelivered: VecDeque<(Instant, Wanted)>,
    /// How many of them were asked for ahead.
    ahead: usize,
    /// Grants that the client has acknowledged.
    receipts: u64,
}

/// The lane is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The client says something that can't be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// A grant was released that isn't open.
    #[error("grant {0} was released, but is not open")]
    NotOpen(u64),
    /// More receipts than grants, or fewer than before.
    #[error("{receipts} receipts for {grants} grants")]
    Receipts {
        /// What the client says.
        receipts: u64,
        /// How many grants there were.
        grants: u64,
    },
}

impl<H> Grants<H> {
    /// None yet; at most `most` open, which the users share and an eighth of which is kept for root, and
    /// `most_undelivered` of them not yet acknowledged.
    #[must_use]
    pub fn new(most: u32, most_undelivered: u32) -> Self {
        Self {
            most_undelivered,
            next: 1,
            open: HashMap::new(),
            users: Shares::new(most as usize).with_reserves(0, most as usize / 8),
            undelivered: VecDeque::new(),
            ahead: 0,
            receipts: 0,
        }
    }

    /// Whether [`Grants::give`] would work for a file that is opened as this user: asked before the file is
    /// opened.
    #[must_use]
    pub fn has_room(&self, user: u32, wanted: Wanted) -> bool {
        let standing = if user == 0 { Standing::LocalRoot } else { Standing::Admitted };
        if !self.users.may_take(&user, standing, 1) {
            return false;
        }
        match wanted {
            Wanted::Now => self.undelivered.len() - self.ahead < self.most_undelivered as usize,
            Wanted::Soon => self.open.len() < self.users.limit() / 2 && self.ahead < AHEAD_UNDELIVERED,
        }
    }

    /// One more grant for this user, about to be sent; its number.
    ///
    /// # Errors
    /// [`Full`].
    pub fn give(&mut self, held: H, user: u32, wanted: Wanted, now: Instant) -> Result<u64, Full> {
        if !self.has_room(user, wanted) {
            return Err(Full);
        }
        let id = self.next;
        self.next += 1;
        self.users.charge(&user, 1);
        self.open.insert(id, (user, held));
        self.undelivered.push_back((now, wanted));
        self.ahead += usize::from(wanted == Wanted::Soon);
        Ok(id)
    }

    /// The last grant given could not be sent.
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

    /// The client has acknowledged `receipts` grants since the lane began. How many of them are news.
    ///
    /// # Errors
    /// [`Nonsense::Receipts`]: end the lane.
    pub fn received(&mut self, receipts: u64) -> Result<usize, Nonsense> {
        let grants = self.next - 1;
        if receipts > grants || receipts < self.receipts {
            return Err(Nonsense::Receipts { receipts, grants });
        }
        // Not above the queue's length: receipts + undelivered == grants.
        for _ in self.receipts..receipts {
            let sent = self.undelivered.pop_front();
            self.delivered(sent);
        }
        let news = receipts - self.receipts;
        self.receipts = receipts;
        // No more than were in the queue.
        Ok(news as usize)
    }

    fn delivered(&mut self, sent: Option<(Instant, Wanted)>) {
        self.ahead -= usize::from(sent.is_some_and(|(_, wanted)| wanted == Wanted::Soon));
    }

    /// The client has closed this one.
    ///
    /// # Errors
    /// [`Nonsense::NotOpen`]: end the lane.
    pub fn release(&mut self, id: u64) -> Result<H, Nonsense> {
        self.remove(id).ok_or(Nonsense::NotOpen(id))
    }

    /// Whether a grant has been waiting for its receipt for longer than `bound`.
    #[must_use]
    pub fn overdue(&self, now: Instant, bound: Duration) -> bool {
        self.undelivered.front().is_some_and(|(sent, _)| now.saturating_duration_since(*sent) > bound)
    }

    /// Open grants.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Grants that were sent and not acknowledged.
    #[must_use]
    pub fn undelivered(&self) -> usize {
        self.undelivered.len()
    }

    /// The lane has ended: everything that is left.
    pub fn end(&mut self) -> impl Iterator<Item = H> {
        self.undelivered.clear();
        self.ahead = 0;
        for (user, _) in self.open.values() {
            self.users.give_back(user, 1);
        }
        std::mem::take(&mut self.open).into_values().map(|(_, held)| held)
    }
}
