//! Transfers between memory and files.
//!
//! The server (`store`) and the client (grants of the lane) use the same functions, so that both handle short
//! transfers, interrupted calls, alignment and durability alike:
//!
//! - `buffered`: reads, writes and syncs through the page cache;
//! - `alignment`: what direct I/O requires of offsets, lengths and addresses;
//! - `plan`: the segments of a request and their I/O modes, by arithmetic alone;
//! - `transfer`: execution of a plan;
//! - `io_fallbacks`: which modes a filesystem doesn't support;
//! - `aligned_buffer`: memory for direct I/O;
//! - `trace`: trace events for logs and for perf and bpftrace.

mod aligned_buffer;
mod alignment;
mod buffered;
mod io_fallbacks;
pub mod plan;
pub mod trace;
mod transfer;

pub use aligned_buffer::{AlignedBuffer, Payload};
pub use alignment::Alignment;
pub use buffered::{read_at, sync, try_read_at, write_at};
pub use io_fallbacks::{IoFallbacks, UnsupportedModes};
pub use sys::IoMode;
pub use transfer::{Files, fetch, read, write};

/// An I/O mode for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IoModes {
    /// For reads.
    pub read: IoMode,
    /// For writes.
    pub write: IoMode,
}

/// How durable a write must be before it is acknowledged (RFC 1813 section 3.3.7, `stable_how`), ordered by
/// strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// In the page cache; COMMIT makes it durable later.
    Unstable,
    /// The data, and the metadata needed to read it again, are on stable storage.
    DataSync,
    /// The data and all metadata, time stamps included, are on stable storage.
    FileSync,
}

/// The largest offset in a file on Linux: `loff_t` is a signed 64-bit number.
pub const MAX_OFFSET: u64 = i64::MAX as u64;
