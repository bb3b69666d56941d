//! Processes with recorded output, which end when the value that owns them is dropped.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::TIMEOUT;

/// Polls `condition` until it returns a value.
///
/// # Panics
/// When [`TIMEOUT`] expires; `what` describes the condition in the message.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "waited {TIMEOUT:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a command to its end; its status and output. Limited by [`TIMEOUT`].
///
/// # Panics
/// When it can't be started or doesn't end.
pub fn run(command: &mut Command) -> Output {
    run_within(command, TIMEOUT)
}

/// [`run`] with another timeout.
///
/// # Panics
/// As [`run`].
pub fn run_within(command: &mut Command, timeout: Duration) -> Output {
    let shown = format!("{command:?}");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {shown}: {e}"));
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    // This thread reads both pipes. On a timeout the process is killed, and the thread ends by itself.
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(timeout) {
        Ok(output) => output.unwrap_or_else(|e| panic!("{shown}: {e}")),
        Err(_) => {
            let _ = kill_process(pid_of(pid), Signal::KILL);
            panic!("{shown} did not end within {timeout:?}");
        }
    }
}

/// Runs a command that must succeed; its standard output.
///
/// # Panics
/// When it fails; the message contains its output.
pub fn run_ok(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn pid_of(id: u32) -> Pid {
    i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id is positive")
}

/// A process that runs beside the test. Killed and reaped when dropped; its output is shown if the test is
/// panicking.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` with standard output and error appended to `log`.
    ///
    /// # Errors
    /// The operating system's error when the program can't be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> io::Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        let err = out.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        Ok(Self { child, name: name.to_owned(), log: log.to_owned() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }

    /// The address that `samehost serve` listens on, once its log has it.
    pub fn served_address(&self) -> String {
        wait_for("the ready line", || {
            let log = self.log();
            assert!(log.contains("ready") || !log.contains("samehost:"), "{log}");
            let (_, after) = log.split_once("ready: ")?.1.split_once(" on ")?;
            Some(after.split_once(';')?.0.to_owned())
        })
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal; it is no error if the process has exited already.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(pid_of(self.child.id()), signal);
    }

    /// Waits until it has exited.
    ///
    /// # Panics
    /// When it doesn't.
    pub fn wait(&mut self) -> ExitStatus {
        let name = self.name.clone();
        wait_for(&format!("the end of {name}"), || self.child.try_wait().expect("a child can be waited for"))
    }

    /// Sends SIGTERM and waits for its exit.
    ///
    /// # Panics
    /// When it doesn't exit.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends SIGKILL and waits for its exit.
    pub fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().unwrap_or_else(|_| ExitStatus::from_raw(9))
    }

    /// Number of open descriptors; `None` after its exit.
    pub fn descriptors(&self) -> Option<usize> {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).ok().map(Iterator::count)
    }

    /// Resident memory in KiB (`VmRSS`); `None` after its exit.
    pub fn resident_kib(&self) -> Option<u64> {
        resident_kib(self.pid())
    }

    /// Peak resident memory in KiB (`VmHWM`).
    pub fn peak_kib(&self) -> Option<u64> {
        status_kib(self.pid(), "VmHWM:")
    }

    /// Processor time used so far, user and system together.
    pub fn cpu_time(&self) -> Option<Duration> {
        cpu_time(self.pid())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the last lines of {}:", self.name);
            for line in tail.iter().rev() {
                eprintln!("    {line}");
            }
        }
    }
}

/// Resident memory of any process in KiB; `None` after its exit.
pub fn resident_kib(pid: u32) -> Option<u64> {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time of any process, from /proc (whose unit is 10 ms with every kernel that Debian builds).
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything, the later fields not.
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = rest.next()?.parse().ok()?;
    let system: u64 = rest.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}
