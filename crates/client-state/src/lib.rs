//! NFSv4's state as a client holds it: the slots of a session, and the open files.
//!
//! Everything here is deterministic: it reads no clock, opens no socket and knows no wire types. The caller
//! sends the requests and reports the results.

mod ids;
mod opens;
mod slots;

pub use ids::{StateError, StateId};
pub use opens::{Claim, LostOpen, NoState, OpenChange, OpenChangeRequest, OpenRef, Opens, Share};
pub use slots::{MAX_SLOTS, SlotError, SlotTable, TakenSlot, Unanswered};
