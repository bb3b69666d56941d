//! Starting, reloading and stopping a server.

pub(crate) mod change;
pub mod config;
pub(crate) mod descriptors;
pub(crate) mod errors;
pub(crate) mod listen;
pub(crate) mod lock_store;
pub(crate) mod process;
pub(crate) mod reloads;
pub(crate) mod running;
pub(crate) mod stale_sockets;
pub(crate) mod start;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store::HandleKey;

use crate::authorization::access::Gate;
use crate::export_table::io_modes::Switches;
use crate::export_table::mounts;
use crate::export_table::sources::Sources;
use crate::export_table::{Opening, Table};
use crate::lifecycle::descriptors::{Demands, Descriptors};
use crate::lifecycle::errors::{ReloadError, StartError};
use crate::lifecycle::reloads::Reloads;
use crate::lifecycle::running::{Reloaded, Running};
use crate::lifecycle::stale_sockets::Leftovers;
use crate::lifecycle::start::{
    handle_key, identity, start_lane, start_wire, state_directory, wait_for_addresses,
};
use crate::nfs4::{Owners, StateManager};
use crate::programs::drc::Drc;
use crate::programs::localio::{Neighbours, Notes};
use crate::programs::mount3::Mounts;
use crate::programs::rpcbind::{self, Registrations};
use crate::programs::running_writes::Writes;
use crate::service::Service;
use crate::status::Counters;
use crate::{Config, Status};

/// A running server. Dropping it stops it without grace; [`Server::stop`] is the graceful way.
///
/// Its life:
/// 1. [`Server::start`]: the exports are read and their stores opened, the lane listens, the wire listens
///    (from now on clients are answered), rpcbind is told, the status socket listens.
/// 2. [`Server::reload`], any number of times.
/// 3. [`Server::stop`]: rpcbind is told, the lanes drain, copies stop, the calls in execution finish, the
///    sockets go.
pub struct Server {
    // In the order in which dropping them is right.
    status_socket: Option<control::Socket>,
    registrations: Option<Registrations>,
    _watch: Option<mounts::Watch>,
    running: Arc<Running>,
    reloads: Arc<Reloads>,
}

impl Server {
    /// Starts everything that `config` names; when this returns, clients are answered.
    ///
    /// Sets the process's umask to 0 and its limit of open files to the most it may have.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let limit = process::prepare();
        let sources = Sources::of(&config);
        let exports = sources.read()?;
        if exports.list().is_empty() {
            return Err(StartError::NoExports);
        }
        let proc = std::fs::metadata("/proc/self/fd").map_err(sys::proc_error);
        proc.map_err(|source| StartError::NoProc { source })?;
        wait_for_addresses(&config)?;
        let demands = Demands {
            threads: config.threads,
            exports: exports.list().len(),
            connections: config.max_connections,
        };
        let descriptors = Descriptors::divide(limit, demands)?;
        let key = handle_key(&config)?;
        let Descriptors { nodes, data, state: preserved, .. } = descriptors;
        let limits = store::DescriptorLimits { nodes, data, preserved };
        let opening = Opening { key: HandleKey::new(key), verifier: Arc::default(), limits };
        let instance = lane::nonce::random_instance()
            .map_err(|source| StartError::System { what: "random numbers", source })?;
        let table = Table::open(&exports, &opening, &Table::default());
        if table.entries().iter().all(|entry| entry.store.is_err()) {
            return Err(StartError::NothingServed(table.unserved()));
        }
        let mut problems: Vec<_> = descriptors.note(demands).into_iter().collect();
        let identity = identity(&key, &config);
        let (records, recovered) = recovery::open_client_records(&state_directory(&config)?, &identity);
        recovered.damaged.iter().for_each(|what| tracing::error!("no record of an NFSv4 client: {what}"));
        problems.extend(recovered.problem(records.is_some()));
        let service = Arc::new(Service {
            gate: Gate::new(table, Switches::new(config.read_io, config.write_io)),
            counters: Counters::default(),
            drc: Drc::default(),
            writes: Writes::default(),
            mounts: Mounts::default(),
            state: StateManager::new(identity, config.lease, preserved, records, recovered)
                .map_err(|source| StartError::System { what: "a thread for callbacks", source })?,
            owners: Owners::new(config.nfs4_domain.clone(), config.nfs4_names),
            notes: Notes::default(),
            neighbours: Neighbours::default(),
            verifier: Arc::clone(&opening.verifier),
        });
        if let Some(store) = &config.lock_store {
            service.state.keep_locks(Arc::clone(store));
        }
        service.state.callbacks.paths.with(|paths| paths.limit_connections(descriptors.callbacks));
        let lane = start_lane(&config, &descriptors, instance, &service, &mut problems);
        let wire = start_wire(&config, &descriptors, &service, lane.as_ref())?;
        let registrations = config.rpcbind.then(|| rpcbind::register(&wire.local_addrs())).flatten();
        let registrations = registrations.map(|(registrations, more)| {
            problems.extend(more);
            registrations
        });
        let running = Arc::new(Running {
            config,
            instance,
            since: Instant::now(),
            sources,
            opening,
            service,
            lane,
            wire,
            problems: Mutex::new(problems),
            reloading: Mutex::new(()),
        });
        let status_socket = running.status_socket();
        let watch = mounts::Watch::start(Arc::downgrade(&running)).map_err(|error| {
            let problem =
                format!("mounts that change are noticed at a reload only: /proc/self/mountinfo: {error}");
            running.problems.lock().push(problem);
        });
        Ok(Self { _watch: watch.ok(), status_socket, registrations, running, reloads: Arc::default() })
    }

    /// The addresses it listens on, with the real ports.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.running.wire.local_addrs()
    }

    /// This run of the server, as the lane announces it.
    #[must_use]
    pub fn instance(&self) -> [u8; 16] {
        self.running.instance
    }

    /// What this server can't do, one sentence each; to be said at start.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.running.notices()
    }

    /// Reads the exports again. Connections, lanes and handles of what is still exported stay; who may do
    /// less than before is asked anew at his next call, and the grants on his lanes end.
    ///
    /// # Errors
    /// [`ReloadError`]; the exports are then as they were.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.running.reload()
    }

    /// Has a thread of its own [reload](Self::reload), so that the caller isn't held up by an export on a
    /// mount that hangs. One at a time: what is asked for meanwhile is one more. What came of it goes to the
    /// log (`tracing`).
    pub fn reload_in_background(&self) {
        let running = Arc::downgrade(&self.running);
        let started = self.reloads.request(move || {
            let Some(running) = running.upgrade() else { return };
            match running.reload() {
                Ok(reloaded) => {
                    tracing::info!(
                        added = ?reloaded.added, removed = ?reloaded.removed, kept = reloaded.kept.len(),
                        "exports read again"
                    );
                    reloaded.notices.iter().for_each(|notice| tracing::warn!("{notice}"));
                }
                Err(error) => tracing::error!("exports not changed: {error}"),
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "exports not changed: no thread to read them");
        }
    }

    /// The sockets that are left in the run directory if the process ends before [`Server::stop`] has
    /// returned.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        let running = &self.running;
        Leftovers {
            run_dir: running.config.run_dir.clone(),
            instance: lane::nonce::hex(&running.instance).to_string(),
        }
    }

    /// A snapshot.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// Stops gracefully: drains the lanes, stops copies that go on behind their answer, then drains the calls
    /// in execution, each bounded by [`Config::grace`], unsets the rpcbind registrations and removes the
    /// sockets.
    pub fn stop(mut self) {
        drop(self.registrations.take());
        let grace = self.running.config.grace;
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
        drop(self.status_socket.take());
    }

    /// Serves until SIGTERM or SIGINT, then stops gracefully; SIGHUP reloads. What a reload did or why it
    /// failed goes to the log (`tracing`).
    ///
    /// # Errors
    /// When the signal handlers can't be installed.
    pub fn run_until_signalled(self) -> io::Result<()> {
        let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT])?;
        for signal in signals.forever() {
            if signal != SIGHUP {
                break;
            }
            self.reload_in_background();
        }
        self.stop();
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both are without effect after a graceful stop.
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
