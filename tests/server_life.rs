//! The life of a server's process: predecessors, signals before it is ready, and what the service manager
//! hears. The test's own socket stands for the service manager's.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use samehost_tests::samehost::binary;
use samehost_tests::{Daemon, Scratch, TIMEOUT, run, wait_for};

/// The socket of the service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(scratch: &Scratch) -> Self {
        let socket = UnixDatagram::bind(scratch.join("notify")).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(socket)
    }

    /// The next message.
    fn next(&self) -> String {
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).expect("a notification");
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    /// The next message that begins like this.
    fn await_message(&self, begin: &str) -> String {
        wait_for(begin, || Some(self.next()).filter(|message| message.starts_with(begin)))
    }
}

/// `samehost serve` with the directories of this scratch directory.
fn serve(scratch: &Scratch, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind"]);
    command.arg("--run-dir").arg(scratch.mkdir("run")).arg("--state-dir").arg(scratch.mkdir("state"));
    command.arg("--export").arg(format!("{} *(ro,insecure)", scratch.mkdir("export").display()));
    command.args(arguments).env("NOTIFY_SOCKET", scratch.join("notify"));
    command
}

fn start(scratch: &Scratch, log: &str, arguments: &[&str]) -> Daemon {
    Daemon::start(log, &mut serve(scratch, arguments), &scratch.join(log)).unwrap()
}

fn mkfifo(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

/// Waits until the process catches SIGTERM (proc_pid_status(5)).
fn wait_for_handlers(daemon: &Daemon) {
    let status = format!("/proc/{}/status", daemon.pid());
    wait_for("signal handlers", || {
        let status = fs::read_to_string(&status).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
        (caught & (1 << (Signal::TERM.as_raw() - 1)) != 0).then_some(())
    });
}

#[test]
fn a_second_server_with_a_state_directory_is_refused_and_told_what_to_do() {
    let scratch = Scratch::new();
    let first = start(&scratch, "first", &[]);
    first.served_address();
    let second = run(&mut serve(&scratch, &["--takeover", "0"]));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{said}");
    let state = scratch.join("state");
    for part in [
        format!("state directory {} is in use by process {}", state.display(), first.pid()),
        format!("next: stop it (kill {})", first.pid()),
        "--takeover".to_owned(),
        "--state-dir".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
}

#[test]
fn a_server_takes_over_from_its_predecessor_and_reloads_what_was_asked_meanwhile() {
    let scratch = Scratch::new();
    let mut first = start(&scratch, "first", &[]);
    first.served_address();
    let manager = Manager::new(&scratch);
    let mut second = start(&scratch, "second", &["--takeover", "3600"]);
    let waiting = manager.next();
    let (time, status) = waiting.split_once('\n').unwrap();
    let micros: u64 = time.strip_prefix("EXTEND_TIMEOUT_USEC=").unwrap().parse().unwrap();
    assert!(micros > 3_590_000_000, "{micros}");
    assert!(status.starts_with("STATUS=waiting for another server: state directory "), "{status}");
    second.signal(Signal::HUP);
    first.signal(Signal::TERM);
    assert!(first.wait().success());
    manager.await_message("READY=1");
    // Another server has no part in this.
    manager.await_message("RELOADING=1");
    manager.await_message("READY=1");
    assert!(second.terminate().success());
}

#[test]
fn a_server_that_waits_for_its_predecessor_ends_on_sigterm() {
    let scratch = Scratch::new();
    let mut first = start(&scratch, "first", &[]);
    first.served_address();
    let manager = Manager::new(&scratch);
    let mut second = start(&scratch, "second", &["--takeover", "3600"]);
    manager.await_message("EXTEND_TIMEOUT_USEC=");
    assert!(second.terminate().success(), "{}", second.log());
    assert!(!second.log().contains("ready:") && first.alive());
}

#[test]
fn signals_while_the_configuration_is_read_act_as_later() {
    let scratch = Scratch::new();
    let config = scratch.join("samehost.toml");
    mkfifo(&config);
    let mut server = start(&scratch, "server", &["--config", config.to_str().unwrap()]);
    wait_for_handlers(&server);
    server.signal(Signal::HUP);
    assert!(server.terminate().success(), "{}", server.log());
}

#[test]
fn a_start_that_hangs_ends_on_sigterm() {
    let scratch = Scratch::new();
    let manager = Manager::new(&scratch);
    let exports = scratch.join("exports");
    mkfifo(&exports);
    let mut server = start(&scratch, "server", &["--exports", exports.to_str().unwrap()]);
    wait_for_handlers(&server);
    let tasks = format!("/proc/{}/task", server.pid());
    wait_for("the start", || {
        let mut tasks = fs::read_dir(&tasks).ok()?.flatten();
        tasks
            .any(|task| fs::read(task.path().join("comm")).is_ok_and(|name| name == b"start\n"))
            .then_some(())
    });
    assert!(server.terminate().success(), "{}", server.log());
    drop(manager);
}

#[test]
fn a_stop_asks_for_the_time_that_its_grace_allows() {
    let scratch = Scratch::new();
    let manager = Manager::new(&scratch);
    let mut server = start(&scratch, "server", &["--grace", "1000"]);
    manager.await_message("READY=1");
    server.signal(Signal::TERM);
    let stopping = manager.await_message("STOPPING=1\n");
    let micros: u64 = stopping.split_once("EXTEND_TIMEOUT_USEC=").unwrap().1.parse().unwrap();
    assert!(micros >= 3_000_000_000, "{micros}");
    assert!(server.wait().success());
}
