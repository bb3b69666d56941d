//! `samehost ctl`: settings of running processes.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use client::LaneMode;
use server::IoMode;

use super::suggestions::Suggestions;

pub const CTL_LONG_HELP: &str = "A change lasts until it is undone or the process ends; it isn't stored.

Exit codes:
  0  changed
  1  refused, failed, or the process didn't answer
  2  the command line couldn't be understood; nothing was tried
  4  no such process is running";

/// Options of `samehost ctl`.
#[derive(Debug, Args)]
pub struct CtlArgs {
    /// What to change.
    #[command(subcommand)]
    pub what: CtlCommand,
}

/// What can be changed.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// How a server reads or writes its files
    #[command(after_long_help = IO_MODE_LONG_HELP, override_usage = "samehost ctl io-mode [OPTIONS] [EXPORT] \
                                                                     <read|write> \
                                                                     <buffered|dontcache|direct|default>")]
    IoMode(IoModeArgs),
    /// Export a directory until the next reload, as exportfs(8) does
    #[command(after_long_help = EXPORT_LONG_HELP)]
    Export(ExportArgs),
    /// End an export until the next reload
    #[command(after_long_help = UNEXPORT_LONG_HELP)]
    Unexport(ExportArgs),
    /// Read the configuration and the exports again, as on SIGHUP
    #[command(after_long_help = RELOAD_LONG_HELP)]
    Reload(ReloadArgs),
    /// Whether a mount uses the lane
    #[command(after_long_help = LANE_LONG_HELP)]
    Lane(LaneArgs),
}

const EXPORT_LONG_HELP: &str = "\
Clients to whom the directory is exported already get the options of the line. The line isn't stored: \
the next reload (SIGHUP, ctl reload) or start takes the exports from the configuration. To keep it, \
add it to /etc/exports.

Example:
  samehost ctl export '/srv/new 10.0.0.0/8(rw,no_subtree_check)'";

const UNEXPORT_LONG_HELP: &str = "\
Options in the line are ignored. A line without clients ends the export for all of them. Files that \
clients have open over the lane are recalled. The change isn't stored: the next reload (SIGHUP, ctl \
reload) or start takes the exports from the configuration.

Examples:
  samehost ctl unexport /srv/new
  samehost ctl unexport '/srv 10.0.0.0/8'";

const RELOAD_LONG_HELP: &str = "\
Waits until the reload has ended, and prints its result. If the configuration or the exports have an \
error, nothing changes, and the exit code is 1. Exports that `ctl export` has \
added are removed, and those that `ctl unexport` has removed come back.";

/// Options of `samehost ctl export` and `samehost ctl unexport`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Which server, if several run: its process id, or the beginning of its instance as `samehost status`
    /// shows it
    #[arg(long, value_name = "PID|INSTANCE")]
    pub server: Option<String>,

    /// A line in exports(5) syntax: the directory and its clients
    #[arg(value_name = "LINE")]
    pub line: String,
}

/// Options of `samehost ctl reload`.
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// Which server, if several run: its process id, or the beginning of its instance as `samehost status`
    /// shows it
    #[arg(long, value_name = "PID|INSTANCE")]
    pub server: Option<String>,
}

const LANE_LONG_HELP: &str = "\
Open files use the new data path from their next read or write; files that the kernel passes \
through, when they are opened again. With `required` reads and writes wait for a lane (on a hard \
mount), or fail without one (on a soft mount).

Examples:
  samehost ctl lane off                         # if only one share is mounted
  samehost ctl lane auto --mount /mnt";

/// Options of `samehost ctl lane`.
#[derive(Debug, Args)]
pub struct LaneArgs {
    /// auto: take the lane where it comes up; off: the wire only; required: nothing without a lane
    #[arg(value_name = "auto|off|required", value_parser = lane_mode(), hide_possible_values = true)]
    pub mode: LaneMode,

    /// Which mount, if several are there
    #[arg(long, value_name = "MOUNTPOINT")]
    pub mount: Option<PathBuf>,
}

/// Reads a [`LaneMode`], and tells shells its words.
fn lane_mode() -> impl TypedValueParser<Value = LaneMode> {
    PossibleValuesParser::new(LaneMode::ALL.map(LaneMode::as_str)).try_map(|word| word.parse())
}

const IO_MODE_LONG_HELP: &str = "Modes:
  buffered   through the page cache, and the data stays there
  dontcache  through the page cache, which drops the data once it is written or has been read
             (Linux 6.14, ext4, xfs and some others; elsewhere it is buffered)
  direct     past the page cache (O_DIRECT): whole blocks; the unaligned ends of a write are
             buffered
  default    undoes an earlier `ctl io-mode`

With EXPORT it is set for all clients of that export, and overrides its options. Without, it is \
set for the server: for exports without an option of their own (read_io=, write_io=) and without \
an earlier ctl.

Examples:
  samehost ctl io-mode write direct
  samehost ctl io-mode /srv read dontcache
  samehost ctl io-mode /srv read default
  samehost status                               # shows the modes, and where they aren't possible";

/// Options of `samehost ctl io-mode`.
#[derive(Debug, Args)]
pub struct IoModeArgs {
    /// Which server, if several run: its process id, or the beginning of its instance as `samehost status`
    /// shows it
    #[arg(long, value_name = "PID|INSTANCE")]
    pub server: Option<String>,

    /// The exported directory as `samehost status` shows it, if it isn't for the whole server; `read` or
    /// `write`; the mode
    #[arg(
        value_name = "WORD",
        num_args = 2..=3,
        required = true,
        value_parser = Suggestions(io_mode_words),
        hide_possible_values = true,
    )]
    pub words: Vec<String>,
}

/// The fixed words. An export can be anywhere.
fn io_mode_words() -> Vec<String> {
    let modes = IoMode::ALL.iter().map(ToString::to_string);
    ["read", "write", "default"].into_iter().map(str::to_owned).chain(modes).collect()
}
