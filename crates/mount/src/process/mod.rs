//! The process that serves a mounted filesystem: how it is started, what it serves, and its status socket.
//!
//! A command mounts in the background by starting itself once more ([`start`]) and waiting for the new
//! process's last [`DaemonMessage`]. So the process that stays is a fresh one, without threads or locks from
//! before, and the command's user learns the result. The new process runs [`background`]; [`foreground`] is
//! the same without a second process.
//!
//! | module | contents |
//! |---|---|
//! | `start` | starting the process in the background |
//! | `daemon` | its life: mounting, serving, unmounting |
//! | `message` | its messages to the command that started it |
//! | `metrics` | what it tells Prometheus |
//! | `status` | what it answers at its socket |

mod daemon;
mod message;
mod metrics;
mod start;
mod status;

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use client::{Options, Url};
use control::exposition::MetricsAddress;

use crate::error::Error;
use crate::settings::MountOptions;
pub use daemon::{Presenter, ProcessEnd, background, foreground};
pub use message::{DaemonFailure, DaemonMessage};
pub use start::{Started, start};
pub use status::{LaneChangeStatus, MountRequest, MountStatus, run_dirs};

/// What to mount, where and how.
#[derive(Debug, Clone)]
pub struct MountPlan {
    /// The server and its directory.
    pub url: Url,
    /// The same as the user wrote it.
    pub source: String,
    /// The mountpoint, an absolute path.
    pub at: PathBuf,
    /// The options of the filesystem.
    pub options: MountOptions,
    /// The options of the session.
    pub session: Options,
    /// If the server can't be reached at first, try again in the background (`bg`).
    pub background: bool,
    /// How long to try.
    pub retry: Duration,
    /// Where metrics for Prometheus are served by HTTP; nowhere without it.
    pub metrics: Option<MetricsAddress>,
}

/// Why a mount's process failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The runtime couldn't be started.
    #[error("starting the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// The handlers of SIGTERM and SIGINT couldn't be installed.
    #[error("signal handlers: {0}")]
    Signals(#[source] io::Error),
    /// The endpoint of the metrics couldn't be started.
    #[error("metrics at {address}: {source}")]
    Metrics {
        /// The address.
        address: MetricsAddress,
        /// Why.
        source: io::Error,
    },
    /// The filesystem couldn't be mounted.
    #[error(transparent)]
    Mount(Box<Error>),
    /// Standard output couldn't be written.
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    /// The process couldn't leave its terminal and session, or the command that started it is gone.
    #[error("leaving the terminal: {0}")]
    Detach(#[source] io::Error),
    /// The process couldn't be started.
    #[error("starting the mount's process: {0}")]
    Start(#[source] io::Error),
    /// The process's messages couldn't be read.
    #[error("the mount's process: {0}")]
    Messages(#[source] io::Error),
    /// The process ended without a last message.
    #[error("the mount's process ended without a message ({0})")]
    EndedEarly(ExitStatus),
}
