//! What the user sees of a mount's process: errors with their next step, and the line that it is ready.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use mount::process::{DaemonFailure, MountPlan, MountStatus, Presenter, ProcessError};

use crate::exit::{Exit, Failure};
use crate::output::print_error;
use crate::{connect, fuse_device, human, logging, notify};

/// Writes to standard output and standard error, and notifies the service manager.
pub struct Console;

impl Presenter for Console {
    fn explain(&self, plan: &MountPlan, error: &mount::Error) -> DaemonFailure {
        explain(plan, error).into()
    }

    fn waiting(&self, failure: &DaemonFailure, left: Duration) {
        waiting(failure, left);
    }

    fn mounted(&self, status: &MountStatus) -> io::Result<()> {
        let line = ready_line(status);
        notify::ready(&line);
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            // Nothing has to read the output.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    fn stopping(&self) {
        notify::stopping();
    }

    fn detach_log(&self) {
        logging::detach();
    }
}

impl From<Failure> for DaemonFailure {
    fn from(failure: Failure) -> Self {
        let Failure { exit, object, reason, next } = failure;
        Self { exit_code: exit as u8, object, reason, next }
    }
}

impl From<DaemonFailure> for Failure {
    fn from(failure: DaemonFailure) -> Self {
        let DaemonFailure { exit_code, object, reason, next } = failure;
        Self { exit: exit_of(exit_code), object, reason, next }
    }
}

/// The exit of an exit code.
pub fn exit_of(code: u8) -> Exit {
    [Exit::Usage, Exit::NotLocal, Exit::Unreachable]
        .into_iter()
        .find(|exit| *exit as u8 == code)
        .unwrap_or(Exit::Failed)
}

/// Says that the server can't be reached yet.
pub fn waiting(failure: &DaemonFailure, left: Duration) {
    print_error(&format!(
        "mount: {}: {}; trying for another {} (-o retry=0 gives up at once)",
        failure.object,
        failure.reason,
        human::duration(left)
    ));
}

/// `ready: host:/srv on /mnt; lane, passed through`.
fn ready_line(status: &MountStatus) -> String {
    let at = human::name(status.mountpoint.as_os_str().as_bytes());
    let mut line = format!("ready: {} on {at}; {}", human::name(status.source.as_bytes()), status.data_path);
    if !status.reasons.is_empty() {
        line.push_str(&format!(": {}", human::name(status.reasons.join("; ").as_bytes())));
    }
    line
}

/// The failure of a mount's process.
pub fn process_failure(plan: &MountPlan, error: ProcessError) -> Failure {
    match error {
        ProcessError::Mount(error) => explain(plan, &error),
        ProcessError::Runtime(error) => Failure::new("starting the runtime", error),
        ProcessError::Signals(error) => Failure::new("signal handlers", error),
        error @ ProcessError::Metrics { .. } => {
            Failure::new("mount", error).next("give each mount an address of its own (-o metrics=ADDR:PORT)")
        }
        ProcessError::Output(error) => Failure::new("standard output", error),
        ProcessError::Detach(error) => Failure::new("leaving the terminal", error),
        error @ (ProcessError::Start(_) | ProcessError::Messages(_) | ProcessError::EndedEarly(_)) => {
            start_failure(&plan.source, error)
        }
    }
}

/// The failure of starting a mount's process.
pub fn start_failure(source: &str, error: ProcessError) -> Failure {
    match error {
        ProcessError::Start(error) => Failure::new("starting the mount's process", error),
        ProcessError::Messages(error) => Failure::new("the mount's process", error),
        error => Failure::new(source, error)
            .next(format!("see what it does: --foreground, -vv or {}=debug", logging::VARIABLE)),
    }
}

fn explain(plan: &MountPlan, error: &mount::Error) -> Failure {
    let at = plan.at.display().to_string();
    match error {
        mount::Error::Client(client::Error::NoLane { reasons, .. }) => {
            let mut reason = "no lane came up and lane=required was given".to_owned();
            for each in reasons {
                reason.push_str("\n  ");
                reason.push_str(&human::name(each.as_bytes()));
            }
            Failure::new(&plan.source, reason)
                .exit(Exit::NotLocal)
                .next("mount with lane=auto to go over the wire")
        }
        mount::Error::Client(error) => {
            Failure { object: plan.source.clone(), ..connect::failure(&plan.url, error) }
        }
        mount::Error::NoDevice { source } => {
            let (reason, next) = fuse_device::explain(source, rustix::process::geteuid().is_root());
            Failure::new(fuse_device::PATH, reason).next(next)
        }
        mount::Error::Mount { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::new(at, source).next(
                "mounting needs CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN), or fusermount3 of the \
                 package fuse3",
            )
        }
        mount::Error::Helper { reason, .. } => fusermount_failure(at, reason),
        mount::Error::NoUring(_) => {
            Failure::new(at, error).next("mount with uring=auto to take /dev/fuse where there is no io_uring")
        }
        other => Failure::new(at, other),
    }
}

/// A failure of fusermount3, by its message.
fn fusermount_failure(at: String, reason: &str) -> Failure {
    let next = if reason.contains("user_allow_other") {
        "leave allow_other out, or have root write user_allow_other into /etc/fuse.conf"
    } else if reason.contains("started") {
        "install the package fuse3, or mount as root"
    } else if reason.contains("write access") || reason.contains("not owner") || reason.contains("ermission")
    {
        "mount on a directory of your own, or as root"
    } else {
        "mount as root"
    };
    Failure::new(at, format!("fusermount3: {reason}")).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_the_pipe() {
        let failure = Failure::new("a", "b").next("c").exit(Exit::Unreachable);
        assert_eq!(Failure::from(DaemonFailure::from(failure.clone())), failure);
    }
}
