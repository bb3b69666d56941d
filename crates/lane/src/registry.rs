//! The handshake as a machine: who waits to become a lane, and which of them a nonce names.
//!
//! A connection's life here:
//! 1. it arrives ([`Registry::arrive`]); if its user has too many waiting, that user's oldest goes;
//! 2. it registers one commitment ([`Registry::register`]), once;
//! 3. the nonce comes over an NFS connection ([`Registry::claim`]): if exactly one live registration has its
//!    commitment, that one leaves the registry as a lane. If there are two, both go, and nothing is local;
//! 4. or it expires, ten seconds after it arrived or registered, or hangs up.
//!
//! A commitment that was claimed stays known (for as long as a nonce lives), so that neither the nonce nor the
//! commitment can be used a second time.
//!
//! No clock, no sockets: every call is told the time, and says whom to close.

use crate::nonce::{Commitment, Nonce};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// A waiting connection, by the number that its owner gave it. Numbers grow, so the smallest is the oldest.
pub type WaitingId = u64;

/// How many commitments that were claimed are remembered.
const MAX_SPENT: usize = 1024;

/// The registry's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Waiting connections altogether.
    pub total: usize,
    /// Waiting connections of one user.
    pub per_uid: usize,
    /// How long each may wait.
    pub life: Duration,
}

#[derive(Debug)]
struct Waiting {
    uid: u32,
    commitment: Option<Commitment>,
    dies: Instant,
}

/// Why a registration is not accepted. The connection stays in the registry until its owner removes it.
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

/// What a nonce names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Nobody.
    Nobody,
    /// This connection, which is a lane now and no longer waits.
    One(WaitingId),
    /// More than one: close them all. Somebody listened, or a client is confused.
    Ambiguous(Vec<WaitingId>),
    /// The nonce has been claimed before.
    Spent,
}

/// See the module.
#[derive(Debug)]
pub struct Registry {
    bounds: Bounds,
    waiting: BTreeMap<WaitingId, Waiting>,
    by_commitment: HashMap<Commitment, Vec<WaitingId>>,
    per_uid: HashMap<u32, usize>,
    spent: VecDeque<(Commitment, Instant)>,
}

impl Registry {
    /// An empty one.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            waiting: BTreeMap::new(),
            by_commitment: HashMap::new(),
            per_uid: HashMap::new(),
            spent: VecDeque::new(),
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A connection of a process of `uid` has come. `id` must be larger than every one before. Says whom to close to
    /// make room: this user's oldest if it has too many, else, when all places are taken, the oldest of the user who
    /// has most (of this user, if several have as many).
    pub fn arrive(&mut self, id: WaitingId, uid: u32, now: Instant) -> Option<WaitingId> {
        let own = self.per_uid.get(&uid).copied().unwrap_or(0);
        let evicted = if own >= self.bounds.per_uid {
            self.oldest_of(uid)
        } else if self.waiting.len() >= self.bounds.total {
            // Root last: others may come as any number of users (subordinate ids).
            let greed = |who: u32, many: usize| (who != 0, many, who == uid);
            let greediest =
                self.per_uid.iter().max_by_key(|(who, many)| greed(**who, **many)).map(|(who, _)| *who);
            greediest.and_then(|greediest| self.oldest_of(greediest))
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.leave(evicted);
        }
        self.waiting.insert(id, Waiting { uid, commitment: None, dies: now + self.bounds.life });
        *self.per_uid.entry(uid).or_default() += 1;
        evicted
    }

    fn oldest_of(&self, uid: u32) -> Option<WaitingId> {
        self.waiting.iter().find(|(_, waiting)| waiting.uid == uid).map(|(id, _)| *id)
    }

    /// A connection registers. Its life begins anew.
    ///
    /// # Errors
    /// [`Refused`]: close it.
    pub fn register(&mut self, id: WaitingId, commitment: Commitment, now: Instant) -> Result<(), Refused> {
        self.forget_spent(now);
        let waiting =
            self.waiting.get_mut(&id).filter(|waiting| waiting.dies > now).ok_or(Refused::Unknown)?;
        if waiting.commitment.is_some() {
            return Err(Refused::Twice);
        }
        if self.spent.iter().any(|(spent, _)| *spent == commitment) {
            return Err(Refused::Spent);
        }
        waiting.commitment = Some(commitment);
        waiting.dies = now + self.bounds.life;
        self.by_commitment.entry(commitment).or_default().push(id);
        Ok(())
    }

    /// A connection is no more. Whether it was waiting.
    pub fn leave(&mut self, id: WaitingId) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        if let Some(many) = self.per_uid.get_mut(&waiting.uid) {
            *many -= 1;
            if *many == 0 {
                self.per_uid.remove(&waiting.uid);
            }
        }
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

    /// A nonce has come over an NFS connection.
    pub fn claim(&mut self, nonce: &Nonce, now: Instant) -> Claim {
        self.forget_spent(now);
        let commitment = nonce.commitment();
        if self.spent.iter().any(|(spent, _)| *spent == commitment) {
            return Claim::Spent;
        }
        let registered = self.by_commitment.get(&commitment).cloned().unwrap_or_default();
        let live = |id: &WaitingId| self.waiting.get(id).is_some_and(|waiting| waiting.dies > now);
        let live: Vec<_> = registered.into_iter().filter(live).collect();
        if live.is_empty() {
            // Not spent: a client that waits to be called may be found yet.
            return Claim::Nobody;
        }
        self.spend(commitment, now);
        live.iter().for_each(|id| {
            self.leave(*id);
        });
        match live[..] {
            [one] => Claim::One(one),
            _ => Claim::Ambiguous(live),
        }
    }

    /// The nonce was claimed by a client that the server called: it must not be used again, and must not have been
    /// registered. Whether that's so.
    pub fn spend_called(&mut self, commitment: Commitment, now: Instant) -> bool {
        self.forget_spent(now);
        if self.by_commitment.contains_key(&commitment)
            || self.spent.iter().any(|(spent, _)| *spent == commitment)
        {
            return false;
        }
        self.spend(commitment, now);
        true
    }

    fn spend(&mut self, commitment: Commitment, now: Instant) {
        if self.spent.len() == MAX_SPENT {
            self.spent.pop_front();
        }
        self.spent.push_back((commitment, now + self.bounds.life));
    }

    fn forget_spent(&mut self, now: Instant) {
        while self.spent.front().is_some_and(|(_, dies)| *dies <= now) {
            self.spent.pop_front();
        }
    }

    /// Those whose time is over: close them.
    pub fn expire(&mut self, now: Instant) -> Vec<WaitingId> {
        let dead: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| waiting.dies <= now).map(|(id, _)| *id).collect();
        dead.iter().for_each(|id| {
            self.leave(*id);
        });
        dead
    }

    /// When somebody's time is over next.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.dies).min()
    }
}
