//! What goes wrong with RADOS: the object, the reason and the next step.

use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use sys::librados::{LoadError, OperationError};

use crate::ClusterAddress;

/// Why RADOS can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// librados isn't installed.
    #[error(
        "RADOS needs librados, which can't be loaded: {reason}; install Ceph's client library (librados2)"
    )]
    NoLibrary {
        /// What the dynamic linker says.
        reason: String,
    },
    /// librados is too old.
    #[error("RADOS needs librados of Ceph 15 (Octopus) or newer: the installed one has no {function}")]
    OutdatedLibrary {
        /// The first function that it lacks.
        function: &'static str,
    },
    /// A name can't be passed to librados.
    #[error("{what} has a zero byte")]
    Name {
        /// Whose name.
        what: &'static str,
    },
    /// The cluster can't be reached, or refuses this user.
    #[error(
        "{address} as client.{user}: can't {step}: {reason}; {}",
        connect_advice(step, *reason, user, configuration.as_ref())
    )]
    Connect {
        /// Where to.
        address: ClusterAddress,
        /// The Ceph user.
        user: String,
        /// The configuration file; `None` for Ceph's default.
        configuration: Option<PathBuf>,
        /// The step that failed.
        step: &'static str,
        /// librados's reason.
        reason: Errno,
    },
    /// The cluster hasn't answered.
    #[error(
        "{address} as client.{user}: no answer within {} s; check that the monitors of the Ceph \
         configuration can be reached from here, and `ceph -s`",
        timeout.as_secs()
    )]
    Unreachable {
        /// Where to.
        address: ClusterAddress,
        /// The Ceph user.
        user: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The system has no thread for the connection.
    #[error("no thread to connect to RADOS: {0}")]
    Thread(std::io::Error),
}

/// The next step after a connection that failed.
fn connect_advice(step: &str, reason: Errno, user: &str, configuration: Option<&PathBuf>) -> String {
    let file = configuration.map_or("/etc/ceph/ceph.conf".to_owned(), |path| path.display().to_string());
    match (step, reason) {
        ("read the configuration", _) => format!("copy a Ceph configuration to {file}, or name one"),
        ("connect", Errno::NOENT | Errno::ACCESS | Errno::PERM) => format!(
            "there is no key of client.{user}, or the cluster refuses it: write the output of `ceph auth get \
             client.{user}` into the keyring that {file} names"
        ),
        ("connect", Errno::TIMEDOUT) => {
            format!("check that the monitors in {file} can be reached from here, and `ceph -s`")
        }
        ("open the pool", Errno::NOENT) => "there is no such pool: `ceph osd pool ls` lists them".to_owned(),
        _ => "see `ceph -s` and the logs of the monitors".to_owned(),
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Missing { reason } => Self::NoLibrary { reason },
            LoadError::Outdated { function } => Self::OutdatedLibrary { function },
        }
    }
}

/// An operation on an object that failed.
#[derive(Debug, thiserror::Error)]
#[error("{address}: can't {action} object {object}: {reason}")]
pub struct ObjectError {
    /// The object's namespace.
    pub address: ClusterAddress,
    /// The object's name.
    pub object: String,
    /// What was to be done with it.
    pub action: &'static str,
    /// Why it wasn't.
    pub reason: Reason,
}

/// Why an operation on an object failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is no such object.
    #[error("there is no such object")]
    Missing,
    /// The object exists already.
    #[error("it exists already")]
    Exists,
    /// The object's version isn't the expected one.
    #[error("it was changed by another process meanwhile")]
    Changed,
    /// The cluster hasn't answered in time. A change may take effect later, unless it is guarded by a version
    /// that has changed since.
    #[error("the cluster doesn't answer; see `ceph health detail`")]
    TimedOut,
    /// The Ceph user may not do this.
    #[error(
        "the Ceph user lacks the capability osd 'allow rwx pool=POOL namespace=NAMESPACE' (`ceph auth caps`)"
    )]
    Denied,
    /// The cluster has put this process's address on its blocklist: it was evicted.
    #[error("this process is on the cluster's blocklist (`ceph osd blocklist ls`); restart it")]
    Blocklisted,
    /// The pool or the cluster is full.
    #[error("the pool is full; see `ceph df`")]
    Full,
    /// A name or content that RADOS or this program can't use.
    #[error("its content is not what it should be: {0}")]
    Invalid(&'static str),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomNumbers,
    /// Another reason.
    #[error("{0}")]
    Other(Errno),
}

/// `ESHUTDOWN` (Linux): the number that librados uses for a client on the blocklist.
const BLOCKLISTED: Errno = Errno::SHUTDOWN;

impl From<OperationError> for Reason {
    fn from(error: OperationError) -> Self {
        let OperationError::Failed(error) = error else { return Self::TimedOut };
        match error {
            Errno::NOENT => Self::Missing,
            Errno::EXIST => Self::Exists,
            // The object's version is above, or below the expected one.
            Errno::RANGE | Errno::OVERFLOW => Self::Changed,
            Errno::TIMEDOUT | Errno::CANCELED => Self::TimedOut,
            Errno::PERM | Errno::ACCESS => Self::Denied,
            BLOCKLISTED => Self::Blocklisted,
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            other => Self::Other(other),
        }
    }
}

impl From<ObjectError> for std::io::Error {
    fn from(error: ObjectError) -> Self {
        let kind = match error.reason {
            Reason::Missing => std::io::ErrorKind::NotFound,
            Reason::Exists => std::io::ErrorKind::AlreadyExists,
            Reason::TimedOut => std::io::ErrorKind::TimedOut,
            Reason::Denied | Reason::Blocklisted => std::io::ErrorKind::PermissionDenied,
            Reason::Full => std::io::ErrorKind::StorageFull,
            Reason::Invalid(_) => std::io::ErrorKind::InvalidData,
            Reason::Changed | Reason::NoRandomNumbers | Reason::Other(_) => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
