//! The process that serves a mounted filesystem.
//!
//! Its life:
//! 1. Reach the server, within the patience of `retry`; mount.
//! 2. Say so: to the command that waits (and then leave its terminal and session), or on standard output.
//! 3. Serve until somebody unmounts, or until SIGTERM or SIGINT. What is in use then is taken out of the tree
//!    at once and served until its last user is gone; a second signal ends that, too.
//! 4. Say goodbye to the server, if it still listens.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::Socket;
use mount::Mount;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::plan::Plan;
use super::status::{Identity, Road, answer, own_run_dir};
use super::word::Word;
use crate::exit::{Ended, Exit, Failure, Stop};
use crate::output::{Output, complain};
use crate::{connect, human, logging, notify};

/// The first pause between attempts to reach the server; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// What one attempt may take at least, however little patience there is.
const ONE_ATTEMPT: Duration = Duration::from_secs(10);
/// How long a server is waited for to hear that its client goes.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long threads are waited for that still do something when all is said: search for a lane, wait for a
/// disk.
const LEFTOVERS: Duration = Duration::from_millis(500);

/// Serves in the foreground.
pub fn foreground(plan: Plan) -> Ended {
    // The mode of a new file is the caller's business alone.
    rustix::process::umask(rustix::fs::Mode::empty());
    let runtime = mount::runtime().map_err(|error| Failure::new("starting the runtime", error))?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let reached = tokio::select! {
            reached = reach(&plan, plan.retry, |what| complain(&format!("mount: {what}"))) => reached?,
            () = signals.stop() => return Ok(Exit::Failed),
        };
        let served = Served::new(plan, reached);
        let line = served.ready_line();
        notify::ready(&line);
        let mut output = Output::stdout();
        match output.line(&line).and_then(|()| output.flush()) {
            // Whoever started it doesn't have to listen to it.
            Ok(()) | Err(Stop::ReaderGone) => {}
            Err(stop) => return Err(stop),
        }
        drop(output);
        served.until_the_end(signals).await;
        Ok(Exit::Done)
    });
    runtime.shutdown_timeout(LEFTOVERS);
    ended
}

/// Serves in the background, for the command that waits at the other end of standard output.
pub fn background(plan: Plan) -> Ended {
    // The mode of a new file is the caller's business alone.
    rustix::process::umask(rustix::fs::Mode::empty());
    // It was started through /proc/self/exe; ps(1) needn't call it "exe". Without a name it works as well.
    let _ = rustix::thread::set_name(c"samehost");
    let runtime = mount::runtime().map_err(|error| Failure::new("starting the runtime", error))?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let patience = if plan.background { Duration::ZERO } else { plan.retry };
        let say = |word: Word| word.say(&mut io::stdout().lock());
        let first = tokio::select! {
            // That nobody hears it any more is seen at the last word.
            first = reach(&plan, patience, |what| drop(say(Word::Waiting(what)))) => first,
            () = signals.stop() => return Ok(Exit::Failed),
        };
        let served = match first {
            Ok(mount) => {
                // Whoever hears that it is mounted may ask for its status.
                let served = Served::new(plan, mount);
                detach(Word::Mounted).map_err(|error| Failure::new("leaving the terminal", error))?;
                served
            }
            Err(failure) if plan.background && failure.exit == Exit::Unreachable => {
                detach(Word::Trying(failure.to_string()))
                    .map_err(|error| Failure::new("leaving the terminal", error))?;
                tracing::warn!(source = plan.source, at = %plan.at.display(), %failure, "not mounted yet");
                let later = tokio::select! {
                    later = reach(&plan, plan.retry, |_| {}) => later,
                    () = signals.stop() => return Ok(Exit::Failed),
                };
                match later {
                    Ok(mount) => Served::new(plan, mount),
                    Err(failure) => {
                        tracing::error!(source = plan.source, at = %plan.at.display(), %failure, "not mounted");
                        return Ok(failure.exit);
                    }
                }
            }
            Err(failure) => {
                // The other process tells the user.
                let _ = say(Word::from(&failure));
                return Ok(failure.exit);
            }
        };
        served.until_the_end(signals).await;
        Ok(Exit::Done)
    });
    runtime.shutdown_timeout(LEFTOVERS);
    ended
}

/// Gives the last word and leaves the terminal, the session and the directory of whoever started this.
fn detach(word: Word) -> io::Result<()> {
    // A process group's leader can't, and needn't.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    logging::detach();
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let said = word.say(&mut io::stdout().lock());
    io::stdout().lock().flush()?;
    rustix::stdio::dup2_stdout(&null)?;
    // Nobody waits any more: it was interrupted, and doesn't want the mount.
    said
}

/// Mounts; tries again for as long as `patience` lasts while the server can't be reached.
async fn reach(plan: &Plan, patience: Duration, tell: impl Fn(String)) -> Result<Mount, Failure> {
    let until = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    let mut told = false;
    loop {
        let mut session = plan.session.clone();
        session.retry = until.saturating_duration_since(Instant::now()).max(ONE_ATTEMPT);
        let error = match Mount::start(&plan.url, session, plan.mount.clone(), &plan.at).await {
            Ok(mount) => return Ok(mount),
            Err(error) => error,
        };
        let may_come = matches!(&error, mount::Error::Client(error) if error.is_unreachable());
        let failure = explain(plan, error);
        let left = until.saturating_duration_since(Instant::now());
        if !may_come || left.is_zero() {
            return Err(failure);
        }
        if !told {
            told = true;
            tell(format!(
                "{}: {}; trying for another {} (-o retry=0 gives up at once)",
                failure.object,
                failure.reason,
                human::duration(left)
            ));
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A mount's errors in words for its user.
fn explain(plan: &Plan, error: mount::Error) -> Failure {
    let at = plan.at.display().to_string();
    match error {
        mount::Error::Client(client::Error::NoLane { reasons, .. }) => {
            let mut reason = "no lane came up and lane=required was given".to_owned();
            for each in &reasons {
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
        mount::Error::NoDevice { source } => Failure::new("/dev/fuse", source)
            .next("load the module (modprobe fuse); in a container, give it --device /dev/fuse"),
        mount::Error::Mount { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::new(at, source).next(
                "mounting needs CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN), or fusermount3 of the \
                 package fuse3",
            )
        }
        mount::Error::Helper { reason, .. } => helper(at, &reason),
        other => Failure::new(at, other),
    }
}

/// What fusermount3 has against it.
fn helper(at: String, reason: &str) -> Failure {
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

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let watch = |kind| signal(kind).map_err(|error| Failure::new("signal handlers", error));
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

/// A mounted filesystem and the socket at which it can be asked.
struct Served {
    mount: Arc<Mount>,
    identity: Arc<Identity>,
    _socket: Option<Socket>,
}

impl Served {
    fn new(plan: Plan, mount: Mount) -> Self {
        let mount = Arc::new(mount);
        let identity = Arc::new(Identity { source: plan.source, at: plan.at, since: Instant::now() });
        let socket = socket(&plan.session.run_dir, &mount, &identity);
        Self { mount, identity, _socket: socket }
    }

    /// `ready: host:/srv on /mnt; lane, passed through`.
    fn ready_line(&self) -> String {
        use std::os::unix::ffi::OsStrExt;
        let at = human::name(self.identity.at.as_os_str().as_bytes());
        let mut line = format!("ready: {} on {at}", human::name(self.identity.source.as_bytes()));
        let report = self.mount.report();
        let road = Road::of(&report);
        line.push_str(&format!("; {}", road.words()));
        let reasons = road.reasons(&report);
        if !reasons.is_empty() {
            line.push_str(&format!(": {}", human::name(reasons.join("; ").as_bytes())));
        }
        line
    }

    async fn until_the_end(self, mut signals: Signals) {
        tokio::select! {
            how = self.mount.wait() => tracing::debug!(at = %self.identity.at.display(), how, "the end"),
            () = signals.stop() => {
                notify::stopping();
                self.leave(&mut signals).await;
            }
        }
        let session = self.mount.session().clone();
        // It is a courtesy: a server that is down doesn't need to hear it.
        let _ = tokio::time::timeout(GOODBYE, session.close()).await;
    }

    /// Unmounts, and waits until nobody uses it any more or for a second signal.
    async fn leave(&self, signals: &mut Signals) {
        for lazy in [false, true] {
            // Unmounting may write back what is in the page cache, through this very process.
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
                    "it is taken out of the tree, and ends with its last user or at a second signal"
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

/// The socket for `samehost status` and `samehost ctl`; a mount works without.
fn socket(run_dir: &std::path::Path, mount: &Arc<Mount>, identity: &Arc<Identity>) -> Option<Socket> {
    let start = |dir: &std::path::Path| {
        let (mount, identity) = (Arc::downgrade(mount), Arc::clone(identity));
        let instance = lane::nonce::hex(&lane::nonce::random_instance()?);
        lane::run_dir::create(dir)?;
        Socket::start(dir, &instance, control::MOUNT, move |request| {
            mount.upgrade().and_then(|mount| answer(&identity, &mount, request))
        })
    };
    let error = match start(run_dir) {
        Ok(socket) => return Some(socket),
        Err(error) => error,
    };
    if let Some(Ok(socket)) = own_run_dir().map(|dir| start(&dir)) {
        return Some(socket);
    }
    tracing::warn!(run_dir = %run_dir.display(), %error, "no socket for `samehost status` and `samehost \
                                                          ctl`");
    None
}
