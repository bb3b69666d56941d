//! The server's end of the lane.
//!
//! Threads: one accepts (connections that aren't lanes yet, expiry, missing receipts), one serves each lane,
//! and one calls waiting clients in other network namespaces, where the server has the privilege. None waits
//! for a client while it holds a lock.

mod acceptor;
mod call_queue;
mod caller;
mod grant_budget;
mod lane;
mod lane_server;
mod lanes;
mod listen;
mod shared;

pub use lane_server::LaneServer;

use crate::attributes::{DirectoryChange, GrantAttributes};
use crate::nonce::Instance;
use crate::peer::{PeerCredentials, SharedNamespaces};
use crate::request::{OpenRequest, OpenStatus};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// An NFS connection, as identified by the server that accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsConnection {
    /// Its number: unique in this server process, never reused. An address is reused, by the client's next
    /// connection or by another process, before the server has noticed the end of the first one.
    pub number: u64,
    /// The client's end.
    pub peer: SocketAddr,
    /// The peer to charge for the work that it causes.
    pub share: fairness::Peer,
}

/// What a lane is bound to: the NFS connection over which the nonce came, and the process at the other end of
/// the Unix socket. The lane ends with either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The lane's number, unique in this server.
    pub lane: u64,
    /// The number of the NFS connection ([`NfsConnection::number`]).
    pub connection: u64,
    /// The client's end of the NFS connection, to which the export rules are applied.
    pub nfs_peer: SocketAddr,
    /// The client process.
    pub process: PeerCredentials,
    /// The namespaces that it shared with the server when the lane began.
    pub namespaces: SharedNamespaces,
}

/// One granted file.
pub struct OpenGrant {
    /// A file description opened for this grant alone: a regular file, open for no more than was requested,
    /// never O_PATH; for [`crate::Target::Tree`] a directory in a cell, for [`crate::Target::Mount`] a
    /// detached mount. No other directories: `..` would lead out of the export.
    pub file: OwnedFd,
    /// The file's NFS handle, at most [`crate::request::MAX_HANDLE`] bytes.
    pub handle: Vec<u8>,
    /// The file's attributes and I/O modes.
    pub attributes: GrantAttributes,
    /// While the file's ctime is the one in `attributes`, the same Open would be granted again. Only such
    /// files are granted to prefetches, because the ctime is the client's only way to see that a prefetched
    /// file is still valid.
    pub lasts: bool,
    /// The change of the directory, for [`crate::Target::New`] only.
    pub directory: Option<Box<DirectoryChange>>,
    /// State that the server keeps while the grant is open (a live grant counts as an open). Dropped when the
    /// client releases the grant, disconnects, or never acknowledged it.
    pub held: Option<Box<dyn std::any::Any + Send>>,
}

/// Decides about an Open, with the same check as the wire.
pub trait GrantService: Send + Sync + 'static {
    /// Opens a file for the client. Runs on the lane's own thread and may block. The peer rules
    /// ([`crate::peer::may_act_as`]) have been checked already; the export's rules are checked here.
    ///
    /// # Errors
    /// The status that the client receives.
    fn open(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<OpenGrant, OpenStatus>;

    /// The write verifier sent with every grant (RFC 1813 section 3.3.7).
    fn verifier(&self) -> [u8; 8];

    /// The client of this lane will sync what must be durable. Changes of names and attributes by calls of
    /// its NFS connection needn't be durable when they are answered, until the lane has
    /// [`ended`](Self::ended).
    fn async_from_now(&self, bound: &Bound) {
        let _ = bound;
    }

    /// Opens a call socket, on which the client makes calls of its NFS connection, and returns the client's
    /// end. It takes the place of an earlier one of this lane, and ends with the lane. Whoever holds the
    /// client's end may make only the calls that [`crate::peer::may_claim`] permits to the client's process.
    ///
    /// # Errors
    /// The status that the client receives; it makes its calls on the NFS connection.
    fn call_socket(&self, bound: &Bound) -> Result<OwnedFd, OpenStatus> {
        let _ = bound;
        Err(OpenStatus::TryWire)
    }

    /// A lane has ended; `why` is the reason in words. Runs on the lane's own thread, before the lane leaves
    /// the status.
    fn ended(&self, bound: &Bound, why: &str) {
        let _ = (bound, why);
    }
}

/// The outcome of a nonce ([`LaneServer::answer`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceOutcome {
    /// Its client has a lane now and was sent Local.
    Local,
    /// No client has registered it. Where the server may search, another thread may still find the client.
    Unknown,
    /// Several clients have registered it: none gets a lane.
    Ambiguous,
    /// It was used before.
    Spent,
    /// The limit of lanes is reached, for this user or in total.
    TooMany,
    /// The server is stopping.
    Draining,
    /// The client disconnected before it could be sent Local, or the system had no memory or thread for a
    /// lane.
    Failed,
}

/// The bounds of a lane server. Unless stated otherwise, the local users share each of them
/// ([`fairness::Shares`]), and a quarter is reserved for root of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLimits {
    /// Connections that aren't lanes yet. Default 256.
    pub waiting: usize,
    /// How long a connection may wait to become a lane, and how long a nonce is valid. Default 10 s.
    pub waiting_life: Duration,
    /// Used nonces that are remembered, for as long as a nonce is valid. Default 4096.
    pub spent: usize,
    /// Lanes, each with a thread and two descriptors. Default 512.
    pub lanes: usize,
    /// Open grants of all lanes. Each takes some hundred bytes of memory and no descriptor of this process.
    /// Default 65,536.
    pub grants: usize,
    /// Files that are being opened for a client or that it hasn't acknowledged: descriptors of this process,
    /// in its table or in flight (`RLIMIT_NOFILE`). Default 4096.
    pub under_way: usize,
    /// Open grants of one lane, shared by its users. Default 16,384.
    pub lane_grants: u32,
    /// Opens that a client may have in flight at once. Default 64.
    pub outstanding: u32,
    /// How long a client may take to acknowledge a grant. Default 10 s.
    pub receipt: Duration,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self {
            waiting: 256,
            waiting_life: Duration::from_secs(10),
            spent: 4096,
            lanes: 512,
            grants: 65_536,
            under_way: 4096,
            lane_grants: 16_384,
            outstanding: 64,
            receipt: Duration::from_secs(10),
        }
    }
}

/// The options of a lane server.
#[derive(Debug, Clone)]
pub struct LaneOptions {
    /// The directory of the socket file, created (mode 0755) if missing; `None` for no socket file.
    pub run_dir: Option<PathBuf>,
    /// Whether to listen on the abstract socket `@samehost/<instance>`, too.
    pub abstract_socket: bool,
    /// The server instance.
    pub instance: Instance,
    /// Whether to search other network namespaces for waiting clients (needs CAP_SYS_ADMIN, without which
    /// nothing is searched).
    pub search_namespaces: bool,
    /// The bounds.
    pub limits: LaneLimits,
}

impl LaneOptions {
    /// Options with both sockets, searching, and default limits.
    #[must_use]
    pub fn new(run_dir: PathBuf, instance: Instance) -> Self {
        Self {
            run_dir: Some(run_dir),
            abstract_socket: true,
            instance,
            search_namespaces: true,
            limits: LaneLimits::default(),
        }
    }
}

/// Why a lane server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum LaneStartError {
    /// No listening socket could be opened.
    #[error("no lane socket: {0}")]
    NoSocket(String),
    /// A system call failed that every kernel supports.
    #[error("{what}: {error}")]
    Os {
        /// The system call.
        what: &'static str,
        /// The error.
        error: std::io::Error,
    },
}

/// A snapshot of a lane, for the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneInfo {
    /// What it is bound to.
    pub bound: Bound,
    /// The listening socket that the client used.
    pub through: String,
    /// When it was bound.
    pub since: SystemTime,
    /// Open grants.
    pub grants: u64,
    /// Grants since the lane began.
    pub granted: u64,
    /// Opens without a grant since the lane began, for any reason.
    pub refused: u64,
    /// I/O in flight on granted files, as counted by the client.
    pub in_flight: u64,
}
