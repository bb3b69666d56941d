//! `samehost check-config`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::config_file::{mount, serve};

pub const LONG_HELP: &str = "\
Reports every mistake with its line and column, also those of the exports that the file names, and in \
the words of `samehost serve` what else would keep a server from starting: exports none of which can be \
served, an unusable state directory, an address that isn't this host's, a limit of open files, a cluster \
that can't be reached. It looks at this host, as this user: run it as the user of the server. It changes \
nothing. An address or a state directory that is in use is no mistake, since the server may be running. \
Warns of what `samehost exports` warns of.

Exit codes:
  0  a server would accept the file; there may be warnings
  1  a server would not start: the exports have mistakes, or this host isn't as the file needs it
  2  the configuration file has mistakes or can't be read";

/// Options of `samehost check-config`.
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The file. Default: /etc/samehost/samehost.toml, or with --mount /etc/samehost/mount.toml
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Check a file with defaults for mount options
    #[arg(long)]
    pub mount: bool,
}

impl CheckConfigArgs {
    /// The file to check.
    pub fn path(&self) -> &Path {
        let default = if self.mount { mount::DEFAULT_FILE } else { serve::DEFAULT_FILE };
        self.file.as_deref().unwrap_or(Path::new(default))
    }
}
