//! The answer to "what is this server doing?": a snapshot, which `control`'s socket hands out as JSON.

mod counters;
pub(crate) mod gather;
mod lane_reason;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use counters::{Counters, ProcedureCounters};
pub use counters::ProcedureStatus;

/// Asks every running server in `run_dir` for its [`Status`]; the sockets of dead servers are passed over.
///
/// # Errors
/// As [`control::query`], and when one of them doesn't answer.
pub fn query(run_dir: &Path) -> io::Result<Vec<Status>> {
    let asked = control::query(run_dir, control::SERVER)?.all()?;
    Ok(asked.into_iter().map(|asked| asked.answer).collect())
}

/// A snapshot of a running server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// This run of the server, 32 hexadecimal digits.
    pub instance: String,
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// The addresses it listens on.
    pub listen: Vec<String>,
    /// What it can't do, in words, as said at start.
    pub notices: Vec<String>,
    /// How files are read and written where no export says otherwise.
    #[serde(default)]
    pub io: IoStatus,
    /// The exports.
    pub exports: Vec<ExportStatus>,
    /// The TCP connections.
    pub connections: Vec<ConnectionStatus>,
    /// What became of connections and calls that weren't simply served.
    #[serde(default)]
    pub wire: WireStatus,
    /// What MOUNT remembers of who mounted what (`showmount -a`).
    pub mounts: Vec<MountStatus>,
    /// The lanes.
    pub lanes: Vec<LaneStatus>,
    /// Grants over all lanes.
    pub grants: GrantStatus,
    /// Counters per road and procedure since the start: road (`wire`, `lane`) -> procedure name -> counters.
    pub counters: BTreeMap<String, BTreeMap<String, ProcedureStatus>>,
    /// The process's memory.
    pub memory: MemoryStatus,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The exported directory.
    pub path: PathBuf,
    /// The export's number in file handles.
    pub id: u32,
    /// Its clients with their options, in exports(5) syntax.
    pub clients: Vec<String>,
    /// Why it can't be served now, if it can't.
    pub problem: Option<String>,
    /// How its files are read and written.
    #[serde(default)]
    pub io: IoStatus,
    /// What the filesystem doesn't do of that, and what is done instead, in words: known once it has
    /// happened.
    #[serde(default)]
    pub io_notes: Vec<String>,
    /// How many direct writes had to be copied to aligned memory first.
    #[serde(default)]
    pub copied_writes: u64,
}

/// The I/O modes: `buffered`, `dontcache` or `direct`. Several, with commas, where an export's clients have
/// different ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoStatus {
    /// Of READ.
    pub read: String,
    /// Of WRITE.
    pub write: String,
}

/// One TCP connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// The client's address and port.
    pub peer: String,
    /// Whether anything is exported to it.
    #[serde(default)]
    pub admitted: bool,
    /// Whether it has a lane.
    #[serde(default)]
    pub local: bool,
    /// How it has its lane, or why it has none, in words.
    #[serde(default)]
    pub reason: String,
    /// Seconds since it was accepted.
    pub age_seconds: u64,
    /// Calls so far.
    pub calls: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

control::metrics! {
    /// Connections and calls since the start.
    pub struct WireStatus {
        /// Connections accepted.
        accepted: Counter<Count> = "accepted",
        /// Connections closed at once: their peer had its share of all, or none was free.
        refused: Counter<Count> = "refused",
        /// Idle connections closed to make room for others.
        displaced: Counter<Count> = "displaced while idle",
        /// Connections closed because the peer broke the protocol, stalled, or left too much unread.
        broken: Counter<Count> = "broken",
        /// Calls denied because nothing is exported to the peer.
        denied: Counter<Count> = "calls denied",
    }
}

/// One entry of the mount table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The client's address or name.
    pub host: String,
    /// The directory.
    pub path: String,
}

/// One lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// The NFS connection that the lane is bound to, if the handshake has come that far.
    pub nfs_peer: Option<String>,
    /// The process at the other end, as this server's pid namespace sees it (0: not at all).
    pub pid: i32,
    /// Its user id; 4294967295 if this server's user namespace has none for it.
    pub uid: u32,
    /// Seconds since it came up.
    #[serde(default)]
    pub age_seconds: u64,
    /// Open grants.
    pub grants: u64,
}

control::metrics! {
    /// Grants over all lanes.
    pub struct GrantStatus {
        /// Open now.
        open: Gauge<Count> = "open",
        /// Given since the start.
        granted: Counter<Count> = "given",
        /// Refused since the start.
        refused: Counter<Count> = "refused",
        /// Requested since the start for names that don't exist. A client that creates a file asks first.
        not_found: Counter<Count> = "not found",
    }
}

control::metrics! {
    /// The process's memory, in bytes.
    pub struct MemoryStatus {
        /// Resident now.
        resident: Gauge<Bytes> = "resident",
        /// Resident at the peak.
        peak: Gauge<Bytes> = "at the peak",
    }
}
