//! `status` and `probe`: is it local, and if not, why not?

use clap::Args;

use super::session::SessionArgs;
use super::target::Remote;

pub const STATUS_LONG_HELP: &str = "\
Every server and every mount with a socket in the run directory is asked; for ordinary users \
also in $XDG_RUNTIME_DIR/samehost, where their mounts have it if they may not write to the run \
directory. For each client of a server, and for each mount, it says whether it is local and, if \
not, why not. Who doesn't answer within two seconds is named, and keeps nobody else from being \
shown.

Exit codes:
  0  every server and mount that was found answered
  1  one was found and didn't answer; the others are shown
  2  the command line couldn't be understood; nothing was tried
  4  no server is running, and nothing is mounted";

/// Options of `samehost status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Write JSON: {"servers": [...], "mounts": [...], "silent": [...]}
    #[arg(long)]
    pub json: bool,
    /// Show the counters of every procedure, too
    #[arg(short, long)]
    pub procedures: bool,
}

pub const PROBE_LONG_HELP: &str = "\
Connects to the server, looks for it in every rendezvous that this process can see, and shakes \
hands. Says \"local: yes\" and through what, or \"local: no\" and for each rendezvous why not \
and what to do about it.

Exit codes:
  0  a lane came up
  1  the export couldn't be reached
  2  the command line couldn't be understood; nothing was tried
  3  no lane came up; standard output says why
  4  the server couldn't be reached";

/// Options of `samehost probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The export: `nfs://HOST[:PORT]/PATH`
    #[arg(value_name = "NFS-URL")]
    pub target: Remote,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}
