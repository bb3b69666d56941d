//! Start of the parts: state directory, lane, TCP server.

use std::hash::Hasher as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::exposition::{MetricsEndpoint, Registry};
use exports::Exports;
use lane::{Instance, LaneOptions, LaneServer};
use recovery::{AcquireError, StateDirError, StateDirectory};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use store::{DescriptorLimits, HandleKey};

use super::listen;
use crate::authorization::admission::ExportAdmission;
use crate::export_table::sources::ExportSources;
use crate::export_table::{ExportTable, StoreSettings};
use crate::lifecycle::cluster::MARKS;
use crate::lifecycle::config::{Config, LaneOffer, default_state_dir};
use crate::lifecycle::descriptors::Descriptors;
use crate::lifecycle::errors::StartError;
use crate::lifecycle::monitor::{self, StartMonitor};
use crate::lifecycle::running::RunningServer;
use crate::programs::lane_grants::LaneGrantService;
use crate::programs::localio::Localio;
use crate::programs::mount3::Mount3;
use crate::programs::nfs3::{Nfs3, Nfsacl};
use crate::programs::nfs4::Nfs4;
use crate::service::Service;
use crate::status::metrics::ServerCollector;

/// How often what another server has is tried again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The server owner that NFSv4 clients see: the same after a restart with the same state directory and
/// addresses. The addresses distinguish servers that share a directory: clients treat servers with the same
/// owner as one (RFC 8881 section 2.10.5), and use the sessions of either with both. On port 0 it is another
/// one for each `instance`.
pub(crate) fn identity(key: &[u8; 16], config: &Config, instance: &Instance) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(b"NFSv4 server owner");
    if let Some(cluster) = &config.cluster {
        // The nodes may have the same addresses, each on its host.
        hasher.write(cluster.node.as_bytes());
        return hasher.finish128().as_bytes();
    }
    config.listen.iter().for_each(|address| hasher.write(address.to_string().as_bytes()));
    if has_free_port(config) {
        hasher.write(instance);
    }
    hasher.finish128().as_bytes()
}

/// Whether the server has another address at each start, so that no client finds it again.
pub(crate) fn has_free_port(config: &Config) -> bool {
    config.listen.iter().any(|address| address.port() == 0)
}

/// The server scope that NFSv4 clients see: the same on all servers of a cluster, whose file handles are the
/// same. A server by itself is its own scope.
pub(crate) fn scope(key: &[u8; 16], config: &Config, identity: [u8; 16]) -> [u8; 16] {
    if config.cluster.is_none() {
        return identity;
    }
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(b"NFSv4 server scope");
    hasher.finish128().as_bytes()
}

/// The exports, of which there is one at least.
pub(crate) fn read_exports(config: &Config) -> Result<Exports, StartError> {
    let exports = ExportSources::of(config).read()?;
    if exports.list().is_empty() { Err(StartError::NoExports) } else { Ok(exports) }
}

/// Fails without /proc.
pub(crate) fn require_proc() -> Result<(), StartError> {
    let proc = std::fs::metadata("/proc/self/fd").map_err(sys::proc_error);
    proc.map(drop).map_err(|source| StartError::NoProc { source })
}

/// What the stores have in common: this key, and their share of the descriptors.
pub(crate) fn store_settings(config: &Config, key: [u8; 16], descriptors: &Descriptors) -> StoreSettings {
    let Descriptors { nodes, data, state: preserved, .. } = *descriptors;
    StoreSettings {
        key: HandleKey::new(key),
        verifier: Arc::default(),
        limits: DescriptorLimits { nodes, data, preserved },
        slots: Arc::default(),
        reserved_name: config.cluster.is_some().then_some(MARKS),
    }
}

/// Opens the exported directories, of which one at least is served or will be.
pub(crate) fn open_table(exports: &Exports, opening: &StoreSettings) -> Result<ExportTable, StartError> {
    let table = ExportTable::open(exports, opening, &ExportTable::default());
    if table.entries().iter().all(|entry| entry.store.is_err() && !entry.awaits_mount()) {
        return Err(StartError::NothingServed(table.unserved()));
    }
    Ok(table)
}

/// The path of the state directory.
pub(crate) fn state_path(config: &Config) -> Result<PathBuf, StartError> {
    config.state_dir.clone().or_else(default_state_dir).ok_or_else(|| StartError::StateDir {
        path: PathBuf::from("(none)"),
        source: io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set"),
    })
}

pub(crate) fn unusable(error: StateDirError) -> StartError {
    StartError::StateDir { path: error.path, source: error.source }
}

/// Starts the lane. If this fails, clients use the wire.
pub(crate) fn start_lane(
    config: &Config,
    descriptors: &Descriptors,
    instance: Instance,
    service: &Arc<Service>,
    problems: &mut Vec<String>,
) -> Option<Arc<LaneServer>> {
    if config.lane == LaneOffer::Off {
        return None;
    }
    let mut options = LaneOptions::new(config.run_dir.clone(), instance);
    options.limits.lanes = descriptors.lanes;
    options.limits.waiting = descriptors.pending_lanes;
    options.limits.under_way = descriptors.under_way();
    options.limits.grants = config.lane_grants;
    options.limits.lane_grants = u32::try_from(config.lane_grants / 4).unwrap_or(u32::MAX).max(1);
    match LaneServer::start(options, Arc::new(LaneGrantService::new(Arc::clone(service)))) {
        Ok(lane) => {
            let lane = Arc::new(lane);
            service.trees.set_lanes(&lane);
            let trees = Arc::clone(&service.trees);
            service.state.on_denial(move || trees.recall(|_| true));
            Some(lane)
        }
        Err(error) => {
            problems.push(format!("no lane: {error}; clients of this host use the wire"));
            None
        }
    }
}

pub(crate) fn start_wire(
    config: &Config,
    descriptors: &Descriptors,
    service: &Arc<Service>,
    lane: Option<&Arc<LaneServer>>,
) -> Result<rpc::server::Server, StartError> {
    let limits = rpc::server::Limits {
        threads: config.threads,
        max_connections: descriptors.connections,
        ..rpc::server::Limits::default()
    };
    let mut builder = rpc::server::Server::builder()
        .limits(limits)
        .admission(Arc::new(ExportAdmission(Arc::clone(service))))
        .program(Arc::new(Nfs3(Arc::clone(service))))
        .program(Arc::new(Nfs4(Arc::clone(service))))
        .program(Arc::new(Nfsacl(Arc::clone(service))))
        .program(Arc::new(Mount3(Arc::clone(service))));
    if let Some(lane) = lane {
        builder = builder.program(Arc::new(Localio::new(Arc::clone(service), Arc::clone(lane))));
    }
    for address in listen::expand(&config.listen).map_err(|source| cannot_listen(&config.listen, source))? {
        builder = builder.bind(address);
    }
    let wire = builder.start().map_err(|error| match error {
        rpc::server::StartError::Listen { address, source } => cannot_listen(&[address], source),
        rpc::server::StartError::Thread(source) => StartError::Threads { source },
        rpc::server::StartError::Events(source) => StartError::System { what: "an event queue", source },
    })?;
    service.call_sockets.get_or_init(|| wire.call_sockets());
    Ok(wire)
}

/// Starts the endpoint of the metrics, if one is configured.
pub(crate) fn start_metrics(running: &Arc<RunningServer>) -> Result<Option<MetricsEndpoint>, StartError> {
    let Some(address) = running.config.lock().metrics.clone() else { return Ok(None) };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ServerCollector(Arc::downgrade(running))));
    match MetricsEndpoint::start(&address, registry) {
        Ok(endpoint) => Ok(Some(endpoint)),
        Err(source) => Err(StartError::Metrics { address, source }),
    }
}

/// The wait for the server that this one replaces: up to [`Config::takeover`] for all that it still has.
pub(crate) struct Takeover<'a> {
    config: &'a Config,
    monitor: &'a dyn StartMonitor,
    deadline: Instant,
    has_waited: bool,
}

impl<'a> Takeover<'a> {
    pub(crate) fn new(config: &'a Config, monitor: &'a dyn StartMonitor) -> Self {
        Self { config, monitor, deadline: Instant::now() + config.takeover, has_waited: false }
    }

    /// Waits until no other server uses the state directory. A predecessor that drains may still record
    /// clients there and release their locks.
    pub(crate) fn state_directory(&mut self) -> Result<Arc<StateDirectory>, StartError> {
        let path = state_path(self.config)?;
        loop {
            match StateDirectory::acquire(&path) {
                Ok(directory) => return Ok(Arc::new(directory)),
                Err(AcquireError::Unusable(error)) => return Err(unusable(error)),
                Err(AcquireError::InUse { path, holder }) => {
                    let what = format!("state directory {} is in use by {holder}", path.display());
                    self.wait(&what, || StartError::StateDirInUse { path, holder })?;
                }
            }
        }
    }

    /// Waits until the addresses are free.
    pub(crate) fn addresses(&mut self) -> Result<(), StartError> {
        for address in &self.config.listen {
            while let Err(source) = listen::is_free(*address) {
                if source.kind() != io::ErrorKind::AddrInUse {
                    return Err(cannot_listen(&[*address], source));
                }
                self.wait(&format!("{address} is in use"), || cannot_listen(&[*address], source))?;
            }
        }
        Ok(())
    }

    /// Waits a moment; fails when the time is up.
    fn wait(&mut self, what: &str, failed: impl FnOnce() -> StartError) -> Result<(), StartError> {
        monitor::check(self.monitor)?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed());
        }
        if !self.has_waited {
            self.has_waited = true;
            let seconds = self.config.takeover.as_secs();
            tracing::warn!(
                "{what}; waiting for up to {seconds} s, in case the server that has it is stopping"
            );
            self.monitor.begins(&format!("waiting for another server: {what}"), left);
        }
        std::thread::sleep(LOOK_AGAIN.min(left));
        Ok(())
    }
}

pub(crate) fn cannot_listen(addresses: &[SocketAddr], source: io::Error) -> StartError {
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    StartError::Listen { addresses, source }
}
