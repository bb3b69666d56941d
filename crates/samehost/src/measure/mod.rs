//! Measuring reads and writes: one loop for every road, so that nothing but the road differs.
//!
//! [`Target`] is what the loop reads and writes: a plain file, or a file of the client library on either
//! road. [`run`](run::run) is the loop: one thread, a number of operations in flight, buffers made once and
//! reused. [`suite`] measures all workloads over all roads, taking turns, and [`report`] holds and shows the
//! result.

mod report;
mod run;
mod suite;
mod target;

pub use report::{Figure, Report, Row};
pub use suite::{Suite, measure};
pub use target::{Raw, Served, Target};

/// One pattern of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name in JSON.
    pub name: &'static str,
    /// The name in tables.
    pub title: &'static str,
    /// Bytes an operation.
    pub block: usize,
    /// Whether each operation goes to a place of its own, or behind the one before.
    pub random: bool,
    /// Whether it writes.
    pub write: bool,
}

/// What `bench` and `demo` measure.
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
