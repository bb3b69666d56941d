//! `samehost check-config`.

use std::path::PathBuf;

use clap::Args;

use crate::config_file::serve::DEFAULT_FILE;

pub const LONG_HELP: &str = "\
Reports every mistake with its line and column, also those of the exports that the file names.

Exit codes:
  0  a server would accept the file
  1  an exports file has mistakes or can't be read
  2  the configuration file has mistakes or can't be read";

/// Options of `samehost check-config`.
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The file
    #[arg(value_name = "FILE", default_value = DEFAULT_FILE)]
    pub file: PathBuf,
}
