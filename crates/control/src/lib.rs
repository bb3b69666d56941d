//! How a running process is asked what it does, and told to do it otherwise: one Unix socket in the run
//! directory.
//!
//! A server's is `<instance>.status`, a mount's `<instance>.mount`; only the process's own user (and root)
//! can connect. Whoever connects writes a request in JSON, shuts its writing side down, and reads one JSON
//! text to its end. An empty request asks for the status; any other is a change, which is answered with a
//! [`Reply`]. What a status holds and which changes there are is the business of the process; here is only
//! the exchange, with a bound on each length and wait.

mod ask;
mod socket;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use ask::{Answers, Asked, Silent, ask, query, sockets, tell};
pub use socket::Socket;

/// The ending of a server's socket.
pub const SERVER: &str = "status";
/// The ending of a mount's socket.
pub const MOUNT: &str = "mount";

/// How long either end waits for the other.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read, in bytes.
pub const LONGEST_REQUEST: usize = 64 << 10;
/// The longest answer that is read, in bytes.
pub const LONGEST_ANSWER: u64 = 64 << 20;

/// The answer to a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// It is done; what is so now, in a sentence.
    Done(String),
    /// It isn't.
    Error {
        /// Why not.
        reason: String,
        /// What to do about it.
        next: Option<String>,
    },
}
