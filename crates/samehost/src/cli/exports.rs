//! `samehost exports`.

use std::path::PathBuf;

use clap::Args;

pub const LONG_HELP: &str = "\
Prints each export with all options of each client, as a server would apply them, and a note for \
each option that has no effect. samehost-exports(5) has the options. Standard error has a warning for \
each directory that is missing, each host name that isn't known, and each line that names no client.

Exit codes:
  0  a server would accept the files; there may be warnings
  1  a file has mistakes or can't be read";

/// Options of `samehost exports`.
#[derive(Debug, Args)]
pub struct ExportsArgs {
    /// Print mistakes and warnings, and nothing else
    #[arg(long)]
    pub check: bool,
    /// Exports files, or directories with files that end in .exports (default: /etc/exports, /etc/exports.d)
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}
