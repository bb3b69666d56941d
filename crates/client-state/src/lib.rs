//! NFSv4's state as a client holds it: the slots of a session.
//!
//! Everything here is deterministic: it reads no clock, opens no socket and knows no wire types. The caller
//! sends the requests and reports the results.

mod slots;

pub use slots::{MAX_SLOTS, SlotError, SlotTable, TakenSlot, Unanswered};
