//! NFSv4's state as a client holds it: the slots of a session, the open files, their locks and
//! delegations, and what it takes to keep them or to have them back.
//!
//! Everything here is deterministic: the clock is an argument, there are no sockets and no wire types.
//! The caller sends the requests and reports the results. [`StateManager`] tells it what to do for the client
//! id and the session, [`SlotTable`] in which slot to send a request, [`Opens`] and [`Locks`] which requests
//! the open files and their locks need, and [`Delegations`] what needs no request. [`CopyAttempts`] and
//! [`Offloads`] tell it how to request a copy within the server, and how to learn of its end.

mod copy_attempts;
mod delegations;
mod ids;
mod locks;
mod offloads;
mod opens;
mod recovery;
mod slots;

pub use copy_attempts::{CopyAttempts, MIN_ASYNCHRONOUS_COPY};
pub use delegations::{DelegationKind, Delegations};
pub use ids::{StateError, StateId};
pub use lock_ranges::{ByteRange, LockKind};
pub use locks::{LockAnswer, LockChange, LockChangeRequest, LockError, Locks, Tested};
pub use offloads::{
    DuplicateOffload, EndAnswer, MAX_EARLY_ENDS, OffloadAnswer, OffloadRef, OffloadStep, Offloads,
    StartingCopy,
};
pub use opens::{
    LostOpen, NoState, OpenChange, OpenChangeRequest, OpenClaim, OpenRef, Opening, Opens, Share,
};
pub use recovery::{SessionError, StateManager, Step};
pub use slots::{MAX_SLOTS, SlotError, SlotTable, TakenSlot, Unanswered};
