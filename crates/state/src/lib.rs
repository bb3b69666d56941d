//! What an NFSv4 server remembers about its clients: who they are, their sessions, what they have open and
//! locked.
//!
//! A deterministic engine. The clock, random numbers and lease times are given to it; it touches no file and
//! no socket. Each method is one protocol operation (or its share of one) and returns what the operation
//! answers. What has to be *done* because of it, closing files and writing to stable storage, is collected as
//! [`Effects`] and is the caller's to run when the engine's lock is dropped.
//!
//! `K` says which file, `L` is what a lock owner holds open on a file: the engine makes it (empty), hands it
//! out to whoever takes the lock on it, and gives it back among the effects when the last lock has gone. For
//! a delegation it is what keeps local processes out, a kernel lease.
//!
//! Everything that clients make the engine hold is bounded, and shared by peer (`accounts`): who takes all it
//! can get leaves enough for the next one to come.
//!
//! A client's life (RFC 8881 sections 2.4, 8.3, 8.4):
//! 1. EXCHANGE_ID makes it, unconfirmed; CREATE_SESSION confirms it. One that isn't confirmed within a lease
//!    is forgotten.
//! 2. Every SEQUENCE renews its lease.
//! 3. A lease that has run out makes it a *courtesy* client: it keeps its state until somebody else wants
//!    what it has, or anything runs short, or its time is up ([`EngineConfig::courtesy`]); if it comes back before,
//!    nothing has happened.
//! 4. DESTROY_CLIENTID, a new instance of the same client, or 3 end it, and all of its state with it.

mod accounts;
mod by_owner;
mod client;
mod conflicts;
mod contention;
mod delegations;
mod description;
mod effects;
mod ended;
mod engine;
mod error;
mod exchange;
mod files;
mod grace;
mod grants;
mod ids;
mod io;
mod lease;
mod lent;
mod locked;
mod locks;
mod names;
mod opened;
mod opens;
mod owners;
mod principal;
mod ranges;
mod recovery;
mod resumed;
mod sequence;
mod session;
mod share;
mod stateids;
mod v40;
mod waiting;
mod withdrawn;

pub use conflicts::{AccessKind, Recall, RecallTimeout};
pub use delegations::{DelegationRequest, NoDelegation, PendingDelegation, WriteDelegation};
pub use description::DescriptionLocks;
pub use effects::Effects;
pub use engine::{Engine, EngineConfig, EngineLimits, Random, Time};
pub use error::Error;
pub use exchange::{ExchangeId, ExchangedId};
pub use ids::{ClientId, SessionId, StateId};
pub use io::Direction;
pub use locks::{LockDenied, LockOwner, LockRequest, Locker, PendingLock, PendingLockTest};
pub use names::{instance, owner_of_instance};
pub use opens::OpenRequest;
pub use owners::{OwnerRequest, StateOwner};
pub use principal::{Principal, Requester};
pub use ranges::{LockKind, Range};
pub use sequence::{Sequence, SequenceResult, SlotRequest};
pub use session::{ChannelAttrs, CreateSession, CreatedSession, MIN_FORE_CHANNEL};
pub use share::Share;
pub use v40::SetClientId;
pub use waiting::{BlockedWaiter, LockNotice};
