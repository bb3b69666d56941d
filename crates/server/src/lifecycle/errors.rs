//! Errors of starting and reloading a server.

use std::io;
use std::path::PathBuf;

use crate::export_table::sources::SourcesError;

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The exports have errors.
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
    /// Without /proc no file can be served: files that are open can't be reopened for reading or writing.
    #[error("/proc/self/fd: {source}")]
    NoProc {
        /// Why.
        source: io::Error,
    },
    /// None of the exports can be served; one sentence each.
    #[error("none of the exports can be served: {}", .0.join("; "))]
    NothingServed(Vec<String>),
    /// The server can't listen on an address.
    #[error("cannot listen on {addresses}: {source}")]
    Listen {
        /// The addresses.
        addresses: String,
        /// Why.
        source: io::Error,
    },
    /// The endpoint of the metrics can't be started.
    #[error("metrics at {address}: {source}")]
    Metrics {
        /// The address.
        address: control::exposition::MetricsAddress,
        /// Why.
        source: io::Error,
    },
    /// The worker threads can't be started.
    #[error("no thread can be made ({source}): the limit of processes is too low")]
    Threads {
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
    /// Another server uses the state directory.
    #[error("state directory {path} is in use by {holder}: one server at a time can use it")]
    StateDirInUse {
        /// The directory.
        path: PathBuf,
        /// The server that uses it.
        holder: recovery::DirectoryHolder,
    },
    /// The start was given up on request ([`StartMonitor::is_cancelled`](crate::StartMonitor)).
    #[error("the start was cancelled")]
    Cancelled,
    /// The server can't be a node of its cluster.
    #[error(transparent)]
    Cluster(Box<crate::lifecycle::cluster::ClusterError>),
    /// The process's limit of open files is too low.
    #[error(transparent)]
    Descriptors(#[from] crate::lifecycle::descriptors::TooFew),
    /// Another system call failed.
    #[error("{what}: {source}")]
    System {
        /// The object of the call.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl From<crate::lifecycle::cluster::ClusterError> for StartError {
    fn from(error: crate::lifecycle::cluster::ClusterError) -> Self {
        Self::Cluster(Box::new(error))
    }
}

/// Why a reload failed: the server keeps its exports and its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(String),
    /// The exports have errors.
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

impl From<SourcesError> for StartError {
    fn from(unreadable: SourcesError) -> Self {
        match unreadable {
            SourcesError::Wrong(errors) => Self::Exports(errors),
            SourcesError::File(path, source) => Self::ExportsFile { path, source },
        }
    }
}

impl From<SourcesError> for ReloadError {
    fn from(unreadable: SourcesError) -> Self {
        match unreadable {
            SourcesError::Wrong(errors) => Self::Exports(errors),
            SourcesError::File(path, source) => Self::ExportsFile { path, source },
        }
    }
}
