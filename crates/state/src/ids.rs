//! The numbers by which clients, sessions and states are named on the wire. Each carries the number of the server's run, so that
//! what an earlier run gave out is told from what nobody gave out.

/// `clientid4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    /// The `number`th client of a run.
    pub(crate) const fn new(boot: u32, number: u32) -> Self {
        Self((boot as u64) << 32 | number as u64)
    }
}

/// `sessionid4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// Of `client`; `secret` is random, so that nobody can guess another's.
    pub(crate) fn new(client: ClientId, secret: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&client.0.to_be_bytes());
        bytes[8..].copy_from_slice(&secret.to_be_bytes());
        Self(bytes)
    }
}

/// `stateid4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StateId {
    /// Goes up with every change; 0 stands for the newest (4.1).
    pub seqid: u32,
    /// Which state: run (4 bytes) and number (8 bytes).
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
