//! `mount`: a server's directory as a filesystem.
//!
//! The command parses its options and prints the result; [`mount::process`] starts and runs the process that
//! serves the filesystem.

pub mod helper;
pub mod manual;
mod mountpoint;
mod plan;
mod present;
mod remount;
mod source;

use std::ffi::OsString;
use std::time::Duration;

use mount::process::{self, MountPlan, ProcessEnd, ProcessError, Started};

use crate::cli::{Global, MountArgs};
use crate::descriptors;
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::print_error;

use present::Console;

/// Mounts, and returns when the filesystem is mounted, or with `--foreground` when it is unmounted. With
/// `-o remount` it changes the options of a mounted filesystem.
pub fn mount(global: &Global, args: &MountArgs) -> CommandResult {
    if let Some(change) = plan::remount(args)? {
        return remount::remount(args, &change);
    }
    descriptors::check()?;
    let (plan, skipped) = plan::plan(global, args)?;
    for error in &skipped {
        print_error(&format!("mount: {error}; ignored"));
    }
    if args.foreground {
        return serve(&plan, process::foreground);
    }
    if args.report {
        return serve(&plan, process::background);
    }
    start(global, args)
}

fn serve(
    plan: &MountPlan,
    serve: impl FnOnce(MountPlan, &Console) -> Result<ProcessEnd, ProcessError>,
) -> CommandResult {
    match serve(plan.clone(), &Console) {
        Ok(ProcessEnd::Unmounted) => Ok(Exit::Done),
        Ok(ProcessEnd::Interrupted) => Ok(Exit::Failed),
        Ok(ProcessEnd::NotMounted(code)) => Ok(present::exit_of(code)),
        Err(error) => Err(present::process_failure(plan, error).into()),
    }
}

/// Starts the process in the background and waits for its result.
fn start(global: &Global, args: &MountArgs) -> CommandResult {
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--report".into()];
    arguments.extend(["--run-dir".into(), global.run_dir.clone().into()]);
    arguments.extend((0..global.verbose).map(|_| "-v".into()));
    if let Some(config) = &args.config {
        arguments.extend(["--config".into(), config.into()]);
    }
    for options in &args.options {
        arguments.extend(["-o".into(), options.into()]);
    }
    arguments.extend(["--".into(), args.source.clone().into(), args.mountpoint.clone().into()]);
    let waiting = |failure: &_, left| present::waiting(failure, Duration::from_millis(left));
    match process::start(arguments, waiting) {
        Ok(Started::Mounted) => Ok(Exit::Done),
        Ok(Started::Retrying(failure)) => {
            print_error(&format!("mount: {failure}\n  it is being tried in the background (bg)"));
            Ok(Exit::Done)
        }
        Ok(Started::Failed(failure)) => Err(Failure::from(failure).into()),
        Err(error) => Err(present::start_failure(&args.source, error).into()),
    }
}
