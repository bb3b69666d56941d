//! `ls`, `stat`, `cat`, `cp`, `rm`, `mkdir`, `mv` and `df`.

use clap::Args;

use super::session::SessionArgs;
use super::target::{Operand, Remote};
use crate::exit::exit_codes;

/// Options of `samehost ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// One line per file: mode, links, owner, group, size, time of modification, name
    #[arg(short)]
    pub long: bool,
    /// Show names that begin with a dot
    #[arg(short, long)]
    pub all: bool,
    /// With -l: owner and group as numbers
    #[arg(short, long)]
    pub numeric: bool,
    /// List the directories below, too, each under its URL; symbolic links aren't followed
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show a directory itself, not its contents
    #[arg(short, long)]
    pub directory: bool,
    /// With -l: sizes such as 1.5 MiB
    #[arg(long)]
    pub human_readable: bool,
    /// What to list: `nfs://HOST[:PORT]/PATH`
    #[arg(required = true, value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Options of `samehost stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The file: `nfs://HOST[:PORT]/PATH`. A symbolic link isn't followed
    #[arg(required = true, value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// Write JSON, one array for all files
    #[arg(long)]
    pub json: bool,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Options of `samehost cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// The file: `nfs://HOST[:PORT]/PATH`
    #[arg(required = true, value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

pub const CP_LONG_HELP: &str = concat!(
    "\
Modes are kept. With -r directories are copied with their contents and symbolic links as \
symbolic links; without it a link's target is copied. Holes of files stay holes, except from a server \
that can't tell them: without a lane, NFSv4.2 is needed for that. Files on a server are committed to stable \
storage before they count as copied, unless --no-commit is given.

A file is nfs://HOST[:PORT]/PATH or a path on this machine. `cp a b DIR/` copies into DIR, which must \
exist, and `cp -r DIR/. TO` copies what is in DIR. Where two names in the destination are hard links of one \
file, it gets the contents of one source.

If a directory may be the one that is copied into, seen by another path, cp makes an empty file \
.samehost-cp-* in it, looks for it by the other path, and removes it at once. A cp that is killed at that \
moment leaves the file.

Examples:
  samehost cp report.pdf nfs://fileserver/srv/
  samehost cp -r nfs://fileserver/srv/photos .
  samehost cp -r nfs://old/srv/data nfs://new/srv/data

",
    exit_codes!()
);

/// Options of `samehost cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// Copy directories and everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Keep time stamps too, and owner, group and the set-id bits where that is allowed
    #[arg(short, long)]
    pub preserve: bool,
    /// Don't wait until the data is on the server's stable storage: faster with many small files, but they
    /// may be lost if the server machine loses power in the next seconds
    #[arg(long)]
    pub no_commit: bool,
    /// Never show a progress bar (there is none anyway if standard error isn't a terminal)
    #[arg(short, long)]
    pub quiet: bool,
    /// How many files to have open at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    pub files: u16,
    /// The sources (one or more), and the destination
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub operands: Vec<Operand>,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

pub const RM_LONG_HELP: &str = concat!(
    "\
rm -r doesn't enter another filesystem. A directory for which the server reports another filesystem (fsid) \
than for the directory above it stays with everything in it; rm says so, removes the rest except the \
directories above it, and exits with 1. An export within the same filesystem is emptied, and then stays \
because the server doesn't remove it. Symbolic links are removed, not followed.

",
    exit_codes!()
);

/// Options of `samehost rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// Remove directories and everything in them, but no other filesystems
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ignore missing files
    #[arg(short, long)]
    pub force: bool,
    /// What to remove: `nfs://HOST[:PORT]/PATH`
    #[arg(required = true, value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Options of `samehost mkdir`.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// Make the missing directories above it, too; an existing directory is no error
    #[arg(short, long)]
    pub parents: bool,
    /// Mode of the new directory, octal
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = octal_mode)]
    pub mode: u32,
    /// The directory: `nfs://HOST[:PORT]/PATH`
    #[arg(required = true, value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Options of `samehost mv`.
#[derive(Debug, Args)]
pub struct MvArgs {
    /// The sources (one or more), and the destination: all on one server; into TO if that is a directory
    #[arg(required = true, num_args = 2.., value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Options of `samehost df`.
#[derive(Debug, Args)]
pub struct DfArgs {
    /// The export: `nfs://HOST[:PORT]/PATH`
    #[arg(required = true, value_name = "NFS-URL")]
    pub targets: Vec<Remote>,
    /// Write JSON, one array for all
    #[arg(long)]
    pub json: bool,
    /// How to reach the server.
    #[command(flatten)]
    pub session: SessionArgs,
}

fn octal_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("not an octal mode such as 755".to_owned()),
    }
}
