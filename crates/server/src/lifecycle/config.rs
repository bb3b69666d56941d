//! What a server is told at start.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exports::IoMode;

use crate::lifecycle::lock_store::LockStore;

/// The port of NFS, for all three programs.
pub const DEFAULT_PORT: u16 = 2049;

/// Where the server's Unix sockets live unless told otherwise.
pub const DEFAULT_RUN_DIR: &str = "/run/samehost";

/// What a server is told at start. Everything but the exports has a sensible default.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on, one port for all programs; port 0 picks a free one. Default `[::]:2049`, which
    /// takes IPv4 clients, too; where the kernel has no IPv6, an unspecified IPv6 address falls back to
    /// `0.0.0.0`.
    pub listen: Vec<SocketAddr>,
    /// Lines in exports(5) syntax, each an `--export`.
    pub exports: Vec<String>,
    /// Files in exports(5) syntax; read again by [`Server::reload`](crate::Server::reload).
    pub export_files: Vec<PathBuf>,
    /// Where the lane's and the status socket are made (default `/run/samehost`); created if missing.
    pub run_dir: PathBuf,
    /// Where the handle key is kept; `None` chooses [`default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// Whether to offer the lane at all (`--lane off` clears it).
    pub lane: bool,
    /// Open files that clients of this host may have over the lane, all of them together. Local users share
    /// them, one client gets a quarter at most, and the users of one client share that.
    pub lane_grants: usize,
    /// How files are read where no export says otherwise (`read_io=`).
    pub read_io: IoMode,
    /// How files are written where no export says otherwise (`write_io=`).
    pub write_io: IoMode,
    /// Whether to register MOUNT and NFS with the rpcbind of this host, where one runs.
    pub rpcbind: bool,
    /// Worker threads for calls on the wire, 1 to 256.
    pub threads: usize,
    /// How many TCP connections there may be at once.
    pub max_connections: usize,
    /// How long an NFSv4 client may be silent before others may have what it has open and locked: its lease.
    pub lease: Duration,
    /// The domain behind users' and groups' names in NFSv4; `None` takes idmapd's, or the host's.
    pub nfs4_domain: Option<String>,
    /// Whether NFSv4 clients are told owners and groups by name (`name@domain`) instead of by number.
    pub nfs4_names: bool,
    /// Who keeps NFSv4's locks when this process is gone, and what the last one has left there.
    pub lock_store: Option<Arc<LockStore>>,
    /// How long [`Server::start`](crate::Server::start) waits for addresses on which another server listens
    /// that may be stopping (default 10 s; zero: not at all).
    pub takeover: Duration,
    /// How long [`Server::stop`](crate::Server::stop) waits for lanes, then for calls in execution.
    pub grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT))],
            exports: Vec::new(),
            export_files: Vec::new(),
            run_dir: PathBuf::from(DEFAULT_RUN_DIR),
            state_dir: None,
            lane: true,
            lane_grants: 65_536,
            read_io: IoMode::Buffered,
            write_io: IoMode::Buffered,
            rpcbind: true,
            threads: 16,
            max_connections: 4096,
            lease: Duration::from_secs(90),
            nfs4_domain: None,
            nfs4_names: false,
            lock_store: None,
            takeover: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        }
    }
}

/// Where the handle key is kept unless told otherwise: `/var/lib/samehost` for root, else
/// `$XDG_STATE_HOME/samehost` or `~/.local/state/samehost`; `None` if none of these can be named.
#[must_use]
pub fn default_state_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/samehost"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("samehost"))
}
