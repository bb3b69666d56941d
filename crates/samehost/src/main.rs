//! The `samehost` command: a server, a client and what is needed to watch and measure them, in one program.
//!
//! This crate is presentation; the libraries `server`, `client` and `mount` do the work. [`cli`] defines the
//! command line, [`commands`] has a module for each command, and [`exit`] has exit codes and failures. The
//! rest are parts that commands share: output, tables, the copying of trees, the measuring loop.

mod ancestors;
mod cli;
mod commands;
mod config_file;
mod connect;
mod copy;
mod demo;
mod descriptors;
mod doctor;
mod exit;
mod exports_manual;
mod fuse_device;
mod human;
mod ids;
mod logging;
mod measure;
mod notify;
mod output;
mod table;
mod top;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;

use cli::{Cli, Command};
use exit::{CommandResult, Exit, Failure, Stop};
use mimalloc::MiMalloc;

/// A request of a mount takes 7 KiB. glibc has no list of free blocks of that size, and would search and tidy
/// its heap for each. musl's allocator has one lock for all threads.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if commands::mount::helper::is_helper_name(words.next().as_deref()) {
        return commands::mount::helper::run(words, run);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no error, nor is a failure to write them.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    let exit = match run(cli) {
        Ok(exit) => exit,
        Err(Stop::ReaderGone) => Exit::Done,
        Err(Stop::Failed(failure)) => {
            output::print_error(&failure.to_string());
            failure.exit
        }
    };
    sys::librados::exit_with_librados(exit as u8);
    exit.into()
}

fn run(cli: Cli) -> CommandResult {
    // The threads of signals and logs come next.
    let prepared = match &cli.command {
        Command::Serve(_) => Some(commands::serve::prepare()?),
        _ => {
            descriptors::prepare();
            None
        }
    };
    let cli = config_file::serve::complete(cli)?;
    let who = match &cli.command {
        Command::Mount(args) if args.report => logging::LogSource::BackgroundMount,
        Command::Mount(args) if args.foreground => logging::LogSource::Mount,
        Command::Serve(args) => logging::LogSource::Server { audit: !args.no_audit },
        _ => logging::LogSource::Command,
    };
    logging::start(cli.global.verbose, cli.global.log_format, who)?;
    // A write beyond the limit of file sizes (`ulimit -f`), also to a granted file, then fails with EFBIG
    // instead of ending the process. The signal itself is ignored.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .map_err(|error| Failure::new("signal handlers", error))?;
    let global = cli.global;
    match cli.command {
        Command::Serve(args) => commands::serve::serve(&global, args, prepared),
        Command::Status(args) => commands::status::status(&global, &args),
        Command::Cluster(args) => commands::cluster::cluster(&args),
        Command::CheckConfig(args) => commands::check_config::check_config(&args),
        Command::Top(args) => commands::top::top(&global, &args),
        Command::Doctor(args) => commands::doctor::doctor(&global, &args),
        Command::Ctl(args) => commands::ctl::ctl(&global, &args),
        Command::Mount(args) => commands::mount::mount(&global, &args),
        Command::Umount(args) => commands::umount::umount(&args),
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { dir } => commands::manual::man(dir.as_deref()),
        Command::Ls(args) => block_on(commands::ls::ls(&global, args)),
        Command::Stat(args) => block_on(commands::stat::stat(&global, args)),
        Command::Cat(args) => block_on(commands::cat::cat(&global, args)),
        Command::Cp(args) => block_on(commands::cp::cp(&global, args)),
        Command::Rm(args) => block_on(commands::rm::rm(&global, args)),
        Command::Mkdir(args) => block_on(commands::mkdir::mkdir(&global, args)),
        Command::Mv(args) => block_on(commands::mv::mv(&global, args)),
        Command::Df(args) => block_on(commands::df::df(&global, args)),
        Command::Exports(args) => commands::exports::exports(&args),
        Command::Probe(args) => block_on(commands::probe::probe(&global, args)),
        Command::Bench(args) => block_on(commands::bench::bench(&global, args)),
        Command::Demo(args) => block_on(commands::demo::demo(&global, args)),
    }
}

/// Runs a command on a single-threaded runtime.
fn block_on(command: impl Future<Output = CommandResult>) -> CommandResult {
    descriptors::check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("starting the runtime", error))?;
    runtime.block_on(command)
}
