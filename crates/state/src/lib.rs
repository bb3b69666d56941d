//! The state of NFSv4's clients: who they are, their sessions, and what they have open, locked and delegated.
//!
//! [`Engine`] is deterministic: its clock, random numbers and lease times are arguments, and it touches no
//! file and no socket. Each method is one protocol operation, or its share of one, and returns the
//! operation's result. What must be done because of it, as closing files, recalling delegations and writing
//! to stable storage, is collected as [`Effects`], which the caller applies after it has dropped the engine's
//! lock.
//!
//! `K` names a file. `L` is what the caller keeps for a lock owner on a file, or for a delegation: the engine
//! makes it (empty), hands it out for the caller's part of LOCK or of a delegation, and returns it in the
//! effects when it isn't needed any more. For a lock owner it is the file with its locks in the kernel, for a
//! delegation a kernel lease.
//!
//! What clients make the engine hold is bounded, and shared by peer: a peer that takes all it can get leaves
//! enough for the next one.
//!
//! A client's life (RFC 8881 sections 2.4, 8.3 and 8.4):
//! 1. EXCHANGE_ID makes it, unconfirmed, and CREATE_SESSION confirms it. A client that isn't confirmed within
//!    a lease is forgotten.
//! 2. Every SEQUENCE renews its lease.
//! 3. When its lease expires it becomes a *courtesy* client: it keeps its state until that conflicts with
//!    another client's request, or a resource runs short, or its time is up ([`EngineConfig::courtesy`]). If
//!    it comes back before, nothing has happened.
//! 4. DESTROY_CLIENTID, a new instance of the same client, or 3 end it with all of its state.

mod accounts;
mod client_table;
mod clients;
mod conflicts;
mod cooldown;
mod delegation_table;
mod delegations;
mod denied_opens;
mod description_locks;
mod effects;
mod engine;
mod error;
mod expired_ids;
mod file_table;
mod ids;
mod lock_queue;
mod lock_table;
mod lock_tree;
mod locks;
mod open_table;
mod opens;
mod owner_index;
mod principal;
mod reclaiming;
mod recovery;
mod session_table;
mod sessions;
mod share;
mod state_header;
mod stateids;
mod states;
mod v40;
mod v40_owners;

pub use client_table::{ClientRecord, RecordHolder, instance, owner_of_instance};
pub use clients::{ExchangeId, ExchangedId};
pub use conflicts::{AccessKind, Recall, RecallTimeout};
pub use delegations::{DelegationRequest, NoDelegation, PendingDelegation, WriteDelegation};
pub use description_locks::DescriptionLocks;
pub use effects::Effects;
pub use engine::{Engine, EngineConfig, EngineLimits, Random, StateCounts, Time};
pub use error::Error;
pub use ids::{ClientId, SessionId, StateId};
pub use lock_queue::{BlockedWaiter, LockNotice};
pub use lock_ranges::{ByteRange, LockKind};
pub use lock_table::{LockDenied, LockOwner};
pub use locks::{LockRequest, Locker, PendingLock, PendingLockTest};
pub use opens::OpenRequest;
pub use principal::{Principal, Requester};
pub use sessions::{
    ChannelAttrs, CreateSession, CreatedSession, MIN_FORE_CHANNEL, Sequence, SequenceResult, SlotRequest,
};
pub use share::Share;
pub use stateids::Direction;
pub use v40::SetClientId;
pub use v40_owners::{OwnerRequest, StateOwner};
