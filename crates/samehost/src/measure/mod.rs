//! Measuring reads and writes with the same loop for every data path.
//!
//! A [`MeasureTarget`] is a plain file, or a file of the client library over either data path.
//! [`run`](run::run) is the loop: one thread, a number of operations in flight, reused buffers. [`suite`]
//! measures all workloads over all data paths in turns, and [`report`] holds and shows the result.

mod report;
mod run;
mod suite;
mod target;

pub use report::{Figure, Report, Row};
pub use suite::{Suite, measure};
pub use target::{MeasureTarget, Raw, Served};

/// An access pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name in JSON.
    pub name: &'static str,
    /// The name in tables.
    pub title: &'static str,
    /// Bytes per operation.
    pub block: usize,
    /// Whether the operations' offsets are random or sequential.
    pub random: bool,
    /// Whether it writes.
    pub write: bool,
}

/// The workloads of `bench` and `demo`.
pub const WORKLOADS: [Workload; 4] = [
    Workload { name: "random-read-4k", title: "4 KiB random read", block: 4096, random: true, write: false },
    Workload { name: "random-write-4k", title: "4 KiB random write", block: 4096, random: true, write: true },
    Workload {
        name: "sequential-read-128k",
        title: "128 KiB sequential read",
        block: 128 << 10,
        random: false,
        write: false,
    },
    Workload {
        name: "sequential-write-128k",
        title: "128 KiB sequential write",
        block: 128 << 10,
        random: false,
        write: true,
    },
];
