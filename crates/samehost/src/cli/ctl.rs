//! `samehost ctl`: what can be changed of a running process.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use client::LaneMode;
use server::IoMode;

use super::suggestions::Suggestions;

pub const CTL_LONG_HELP: &str =
    "What is changed lasts until it is taken back or the process ends; it is written nowhere.

Exit codes:
  0  changed
  1  refused, or the process didn't answer
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
    /// Whether a mount uses the lane
    #[command(after_long_help = LANE_LONG_HELP)]
    Lane(LaneArgs),
}

const LANE_LONG_HELP: &str = "\
Open files change to the new data path with their next read or write; what the kernel passes \
through, when it is opened again. `required` lets reads and writes wait for a lane (on a hard \
mount), and fail without one (on a soft one).

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
  dontcache  through the page cache, which lets go of the data when it is written or has been
             read (Linux 6.14, ext4, xfs and some others; elsewhere it is buffered)
  direct     past the page cache (O_DIRECT): whole blocks; what is left at the ends of a write is buffered
  default    takes back what was set with ctl before

With EXPORT it is set for all clients of that export, whatever its options say. Without, for the \
server: it holds where no export's options (read_io=, write_io=) and no earlier ctl for an \
export say otherwise.

Examples:
  samehost ctl io-mode write direct
  samehost ctl io-mode /srv read dontcache
  samehost ctl io-mode /srv read default
  samehost status                               # shows the modes, and what became of them";

/// Options of `samehost ctl io-mode`.
#[derive(Debug, Args)]
pub struct IoModeArgs {
    /// Which server, if several run: the beginning of its instance as `samehost status` shows it
    #[arg(long, value_name = "INSTANCE")]
    pub server: Option<String>,

    /// The exported directory, if it isn't for the whole server; `read` or `write`; the mode
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
