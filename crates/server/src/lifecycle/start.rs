//! Start of the parts: handle key, lane, TCP server.

use std::hash::Hasher as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::exposition::{MetricsEndpoint, Registry};
use lane::{Instance, LaneOptions, LaneServer};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::listen;
use crate::authorization::admission::ExportAdmission;
use crate::lifecycle::config::{Config, LaneOffer, default_state_dir};
use crate::lifecycle::descriptors::Descriptors;
use crate::lifecycle::errors::StartError;
use crate::lifecycle::running::RunningServer;
use crate::programs::lane_grants::LaneGrantService;
use crate::programs::localio::Localio;
use crate::programs::mount3::Mount3;
use crate::programs::nfs3::{Nfs3, Nfsacl};
use crate::programs::nfs4::Nfs4;
use crate::service::Service;
use crate::status::metrics::ServerCollector;

/// How often an address in use is tried again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The server owner that NFSv4 clients see: the same after a restart with the same state directory and
/// addresses. The addresses distinguish servers that share a directory: clients treat servers with the same
/// owner as one (RFC 8881 section 2.10.5), and use the sessions of either with both.
pub(crate) fn identity(key: &[u8; 16], config: &Config) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(b"NFSv4 server owner");
    if let Some(cluster) = &config.cluster {
        // The nodes may have the same addresses, each on its host.
        hasher.write(cluster.node.as_bytes());
        return hasher.finish128().as_bytes();
    }
    config.listen.iter().for_each(|address| hasher.write(address.to_string().as_bytes()));
    hasher.finish128().as_bytes()
}

/// The server scope that NFSv4 clients see: the same on all servers of a cluster, whose file handles are the
/// same. A server by itself is its own scope.
pub(crate) fn scope(key: &[u8; 16], config: &Config) -> [u8; 16] {
    if config.cluster.is_none() {
        return identity(key, config);
    }
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(b"NFSv4 server scope");
    hasher.finish128().as_bytes()
}

/// The directory of persistent state.
pub(crate) fn state_directory(config: &Config) -> Result<PathBuf, StartError> {
    config.state_dir.clone().or_else(default_state_dir).ok_or_else(|| StartError::StateDir {
        path: PathBuf::from("(none)"),
        source: io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set"),
    })
}

pub(crate) fn handle_key(config: &Config) -> Result<[u8; 16], StartError> {
    let directory = state_directory(config)?;
    recovery::state_dir::handle_key(&directory)
        .map_err(|error| StartError::StateDir { path: error.path, source: error.source })
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

/// Waits until the addresses are free, up to [`Config::takeover`]: the server that this one replaces may
/// still be draining. Its state must not be read before.
pub(crate) fn wait_for_addresses(config: &Config) -> Result<(), StartError> {
    let deadline = Instant::now() + config.takeover;
    let mut said = false;
    for address in &config.listen {
        while let Err(source) = listen::is_free(*address) {
            if source.kind() != io::ErrorKind::AddrInUse || Instant::now() >= deadline {
                return Err(cannot_listen(&[*address], source));
            }
            if !said {
                let seconds = config.takeover.as_secs();
                tracing::warn!(
                    "{address} is in use; waiting for up to {seconds} s, in case the server that has it is \
                     stopping"
                );
                said = true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    Ok(())
}

fn cannot_listen(addresses: &[SocketAddr], source: io::Error) -> StartError {
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    StartError::Listen { addresses, source }
}
