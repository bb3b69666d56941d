//! The control socket: a Unix socket in the run directory through which a running process reports its status
//! and accepts changes.
//!
//! A server's is `<instance>.status`, a mount's `<instance>.mount`; only the process's own user (and root)
//! can connect. A client writes a request in JSON, shuts its writing side down, and reads one JSON text to
//! its end. An empty request asks for the status; any other is a change, which is answered with a [`Reply`].
//! A change may take long: the process then accepts it with a line feed, which is white space before the
//! JSON, and from there on the client waits until the result is sent or the process ends. The process defines
//! the status and the changes; this crate implements the exchange, with a bound on each length and wait.

mod client;
mod directory;
pub mod exposition;
mod latency;
mod metrics;
pub mod path_text;
mod socket;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use client::{Answers, AskError, ProcessAnswer, Unresponsive, query, query_all, tell};
pub use directory::{MAX_SOCKETS_OF_USER, ProcessSocket, SocketDirectory};
pub use latency::{LATENCY_BOUNDS, Latencies, LatencyCounters};
pub use metrics::{Metric, MetricKind, MetricUnit, Metrics};
pub use socket::{ControlAnswer, LateAnswer, Socket};

/// A kind of process with a control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// A server.
    Server,
    /// The process of a mount.
    Mount,
}

impl ProcessKind {
    /// The suffix of its socket.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Server => "status",
            Self::Mount => "mount",
        }
    }

    /// Whether the process may accept a change and answer much later.
    pub(crate) const fn changes_take_long(self) -> bool {
        matches!(self, Self::Server)
    }

    /// The longest answer that is read, in bytes. A server's status lists its exports and clients.
    #[must_use]
    pub const fn max_reply(self) -> usize {
        match self {
            Self::Server => 64 << 20,
            Self::Mount => 256 << 10,
        }
    }
}

impl fmt::Display for ProcessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Mount => "mount",
        })
    }
}

/// How long an exchange may take: a process waits so long for a request, and a client for the whole answer,
/// except for the result of a change that was accepted.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// What a process sends first if its answer takes long.
pub(crate) const ACCEPTED: u8 = b'\n';
/// The longest request that is read, in bytes.
pub const MAX_REQUEST: usize = 64 << 10;

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
