//! The ids of clients, sessions and states on the wire. Each has 64 random bits at least: with AUTH_SYS
//! nothing else keeps a stranger from using the ids of another client.
//!
//! State ids have the number of the server's run, too: it tells state ids of an earlier run, which are stale,
//! from those that were never given out. An unknown client id is stale in any case.

use std::hash::Hash;

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
    /// Goes up with every change; 0 stands for the current one (4.1).
    pub seqid: u32,
    /// The server's run (4 bytes) and the state's number, which is random (8 bytes).
    pub other: [u8; 12],
}

impl StateId {
    /// All zeros: no state.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// All ones: no state, and READ ignores share reservations.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The current state id of the COMPOUND (4.1).
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// CLOSE's result since 4.1: never valid.
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

    /// Whether `other` is one of the two reserved values, which only special state ids have.
    pub(crate) fn is_reserved(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// A random number that isn't reserved or taken. If the first one is, it is the next free one: that is so
    /// rare that it makes no id easier to guess.
    fn unused_number(&mut self, is_taken: impl Fn(&Self, u64) -> bool) -> u64 {
        let mut number = (self.random)();
        while number == 0 || number == u64::MAX || is_taken(self, number) {
            number = number.wrapping_add(1);
        }
        number
    }

    /// An id for a new client: that of no other client, and of none that has expired lately.
    pub(crate) fn new_client_id(&mut self) -> ClientId {
        ClientId(self.unused_number(|engine, number| {
            let id = ClientId(number);
            engine.clients.get(id).is_some() || engine.expired_ids.has_client(id)
        }))
    }

    /// An id for a new session.
    pub(crate) fn new_session_id(&mut self) -> SessionId {
        let high = (self.random)();
        let id = |low: u64| SessionId((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
        let low = self.unused_number(|engine, low| engine.sessions.contains(id(low)));
        id(low)
    }

    /// A number for a new state of a client: that of no other state, and of none that is remembered.
    pub(crate) fn new_state_number(&mut self, client: ClientId) -> u64 {
        self.unused_number(|engine, number| {
            engine.header(number).is_some()
                || engine.expired_ids.closed(number).is_some()
                || engine.expired_ids.has_state(number)
                || engine.clients.get(client).is_some_and(|client| client.revoked.contains(&number))
        })
    }
}
