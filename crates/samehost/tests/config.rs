//! The server's configuration file: start, errors, reload.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;

use common::{Ran, Server, run, samehost, wait_for};
use rustix::process::Signal;

fn check(file: &Path) -> Ran {
    run(samehost(["check-config"]).arg(file))
}

#[test]
fn a_file_is_checked_without_a_server() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("samehost.toml");
    let exports = scratch.path().join("exports");
    let export = scratch.path().join("export");
    fs::create_dir(&export).unwrap();
    let valid = format!("{} *(ro)\n", export.display());
    fs::write(&exports, &valid).unwrap();
    let path = |path: &Path| path.display().to_string();
    let state = scratch.path().join("state");
    let first = format!("exports = {:?}\n", path(&exports));
    let rest = format!("state-dir = {:?}\nlisten = '127.0.0.1:0'\nno-rpcbind = true\n", path(&state));
    fs::write(&file, format!("{first}{rest}")).unwrap();
    assert!(check(&file).exits(0).text().ends_with("samehost.toml: valid\n"));
    assert!(!state.exists());

    fs::write(&file, format!("{first}theads = 4\nlease = 0\n")).unwrap();
    check(&file).exits(2).complains(&[
        "samehost.toml:2:1: option 'theads' is not known; did you mean 'threads'?",
        "samehost.toml:3:9: lease: 0 is not in 1..=3600",
        "next: ",
    ]);
    run(samehost(["serve", "--config"]).arg(&file)).exits(2).complains(&["samehost.toml:2:1: "]);

    fs::write(&file, format!("{first}{rest}")).unwrap();
    fs::write(&exports, format!("{valid}/usr *(frobnicate)\n")).unwrap();
    check(&file).exits(1).complains(&["exports:2:", "frobnicate"]);
    // What the server refuses, the check finds, in the same words.
    let refused = |text: &str, exit, words: &[&str]| {
        fs::write(&file, text).unwrap();
        let serve = run(samehost(["serve", "--config"]).arg(&file).env_remove("SAMEHOST_STATE_DIR"));
        let serve = serve.exits(exit).complains(words);
        let said = serve.stderr.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>();
        check(&file).exits(exit).complains(&said);
    };
    fs::write(&exports, "# nothing\n").unwrap();
    refused(&format!("{first}{rest}"), 1, &["nothing is exported", "next: "]);
    fs::write(&exports, format!("{}/none *(ro)\n", export.display())).unwrap();
    refused(&format!("{first}{rest}"), 1, &["none of the exports can be served", "next: create"]);
    fs::write(&exports, &valid).unwrap();
    refused(&format!("{first}{rest}node = 'a'\n"), 2, &["both --cluster and --node"]);
    let elsewhere = rest.replace("127.0.0.1", "192.0.2.1");
    refused(&format!("{first}{elsewhere}"), 1, &["cannot listen on 192.0.2.1:0", "next: "]);
    let metrics = format!("metrics = {:?}\n", path(&scratch.path().join("none/socket")));
    refused(&format!("{first}{rest}{metrics}"), 1, &["metrics at ", "next: "]);
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    refused(&format!("{first}{rest}"), 1, &["chmod go-w"]);
    check(&scratch.path().join("none")).exits(2).complains(&["none: No such file"]);
}

#[test]
fn mounts_take_their_defaults_from_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("mount.toml");
    let mount = |options: &[&str]| {
        let mut command = samehost(["mount", "127.0.0.1:/srv"]);
        run(command.arg(scratch.path()).args(options).env("SAMEHOST_MOUNT_CONFIG", &file))
    };
    // Without the file's option it would try for two minutes. No NFS server has port 1.
    fs::write(&file, "[defaults]\nretry = 0\n[server.'127.0.0.1']\nport = 1\n").unwrap();
    run(samehost(["check-config", "--mount"]).arg(&file)).exits(0);
    mount(&[]).exits(4).complains(&["127.0.0.1:1"]);

    fs::write(&file, "[defaults]\nretyr = 0\n").unwrap();
    let words = ["mount.toml:2:1: option 'retyr' is not known; did you mean 'retry'?", "next: "];
    mount(&[]).exits(2).complains(&words);
    run(samehost(["check-config", "--mount"]).arg(&file)).exits(2).complains(&words);
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
        (4, "settings that need a restart: threads"),
    ] {
        fs::write(&file, text(threads)).unwrap();
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        let line = lines.recv_timeout(common::TIMEOUT).unwrap();
        assert!(line.contains(words), "{line}");
    }
    drop(child.stdin.take());
    assert_eq!(common::wait(&mut child), Some(0));
}

#[test]
fn a_reload_that_hangs_is_awaited_and_does_not_block_the_socket() {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let scratch = tempfile::tempdir().unwrap();
    let exports = scratch.path().join("exports");
    let valid = format!("{} *(ro)\n", scratch.path().display());
    fs::write(&exports, &valid).unwrap();
    let server = Server::with(&["--exports", exports.to_str().unwrap()], "127.0.0.1(rw,insecure)");
    for (text, code, words) in [
        (&*valid, 0, "exports unchanged: "),
        ("/srv *(bogus)\n", 1, "exports:1:8: option bogus is not known"),
    ] {
        // A pipe without data, whose read blocks.
        fs::remove_file(&exports).unwrap();
        mknodat(CWD, &exports, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| server.run(&["ctl", "reload"]));
            // The open succeeds when there is a reader, which then waits for data.
            let mut pipe = None;
            wait_for("the reload to begin", || {
                pipe = open(&exports, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
                pipe.is_some()
            });
            let pipe = pipe.unwrap();
            server.run(&["ctl", "reload"]).exits(1).complains(&["an earlier change is still under way"]);
            server.run(&["ctl", "io-mode", "read", "direct"]).exits(0);
            assert!(!reload.is_finished());
            // Its end is the file's.
            rustix::io::write(&pipe, text.as_bytes()).unwrap();
            drop(pipe);
            let reloaded = reload.join().unwrap().exits(code);
            let said = format!("{}{}", reloaded.text(), reloaded.stderr);
            assert!(said.contains(words), "{said}");
        });
    }
}

#[test]
fn exports_change_until_the_next_reload() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
        fs::write(scratch.path().join(name).join("file"), name).unwrap();
    }
    let exports = scratch.path().join("exports");
    let line = |name: &str| format!("{} 127.0.0.1(rw,insecure)", scratch.path().join(name).display());
    fs::write(&exports, line("one") + "\n").unwrap();
    let server = Server::with(&["--exports", exports.to_str().unwrap()], "127.0.0.1(rw,insecure)");
    let cat = |name: &str| {
        let url = format!("nfs://127.0.0.1:{}{}/file", server.port, scratch.path().join(name).display());
        server.run(&["cat", &url]).code
    };
    let path = |name: &str| scratch.path().join(name).display().to_string();
    assert_eq!((cat("one"), cat("two")), (Some(0), Some(1)));
    let done = server.run(&["ctl", "export", &line("two")]).exits(0);
    assert_eq!(done.text(), format!("{} is exported until the next reload\n", path("two")));
    let done = server.run(&["ctl", "unexport", &path("one")]).exits(0);
    assert_eq!(done.text(), format!("{} is not exported until the next reload\n", path("one")));
    assert_eq!((cat("one"), cat("two")), (Some(1), Some(0)));

    server.run(&["ctl", "unexport", &path("one")]).exits(1).complains(&["is not exported"]);
    server.run(&["ctl", "unexport", &format!("{} *", path("two"))]).exits(1).complains(&["exported to *"]);
    server.run(&["ctl", "export", "/srv *(bogus)"]).exits(1).complains(&["line:1:", "bogus"]);
    server.run(&["ctl", "export", "/nowhere *(ro)"]).exits(1).complains(&["not served: "]);
    assert_eq!((cat("one"), cat("two")), (Some(1), Some(0)));

    let status = server.status();
    let (pid, instance) = (status["pid"].to_string(), status["instance"].as_str().unwrap());
    server.run(&["ctl", "reload", "--server", "another"]).exits(1).complains(&["no matching server"]);
    let done = server.run(&["ctl", "reload", "--server", &pid]).exits(0);
    let expected =
        format!("exports unchanged: 1, added: {}, removed: {} /nowhere\n", path("one"), path("two"));
    assert_eq!(done.text(), expected);
    assert_eq!((cat("one"), cat("two")), (Some(0), Some(1)));

    fs::write(&exports, "nonsense(((\n").unwrap();
    server.run(&["ctl", "reload", "--server", &instance[..8]]).exits(1).complains(&["exports:1:1: "]);
    assert_eq!(cat("one"), Some(0));
    run(samehost(["ctl", "reload", "--run-dir"]).arg(scratch.path())).exits(4);
}
