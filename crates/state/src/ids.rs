//! The names of clients, sessions and states on the wire. Each has 64 random bits at least: with AUTH_SYS
//! nothing else keeps a stranger from speaking of what isn't its.
//!
//! State ids carry the number of the server's run beside them, so that what an earlier run gave out is told
//! from what nobody gave out. Client ids don't need it: one that isn't known is stale, whoever gave it out.

use std::hash::Hash;

use crate::ended::Gone;
use crate::engine::Engine;

/// `clientid4`: random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// `sessionid4`: random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// `stateid4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StateId {
    /// Goes up with every change; 0 stands for the newest (4.1).
    pub seqid: u32,
    /// Which state: the server's run (4 bytes) and a random number (8 bytes).
    pub other: [u8; 12],
}

impl StateId {
    /// All zeros: no state at all.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// All ones: no state at all, and READ passes by share reservations.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The current state id of the COMPOUND (4.1).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// What CLOSE answers since 4.1: never valid.
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    pub(crate) fn new(boot: u32, number: u64, seqid: u32) -> Self {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&boot.to_be_bytes());
        other[4..].copy_from_slice(&number.to_be_bytes());
        Self { seqid, other }
    }

    pub(crate) fn boot(&self) -> u32 {
        u32::from_be_bytes([self.other[0], self.other[1], self.other[2], self.other[3]])
    }

    pub(crate) fn number(&self) -> u64 {
        self.other[4..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Whether `other` is one of the two reserved values: then only the special state ids are valid.
    pub(crate) fn is_reserved(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// A random number that isn't reserved and of which `is_taken` says no. From one that is taken on it is
    /// the next one that isn't: so seldom that it makes nothing easier to guess.
    fn unused(&mut self, is_taken: impl Fn(&Self, u64) -> bool) -> u64 {
        let mut number = (self.random)();
        while number == 0 || number == u64::MAX || is_taken(self, number) {
            number = number.wrapping_add(1);
        }
        number
    }

    /// A name for a new client: that of no other, and of none that has ended lately.
    pub(crate) fn new_client_id(&mut self) -> ClientId {
        ClientId(self.unused(|engine, number| {
            engine.clients.contains_key(&ClientId(number)) || engine.ended.contains(Gone::Client(number))
        }))
    }

    /// A name for a new session.
    pub(crate) fn new_session_id(&mut self) -> SessionId {
        let high = (self.random)();
        let name = |low: u64| SessionId((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
        let low = self.unused(|engine, low| engine.sessions.contains_key(&name(low)));
        name(low)
    }

    /// A number for a new state of a client: none that this or another is known by, or was.
    pub(crate) fn new_state_number(&mut self, client: ClientId) -> u64 {
        self.unused(|engine, number| {
            let revoked = |client: &crate::client::Client| client.revoked.contains(&number);
            engine.states.contains_key(&number)
                || engine.closed.contains_key(&number)
                || engine.ended.contains(Gone::State(number))
                || engine.clients.get(&client).is_some_and(revoked)
        })
    }
}
