//! `mount`: a server's directory as a filesystem.
//!
//! The command starts itself once more as the process that serves the filesystem (`daemon`), and waits for
//! that one's word over a pipe (`word`): it is mounted, or why not. So the process that stays is a fresh one,
//! with no thread or lock from before, and whoever waits learns what really happened. `--foreground` is the
//! same without the second process.

mod daemon;
pub mod helper;
mod place;
mod plan;
mod remount;
mod source;
mod status;
mod word;

use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::cli::{Global, MountArgs};
use crate::descriptors;
use crate::exit::{Ended, Exit, Failure};
use crate::logging;
use crate::output::complain;

pub use status::{MountStatus, Request, run_dirs};

use plan::Plan;
use word::Word;

/// What a mount's process is called.
const NAME: &str = "samehost";

/// Mounts; returns when it is mounted, with `--foreground` when it is unmounted. With `-o remount` it changes
/// what is mounted.
pub fn mount(global: &Global, args: &MountArgs) -> Ended {
    if let Some(change) = plan::remount(args)? {
        return remount::remount(args, &change);
    }
    descriptors::raise()?;
    let plan = Plan::make(global, args)?;
    for error in &plan.passed_over {
        complain(&format!("mount: {error}; passed over"));
    }
    if args.foreground {
        return daemon::foreground(plan);
    }
    if args.report {
        return daemon::background(plan);
    }
    start(global, args)
}

/// Starts the process that stays and waits for its word.
fn start(global: &Global, args: &MountArgs) -> Ended {
    let mut words: Vec<OsString> = vec!["mount".into(), "--report".into()];
    words.extend(["--run-dir".into(), global.run_dir.clone().into()]);
    words.extend((0..global.verbose).map(|_| "-v".into()));
    for options in &args.options {
        words.extend(["-o".into(), options.into()]);
    }
    words.extend(["--".into(), args.source.clone().into(), args.mountpoint.clone().into()]);
    let failed = |error: std::io::Error| Failure::new("starting the mount's process", error);
    // The very file that runs now, though it may have been replaced meanwhile; by its own name.
    let mut child = Command::new("/proc/self/exe")
        .arg0(NAME)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(sys::proc_error(error)))?;
    let Some(stdout) = child.stdout.take() else {
        return Err(Failure::new("starting the mount's process", "it has no standard output").into());
    };
    match Word::last(BufReader::new(stdout), |what| complain(&format!("mount: {what}"))) {
        Some(Ok(Word::Trying(why))) => {
            complain(&format!("mount: {why}\n  it is being tried in the background (bg)"));
            Ok(Exit::Done)
        }
        Some(Ok(_)) => Ok(Exit::Done),
        Some(Err(failure)) => {
            // It has nothing left to do but to end.
            let _ = child.wait();
            Err(failure.into())
        }
        None => {
            let how = child.wait().map_err(failed)?;
            Err(Failure::new(&args.source, format!("the mount's process ended without a word ({how})"))
                .next(format!("see what it does: --foreground, -vv or {}=debug", logging::VARIABLE))
                .into())
        }
    }
}
