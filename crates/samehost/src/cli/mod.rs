//! The command line: every command, option and help text, and nothing that acts on them.
//!
//! Help texts are written for readers who don't know Samehost, and the man pages are generated from them.
//! Options with nfs(5)'s names have nfs(5)'s meaning and units.

mod bench;
mod check_config;
mod cluster;
mod ctl;
mod doctor;
mod exports;
mod files;
mod help;
mod mount;
mod serve;
mod session;
mod suggestions;
mod target;
mod top;
mod watch;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

pub use bench::{BenchArgs, DemoArgs, LoadArgs};
pub use check_config::CheckConfigArgs;
pub use cluster::{ClusterArgs, ClusterCommand};
pub use ctl::{CtlArgs, CtlCommand, IoModeArgs, LaneArgs};
pub use doctor::DoctorArgs;
pub use exports::ExportsArgs;
pub use files::{CatArgs, CpArgs, DfArgs, LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub use mount::{MountArgs, UmountArgs};
pub use serve::{Owners, ServeArgs};
pub use session::SessionArgs;
pub use target::{Operand, Remote};
pub use top::TopArgs;
pub use watch::{ProbeArgs, StatusArgs};

use crate::exit::{EXIT_CODES, exit_codes};
use crate::logging::LogFormat;
use client::options::{Descriptor, SESSION, Source};
pub use help::{HelpPart, put_sections};

/// The default run directory, in which servers keep their sockets.
pub const DEFAULT_RUN_DIR: &str = "/run/samehost";

/// An NFS server and client that notice when they share a host and then get out of the way
///
/// Samehost serves local directories over NFSv3 and NFSv4 to any client, and reads and writes them with a
/// client of its own. When that client and its server turn out to share a kernel, the server hands the client
/// already authorised open files over a Unix socket, the lane, and reads and writes go straight to the
/// filesystem. When the lane ends, I/O falls back to the wire, in the middle of a file if need be, and no
/// data is lost.
#[derive(Debug, Parser)]
#[command(
    name = "samehost",
    version,
    propagate_version = true,
    max_term_width = 100,
    args_override_self = true
)]
#[command(after_long_help = help::text(&long_help()))]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const LONG_HELP: &str = concat!(
    "Examples:
  samehost serve --export '/srv 192.168.0.0/24(rw,no_subtree_check)'
  samehost ls -l nfs://localhost/srv
  samehost cp -r ./photos nfs://fileserver/srv/photos
  samehost probe nfs://localhost/srv
  samehost demo

",
    exit_codes!()
);

const URLS: &str = "\
An NFS URL is nfs://HOST[:PORT]/PATH[?OPTION[&OPTION]...]. Its options win over those of the command line.";

/// The text behind the options of `samehost`.
fn long_help() -> Vec<HelpPart> {
    let entries = Descriptor::entries(SESSION, Source::Url).collect();
    vec![
        HelpPart::Text(URLS.to_owned()),
        HelpPart::List { heading: "Options of NFS URLs", entries },
        HelpPart::Text(LONG_HELP.to_owned()),
    ]
}

/// The text behind a command's options, in parts. `command` has been built.
pub fn help_parts(command: &clap::Command) -> Vec<HelpPart> {
    match command.get_display_name().unwrap_or_else(|| command.get_name()) {
        "samehost" => long_help(),
        "samehost-mount" => mount::long_help(),
        "samehost-status" => watch::status_long_help(),
        _ => command.get_after_long_help().map(|text| HelpPart::Text(text.to_string())).into_iter().collect(),
    }
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The run directory: where a server keeps its sockets and where clients and `status` look for them
    ///
    /// Client and server find each other here. Share it with a container by a bind mount and the lane works
    /// across network, process and user namespaces.
    #[arg(long, global = true, value_name = "DIR", env = "SAMEHOST_RUN_DIR", default_value = DEFAULT_RUN_DIR)]
    pub run_dir: PathBuf,

    /// Log more: -v what happens, -vv details, -vvv everything
    ///
    /// Without it warnings and errors are logged, and the audit lines of servers. The environment variable
    /// SAMEHOST_LOG takes filters such as `info,samehost_lane=trace` and wins over -v.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// The form of log lines: text, json, or journal (fields for journalctl); auto chooses journal when
    /// standard error leads to the journal
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        hide_possible_values = true,
        default_value_t = LogFormat::Auto,
    )]
    pub log_format: LogFormat,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve local directories over NFSv3 and NFSv4
    #[command(after_long_help = serve::LONG_HELP)]
    Serve(ServeArgs),
    /// List directories on a server
    #[command(after_long_help = EXIT_CODES)]
    Ls(LsArgs),
    /// Show everything a server says about a file
    #[command(after_long_help = EXIT_CODES)]
    Stat(StatArgs),
    /// Write files on a server to standard output
    #[command(after_long_help = EXIT_CODES)]
    Cat(CatArgs),
    /// Copy files to, from and between servers
    #[command(after_long_help = files::CP_LONG_HELP, override_usage = "samehost cp [OPTIONS] <FROM>... <TO>")]
    Cp(CpArgs),
    /// Remove files on a server
    #[command(after_long_help = files::RM_LONG_HELP)]
    Rm(RmArgs),
    /// Make directories on a server
    #[command(after_long_help = EXIT_CODES)]
    Mkdir(MkdirArgs),
    /// Rename or move files on a server
    #[command(after_long_help = EXIT_CODES, override_usage = "samehost mv [OPTIONS] <FROM>... <TO>")]
    Mv(MvArgs),
    /// Show how full an exported filesystem is
    #[command(after_long_help = EXIT_CODES)]
    Df(DfArgs),
    /// Mount a server's directory as a filesystem
    #[command(after_long_help = help::text(&mount::long_help()))]
    Mount(MountArgs),
    /// Unmount what `mount` has mounted
    #[command(after_long_help = mount::UMOUNT_LONG_HELP)]
    Umount(UmountArgs),
    /// Show the status of the servers and mounts on this host, and whether each client uses lane or wire
    #[command(after_long_help = help::text(&watch::status_long_help()))]
    Status(StatusArgs),
    /// Change a running server or mount: exports, I/O modes, a mount's lane; or reload a server
    #[command(after_long_help = ctl::CTL_LONG_HELP)]
    Ctl(CtlArgs),
    /// Show and change a cluster: several servers of one CephFS
    #[command(after_long_help = cluster::LONG_HELP)]
    Cluster(ClusterArgs),
    /// Check the configuration file of servers or of mounts
    #[command(after_long_help = check_config::LONG_HELP)]
    CheckConfig(CheckConfigArgs),
    /// Read exports files as a server would, and show the exports or their mistakes
    #[command(after_long_help = exports::LONG_HELP)]
    Exports(ExportsArgs),
    /// Try to bring up a lane to a server and say why when it doesn't come up
    #[command(after_long_help = watch::PROBE_LONG_HELP)]
    Probe(ProbeArgs),
    /// Show live what servers, mounts and clients of this host do
    #[command(after_long_help = top::LONG_HELP)]
    Top(TopArgs),
    /// Look at this host, and say which data paths servers and mounts can have here, and what to change
    #[command(after_long_help = doctor::LONG_HELP)]
    Doctor(DoctorArgs),
    /// Measure reads and writes over the lane and over the wire
    #[command(after_long_help = bench::BENCH_LONG_HELP)]
    Bench(BenchArgs),
    /// Show a server and a client at work in a scratch directory, in less than a minute
    #[command(after_long_help = bench::DEMO_LONG_HELP)]
    Demo(DemoArgs),
    /// Write the completion script for a shell to standard output
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    ///
    /// Writes samehost(1) to standard output, or that and a page for each command into DIR.
    Man {
        /// Directory to write all pages to
        dir: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_long_help_has_the_exit_codes() {
        for text in [LONG_HELP, files::CP_LONG_HELP, files::RM_LONG_HELP] {
            assert!(text.ends_with(EXIT_CODES));
        }
    }

    #[test]
    fn man_pages_have_the_parts_of_the_help() {
        let mut command = Cli::command();
        command.build();
        let lists = |command: &clap::Command| {
            let text = command.get_after_long_help().expect("a long help").to_string();
            let parts = help_parts(command);
            assert_eq!(help::text(&parts), text, "{}", command.get_name());
            parts.iter().filter(|part| matches!(part, HelpPart::List { .. })).count()
        };
        assert_eq!(lists(&command), 1);
        for (name, count) in [("mount", 1), ("status", 1), ("serve", 0)] {
            assert_eq!(lists(command.find_subcommand(name).unwrap()), count, "{name}");
        }
    }
}
