//! Why a server can't start, and why a reload changed nothing.

use std::io;
use std::path::PathBuf;

use crate::export_table::sources::Unreadable;

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
    /// Without /proc no file can be served: what is open can't be opened again for reading or writing.
    #[error("/proc/self/fd: {source}")]
    NoProc {
        /// Why.
        source: io::Error,
    },
    /// None of the exports can be served; each with its reason.
    #[error("none of the exports can be served: {}", .0.join("; "))]
    NothingServed(Vec<String>),
    /// An address can't be listened on.
    #[error("cannot listen on {addresses}: {source}")]
    Listen {
        /// The addresses.
        addresses: String,
        /// Why.
        source: io::Error,
    },
    /// The threads that answer calls can't be made.
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
    /// The process may have too few open files.
    #[error(transparent)]
    Descriptors(#[from] crate::lifecycle::descriptors::TooFew),
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
