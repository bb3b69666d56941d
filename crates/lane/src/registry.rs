//! The handshake as a state machine: the connections that wait to become lanes, and which of them a nonce
//! selects.
//!
//! The life of a connection:
//! 1. It arrives ([`Registry::arrive`]). Where its user's share is used up, another connection is displaced:
//!    one of the user that has the most, and first one that has registered nothing.
//! 2. It registers one commitment ([`Registry::register`]), once.
//! 3. The nonce arrives over an NFS connection ([`Registry::claim`]). If exactly one live registration has
//!    its commitment, that one leaves the registry as a lane. If there are several, all are closed, and there
//!    is no lane.
//! 4. Or it expires, ten seconds after it arrived or registered, or hangs up.
//!
//! A claimed commitment is remembered for the lifetime of a nonce, so that neither the nonce nor the
//! commitment can be used a second time. None is forgotten early to make room, because then a process that
//! makes many handshakes could make another one's nonce work again. A user that has made too many gets no
//! further lane until some have expired.
//!
//! No clock, no sockets: every call takes the time, and returns the connections to close.

use crate::nonce::{Commitment, Nonce};
use fairness::{Peer, Shares, Standing};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// A waiting connection, by the number that its owner gave it. Numbers grow, so the smallest is the oldest.
pub type WaitingId = u64;

/// The registry's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Waiting connections. A quarter is reserved for root of this host.
    pub waiting: usize,
    /// Claimed commitments that are remembered. A quarter is reserved for root of this host.
    pub spent: usize,
    /// The lifetime of both.
    pub life: Duration,
}

#[derive(Debug)]
struct Registration {
    peer: Peer,
    commitment: Option<Commitment>,
    dies: Instant,
}

/// Why a registration is refused. The connection stays in the registry until its owner removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The connection has left, expired or was evicted.
    #[error("the connection isn't waiting")]
    Unknown,
    /// It has registered before.
    #[error("a connection registers once")]
    Twice,
    /// This commitment was claimed already.
    #[error("the nonce was used before")]
    Spent,
}

/// The result of a nonce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// No registration.
    Nobody,
    /// This connection, which becomes a lane and no longer waits.
    One(WaitingId),
    /// Several connections: close them all. A process has eavesdropped, or a client is broken.
    Ambiguous(Vec<WaitingId>),
    /// This connection, whose user has made so many lanes recently that no further nonce can be remembered
    /// for it: close it.
    TooMany(WaitingId),
    /// The nonce has been claimed before.
    Spent,
}

/// The waiting connections and the claimed commitments.
#[derive(Debug)]
pub struct Registry {
    life: Duration,
    waiting: BTreeMap<WaitingId, Registration>,
    places: Shares,
    by_commitment: HashMap<Commitment, Vec<WaitingId>>,
    spent: Spent,
}

/// What happens to a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It waits.
    Waits,
    /// It waits, and this connection must be closed instead.
    Displaces(WaitingId),
    /// There is no room for it: close it.
    Refused,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            life: bounds.life,
            waiting: BTreeMap::new(),
            places: Shares::new(bounds.waiting).with_reserves(0, bounds.waiting / 4),
            by_commitment: HashMap::new(),
            spent: Spent::new(bounds.spent, bounds.life),
        }
    }

    /// The number of waiting connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no connection waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a connection of a process of this user. `id` must be larger than every one before.
    pub fn arrive(&mut self, id: WaitingId, peer: Peer, now: Instant) -> Arrival {
        let mut arrival = Arrival::Waits;
        if !self.places.may_take(&peer, Standing::of_admitted(&peer), 1) {
            let Some(displaced) = self.displaced_by(&peer) else { return Arrival::Refused };
            self.leave(displaced);
            arrival = Arrival::Displaces(displaced);
        }
        self.places.charge(&peer, 1);
        self.waiting.insert(id, Registration { peer, commitment: None, dies: now + self.life });
        arrival
    }

    /// The connection that is displaced for one more of this peer: one of the peer that has the most, or,
    /// where no peer has more, one of its own. A peer without connections takes the place of the oldest of
    /// all, where all peers have one. Only root displaces root's. Connections that have registered nothing
    /// come first, then the oldest.
    fn displaced_by(&self, newcomer: &Peer) -> Option<WaitingId> {
        let own = self.places.held_by(newcomer);
        let spared = |peer: &Peer| peer.is_local_root() && !newcomer.is_local_root();
        let others = self.places.holders().filter(|(peer, _)| *peer != newcomer && !spared(peer));
        let from = match others.max_by_key(|(_, held)| *held) {
            Some((greediest, most)) if most > own + 1 => Some(*greediest),
            _ if own > 0 => Some(*newcomer),
            _ => None,
        };
        let may_go = |waiting: &Registration| match from {
            Some(from) => waiting.peer == from,
            None => !spared(&waiting.peer),
        };
        let candidates = self.waiting.iter().filter(|(_, waiting)| may_go(waiting));
        candidates.min_by_key(|(id, waiting)| (waiting.commitment.is_some(), **id)).map(|(id, _)| *id)
    }

    /// Registers a connection's commitment. Its lifetime starts again.
    ///
    /// # Errors
    /// [`Refused`]: close it.
    pub fn register(&mut self, id: WaitingId, commitment: Commitment, now: Instant) -> Result<(), Refused> {
        self.spent.forget(now);
        let waiting =
            self.waiting.get_mut(&id).filter(|waiting| waiting.dies > now).ok_or(Refused::Unknown)?;
        if waiting.commitment.is_some() {
            return Err(Refused::Twice);
        }
        if self.spent.has(&commitment) {
            return Err(Refused::Spent);
        }
        waiting.commitment = Some(commitment);
        waiting.dies = now + self.life;
        self.by_commitment.entry(commitment).or_default().push(id);
        Ok(())
    }

    /// Removes a connection. Returns whether it was waiting.
    pub fn leave(&mut self, id: WaitingId) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        self.places.give_back(&waiting.peer, 1);
        if let Some(commitment) = waiting.commitment
            && let Some(ids) = self.by_commitment.get_mut(&commitment)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_commitment.remove(&commitment);
            }
        }
        true
    }

    /// Handles a nonce from an NFS connection.
    pub fn claim(&mut self, nonce: &Nonce, now: Instant) -> Claim {
        self.spent.forget(now);
        let commitment = nonce.commitment();
        if self.spent.has(&commitment) {
            return Claim::Spent;
        }
        let registered = self.by_commitment.get(&commitment).cloned().unwrap_or_default();
        let peer = |id: &WaitingId| self.waiting.get(id).filter(|waiting| waiting.dies > now).map(|w| w.peer);
        let live: Vec<_> = registered.into_iter().filter_map(|id| Some((id, peer(&id)?))).collect();
        let claim = match live[..] {
            // The nonce isn't spent: a client that waits to be called may still be found.
            [] => return Claim::Nobody,
            [(one, peer)] if !self.spent.has_room(&peer) => Claim::TooMany(one),
            [(one, peer)] => {
                self.spent.add(commitment, peer, now);
                Claim::One(one)
            }
            [(_, first), ..] => {
                // Remembered whether there is room or not: there are at most as many as waiting connections.
                self.spent.add(commitment, first, now);
                Claim::Ambiguous(live.iter().map(|(id, _)| *id).collect())
            }
        };
        live.iter().for_each(|(id, _)| {
            self.leave(*id);
        });
        claim
    }

    /// Marks the nonce of a client of this user that the server called as used. Returns whether it was unused
    /// and unregistered.
    pub fn spend_called(&mut self, commitment: Commitment, peer: Peer, now: Instant) -> bool {
        self.spent.forget(now);
        let fresh = !self.by_commitment.contains_key(&commitment) && !self.spent.has(&commitment);
        if fresh && self.spent.has_room(&peer) {
            self.spent.add(commitment, peer, now);
            return true;
        }
        false
    }

    /// Removes and returns the expired connections, which must be closed.
    pub fn expire(&mut self, now: Instant) -> Vec<WaitingId> {
        let dead: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| waiting.dies <= now).map(|(id, _)| *id).collect();
        dead.iter().for_each(|id| {
            self.leave(*id);
        });
        dead
    }

    /// The time of the next expiry.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.dies).min()
    }
}

/// The claimed commitments and the users whose lanes they made.
#[derive(Debug)]
struct Spent {
    life: Duration,
    shares: Shares,
    /// Oldest first.
    by_age: VecDeque<(Commitment, Peer, Instant)>,
    all: HashSet<Commitment>,
}

impl Spent {
    fn new(limit: usize, life: Duration) -> Self {
        Self {
            life,
            shares: Shares::new(limit).with_reserves(0, limit / 4),
            by_age: VecDeque::new(),
            all: HashSet::new(),
        }
    }

    fn has(&self, commitment: &Commitment) -> bool {
        self.all.contains(commitment)
    }

    fn has_room(&self, peer: &Peer) -> bool {
        self.shares.may_take(peer, Standing::of_admitted(peer), 1)
    }

    fn add(&mut self, commitment: Commitment, peer: Peer, now: Instant) {
        self.shares.charge(&peer, 1);
        self.by_age.push_back((commitment, peer, now + self.life));
        self.all.insert(commitment);
    }

    /// Removes the expired commitments.
    fn forget(&mut self, now: Instant) {
        while self.by_age.front().is_some_and(|(_, _, dies)| *dies <= now)
            && let Some((commitment, peer, _)) = self.by_age.pop_front()
        {
            self.shares.give_back(&peer, 1);
            self.all.remove(&commitment);
        }
    }
}
