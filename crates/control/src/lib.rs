//! The control socket: a Unix socket in the run directory through which a running process reports its status
//! and accepts changes.
//!
//! A server's is `<instance>.status`, a mount's `<instance>.mount`; only the process's own user (and root)
//! can connect. A client writes a request in JSON, shuts its writing side down, and reads one JSON text to
//! its end. An empty request asks for the status; any other is a change, which is answered with a [`Reply`].
//! The process defines the status and the changes; this crate implements the exchange, with a bound on each
//! length and wait.

mod client;
pub mod exposition;
mod latency;
mod metrics;
mod socket;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use client::{Answers, ProcessAnswer, Unresponsive, ask, query, sockets, tell};
pub use latency::{LATENCY_BOUNDS, Latencies, LatencyCounters};
pub use metrics::{Metric, MetricKind, MetricUnit, Metrics};
pub use socket::Socket;

/// The suffix of a server's socket.
pub const SERVER: &str = "status";
/// The suffix of a mount's socket.
pub const MOUNT: &str = "mount";

/// How long either end waits for the other.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest request that is read, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;
/// The longest reply that is read, in bytes.
pub const MAX_REPLY: u64 = 64 << 20;

/// The reply to a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// The change is made; the new state, in a sentence.
    Done(String),
    /// The change isn't made.
    Error {
        /// Why not.
        reason: String,
        /// What the user can do about it.
        next: Option<String>,
    },
}
