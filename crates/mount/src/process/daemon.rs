//! The life of a mount's process.
//!
//! 1. It connects to the server, for as long as `retry` says, and mounts.
//! 2. It reports that: in the background by a message to the command that waits, and then it leaves the
//!    command's terminal and session.
//! 3. It serves until the filesystem is unmounted, or until SIGTERM or SIGINT. A filesystem in use is then
//!    detached and served until its last user is gone; a second signal ends that, too.
//! 4. It tells the server that the session ends.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Socket;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::metrics::MountMetrics;
use super::status::{self, MountIdentity, MountStatus};
use super::{DaemonFailure, DaemonMessage, MountPlan, ProcessError};
use crate::error::Error;
use crate::mount::Mount;

/// The least time for one attempt, even if `retry` is shorter.
const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take to grant its own mount before the mount is reported.
const MOUNT_GRANT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the session may take.
const SESSION_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long threads that search for a lane or wait for a disk may take at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Shows the user what a mount's process does. Its methods run on the process's main thread.
pub trait Presenter {
    /// An error in words for the user.
    fn explain(&self, plan: &MountPlan, error: &Error) -> DaemonFailure;

    /// In the foreground: the server can't be reached yet, and is tried again for `left`.
    fn waiting(&self, failure: &DaemonFailure, left: Duration);

    /// In the foreground: the filesystem is mounted.
    ///
    /// # Errors
    /// An error of standard output, which ends the process.
    fn mounted(&self, status: &MountStatus) -> io::Result<()>;

    /// A signal ends the process.
    fn stopping(&self);

    /// In the background: standard error is about to be closed.
    fn detach_log(&self);
}

/// How a mount's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The filesystem was unmounted.
    Unmounted,
    /// A signal came before the filesystem was mounted.
    Interrupted,
    /// The filesystem couldn't be mounted, which was reported already; with the exit code of
    /// [`DaemonFailure`].
    NotMounted(u8),
}

/// Mounts and serves in the foreground.
///
/// # Errors
/// [`ProcessError::Runtime`], [`ProcessError::Signals`], [`ProcessError::Mount`] and
/// [`ProcessError::Output`].
pub fn foreground(plan: MountPlan, presenter: &impl Presenter) -> Result<ProcessEnd, ProcessError> {
    run(async {
        let mut signals = Signals::new()?;
        let metrics = MountMetrics::start(&plan)?;
        let waiting = |error: &Error, left| presenter.waiting(&presenter.explain(&plan, error), left);
        let mount = tokio::select! {
            mounted = mount(&plan, plan.retry, waiting) => {
                mounted.map_err(|error| ProcessError::Mount(Box::new(error)))?
            }
            () = signals.stop() => return Ok(ProcessEnd::Interrupted),
        };
        let served = ServedMount::new(plan, mount, metrics);
        served.mount.settled(MOUNT_GRANT_TIMEOUT).await;
        let status = status::snapshot(&served.identity, &served.mount);
        presenter.mounted(&status).map_err(ProcessError::Output)?;
        served.serve(signals, presenter).await;
        Ok(ProcessEnd::Unmounted)
    })
}

/// Mounts and serves in the background, for the command that reads messages from standard output.
///
/// # Errors
/// [`ProcessError::Runtime`], [`ProcessError::Signals`] and [`ProcessError::Detach`].
pub fn background(plan: MountPlan, presenter: &impl Presenter) -> Result<ProcessEnd, ProcessError> {
    // The process was started through /proc/self/exe, and its name would be "exe" in ps(1).
    let _ = rustix::thread::set_name(c"samehost");
    run(async {
        let mut signals = Signals::new()?;
        let send = |message: DaemonMessage| message.send(&mut io::stdout().lock());
        let waiting = |error: &Error, left: Duration| {
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            // A broken pipe shows again at the last message.
            let _ = send(DaemonMessage::Waiting { failure: presenter.explain(&plan, error), left_ms });
        };
        let metrics = match MountMetrics::start(&plan) {
            Ok(metrics) => metrics,
            Err(error) => {
                let failure = DaemonFailure::of_metrics(&error);
                let exit_code = failure.exit_code;
                let _ = send(DaemonMessage::Failed(failure));
                return Ok(ProcessEnd::NotMounted(exit_code));
            }
        };
        let retry = if plan.background { Duration::ZERO } else { plan.retry };
        let first = tokio::select! {
            first = mount(&plan, retry, waiting) => first,
            () = signals.stop() => return Ok(ProcessEnd::Interrupted),
        };
        let served = match first {
            Ok(mount) => {
                // With its socket, because the command's user may ask for the status at once.
                let served = ServedMount::new(plan, mount, metrics);
                served.mount.settled(MOUNT_GRANT_TIMEOUT).await;
                detach(&DaemonMessage::Mounted, presenter).map_err(ProcessError::Detach)?;
                served
            }
            Err(error) if plan.background && is_unreachable(&error) => {
                let failure = presenter.explain(&plan, &error);
                let message = DaemonMessage::Retrying(failure.clone());
                detach(&message, presenter).map_err(ProcessError::Detach)?;
                tracing::warn!(source = plan.source, at = %plan.at.display(), %failure, "not mounted yet");
                let later = tokio::select! {
                    later = mount(&plan, plan.retry, |_, _| {}) => later,
                    () = signals.stop() => return Ok(ProcessEnd::Interrupted),
                };
                match later {
                    Ok(mount) => ServedMount::new(plan, mount, metrics),
                    Err(error) => {
                        let failure = presenter.explain(&plan, &error);
                        let at = plan.at.display();
                        tracing::error!(source = plan.source, %at, %failure, "not mounted");
                        return Ok(ProcessEnd::NotMounted(failure.exit_code));
                    }
                }
            }
            Err(error) => {
                // The command reports it to the user.
                let failure = presenter.explain(&plan, &error);
                let exit_code = failure.exit_code;
                let _ = send(DaemonMessage::Failed(failure));
                return Ok(ProcessEnd::NotMounted(exit_code));
            }
        };
        served.serve(signals, presenter).await;
        Ok(ProcessEnd::Unmounted)
    })
}

/// Runs a process on the mount's runtime.
fn run(process: impl Future<Output = Result<ProcessEnd, ProcessError>>) -> Result<ProcessEnd, ProcessError> {
    // The kernel has applied the caller's umask to the modes in requests.
    rustix::process::umask(rustix::fs::Mode::empty());
    let runtime: Runtime = crate::runtime().map_err(ProcessError::Runtime)?;
    let end = runtime.block_on(process);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    end
}

/// Sends the last message and leaves the terminal, the session and the working directory of the command.
fn detach(message: &DaemonMessage, presenter: &impl Presenter) -> io::Result<()> {
    // It fails for the leader of a process group, which has no need for it.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    presenter.detach_log();
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let sent = message.send(&mut io::stdout().lock());
    io::stdout().lock().flush()?;
    rustix::stdio::dup2_stdout(&null)?;
    // An error means that the command was interrupted: its user doesn't want the mount.
    sent
}

fn is_unreachable(error: &Error) -> bool {
    matches!(error, Error::Client(error) if error.is_unreachable())
}

/// Mounts. If the first attempt doesn't reach the server, `waiting` gets the failure and the time that is
/// left of `retry`, for which it is tried again.
async fn mount(
    plan: &MountPlan,
    retry: Duration,
    waiting: impl Fn(&Error, Duration),
) -> Result<Mount, Error> {
    let started = Instant::now();
    let start = |retry: Duration, left: Duration| {
        let mut session = plan.session.clone();
        session.retry = Some(retry);
        session.attempt_timeout = left.min(session.attempt_timeout).max(MIN_ATTEMPT_TIMEOUT);
        Mount::start(&plan.url, session, plan.options.clone(), &plan.at)
    };
    let error = match start(Duration::ZERO, retry).await {
        Err(error) if is_unreachable(&error) => error,
        ended => return ended,
    };
    let left = retry.saturating_sub(started.elapsed());
    if left.is_zero() {
        return Err(error);
    }
    waiting(&error, left);
    start(left, left).await
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, ProcessError> {
        let watch = |kind| signal(kind).map_err(ProcessError::Signals);
        Ok(Self { terminate: watch(SignalKind::terminate())?, interrupt: watch(SignalKind::interrupt())? })
    }

    /// Waits for either.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A mounted filesystem and its status socket.
struct ServedMount {
    mount: Arc<Mount>,
    identity: Arc<MountIdentity>,
    socket: Option<Socket>,
    _metrics: Option<MountMetrics>,
}

impl ServedMount {
    fn new(plan: MountPlan, mount: Mount, metrics: Option<MountMetrics>) -> Self {
        let mount = Arc::new(mount);
        let identity = Arc::new(MountIdentity { source: plan.source, at: plan.at, since: Instant::now() });
        let socket = status::socket(&plan.session.run_dir, &mount, &identity);
        if let Some(metrics) = &metrics {
            metrics.set_mount(&mount, &identity);
        }
        Self { mount, identity, socket, _metrics: metrics }
    }

    async fn serve(self, mut signals: Signals, presenter: &impl Presenter) {
        tokio::select! {
            reason = self.mount.wait() => {
                tracing::debug!(at = %self.identity.at.display(), reason, "the mount has ended");
            }
            () = signals.stop() => {
                presenter.stopping();
                self.unmount(&mut signals).await;
            }
        }
        // There is no mount any more that could be shown or changed.
        drop(self.socket);
        let session = self.mount.session().clone();
        // A server that is down doesn't have to hear it.
        let _ = tokio::time::timeout(SESSION_CLOSE_TIMEOUT, session.close()).await;
    }

    /// Unmounts, and waits until nothing uses the filesystem any more or for a second signal.
    async fn unmount(&self, signals: &mut Signals) {
        for lazy in [false, true] {
            // An unmount may write back the page cache, through this very process.
            let mount = Arc::clone(&self.mount);
            let unmounted = tokio::task::spawn_blocking(move || mount.unmount(lazy)).await;
            match unmounted {
                Ok(Ok(())) => break,
                Ok(Err(error)) if lazy => {
                    tracing::error!(at = %self.identity.at.display(), %error, "it can't be unmounted");
                }
                Ok(Err(error)) => tracing::warn!(
                    at = %self.identity.at.display(),
                    %error,
                    "it is detached, and ends with its last user or at a second signal"
                ),
                Err(error) => tracing::error!(%error, "unmounting"),
            }
        }
        tokio::select! {
            _ = self.mount.wait() => {}
            () = signals.stop() => {}
        }
    }
}
