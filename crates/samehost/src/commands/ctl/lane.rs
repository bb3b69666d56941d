//! `ctl lane`: changes whether a mount uses the lane.

use std::path::Path;

use control::ProcessAnswer;
use mount::mountinfo;
use mount::process::{MountRequest, MountStatus};

use super::{report, tell, unanswered};
use crate::cli::{Global, LaneArgs};
use crate::commands::status::{self, mounts};
use crate::exit::{CommandResult, Exit, Failure};

/// Changes the lane mode of a mount.
pub fn lane(global: &Global, args: &LaneArgs) -> CommandResult {
    let dir = global.run_dir.display().to_string();
    let all = mounts::query(&global.run_dir).map_err(|error| status::unreadable(&global.run_dir, &error))?;
    let mount = match chosen(all.answers, args.mount.as_deref(), &dir) {
        Err(failure) if failure.exit == Exit::Unreachable => {
            return Err(unanswered(&all.silent, "mount").unwrap_or(failure).into());
        }
        chosen => {
            status::report_unresponsive(&all.silent, "mount");
            chosen?
        }
    };
    report("lane", tell(&mount.socket, &MountRequest::Lane(args.mode))?)
}

/// The mount on this mountpoint, or the only one.
fn chosen(
    mut all: Vec<ProcessAnswer<MountStatus>>,
    at: Option<&Path>,
    dir: &str,
) -> Result<ProcessAnswer<MountStatus>, Failure> {
    if let Some(at) = at {
        // The filesystem may hang, so it isn't accessed.
        let resolved = mountinfo::resolve(at).unwrap_or_else(|_| at.to_owned());
        all.retain(|mount| mount.answer.mountpoint == resolved);
    }
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => {
            Err(Failure::new(dir, "several shares are mounted").next("name one with --mount"))
        }
        (None, _) => {
            let what = at.map_or_else(|| dir.to_owned(), |at| at.display().to_string());
            Err(Failure::new(what, "no mount of Samehost is here").exit(Exit::Unreachable).next(
                "`samehost status` lists them; name their run directory with --run-dir or SAMEHOST_RUN_DIR",
            ))
        }
    }
}
