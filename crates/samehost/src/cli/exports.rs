//! `samehost exports`.

use std::path::PathBuf;

use clap::Args;

pub const LONG_HELP: &str = "\
Prints each export with all options of each client, as a server would apply them, and a note for \
each option that has no effect. samehost-exports(5) has the options. No directory is opened.

Exit codes:
  0  a server would accept the files
  1  a file has mistakes or can't be read";

/// Options of `samehost exports`.
#[derive(Debug, Args)]
pub struct ExportsArgs {
    /// Print a line for each mistake, and nothing else
    #[arg(long)]
    pub check: bool,
    /// Exports files, or directories with files that end in .exports (default: /etc/exports, /etc/exports.d)
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}
