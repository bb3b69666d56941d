//! The server's end of the lane.
//!
//! Threads: one at the door (connections that are not yet a lane, expiry, receipts that don't come), one for
//! each lane, and one that calls waiting clients in other network namespaces, where the server may do so.
//! None waits for a client while it holds a lock.

mod budget;
mod caller;
mod door;
mod hub;
mod lane;
mod lanes;
mod listen;

pub use hub::LaneServer;

use crate::about::{About, Changed};
use crate::nonce::Instance;
use crate::peer::PeerCredentials;
use crate::request::{OpenRequest, Status};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// An NFS connection, as the server that accepted it knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsConnection {
    /// Its number: unique in this server process, never used again. An address is used again, by the next
    /// connection of the same client or by another process, before the server has heard of the first one's
    /// end.
    pub number: u64,
    /// The client's end.
    pub peer: SocketAddr,
    /// Whom to charge for what it makes the server do.
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
    /// The client's end of the NFS connection: everything that the export rules look at is taken from here.
    pub nfs_peer: SocketAddr,
    /// The client process.
    pub process: PeerCredentials,
}

/// One file given away.
pub struct Granted {
    /// A file description of its own: opened for this grant, never used by the server or given to anybody
    /// else. A regular file, open for no more than was asked; never O_PATH, never a directory.
    pub file: OwnedFd,
    /// The file's NFS handle, at most [`crate::request::MAX_HANDLE`] bytes.
    pub handle: Vec<u8>,
    /// What else there is to know of it.
    pub about: About,
    /// As long as the file's ctime is that in `about`, the same Open would be granted again. Only such files
    /// are given ahead: the client has nothing but the ctime to see by that it may still use one.
    pub lasts: bool,
    /// For [`crate::Target::New`], and for nothing else: what has become of the directory.
    pub directory: Option<Box<Changed>>,
    /// Whatever the server keeps while the grant is open (a live grant counts as an open in its state):
    /// dropped when the client releases the grant, or goes, or never acknowledged it.
    pub held: Option<Box<dyn std::any::Any + Send>>,
}

/// Decides about an Open: the same check that the wire uses.
pub trait Granter: Send + Sync + 'static {
    /// Opens a file for the client, or says why not. Runs on the lane's own thread and may block. The peer
    /// rules ([`crate::peer::may_act_as`]) have been checked already; what the export says is this
    /// function's.
    ///
    /// # Errors
    /// The reason that the client gets.
    fn open(&self, bound: &Bound, request: &OpenRequest<'_>) -> Result<Granted, Status>;

    /// The write verifier that goes with every grant (RFC 1813 section 3.3.7).
    fn verifier(&self) -> [u8; 8];

    /// The client of this lane syncs itself what must be durable: what its NFS connection's calls change of
    /// names and attributes needn't be when they are answered. Until the lane has [`ended`](Self::ended).
    fn async_from_now(&self, bound: &Bound) {
        let _ = bound;
    }

    /// A lane has ended, `why` in words. Runs on the lane's own thread, before the lane leaves the status.
    fn ended(&self, bound: &Bound, why: &str) {
        let _ = (bound, why);
    }
}

/// What came of a nonce ([`LaneServer::answer`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Its client has a lane now, and has been told.
    Local,
    /// Nobody here registered it. Where the server may search, its client may still be found, by another
    /// thread.
    Unknown,
    /// More than one registered it: nothing is local.
    Ambiguous,
    /// It was used before.
    Spent,
    /// There are as many lanes already as there may be, of this user or altogether.
    TooMany,
    /// The server is stopping.
    Draining,
    /// The client went before it could be told, or the system had no memory or thread left for a lane.
    Failed,
}

/// The bounds of a lane server. Where nothing else is said, the local users share each of them
/// ([`fairness::Shares`]), and a quarter is kept for root of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections that have not become a lane (yet). Default 256.
    pub waiting: usize,
    /// How long a connection may wait to become a lane, and a nonce lives. Default 10 s.
    pub waiting_life: Duration,
    /// Nonces that found their lane and are remembered, for as long as a nonce lives. Default 4096.
    pub spent: usize,
    /// Lanes, and so lane threads, with two descriptors each. Default 512.
    pub lanes: usize,
    /// Open grants of all lanes: memory of some hundred bytes each, and no descriptors of this process.
    /// Default 65,536.
    pub grants: usize,
    /// Files that are being opened for a client, or that it has not acknowledged: descriptors of this
    /// process, in its table or on their way (`RLIMIT_NOFILE`). Default 4096.
    pub under_way: usize,
    /// Open grants of one lane; its users share them. Default 16,384.
    pub lane_grants: u32,
    /// Opens that a client may have under way at once. Default 64.
    pub outstanding: u32,
    /// How long a client may take to acknowledge a grant. Default 10 s.
    pub receipt: Duration,
}

impl Default for Limits {
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

/// How a lane server is started.
#[derive(Debug, Clone)]
pub struct LaneOptions {
    /// Where the socket file goes; `None` for no socket file. Created (mode 0755) if missing.
    pub run_dir: Option<PathBuf>,
    /// Whether to listen on the abstract socket `@samehost/<instance>`, too.
    pub abstract_socket: bool,
    /// This start of the server.
    pub instance: Instance,
    /// Whether to look for waiting clients in other network namespaces (needs CAP_SYS_ADMIN; without it
    /// nothing is looked for).
    pub search_namespaces: bool,
    /// The bounds.
    pub limits: Limits,
}

impl LaneOptions {
    /// Both sockets, searching, default limits.
    #[must_use]
    pub fn new(run_dir: PathBuf, instance: Instance) -> Self {
        Self {
            run_dir: Some(run_dir),
            abstract_socket: true,
            instance,
            search_namespaces: true,
            limits: Limits::default(),
        }
    }
}

/// Why a lane server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There's no socket at all on which a client could find us.
    #[error("no lane socket: {0}")]
    NoSocket(String),
    /// The kernel refused something that every kernel has.
    #[error("{what}: {error}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        error: std::io::Error,
    },
}

/// A lane, for the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneInfo {
    /// What it is bound to.
    pub bound: Bound,
    /// The way the client came.
    pub through: String,
    /// Since when.
    pub since: SystemTime,
    /// Open grants.
    pub grants: u64,
    /// Grants that were given since the lane began.
    pub granted: u64,
    /// Opens that got no file since the lane began, for whatever reason.
    pub refused: u64,
    /// I/O that the client says it has under way on granted files.
    pub in_flight: u64,
}
