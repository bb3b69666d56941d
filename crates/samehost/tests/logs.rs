//! The server's log: JSON lines, audit lines with their fields, and without them.

mod common;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{TIMEOUT, run, samehost};
use serde_json::Value;

/// The clients of an export for this host.
const OPEN: &str = "127.0.0.1(rw,no_root_squash,insecure)";

/// A server whose standard error is a file. It ends with its standard input.
struct LoggingServer {
    child: std::process::Child,
    scratch: tempfile::TempDir,
    url: String,
}

impl LoggingServer {
    fn start(arguments: &[&str]) -> Self {
        Self::exporting_to(OPEN, arguments)
    }

    fn exporting_to(clients: &str, arguments: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let log = File::create(scratch.path().join("log")).unwrap();
        Self::logging_to(scratch, clients, arguments, log.into())
    }

    /// A server with this standard error.
    fn logging_to(scratch: tempfile::TempDir, clients: &str, arguments: &[&str], log: Stdio) -> Self {
        Self::run_by(samehost([] as [&str; 0]), scratch, clients, arguments, log)
    }

    /// A server that is run by `command`, which has its arguments appended.
    fn run_by(
        mut command: Command,
        scratch: tempfile::TempDir,
        clients: &str,
        arguments: &[&str],
        log: Stdio,
    ) -> Self {
        let export = scratch.path().join("export");
        fs::create_dir(&export).unwrap();
        command.args(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--until-stdin-ends"]);
        command.args(["--export", &format!("{} {clients}", export.display())]);
        command.arg("--run-dir").arg(scratch.path().join("run"));
        command.arg("--state-dir").arg(scratch.path().join("state"));
        let (child, ready) = common::ready(command.args(arguments).stderr(log));
        let (_, address) = ready.split_once(" on ").unwrap_or_else(|| panic!("{ready}"));
        let (address, _) = address.split_once(';').unwrap_or_else(|| panic!("{ready}"));
        let url = format!("nfs://{address}{}", export.display());
        Self { child, scratch, url }
    }

    fn client(&self, command: &str, path: &str) -> Command {
        let mut command = samehost([command, &format!("{}{path}", self.url)]);
        command.env("SAMEHOST_RUN_DIR", self.scratch.path().join("run"));
        command
    }

    /// The log so far.
    fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    /// Stops the server and returns its whole log.
    fn stop(mut self) -> String {
        drop(self.child.stdin.take());
        common::wait(&mut self.child);
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }
}

impl Drop for LoggingServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn audit_lines_say_who_mounted_what_and_who_was_refused() {
    let server = LoggingServer::start(&["--log-format", "json"]);
    run(&mut server.client("probe", "?vers=3")).exits(0);
    run(&mut server.client("cat", "/no-such-file?vers=3")).exits(1);
    run(samehost(["ls", &server.url.replace("/export", "/elsewhere")]).arg("--soft")).exits(1);
    let export = server.scratch.path().join("export");
    let log = server.stop();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let find = |message: &str| {
        let mut found = lines.iter().filter(|line| line["message"] == message);
        found.next().unwrap_or_else(|| panic!("no {message:?} in {log}"))
    };
    let mounted = find("mounted");
    assert_eq!(mounted["level"], "INFO");
    assert_eq!(mounted["target"], "audit");
    assert_eq!(Path::new(mounted["export"].as_str().unwrap()), export);
    assert_eq!((&mounted["road"], &mounted["protocol"]), (&"wire".into(), &"NFSv3".into()));
    assert!(mounted["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{mounted}");
    assert_eq!(mounted["uid"], rustix::process::geteuid().as_raw());
    let lane = find("lane established");
    assert_eq!(lane["road"], "lane");
    assert_eq!(lane["uid"], rustix::process::geteuid().as_raw());
    let refused = find("mount refused");
    let refusals = lines.iter().filter(|line| line["message"] == "mount refused");
    // Not that the file of `cat` isn't there, or is no directory.
    assert!(refusals.map(|line| &line["reason"]).all(|reason| reason == &refused["reason"]), "{log}");
    assert!(refused["export"].as_str().unwrap().ends_with("/elsewhere"), "{refused}");
    assert_eq!(refused["reason"], "not exported to this client");
    let ids = [mounted, lane, refused].map(|line| line["message_id"].as_str().unwrap());
    assert!(ids.iter().all(|id| id.len() == 32) && ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[test]
fn clients_of_nfsv4_are_logged_when_they_enter_an_export_and_strangers_once() {
    let server = LoggingServer::start(&["--log-format", "json"]);
    for _ in 0..2 {
        run(&mut server.client("ls", "?vers=4.2")).exits(0);
    }
    let export = server.scratch.path().join("export");
    let log = server.stop();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let mounted: Vec<_> = lines.iter().filter(|line| line["message"] == "mounted").collect();
    assert_eq!(mounted.len(), 1, "once an hour: {log}");
    assert_eq!(mounted[0]["protocol"], "NFSv4");
    assert_eq!(Path::new(mounted[0]["export"].as_str().unwrap()), export);
    let server = LoggingServer::exporting_to("192.0.2.1(ro)", &["--log-format", "json"]);
    for _ in 0..2 {
        assert_ne!(run(server.client("ls", "").arg("--soft")).code, Some(0));
    }
    let log = server.stop();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let refused: Vec<_> = lines.iter().filter(|line| line["message"] == "client refused").collect();
    assert_eq!(refused.len(), 1, "once an hour: {log}");
    assert_eq!(refused[0]["reason"], "not exported to this client");
}

#[test]
fn text_lines_have_no_identifiers_and_audit_lines_can_be_switched_off() {
    let server = LoggingServer::start(&[]);
    run(&mut server.client("ls", "")).exits(0);
    let log = server.stop();
    let line = log.lines().find(|line| line.contains("mounted")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("INFO") && line.contains("road=\"wire\""), "{line}");
    assert!(!line.contains("message_id"), "{line}");
    let server = LoggingServer::start(&["--no-audit"]);
    run(&mut server.client("ls", "")).exits(0);
    let log = server.stop();
    assert!(!log.contains("mounted") && !log.contains("audit"), "{log}");
}

/// The path of a mount is the client's. It makes no line and no field of its own.
#[test]
fn a_client_forges_no_line_and_no_field() {
    let forged = "/x%0a1999-01-01T00:00:00Z%20%20INFO%20audit:%20mounted%20client=192.0.2.1:700%1b[2J";
    for form in ["text", "json"] {
        let server = LoggingServer::start(&["--log-format", form]);
        let path = server.scratch.path().display().to_string();
        let (authority, _) = server.url.split_once(&path).unwrap_or_else(|| panic!("{}", server.url));
        run(samehost(["ls", &format!("{authority}{forged}")]).arg("--soft")).exits(1);
        let log = server.stop();
        let about: Vec<_> = log.lines().filter(|line| line.contains("1999")).collect();
        assert_eq!(about.len(), 1, "{log}");
        assert!(!log.contains('\u{1b}'), "{log}");
        if form == "json" {
            let line: Value = serde_json::from_str(about[0]).expect("JSON");
            assert_eq!(line["message"], "mount refused");
            assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        } else {
            let (_, path) = about[0].split_once("export=\"").unwrap_or_else(|| panic!("{log}"));
            assert!(path.contains("mounted client=192.0.2.1:700") && path.contains("\\n1999"), "{log}");
        }
    }
}

#[test]
fn a_server_loses_lines_rather_than_wait_for_its_log() {
    let (mut log, stderr) = std::io::pipe().expect("a pipe");
    let server = LoggingServer::logging_to(
        tempfile::tempdir().unwrap(),
        OPEN,
        &["-vvv", "--log-format", "json"],
        stderr.into(),
    );
    // A pipe has room for 64 KiB. Each READ has two lines.
    fs::write(server.scratch.path().join("export/file"), vec![1; 1 << 20]).unwrap();
    run(server.client("cat", "/file").args(["--lane", "off", "--rsize", "1024"])).exits(0);
    let mut taken = vec![0; 1 << 20];
    let length = log.read(&mut taken).unwrap();
    taken.truncate(length);
    run(&mut server.client("ls", "")).exits(0);
    server.stop();
    log.read_to_end(&mut taken).unwrap();
    let lines = String::from_utf8(taken).expect("JSON");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("no line is cut"));
    let lost = lines.filter_map(|line| line["lost"].as_u64()).max();
    assert!(lost.is_some_and(|lost| lost > 1000), "{lost:?}");
}

/// The server has files of its own for host names, in a mount namespace.
#[test]
fn a_clients_name_that_is_not_found_is_logged_once_until_that_changes() {
    const FILES: &str = "mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" /etc/nsswitch.conf && \
                         shift 2 && exec \"$@\"";
    let scratch = tempfile::tempdir().unwrap();
    let (hosts, databases) = (scratch.path().join("hosts"), scratch.path().join("nsswitch.conf"));
    let known = "127.0.0.1 localhost\n";
    fs::write(&hosts, known).unwrap();
    fs::write(&databases, "hosts: files\n").unwrap();
    let beside = scratch.path().join("beside");
    fs::create_dir(&beside).unwrap();
    let log = File::create(scratch.path().join("log")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", FILES, "sh"]);
    command.args([&hosts, &databases]).arg(env!("CARGO_BIN_EXE_samehost"));
    let other = format!("{} typo.example(ro) localhost(ro)", beside.display());
    let arguments = ["--log-format", "json", "--export", &other];
    let clients = format!("typo.example(rw) {OPEN}");
    let server = LoggingServer::run_by(command, scratch, &clients, &arguments, log.into());
    let lines = |log: &str| {
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.filter(|line| line["host"] == "typo.example").collect::<Vec<_>>()
    };
    let reload = || {
        let mut reload = samehost(["ctl", "reload"]);
        run(reload.env("SAMEHOST_RUN_DIR", server.scratch.path().join("run"))).exits(0);
        run(&mut server.client("ls", "")).exits(0);
    };
    let wait_for_lines = |count: usize| {
        common::wait_for("a line", || {
            // A call makes the server look it up again when that is due.
            run(&mut server.client("ls", "")).exits(0);
            lines(&server.log()).len() == count
        });
    };
    for round in 0..2 {
        wait_for_lines(2 * round + 1);
        // It is looked up again.
        reload();
        reload();
        fs::write(&hosts, format!("{known}192.0.2.7 typo.example\n")).unwrap();
        reload();
        wait_for_lines(2 * round + 2);
        reload();
        fs::write(&hosts, known).unwrap();
        reload();
    }
    wait_for_lines(5);
    let export = server.scratch.path().join("export");
    let log = server.stop();
    let lines = lines(&log);
    assert_eq!(lines.len(), 5, "{log}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["level"], "WARN");
        assert_eq!(Path::new(line["export"].as_str().unwrap()), export);
        assert_eq!(line["others"], 1);
        let message = line["message"].as_str().unwrap();
        if index % 2 == 0 {
            assert!(message.starts_with("a client of the exports isn't found"), "{line}");
            assert_eq!(line["reason"], "Name or service not known");
        } else {
            assert_eq!(message, "a client of the exports is found now");
        }
    }
}

#[test]
fn a_journal_that_is_not_there_is_an_error() {
    let ran = run(&mut samehost(["man", "--log-format", "journal"]));
    // Where systemd's journal runs, the command succeeds.
    if ran.code == Some(0) {
        assert!(Path::new("/run/systemd/journal/socket").exists());
    } else {
        ran.exits(1).complains(&["the journal", "--log-format text"]);
    }
}
