//! `status` and `probe`: whether clients are local, and if not, why.

use std::time::Duration;

use clap::Args;
use client::{DataPathCounters, SessionEvents};
use control::Metrics;
use mount::MountCounters;
use server::status::{GrantStatus, MemoryStatus, ProcedureStatus, WireStatus};

use super::help::HelpPart;
use super::session::SessionArgs;
use super::target::Remote;
use super::top::seconds;

const STATUS_ABOUT: &str = "\
Every server and every mount with a socket in the run directory is asked; for ordinary users \
also in $XDG_RUNTIME_DIR/samehost, where their mounts have it if they may not write to the run \
directory. Root asks the mounts of all users there. For each client of a server, and for each \
mount, it shows whether it is local and, if not, why. A process that doesn't answer within two \
seconds is named, and the others are shown.";

const STATUS_EXIT_CODES: &str = "\
Exit codes:
  0  every server and mount that was found answered
  1  one was found and didn't answer; the others are shown
  2  the command line couldn't be understood; nothing was tried
  4  no server is running, and nothing is mounted";

/// The text behind the options of `samehost status`.
pub fn status_long_help() -> Vec<HelpPart> {
    let mut entries = Vec::new();
    put_numbers::<MemoryStatus>(&mut entries, "servers[].memory");
    put_numbers::<WireStatus>(&mut entries, "servers[].wire");
    put_numbers::<GrantStatus>(&mut entries, "servers[].grants");
    put_numbers::<ProcedureStatus>(&mut entries, "servers[].counters.PATH.PROCEDURE");
    put_numbers::<MountCounters>(&mut entries, "mounts[]");
    put_numbers::<SessionEvents>(&mut entries, "mounts[]");
    put_numbers::<DataPathCounters>(&mut entries, "mounts[].lane, mounts[].wire");
    vec![
        HelpPart::Text(STATUS_ABOUT.to_owned()),
        HelpPart::List { heading: "Numbers in the JSON", entries },
        HelpPart::Text(STATUS_EXIT_CODES.to_owned()),
    ]
}

/// Appends the numbers of an object in the JSON.
fn put_numbers<M: Metrics>(entries: &mut Vec<(String, String)>, object: &str) {
    for (index, metric) in M::METRICS.iter().enumerate() {
        let description = match index {
            0 => format!("In {object}: {}", metric.description()),
            _ => metric.description(),
        };
        entries.push((metric.name.to_owned(), description));
    }
}

/// Options of `samehost status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Write JSON: {"servers": [...], "mounts": [...], "silent": [...]}
    #[arg(long)]
    pub json: bool,
    /// Show the counters of every procedure, too
    #[arg(short, long)]
    pub procedures: bool,
    /// Show it again and again, after so many seconds (2); with --json one line each time
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = seconds,
    )]
    pub watch: Option<Duration>,
}

pub const PROBE_LONG_HELP: &str = "\
Connects to the server, looks for it in every rendezvous that this process can see, and tries the \
handshake. Prints \"local: yes\" and the rendezvous, or \"local: no\" and for each rendezvous the \
reason and a remedy. The last line has the version of NFS that is used over the wire.

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
