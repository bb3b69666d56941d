//! The calls of the client, and the server's replies.

use client_state::{DelegationKind, LockChangeRequest, OpenChangeRequest, Share, StateId};
use state::{Direction, Error, SessionId};

/// A call on its way to the server. A copy that is sent again has the same number.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    pub number: u64,
    pub call: Call,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// EXCHANGE_ID with this verifier.
    ExchangeId([u8; 8]),
    CreateSession {
        client: u64,
        sequence: u32,
    },
    DestroySession(SessionId),
    DestroyClientid(u64),
    Compound(Compound),
}

/// SEQUENCE and an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compound {
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub highest: u32,
    pub operation: Operation,
}

/// What a COMPOUND does after SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Nothing,
    ReclaimComplete,
    /// OPEN by name: the client knows only which name that is.
    Open(u8, u32, Share),
    Change(u8, u32, OpenChangeRequest),
    /// The open is that which a first lock is made through.
    Lock(u8, u32, LockChangeRequest, StateId),
    Io(u32, StateId, Direction),
    /// DELEGRETURN.
    Return(u32, StateId),
    /// TEST_STATEID, and FREE_STATEID if it fails.
    Test(StateId),
}

/// The reply to a call that has succeeded. That of a COMPOUND succeeds with its SEQUENCE.
#[derive(Debug, Clone, Copy)]
pub enum Reply {
    Exchanged { client: u64, sequence: u32, confirmed: bool },
    Created(SessionId),
    Destroyed,
    Executed(Executed),
}

#[derive(Debug, Clone, Copy)]
pub struct Executed {
    pub highest: u32,
    pub flags: u32,
    /// The state id of an OPEN, OPEN_DOWNGRADE, LOCK or LOCKU. `Locked` stands for `NFS4ERR_DENIED`.
    pub result: Result<StateId, Error>,
    /// The delegation that an OPEN has given.
    pub delegation: Option<(StateId, DelegationKind)>,
}
