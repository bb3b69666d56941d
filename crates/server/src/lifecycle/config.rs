//! The configuration of a server.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use control::exposition::MetricsAddress;
use exports::{Exports, IoMode};

use crate::export_table::sources::ExportSources;
use crate::lifecycle::cluster::AddressHook;
use crate::lifecycle::descriptors::Demands;
use crate::lifecycle::errors::ReloadError;
use crate::service::nfs4_state::LockStore;

/// The port of NFS, which all programs share.
pub const DEFAULT_PORT: u16 = 2049;

/// The default directory of the server's Unix sockets.
pub const DEFAULT_RUN_DIR: &str = "/run/samehost";

/// What clients of this host are offered beside NFS (`--lane`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneOffer {
    /// `on`: open files and whole directories.
    #[default]
    On,
    /// `files`: open files only.
    Files,
    /// `off`: nothing. The server has no lane.
    Off,
}

impl LaneOffer {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::On, Self::Files, Self::Off];

    const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Files => "files",
            Self::Off => "off",
        }
    }
}

impl FromStr for LaneOffer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|offer| offer.name() == name);
        known.ok_or_else(|| format!("{name:?}: write on, files or off"))
    }
}

impl fmt::Display for LaneOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a server's configuration again, for [`Server::reload`](crate::Server::reload).
pub trait ConfigSource: fmt::Debug + Send + Sync {
    /// The present configuration. May block on a file.
    ///
    /// # Errors
    /// In words for the administrator; the server then keeps its configuration.
    fn read(&self) -> Result<NewConfig, String>;
}

/// A configuration that was read again.
#[derive(Debug, Clone)]
pub struct NewConfig {
    /// The configuration. A running server applies `exports`, `export_files`, `read_io`, `write_io` and
    /// `grace`.
    pub config: Config,
    /// The settings among the others that were changed since the server's start.
    pub needs_restart: Vec<String>,
}

/// The cluster of which a server is a node. Its handle key and client records are in RADOS.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// How to reach RADOS.
    pub settings: rados::Settings,
    /// The server's name in the grace database.
    pub node: String,
    /// How the addresses of drained nodes are moved.
    pub address_hook: AddressHook,
    /// Whether NFSv4.0 is served. Its clients never say that they have reclaimed everything, so a grace
    /// period that this server begins lasts for a lease.
    pub has_v40: bool,
}

/// The configuration of a server. Everything but the exports has a default.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses to listen on, one port for all programs; port 0 picks a free one. Default `[::]:2049`, which
    /// accepts IPv4 clients, too. Without IPv6 in the kernel, an unspecified IPv6 address falls back to
    /// `0.0.0.0`.
    pub listen: Vec<SocketAddr>,
    /// Lines in exports(5) syntax (`--export`).
    pub exports: Vec<String>,
    /// Files in exports(5) syntax, reread by [`Server::reload`](crate::Server::reload). Of a directory all
    /// files are read whose names end in `.exports`.
    pub export_files: Vec<PathBuf>,
    /// Whether /etc/exports and /etc/exports.d are read, too, as far as they exist; by default not.
    pub system_exports: bool,
    /// The directory of the lane's and the control socket (default `/run/samehost`); created if missing.
    pub run_dir: PathBuf,
    /// The directory of the handle key and NFSv4's records; `None` chooses [`default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// What clients of this host are offered.
    pub lane: LaneOffer,
    /// How many open files the clients of this host may have over the lane altogether. Local users share
    /// them; one client gets a quarter at most, which its users share.
    pub lane_grants: usize,
    /// The I/O mode of reads in exports without `read_io=`.
    pub read_io: IoMode,
    /// The I/O mode of writes in exports without `write_io=`.
    pub write_io: IoMode,
    /// Whether to register MOUNT and NFS with this host's rpcbind, if one runs.
    pub rpcbind: bool,
    /// Worker threads for calls on the wire, 1 to 256.
    pub threads: usize,
    /// How many TCP connections may be open at once.
    pub max_connections: usize,
    /// The lease of NFSv4 clients: how long a client may be silent before it loses its opens and locks to
    /// others.
    pub lease: Duration,
    /// The domain of users' and groups' names in NFSv4; `None` takes idmapd's, or the host's.
    pub nfs4_domain: Option<String>,
    /// Whether NFSv4 clients get owners and groups by name (`name@domain`) instead of by number.
    pub nfs4_names: bool,
    /// The service manager that keeps NFSv4's locks across restarts.
    pub lock_store: Option<Arc<LockStore>>,
    /// The cluster of which this server is a node; `None` for a server by itself.
    pub cluster: Option<ClusterConfig>,
    /// Reads the configuration again at a reload. Without it, only the exports files are read again.
    pub source: Option<Arc<dyn ConfigSource>>,
    /// Where metrics for Prometheus are served by HTTP; `None`: nowhere.
    pub metrics: Option<MetricsAddress>,
    /// How long [`Server::start`](crate::Server::start) waits for a state directory and addresses that are in
    /// use, in case the server that uses them is stopping (default 20 s, which is longer than a stop with the
    /// default grace; zero: not at all).
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
            system_exports: false,
            run_dir: PathBuf::from(DEFAULT_RUN_DIR),
            state_dir: None,
            lane: LaneOffer::On,
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
            cluster: None,
            source: None,
            metrics: None,
            takeover: Duration::from_secs(20),
            grace: Duration::from_secs(5),
        }
    }
}

impl Config {
    /// Reads and parses the exports, and opens no exported directory.
    ///
    /// # Errors
    /// [`ReloadError`].
    pub fn read_exports(&self) -> Result<Exports, ReloadError> {
        Ok(ExportSources::of(self).read()?)
    }

    /// What it needs descriptors for.
    pub(crate) fn demands(&self, exports: &Exports) -> Demands {
        let (threads, connections) = (self.threads, self.max_connections);
        Demands { threads, exports: exports.list().len(), connections }
    }
}

/// The default state directory: `/var/lib/samehost` for root, else `$XDG_STATE_HOME/samehost` or
/// `~/.local/state/samehost`; `None` if neither variable is an absolute path.
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
