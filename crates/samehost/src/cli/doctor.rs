//! `doctor`.

use std::path::PathBuf;

use clap::Args;

use crate::doctor::Side;

pub const LONG_HELP: &str = "\
Looks at the kernel, this user's capabilities and limits, /dev/fuse, fusermount3, the run directory, \
the NFS port, rpcbind and the packet filter, and changes nothing. Run it as the user, and in the \
container, in which the server or the mount will run. What another host's firewall does isn't visible \
from here: try `samehost probe` where a client runs.

Examples:
  samehost doctor
  samehost doctor server --export-dir /srv
  samehost doctor mount

Exit codes:
  0  no problem; there may be advice
  1  something keeps a server or a mount from working
  2  the command line couldn't be understood; nothing was tried";

/// Options of `samehost doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Only what concerns this side
    #[arg(value_enum)]
    pub side: Option<Side>,
    /// A directory that is to be served: look at its filesystem, too; may be repeated
    #[arg(long = "export-dir", value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}
