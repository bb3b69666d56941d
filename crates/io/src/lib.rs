//! How bytes reach a file.
//!
//! Server (`store`) and client (the lane's grants) move bytes between memory and a file with the same few
//! functions, so that both treat short transfers, interrupted calls, alignment and stability alike:
//!
//! - `plain`: through the page cache, the ordinary way;
//! - `mode`: the three ways there are;
//! - `fallbacks`: what a filesystem turned out not to do;
//! - `plan`: which bytes go which way, decided by arithmetic alone;
//! - `engine`: does what a plan says;
//! - `aligned`: memory that O_DIRECT takes;
//! - `stable`: writes that are durable when they return;
//! - `trace`: trace events, for logs and for perf and its like.

mod aligned;
mod engine;
mod fallbacks;
mod mode;
mod plain;
pub mod plan;
mod stable;
pub mod trace;

pub use aligned::{Aligned, Payload};
pub use engine::{Files, fetch, read, write};
pub use fallbacks::{Fallbacks, Refusals};
pub use mode::{Alignment, Mode, Modes};
pub use plain::{read_at, sync, try_read_at, write_at};

/// How durable a write must be before it is acknowledged (RFC 1813 section 3.3.7, `stable_how`).
///
/// The order is the order of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// In the page cache; COMMIT makes it durable later.
    Unstable,
    /// The data, and the metadata needed to read it again, are on stable storage.
    DataSync,
    /// The data and all metadata, time stamps included, are on stable storage.
    FileSync,
}

/// The largest offset a file can have on Linux: `loff_t` is a signed 64-bit number.
pub const MAX_OFFSET: u64 = i64::MAX as u64;
