//! The server's configuration file: start, errors, reload.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{Ran, Server, run, samehost};
use rustix::process::Signal;

fn check(file: &Path) -> Ran {
    run(samehost(["check-config"]).arg(file))
}

#[test]
fn a_file_is_checked_without_a_server() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("samehost.toml");
    let exports = scratch.path().join("exports");
    fs::write(&exports, "/srv *(ro)\n").unwrap();
    let first = format!("exports = {:?}\n", exports.display().to_string());
    fs::write(&file, &first).unwrap();
    assert!(check(&file).exits(0).text().ends_with("samehost.toml: valid\n"));

    fs::write(&file, format!("{first}theads = 4\nlease = 0\n")).unwrap();
    check(&file).exits(2).complains(&[
        "samehost.toml:2:1: option 'theads' is not known; did you mean 'threads'?",
        "samehost.toml:3:9: lease: 0 is not in 1..=3600",
        "next: ",
    ]);
    run(samehost(["serve", "--config"]).arg(&file)).exits(2).complains(&["samehost.toml:2:1: "]);

    fs::write(&file, &first).unwrap();
    fs::write(&exports, "/srv *(ro)\n/usr *(frobnicate)\n").unwrap();
    check(&file).exits(1).complains(&["exports:2:", "frobnicate"]);
    check(&scratch.path().join("none")).exits(2).complains(&["none: No such file"]);
}

#[test]
fn a_reload_applies_what_can_change_and_names_what_cannot() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("samehost.toml");
    fs::write(&file, "threads = 3\nread-io = 'buffered'\n").unwrap();
    let mut server = Server::with(&["--config", file.to_str().unwrap()], "127.0.0.1(rw,insecure)");
    let mode = |server: &Server, direction: &str| server.status()["io"][direction].clone();
    assert_eq!(mode(&server, "read"), "buffered");

    fs::write(&file, "threads = 3\nread-io = 'buffered'\nwrite-io = 'dontcache'\n").unwrap();
    server.signal(Signal::HUP);
    wait_for("the mode of writes", || mode(&server, "write") == "dontcache");
    assert_eq!(mode(&server, "read"), "buffered");

    // A mode of `ctl` stays until the configured one changes.
    server.run(&["ctl", "io-mode", "write", "direct"]).exits(0);
    fs::write(&file, "threads = 4\nread-io = 'direct'\nwrite-io = 'dontcache'\n").unwrap();
    server.signal(Signal::HUP);
    wait_for("the mode of reads", || mode(&server, "read") == "direct");
    assert_eq!(mode(&server, "write"), "direct");
    server.run(&["ctl", "io-mode", "write", "default"]).exits(0);
    assert_eq!(mode(&server, "write"), "dontcache");
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn the_log_names_errors_and_what_needs_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("samehost.toml");
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let text = |threads: u8| {
        let export = format!("{} *(ro)", scratch.path().display());
        format!(
            "listen = '127.0.0.1:0'\nexport = {export:?}\nno-rpcbind = true\nrun-dir = {:?}\n\
             state-dir = {:?}\nthreads = {threads}\n",
            path("run"),
            path("state")
        )
    };
    fs::write(&file, text(3)).unwrap();
    let mut command = samehost(["serve", "--until-stdin-ends", "--config"]);
    command.arg(&file).env_remove("SAMEHOST_STATE_DIR").stderr(Stdio::piped());
    let (mut child, ready) = common::ready(&mut command);
    assert!(ready.contains(&path("run")), "{ready}");
    let (sender, lines) = mpsc::sync_channel(100);
    let stderr = BufReader::new(child.stderr.take().unwrap());
    std::thread::spawn(move || {
        stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line).ok())
    });
    let pid = rustix::process::Pid::from_child(&child);
    for (threads, words) in [
        (0, "exports not changed: "),
        (0, "samehost.toml:6:11: threads: 0 is not in 1..=256"),
        (4, "changed, and needs a restart: threads"),
    ] {
        fs::write(&file, text(threads)).unwrap();
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        let line = lines.recv_timeout(common::TIMEOUT).unwrap();
        assert!(line.contains(words), "{line}");
    }
    drop(child.stdin.take());
    assert_eq!(common::wait(&mut child), Some(0));
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + common::TIMEOUT;
    while !ready() {
        assert!(Instant::now() < deadline, "timeout waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
