//! Starting, reloading and stopping a server.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use lane::{Instance, LaneInfo, LaneOptions, LaneServer};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use store::{HandleKey, Privilege};

use crate::access::Gate;
use crate::config::default_state_dir;
use crate::counters::Counters;
use crate::drc::Drc;
use crate::granter::Grants;
use crate::localio::Localio;
use crate::mount3::{Mount3, Mounts};
use crate::nfs3::Nfs3;
use crate::rpcbind::{self, Registrations};
use crate::service::Service;
use crate::sources::{Sources, Unreadable};
use crate::status::{self, StatusSocket};
use crate::table::{Opening, Table};
use crate::{Config, Status, listen, process, state_dir};

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The exports are wrong.
    #[error("{}", list(.0))]
    Exports(Vec<exports::ParseError>),
    /// An exports file can't be read.
    #[error("exports file {path}: {source}")]
    ExportsFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing is exported.
    #[error("nothing is exported: give --export 'PATH CLIENT(OPTIONS)' or --exports FILE")]
    NoExports,
    /// An address can't be listened on.
    #[error("cannot listen on {addresses}: {source}")]
    Listen {
        /// The addresses.
        addresses: String,
        /// Why.
        source: io::Error,
    },
    /// The state directory or the key in it.
    #[error("state directory {path}: {source}; choose another with --state-dir")]
    StateDir {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run directory or a socket in it.
    #[error("run directory {path}: {source}; choose another with --run-dir or SAMEHOST_RUN_DIR")]
    RunDir {
        /// The directory or socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Anything else that the system refuses.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Why a reload changed nothing: the server goes on with the exports it has.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The exports are wrong.
    #[error("{}", list(.0))]
    Exports(Vec<exports::ParseError>),
    /// An exports file can't be read.
    #[error("exports file {path}: {source}")]
    ExportsFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn list(errors: &[exports::ParseError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// What a reload did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Exports that are new.
    pub added: Vec<PathBuf>,
    /// Exports that are gone.
    pub removed: Vec<PathBuf>,
    /// Exports whose store was kept, with whatever options they have now.
    pub kept: Vec<PathBuf>,
    /// What can't be served, in words.
    pub notices: Vec<String>,
}

/// A running server. Dropping it stops it without grace; [`Server::stop`] is the graceful way.
///
/// Its life:
/// 1. [`Server::start`]: the exports are read and their stores opened, the lane listens, the wire listens (from now
///    on clients are answered), rpcbind is told, the status socket listens.
/// 2. [`Server::reload`], any number of times.
/// 3. [`Server::stop`]: rpcbind is told, the lanes drain, the calls in execution finish, the sockets go.
pub struct Server {
    // In the order in which dropping them is right.
    status_socket: Option<StatusSocket>,
    registrations: Option<Registrations>,
    running: Arc<Running>,
}

/// What the status socket's thread needs, too.
struct Running {
    config: Config,
    instance: Instance,
    since: Instant,
    sources: Sources,
    opening: Opening,
    service: Arc<Service>,
    lane: Option<Arc<LaneServer>>,
    wire: rpc::server::Server,
    /// What didn't work at start.
    problems: Mutex<Vec<String>>,
    /// One reload at a time.
    reloading: Mutex<()>,
}

impl Server {
    /// Starts everything that `config` names; when this returns, clients are answered.
    ///
    /// Sets the process's umask to 0 and its limit of open files to the most it may have.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        process::prepare();
        let sources = Sources::of(&config);
        let exports = sources.read()?;
        if exports.list().is_empty() {
            return Err(StartError::NoExports);
        }
        let opening = Opening { key: HandleKey::new(handle_key(&config)?), verifier: Arc::default() };
        let instance = lane::nonce::random_instance()
            .map_err(|source| StartError::System { what: "random numbers", source })?;
        let table = Table::open(&exports, &opening, &Table::default());
        let service = Arc::new(Service {
            gate: Gate::new(table),
            counters: Counters::default(),
            drc: Drc::default(),
            writes: Drc::default(),
            mounts: Mounts::default(),
            verifier: Arc::clone(&opening.verifier),
        });
        let mut problems = Vec::new();
        let lane = start_lane(&config, instance, &service, &mut problems);
        let wire = start_wire(&config, &service, lane.as_ref())?;
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
        Ok(Self { status_socket, registrations, running })
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

    /// Reads the exports again. Connections, lanes and handles of what is still exported stay; who may do less than
    /// before is asked anew at his next call, and the grants on his lanes end.
    ///
    /// # Errors
    /// [`ReloadError`]; the exports are then as they were.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        self.running.reload()
    }

    /// A snapshot.
    #[must_use]
    pub fn status(&self) -> Status {
        self.running.status()
    }

    /// Stops gracefully: drains the lanes, then the calls in execution, each bounded by [`Config::grace`], unsets
    /// the rpcbind registrations and removes the sockets.
    pub fn stop(mut self) {
        drop(self.registrations.take());
        let grace = self.running.config.grace;
        if let Some(lane) = &self.running.lane
            && !lane.drain(grace)
        {
            tracing::warn!("local I/O was still under way when the time was up");
        }
        if !self.running.wire.shutdown(grace) {
            tracing::warn!("calls were still under way when the time was up");
        }
        drop(self.status_socket.take());
    }

    /// Serves until SIGTERM or SIGINT, then stops gracefully; SIGHUP reloads. What a reload did or why it failed
    /// goes to the log (`tracing`).
    ///
    /// # Errors
    /// When the signal handlers can't be installed.
    pub fn run_until_signalled(self) -> io::Result<()> {
        let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT])?;
        for signal in signals.forever() {
            if signal != SIGHUP {
                break;
            }
            match self.reload() {
                Ok(reloaded) => tracing::info!(?reloaded, "exports read again"),
                Err(error) => tracing::error!(%error, "exports stay as they were"),
            }
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
        self.running.wire.shutdown(Duration::ZERO);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listen", &self.local_addrs()).finish_non_exhaustive()
    }
}

impl Running {
    fn status_socket(self: &Arc<Self>) -> Option<StatusSocket> {
        let running = Arc::downgrade(self);
        let directory = &self.config.run_dir;
        let instance = lane::nonce::hex(&self.instance);
        // The umask is 0 by now.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        let started = made.and_then(|()| {
            // The socket's owner outlives its thread, but only just: a status asked in between is an empty one.
            StatusSocket::start(directory, &instance, move || {
                running.upgrade().map(|running| running.status())
            })
        });
        match started {
            Ok(socket) => Some(socket),
            Err(error) => {
                let problem = format!(
                    "no status socket in {}: {error}; choose another with --run-dir or SAMEHOST_RUN_DIR",
                    directory.display()
                );
                self.problems.lock().push(problem);
                None
            }
        }
    }

    fn notices(&self) -> Vec<String> {
        let mut notices = notices_of(&self.service.gate.table());
        notices.extend(self.lane.iter().flat_map(|lane| lane.problems().iter().cloned()));
        notices.extend(self.problems.lock().iter().cloned());
        notices
    }

    fn reload(&self) -> Result<Reloaded, ReloadError> {
        let _one = self.reloading.lock();
        let exports = self.sources.read()?;
        let before = self.service.gate.table();
        self.service.gate.replace(Table::open(&exports, &self.opening, &before));
        let after = self.service.gate.table();
        if let Some(lane) = &self.lane {
            let changed = |lane: &LaneInfo| self.service.gate.differs(&before, &after, lane.bound.nfs_peer);
            lane.recall(changed);
        }
        let mut reloaded = Reloaded { notices: notices_of(&after), ..Reloaded::default() };
        for entry in after.entries() {
            let old = before.get(entry.id).and_then(|old| old.store.as_ref().ok());
            let same = matches!((old, &entry.store), (Some(old), Ok(new)) if Arc::ptr_eq(old, new));
            let list = if same { &mut reloaded.kept } else { &mut reloaded.added };
            list.push(entry.export.path().to_owned());
        }
        let paths: Vec<_> = after.entries().iter().map(|entry| entry.export.path()).collect();
        reloaded.removed = before
            .entries()
            .iter()
            .map(|entry| entry.export.path().to_owned())
            .filter(|path| !paths.contains(&path.as_path()))
            .collect();
        Ok(reloaded)
    }

    fn status(&self) -> Status {
        status::gather::gather(&status::gather::Parts {
            instance: &self.instance,
            since: self.since,
            notices: self.notices(),
            service: &self.service,
            lane: self.lane.as_deref(),
            wire: &self.wire,
        })
    }
}

/// What can't be served, and what can't be done for those that are; the same sentence once.
fn notices_of(table: &Table) -> Vec<String> {
    let mut notices: Vec<String> = Vec::new();
    for entry in table.entries() {
        let path = entry.export.path().display();
        let mut more = Vec::new();
        match &entry.store {
            Err(problem) => more.push(format!("{path} is not served: {problem}")),
            Ok(store) => {
                if let Privilege::Unprivileged { reason } = store.privilege() {
                    more.push(format!("every client acts as the server's own user: {reason}"));
                }
                if !store.has_kernel_handles() && !entry.export.subtree_check() {
                    more.push(format!(
                        "{path}: its files are found again by their place in the tree, so after a restart a handle of \
                         a file that was moved meanwhile takes time or is stale (CAP_DAC_READ_SEARCH and a filesystem \
                         with file handles are needed for better)"
                    ));
                }
                if !store.is_cloned() {
                    more.push(format!(
                        "{path}: no private clone of its mount (CAP_SYS_ADMIN is missing), so clients that may only \
                         read get no files over the lane"
                    ));
                }
            }
        }
        more.retain(|notice| !notices.contains(notice));
        notices.append(&mut more);
    }
    notices
}

fn handle_key(config: &Config) -> Result<[u8; 16], StartError> {
    let directory =
        config.state_dir.clone().or_else(default_state_dir).ok_or_else(|| StartError::StateDir {
            path: PathBuf::from("(none)"),
            source: io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set"),
        })?;
    state_dir::handle_key(&directory).map_err(|(path, source)| StartError::StateDir { path, source })
}

/// Starts the lane; without it the wire serves all the same.
fn start_lane(
    config: &Config,
    instance: Instance,
    service: &Arc<Service>,
    problems: &mut Vec<String>,
) -> Option<Arc<LaneServer>> {
    if !config.lane {
        return None;
    }
    let options = LaneOptions::new(config.run_dir.clone(), instance);
    match LaneServer::start(options, Arc::new(Grants::new(Arc::clone(service)))) {
        Ok(lane) => Some(Arc::new(lane)),
        Err(error) => {
            problems.push(format!("no lane: {error}; clients of this host use the wire"));
            None
        }
    }
}

fn start_wire(
    config: &Config,
    service: &Arc<Service>,
    lane: Option<&Arc<LaneServer>>,
) -> Result<rpc::server::Server, StartError> {
    let failed = |source: io::Error| StartError::Listen {
        addresses: config.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        source,
    };
    let limits = rpc::server::Limits {
        threads: config.threads,
        max_connections: config.max_connections,
        ..rpc::server::Limits::default()
    };
    let mut builder = rpc::server::Server::builder()
        .limits(limits)
        .program(Arc::new(Nfs3::new(Arc::clone(service))))
        .program(Arc::new(Mount3::new(Arc::clone(service))));
    if let Some(lane) = lane {
        builder = builder.program(Arc::new(Localio::new(Arc::clone(service), Arc::clone(lane))));
    }
    for address in listen::expand(&config.listen).map_err(failed)? {
        builder = builder.bind(address);
    }
    builder.start().map_err(failed)
}

impl From<Unreadable> for StartError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Wrong(errors) => Self::Exports(errors),
            Unreadable::File(path, source) => Self::ExportsFile { path, source },
        }
    }
}

impl From<Unreadable> for ReloadError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Wrong(errors) => Self::Exports(errors),
            Unreadable::File(path, source) => Self::ExportsFile { path, source },
        }
    }
}
