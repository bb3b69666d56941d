//! The life cycle of a server: start, reload, stop.

pub(crate) mod change;
mod check;
pub(crate) mod cluster;
pub mod config;
pub(crate) mod descriptors;
pub(crate) mod errors;
mod export_changes;
pub(crate) mod listen;
pub(crate) mod monitor;
mod mount_watch;
pub(crate) mod process;
pub(crate) mod reloads;
pub(crate) mod running;
pub(crate) mod stale_sockets;
pub(crate) mod start;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, io};

use control::exposition::{MetricsAddress, MetricsEndpoint};
use parking_lot::Mutex;
use recovery::Recovered;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::authorization::access::AccessControl;
use crate::export_table::io_modes::IoModeSettings;
use crate::lifecycle::cluster::{CephSession, ClusterNode, JoinedCluster};
use crate::lifecycle::config::{Config, LaneOffer};
use crate::lifecycle::descriptors::Descriptors;
use crate::lifecycle::errors::{ReloadError, StartError};
use crate::lifecycle::monitor::StartMonitor;
use crate::lifecycle::mount_watch::MountWatch;
use crate::lifecycle::reloads::Reloads;
use crate::lifecycle::running::{Reloaded, RunningServer};
use crate::lifecycle::stale_sockets::StaleSockets;
use crate::lifecycle::start::{
    Takeover, has_free_port, identity, open_table, read_exports, require_proc, scope, start_lane,
    start_metrics, start_wire, store_settings, unusable,
};
use crate::programs::rpcbind::{self, Registrations};
use crate::service::cluster_gate::ClusterGate;
use crate::service::drc::Drc;
use crate::service::nfs4_state::{COURTESY, StateManager};
use crate::service::{AsyncClients, LaneAttempts, MountList, Owners, Service, Trees};
use crate::status::{Counters, Status};

/// How long it may take to read the records of clients: there may be thousands, each in a file.
const READ_RECORDS: Duration = Duration::from_secs(120);

/// A running server. Dropping it stops it without grace; [`Server::stop`] is the graceful way.
///
/// 1. [`Server::start`]: reads the exports, waits until no other server uses the state directory and the
///    addresses, opens the stores, listens for lanes and for TCP connections
///    (from now on clients are answered), registers with rpcbind, and opens the control socket.
/// 2. [`Server::reload`], any number of times.
/// 3. [`Server::stop`]: unregisters, drains the lanes, stops copies, finishes running calls, and removes the
///    sockets. Another server gets the state directory when no call is left, or the process has ended.
pub struct Server {
    // In the order in which they must be dropped.
    node: Option<ClusterNode>,
    status_socket: Option<control::Socket>,
    metrics: Option<MetricsEndpoint>,
    registrations: Option<Registrations>,
    _watch: Option<MountWatch>,
    running: Arc<RunningServer>,
    reloads: Arc<Reloads>,
}

impl Server {
    /// Starts everything that `config` names; when this returns, clients are answered.
    ///
    /// Sets the process's umask to 0 and its limit of open files to the hard limit.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_monitored(config, &())
    }

    /// As [`Server::start`], observed by `monitor`.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub fn start_monitored(config: Config, monitor: &dyn StartMonitor) -> Result<Self, StartError> {
        let limit = process::prepare();
        let exports = read_exports(&config)?;
        require_proc()?;
        let demands = config.demands(&exports);
        let descriptors = Descriptors::divide(limit, demands)?;
        let mut takeover = Takeover::new(&config, monitor);
        let (joined, state_directory, key) = match &config.cluster {
            Some(cluster) => {
                takeover.addresses()?;
                monitor.begins("connecting to the cluster", JoinedCluster::longest_connect(cluster));
                let joined = JoinedCluster::connect(cluster)?;
                let key = joined.key;
                (Some(joined), None, key)
            }
            None => {
                let directory = takeover.state_directory()?;
                takeover.addresses()?;
                let key = directory.handle_key().map_err(unusable)?;
                (None, Some(directory), key)
            }
        };
        monitor::check(monitor)?;
        let preserved = descriptors.state;
        let opening = store_settings(&config, key, &descriptors);
        let instance = lane::nonce::random_instance()
            .map_err(|source| StartError::System { what: "random numbers", source })?;
        let table = open_table(&exports, &opening)?;
        let mut problems: Vec<_> = descriptors.note(demands).into_iter().collect();
        let identity = identity(&key, &config, &instance);
        let session = match &joined {
            Some(_) => {
                let served = table.entries().iter().filter(|entry| entry.store.is_ok());
                let paths: Vec<_> = served.map(|entry| entry.export.path().to_owned()).collect();
                CephSession::of(&paths)?
            }
            None => None,
        };
        problems.extend(session.iter().flat_map(|session| session.notes(config.lock_store.is_some())));
        let (records, recovered) = match (&state_directory, &joined) {
            (Some(_), _) if has_free_port(&config) => (None, Recovered::default()),
            (Some(directory), _) => {
                monitor.begins("reading the records of NFSv4 clients", READ_RECORDS);
                recovery::open_client_records(directory, &identity)
            }
            // Clients reclaim when the cluster is in grace.
            (None, joined) => {
                let records = |joined: &JoinedCluster| Box::new(Arc::clone(&joined.records)) as Box<_>;
                (joined.as_ref().map(records), Recovered::default())
            }
        };
        monitor::check(monitor)?;
        recovered.damaged.iter().for_each(|what| tracing::error!("no record of an NFSv4 client: {what}"));
        problems.extend(recovered.problem(records.is_some()));
        // Locks of a client that doesn't come back exclude the clients of a cluster's other servers. This one
        // can't see those: the client may be late by another lease.
        let courtesy = if joined.is_some() { config.lease } else { COURTESY };
        let service = Arc::new(Service {
            access: AccessControl::new(table, IoModeSettings::new(config.read_io, config.write_io)),
            counters: Counters::default(),
            write_drc: Drc::for_writes(),
            drc: Drc::for_other_calls(),
            mounts: MountList::default(),
            state: StateManager::new(
                identity,
                scope(&key, &config, identity),
                (config.lease, courtesy),
                preserved,
                records,
                recovered,
            )
            .map_err(|source| StartError::System { what: "a thread for callbacks", source })?,
            owners: Owners::new(config.nfs4_domain.clone(), config.nfs4_names),
            cluster: config.cluster.as_ref().map(|cluster| ClusterGate::new(cluster.has_v40)),
            lane_attempts: LaneAttempts::default(),
            async_clients: AsyncClients::default(),
            trees: Trees::new(config.lane == LaneOffer::On),
            verifier: Arc::clone(&opening.verifier),
            call_sockets: OnceLock::new(),
            _state_directory: state_directory,
        });
        service.state.run(|engine, _| engine.enforce_grace(joined.is_some()));
        let mut keeps_locks = false;
        if let Some(store) = &config.lock_store {
            service.state.keep_locks(Arc::clone(store));
            // Also those that have come with this process's descriptors.
            keeps_locks = store.has_mark() && store.is_marked();
            match &session {
                Some(session) => {
                    problems.extend(session.mark(store).err().map(|error| {
                        format!("after a crash no client can reclaim: the mark can't be locked: {error}")
                    }));
                }
                None => store.unmark(),
            }
        }
        service.state.callbacks.paths.with(|paths| paths.limit_connections(descriptors.callbacks));
        let lane = start_lane(&config, &descriptors, instance, &service, &mut problems);
        let wire = start_wire(&config, &descriptors, &service, lane.as_ref())?;
        let registrations = config.rpcbind.then(|| rpcbind::register(&wire.local_addrs())).flatten();
        let registrations = registrations.map(|(registrations, more)| {
            problems.extend(more);
            registrations
        });
        let running = Arc::new(RunningServer {
            config: Mutex::new(config),
            instance,
            since: Instant::now(),
            opening,
            service,
            lane,
            wire,
            problems: Mutex::new(problems),
            reloading: Mutex::new(()),
            is_changing: AtomicBool::new(false),
        });
        let node = match (joined, session) {
            (Some(joined), Some(session)) => {
                let started = ClusterNode::start(&running, joined, session, keeps_locks);
                Some(started.map_err(|source| StartError::Threads { source })?)
            }
            _ => None,
        };
        let status_socket = running.status_socket();
        let metrics = start_metrics(&running)?;
        let watch = MountWatch::start(Arc::downgrade(&running)).map_err(|error| {
            let problem =
                format!("mounts that change are noticed at a reload only: /proc/self/mountinfo: {error}");
            running.problems.lock().push(problem);
        });
        Ok(Self {
            node,
            _watch: watch.ok(),
            status_socket,
            metrics,
            registrations,
            running,
            reloads: Arc::default(),
        })
    }

    /// The addresses it listens on, with the real ports.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.running.wire.local_addrs()
    }

    /// The identifier of this run of the server, as the lane announces it.
    #[must_use]
    pub fn instance(&self) -> [u8; 16] {
        self.running.instance
    }

    /// Where its metrics are served, with the real port.
    #[must_use]
    pub fn metrics_address(&self) -> Option<&MetricsAddress> {
        self.metrics.as_ref().map(MetricsEndpoint::address)
    }

    /// What this server can't do, one sentence each, to be reported at start.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.running.notices()
    }

    /// Rereads the configuration ([`Config::source`]) and the exports. Connections, lanes and handles of what
    /// is still exported stay valid. Clients that have fewer rights than before are checked at their next
    /// call, and their grants are recalled.
    ///
    /// # Errors
    /// [`ReloadError`]; the exports are unchanged.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.running.reload()
    }

    /// [Reloads](Self::reload) on a separate thread, so that an export on a mount that hangs doesn't block
    /// the caller. Reloads run one at a time; requests during a reload lead to one more. The result goes to
    /// the log (`tracing`). `finished` is called after each reload, whether it succeeded or not, with the
    /// status that the server then has.
    pub fn reload_in_background(&self, finished: impl Fn(&Status) + Send + Sync + 'static) {
        let running = Arc::downgrade(&self.running);
        let finished = Arc::new(finished);
        let on_thread = Arc::clone(&finished);
        let started = self.reloads.request(move || {
            let Some(running) = running.upgrade() else { return };
            match running.reload() {
                Ok(reloaded) => {
                    if reloaded.needs_restart.is_empty() {
                        tracing::info!("reloaded: {reloaded}");
                    } else {
                        tracing::warn!("reloaded: {reloaded}");
                    }
                    reloaded.notices.iter().for_each(|notice| tracing::warn!("{notice}"));
                }
                Err(error) => tracing::error!("exports not changed: {error}"),
            }
            on_thread(&running.status());
        });
        if let Err(error) = started {
            tracing::error!(%error, "exports not changed: no thread to read them");
            finished(&self.status());
        }
    }

    /// The sockets that remain in the run directory if the process ends before [`Server::stop`] has
    /// returned.
    #[must_use]
    pub fn stale_sockets(&self) -> StaleSockets {
        let running = &self.running;
        StaleSockets {
            run_dir: running.config.lock().run_dir.clone(),
            instance: lane::nonce::hex(&running.instance).to_string(),
        }
    }

    /// A snapshot of the server's state.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// The longest time that [`Server::stop`] takes, besides the few seconds that rpcbind may.
    #[must_use]
    pub fn longest_stop(&self) -> Duration {
        let leaving = if self.node.is_some() { cluster::STOP_TIMEOUT } else { Duration::ZERO };
        leaving + self.running.config.lock().grace * 3
    }

    /// Stops gracefully: removes the rpcbind registrations, drains the lanes, stops asynchronous copies, then
    /// drains the running calls, each step bounded by [`Config::grace`], and removes the sockets.
    pub fn stop(mut self) {
        drop(self.registrations.take());
        if let Some(node) = self.node.take() {
            let (clients, _, _) = self.running.service.state.run(|engine, _| engine.counts());
            node.stop(clients > 0);
        }
        let grace = self.running.config.lock().grace;
        if let Some(lane) = &self.running.lane
            && !lane.drain(grace)
        {
            tracing::warn!("local I/O was still under way when the time was up");
        }
        if !self.running.service.state.copies.stop(grace) {
            tracing::warn!("files were still being copied when the time was up");
        }
        if !self.running.wire.shutdown(grace) {
            tracing::warn!("calls were still under way when the time was up");
        }
        self.running.service.state.leave_locks();
        self.running.service.state.close_all();
        drop((self.status_socket.take(), self.metrics.take()));
    }

    /// Serves until SIGTERM or SIGINT, then stops gracefully; SIGHUP reloads. The result of a reload goes to
    /// the log (`tracing`).
    ///
    /// # Errors
    /// When the signal handlers can't be installed.
    pub fn run_until_signalled(self) -> io::Result<()> {
        let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT])?;
        for signal in signals.forever() {
            if signal != SIGHUP {
                break;
            }
            self.reload_in_background(|_| ());
        }
        self.stop();
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // None of these has an effect after a graceful stop.
        if let Some(lane) = &self.running.lane {
            lane.drain(Duration::ZERO);
        }
        self.running.service.state.copies.stop(Duration::ZERO);
        self.running.wire.shutdown(Duration::ZERO);
        self.running.service.state.leave_locks();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listen", &self.local_addrs()).finish_non_exhaustive()
    }
}
