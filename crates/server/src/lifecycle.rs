//! Starting, reloading and stopping a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::{Config, Status};

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

/// A running server. Dropping it stops it at once; [`Server::stop`] is the graceful way.
#[derive(Debug)]
pub struct Server {}

impl Server {
    /// Starts everything that `config` names; when this returns, clients are answered.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let _ = config;
        unimplemented!()
    }

    /// The addresses it listens on, with the real ports.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        unimplemented!()
    }

    /// This run of the server, as the lane announces it.
    #[must_use]
    pub fn instance(&self) -> [u8; 16] {
        unimplemented!()
    }

    /// What this server can't do, one sentence each; to be said at start.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        unimplemented!()
    }

    /// Reads the exports again. Connections, lanes and handles of what is still exported stay.
    ///
    /// # Errors
    /// [`ReloadError`]; the exports are then as they were.
    pub fn reload(&self) -> Result<Reloaded, ReloadError> {
        unimplemented!()
    }

    /// A snapshot.
    #[must_use]
    pub fn status(&self) -> Status {
        unimplemented!()
    }

    /// Stops gracefully: drains the lanes, then the calls in execution, each bounded by [`Config::grace`], unsets
    /// the rpcbind registrations and removes the sockets.
    pub fn stop(self) {
        unimplemented!()
    }

    /// Serves until SIGTERM or SIGINT, then stops gracefully; SIGHUP reloads. What a reload did or why it failed
    /// goes to the log (`tracing`).
    ///
    /// # Errors
    /// When the signal handlers can't be installed.
    pub fn run_until_signalled(self) -> io::Result<()> {
        unimplemented!()
    }
}
