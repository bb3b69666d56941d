//! The status of a running server: a snapshot, which the control socket returns as JSON.

pub(crate) mod counters;
pub(crate) mod gather;
mod lane_reason;
pub(crate) mod metrics;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use control::ProcessKind;
pub(crate) use counters::Counters;
pub use counters::ProcedureStatus;

/// The [`Status`] of every running server in `run_dir`; sockets of dead servers are ignored.
///
/// # Errors
/// As [`control::query`], and if a server doesn't answer.
pub fn query(run_dir: &Path) -> io::Result<Vec<Status>> {
    let asked = control::query(run_dir, ProcessKind::Server)?.all()?;
    Ok(asked.into_iter().map(|asked| asked.answer).collect())
}

/// A snapshot of a running server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// The identifier of this run of the server, 32 hexadecimal digits.
    pub instance: String,
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// The addresses it listens on.
    pub listen: Vec<String>,
    /// What it can't do, in words, as reported at start.
    pub notices: Vec<String>,
    /// The I/O modes of exports that don't set their own.
    #[serde(default)]
    pub io: IoStatus,
    /// The exports.
    pub exports: Vec<ExportStatus>,
    /// The TCP connections.
    pub connections: Vec<ConnectionStatus>,
    /// Totals of connections, and of calls that were denied.
    #[serde(default)]
    pub wire: WireStatus,
    /// The mounts that the MOUNT program has on record (`showmount -a`).
    pub mounts: Vec<MountStatus>,
    /// The lanes.
    pub lanes: Vec<LaneStatus>,
    /// Grants over all lanes.
    pub grants: GrantStatus,
    /// Counters since the start: transport (`wire`, `lane`) -> procedure name -> counters.
    pub counters: BTreeMap<String, BTreeMap<String, ProcedureStatus>>,
    /// Calls since the start by export and data path. Only what was called is listed.
    #[serde(default)]
    pub export_calls: Vec<ExportCalls>,
    /// The process's memory.
    pub memory: MemoryStatus,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The exported directory.
    #[serde(with = "control::path_text")]
    pub path: PathBuf,
    /// The export's number in file handles.
    pub id: u32,
    /// Its clients with their options, in exports(5) syntax.
    pub clients: Vec<String>,
    /// Why it isn't served, if it isn't.
    pub problem: Option<String>,
    /// The I/O modes of its files.
    #[serde(default)]
    pub io: IoStatus,
    /// Fallbacks where the filesystem doesn't support a mode, in words; known once one has been needed.
    #[serde(default)]
    pub io_notes: Vec<String>,
    /// Whether clients of this host may be given the directory itself: `given`, or why not, in words;
    /// several reasons, separated by commas, if its clients differ. A client can be refused for another
    /// reason, which its own probe shows.
    #[serde(default)]
    pub tree: String,
    /// How many direct writes were copied to aligned memory first.
    #[serde(default)]
    pub copied_writes: u64,
    /// Whether it is a filesystem that is mounted below an export with `crossmnt`.
    #[serde(default)]
    pub crossed: bool,
}

/// The I/O modes: `buffered`, `dontcache` or `direct`; several, separated by commas, if an export's clients
/// have different ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoStatus {
    /// The mode of READ.
    pub read: String,
    /// The mode of WRITE.
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
    /// How it got its lane, or why it has none, in words.
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

/// The calls of one export over one data path, of all protocols. Of NFSv4, each operation of a COMPOUND
/// counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportCalls {
    /// The exported directory; `none` for calls that concern no export, `other` for exports beyond the first
    /// 64.
    pub export: String,
    /// `wire`, or `lane` for opens and for calls on a lane's call socket.
    pub data_path: String,
    /// Calls.
    pub calls: u64,
    /// Those answered with an error.
    pub errors: u64,
    /// Payload of READs, in bytes.
    pub bytes_read: u64,
    /// Payload of WRITEs, in bytes.
    pub bytes_written: u64,
    /// Timed calls by the time that they took, from their receipt to their encoded reply. Each worker thread
    /// times one call in eight.
    pub times: Vec<TimeBucket>,
}

/// The calls that took a time within bounds: more than the bucket before, and at most this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeBucket {
    /// The upper bound, in nanoseconds; `None` in the last bucket.
    pub at_most_ns: Option<u64>,
    /// Calls.
    pub calls: u64,
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
    /// The client's process in this server's pid namespace; 0 if it isn't visible there.
    pub pid: i32,
    /// Its user id; 4294967295 if it isn't mapped in this server's user namespace.
    pub uid: u32,
    /// Seconds since it was established.
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
        /// Whole directories open now; counted in `open`, too.
        trees: Gauge<Count> = "trees open",
        /// Whole directories given since the start; counted in `granted`, too.
        trees_granted: Counter<Count> = "trees given",
        /// Whole directories refused since the start; counted in `refused`, too.
        trees_refused: Counter<Count> = "trees refused",
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
