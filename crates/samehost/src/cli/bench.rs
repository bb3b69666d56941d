//! `bench` and `demo`.

use std::path::PathBuf;

use clap::Args;

use super::session::SessionArgs;
use super::target::Remote;

pub const BENCH_LONG_HELP: &str = "\
Writes a scratch file into the directory, reads and writes it in 4 KiB blocks at random and in \
128 KiB blocks in sequence, and removes it. The same loop, one thread with --depth operations in \
flight, runs over each data path in turn, --runs times; shown are the medians and, after the \
sign, half the distance between the fastest and the slowest run.

With --raw DIR the same loop runs on a file in DIR without any server: name the directory that \
the server exports (or one on the same filesystem) to see the cost of lane and wire. Writes are \
not synced within the measured time, over any data path.

Examples:
  samehost bench nfs://localhost/srv
  samehost bench nfs://localhost/srv --raw /srv --json

Exit codes:
  0  measured
  1  the operation failed
  2  the command line couldn't be understood; nothing was tried
  3  no lane came up and --lane required was given
  4  the server couldn't be reached";

/// Options of `samehost bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A directory on the server to write to: `nfs://HOST[:PORT]/PATH`
    #[arg(value_name = "NFS-URL")]
    pub target: Remote,
    /// What and how long to measure.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Measure a file in this directory too, without a server
    #[arg(long, value_name = "DIR")]
    pub raw: Option<PathBuf>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// What and how long to measure.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
pub struct LoadArgs {
    /// Operations in flight
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    pub depth: u16,
    /// Runs of each measurement; the result is their median
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000),
    )]
    pub runs: u16,
    /// Milliseconds per run
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(1..=600_000),
    )]
    pub time: u32,
    /// Size of the scratch file in MiB (default: 64, and 32 for demo)
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub size: Option<u32>,
}

pub const DEMO_LONG_HELP: &str = "\
Makes a scratch directory, serves it on a free port of the loopback interface, shows the \
handshake, copies a real file tree in and out, compares it byte for byte, and measures reads and \
writes on the raw filesystem, over the lane and over the wire. Removes everything it made. Root \
isn't needed.

Exit codes:
  0  everything worked
  1  something didn't
  2  the command line couldn't be understood; nothing was tried
  3  no lane came up";

/// Options of `samehost demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Make the scratch directory in DIR (default: $TMPDIR or /tmp)
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// The file tree to copy (default: part of what is in /usr/share/doc, and a generated tree)
    #[arg(long, value_name = "DIR")]
    pub tree: Option<PathBuf>,
    /// What and how long to measure.
    #[command(flatten)]
    pub load: LoadArgs,
}
