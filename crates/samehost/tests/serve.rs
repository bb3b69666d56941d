//! The server's life: starts that fail, the ready line, signals.

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Server, ready, run, samehost, wait_for};
use rustix::process::Signal;

#[test]
fn the_ready_line_has_exports_and_addresses() {
    let server = Server::start();
    let start = format!(
        "ready: {} on 127.0.0.1:{}; lane on, run directory {}",
        server.export().display(),
        server.port,
        server.run_dir().display()
    );
    assert!(server.ready.starts_with(&start), "{}", server.ready);
}

#[test]
fn limitations_follow_the_ready_line_once() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command =
        samehost(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--until-stdin-ends", "--run-dir"]);
    command.arg("/proc/no").arg("--state-dir").arg(scratch.path().join("state"));
    command.args([
        "--export",
        &format!("{} *(ro)", scratch.path().display()),
        "--export",
        "/mis\\012sing *(ro)",
    ]);
    // Its standard input has ended already, so it starts, prints its lines, and stops.
    let ran = run(&mut command).exits(0);
    let mut lines = ran.text().lines();
    let ready = lines.next().unwrap();
    assert!(ready.starts_with("ready: ") && ready.ends_with("; lane on, run directory /proc/no"), "{ready}");
    assert!(!ready.contains("sing"), "unserved exports belong to the notes below: {ready}");
    let notes: Vec<&str> = lines.collect();
    assert!(notes.iter().all(|line| line.starts_with("note: ")), "{notes:?}");
    for words in
        ["/mis\\x0asing is not served: ", "no lane socket in /proc/no: ", "no status socket in /proc/no: "]
    {
        let those = notes.iter().filter(|line| line.contains(words)).count();
        assert_eq!(those, 1, "{words}: {notes:?}");
    }
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_failed_start_names_the_reason_and_the_next_step() {
    let scratch = tempfile::tempdir().unwrap();
    let serve = |args: &[&str]| {
        let mut command = samehost(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--run-dir"]);
        command
            .arg(scratch.path().join("run"))
            .arg("--state-dir")
            .arg(scratch.path().join("state"))
            .args(args);
        run(&mut command)
    };
    let export = format!("{} *(rw)", scratch.path().display());
    serve(&["--export", "/tmp *(rw,frobnicate)"]).exits(1).complains(&["frobnicate", "next:"]);
    serve(&["--export", "relative *(rw)"]).exits(1).complains(&["relative"]);
    serve(&["--export", "/nowhere *(rw)"]).exits(1).complains(&["/nowhere is not served: ", "next:"]);
    fs::write(scratch.path().join("plain"), "").unwrap();
    let plain = format!("{} *(rw)", scratch.path().join("plain").display());
    let both = serve(&["--export", &plain, "--export", "/nowhere *(rw)"]).exits(1).complains(&[
        "isn't a directory",
        "No such file or directory",
        "next: export the directory that contains it; create the directory",
    ]);
    assert!(!both.stderr.contains("os error"), "{}", both.stderr);
    serve(&["--export", "/tmp *(rw)", "--export", "/tmp  *(rw,bogus)"])
        .exits(1)
        .complains(&["--export#2:1:"]);
    serve(&["--exports", "/nowhere/exports"]).exits(1).complains(&["/nowhere/exports", "next:"]);
    fs::write(scratch.path().join("none"), "# nothing\n").unwrap();
    serve(&["--exports", scratch.path().join("none").to_str().unwrap()]).exits(1).complains(&["--export"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    serve(&["--export", &export, "--listen", &address]).exits(1).complains(&[&address, "--listen"]);
    fs::write(scratch.path().join("file"), "").unwrap();
    serve(&["--export", &export, "--state-dir", scratch.path().join("file/state").to_str().unwrap()])
        .exits(1)
        .complains(&["--state-dir"]);
}

#[test]
fn a_server_whose_status_is_closed_to_the_user_is_no_missing_one() {
    let server = Server::start();
    let status = fs::read_dir(server.run_dir()).unwrap().map(|entry| entry.unwrap().path());
    let status = status.into_iter().find(|path| path.extension().unwrap() == "status").unwrap();
    fs::set_permissions(&status, fs::Permissions::from_mode(0o000)).unwrap();
    // A mode means nothing to root with all capabilities.
    let as_user = |args: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.arg("--bounding-set=-dac_override,-dac_read_search");
        }
        command.arg(env!("CARGO_BIN_EXE_samehost")).args(args).env("SAMEHOST_RUN_DIR", server.run_dir());
        run(&mut command)
    };
    let mount = status.with_extension("mount");
    let _mount = std::os::unix::net::UnixListener::bind(&mount).unwrap();
    fs::set_permissions(&mount, fs::Permissions::from_mode(0o000)).unwrap();
    for (args, process, socket) in [
        (&["ctl", "io-mode", "write", "direct"][..], "server", &status),
        (&["ctl", "reload"], "server", &status),
        (&["ctl", "lane", "off"], "mount", &mount),
    ] {
        let closed = format!("{process} at {}: Permission denied\n  next: run as the user", socket.display());
        let ran = as_user(args).exits(1).complains(&[&closed]);
        assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    }
    let closed = |process: &str, socket: &Path| {
        let socket = socket.display();
        format!(
            "{process} at {socket}: Permission denied\n  next: run as the user of the {process}, or as root\n"
        )
    };
    let both = closed("server", &status) + &closed("mount", &mount);
    assert_eq!(as_user(&["status"]).exits(1).stderr.replace("samehost: ", ""), both);
    let json: serde_json::Value = serde_json::from_slice(&as_user(&["status", "--json"]).stdout).unwrap();
    let reasons: Vec<_> = json["silent"].as_array().unwrap().iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["Permission denied", "Permission denied"]);
    let doctor = as_user(&["doctor", "mount"]);
    for words in ["a server has a socket in", "closed to this user", "run `samehost doctor` as the user"] {
        assert!(doctor.text().contains(words), "{words}: {}", doctor.text());
    }
}

#[test]
fn an_export_that_is_not_served_is_named_once_with_the_reason_in_words() {
    let server = Server::with(&["--export", "/no/where *(ro)"], "127.0.0.1(rw,insecure)");
    let reason = "it can't be opened: No such file or directory";
    let status = server.run(&["status"]).exits(0);
    let text = status.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("/no/where")).collect();
    let [note, row] = lines[..] else { panic!("{text}") };
    assert_eq!(note.trim_start(), format!("note        /no/where is not served: {reason}"));
    assert!(row.ends_with(&format!("NOT SERVED: {reason}")), "{text}");
    assert_eq!(row.matches("/no/where").count(), 1, "{text}");
    server
        .run(&["ctl", "export", "/nor/here *(ro)"])
        .exits(1)
        .complains(&[&format!("export: /nor/here is exported and not served: {reason}\n")]);
    let missing = server.run(&["doctor", "server", "--export-dir", "/no/where"]).exits(1);
    assert!(missing.text().contains("problem: /no/where: it can't be opened: No such file or directory\n"));
    assert!(!missing.text().contains("os error"), "{}", missing.text());
    // A run directory that isn't one.
    let file = server.beside("file");
    fs::write(&file, "").unwrap();
    for args in [&["status"][..], &["ctl", "reload"], &["top", "--once"]] {
        let mut command = samehost(args);
        let ran = run(command.env("SAMEHOST_RUN_DIR", &file)).exits(1);
        let expected = format!("{}: Not a directory\n  next: name the run directory", file.display());
        assert!(ran.stderr.contains(&expected) && ran.stderr.lines().count() == 2, "{ran:?}");
    }
}

#[test]
fn a_low_limit_of_open_files_is_reported_and_one_below_the_minimum_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let serve = |limit: u32| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]);
        command.args([env!("CARGO_BIN_EXE_samehost"), "serve", "--listen", "127.0.0.1:0", "--no-rpcbind"]);
        command.args(["--until-stdin-ends", "--export", &format!("{} *(ro)", scratch.path().display())]);
        command.arg("--run-dir").arg(scratch.path().join("run"));
        command.arg("--state-dir").arg(scratch.path().join("state"));
        run(&mut command)
    };
    serve(64).exits(1).complains(&["RLIMIT_NOFILE) is 64", "ulimit -n", "LimitNOFILE="]);
    let low = serve(512).exits(0);
    assert!(low.text().contains("note: the limit of open files (RLIMIT_NOFILE) is 512"), "{}", low.text());
    let enough = serve(20_000).exits(0);
    assert!(!enough.text().contains("RLIMIT_NOFILE"), "{}", enough.text());
}

#[test]
fn the_limit_of_file_sizes_fails_writes_without_ending_processes() {
    let server = Server::start();
    let large = server.beside("large");
    fs::write(&large, vec![1; 1 << 20]).unwrap();
    let large = large.to_str().unwrap();
    // Over the lane the client's limit counts: 128 times 512 bytes.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 128 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_samehost")]);
    command.args(["cp", "--lane", "required", large, &server.url("by-lane")]);
    run(command.env("SAMEHOST_RUN_DIR", server.run_dir())).exits(1).complains(&["too large"]);
    // Over the wire the server's limit counts.
    let pid = server.status()["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    limit.current = Some(64 << 10);
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    server.run(&["cp", "--lane", "off", large, "{}by-wire"]).exits(1).complains(&["too large"]);
    server.run(&["probe", "{}"]).exits(0);
}

#[test]
fn every_way_to_stop_removes_the_sockets() {
    for stop in [Some(Signal::TERM), Some(Signal::INT), None] {
        let mut server = Server::start();
        server.run(&["probe", "{}"]).exits(0);
        match stop {
            Some(signal) => server.signal(signal),
            None => server.let_go(),
        }
        assert_eq!(server.ended(), Some(0), "{stop:?}");
        let left: Vec<_> =
            fs::read_dir(server.run_dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn sighup_reads_the_exports_again() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
        fs::write(scratch.path().join(name).join("file"), name).unwrap();
    }
    let exports = scratch.path().join("exports");
    let line = |name: &str| format!("{} 127.0.0.1(rw,insecure)\n", scratch.path().join(name).display());
    fs::write(&exports, line("one")).unwrap();
    let server = Server::with(&["--exports", exports.to_str().unwrap()], "127.0.0.1(rw,insecure)");
    let cat = |name: &str| {
        let url = format!("nfs://127.0.0.1:{}{}/file", server.port, scratch.path().join(name).display());
        server.run(&["cat", &url])
    };
    assert_eq!(cat("one").exits(0).stdout, b"one");
    cat("two").exits(1);
    fs::write(&exports, line("one") + &line("two")).unwrap();
    server.signal(Signal::HUP);
    let deadline = Instant::now() + common::TIMEOUT;
    while cat("two").code != Some(0) {
        assert!(Instant::now() < deadline, "the export never appeared");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(cat("one").exits(0).stdout, b"one");
    // An invalid file changes nothing.
    fs::write(&exports, "nonsense(((\n").unwrap();
    server.signal(Signal::HUP);
    assert_eq!(cat("two").exits(0).stdout, b"two");
    assert_eq!(cat("one").exits(0).stdout, b"one");
}

#[test]
fn a_hanging_reload_does_not_prevent_a_stop() {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
    let scratch = tempfile::tempdir().unwrap();
    let exports = scratch.path().join("exports");
    fs::write(&exports, format!("{} *(ro)\n", scratch.path().display())).unwrap();
    let mut server = Server::with(&["--exports", exports.to_str().unwrap()], "127.0.0.1(rw,insecure)");
    // A pipe without data, whose read blocks.
    fs::remove_file(&exports).unwrap();
    mknodat(CWD, &exports, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    server.signal(Signal::HUP);
    let mut silent = None;
    wait_for("the reload to read the file", || {
        // This open succeeds only when there is a reader.
        silent = open(&exports, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        silent.is_some()
    });
    server.signal(Signal::HUP);
    server.run(&["probe", "{}"]).exits(0);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    drop(silent);
}

#[test]
fn a_second_signal_stops_the_server_at_once_but_a_doubled_one_does_not() {
    for later in [false, true] {
        let mut server = Server::with(&["--grace", "60"], "127.0.0.1(rw,insecure)");
        let file = fs::File::create(server.export().join("file")).unwrap();
        file.set_len(1 << 20).unwrap();
        // More replies than fit into the sockets' buffers: the server waits until they are read.
        let mut slow = Wire::reading(&server, "file", 32);
        slow.0.peek(&mut [0]).unwrap();
        server.signal(Signal::TERM);
        if !later {
            // Without a pause, because on a busy machine a second passes quickly.
            server.signal(Signal::TERM);
        }
        wait_for("the server to begin to stop", || {
            fs::read_dir(server.run_dir())
                .unwrap()
                .all(|entry| entry.unwrap().path().extension().unwrap() != "lane")
        });
        assert_eq!(fs::read_dir(server.run_dir()).unwrap().count(), 1, "the status socket still exists");
        if later {
            std::thread::sleep(Duration::from_secs(1));
            server.signal(Signal::TERM);
            assert_eq!(server.ended(), Some(1));
        } else {
            let read = std::io::copy(&mut slow.0, &mut std::io::sink()).unwrap();
            assert!(read > 32 << 20, "{read}");
            assert_eq!(server.ended(), Some(0));
        }
        assert_eq!(fs::read_dir(server.run_dir()).unwrap().count(), 0, "{later}");
    }
}

/// An NFS client that doesn't have to read its replies.
struct Wire(TcpStream);

impl Wire {
    /// Requests `count` MiB of a file, and reads no reply.
    fn reading(server: &Server, name: &str, count: usize) -> Self {
        let mut wire = Self(TcpStream::connect(("127.0.0.1", server.port)).unwrap());
        wire.0.set_read_timeout(Some(common::TIMEOUT)).unwrap();
        wire.call(100_005, 1, &opaque(server.export().to_str().unwrap().as_bytes()));
        let root = wire.handle();
        wire.call(100_003, 3, &[opaque(&root), opaque(name.as_bytes())].concat());
        let file = wire.handle();
        let args = [opaque(&file), vec![0; 8], (1_u32 << 20).to_be_bytes().to_vec()].concat();
        wire.0.write_all(&record(100_003, 6, &args).repeat(count)).unwrap();
        wire
    }

    fn call(&mut self, program: u32, procedure: u32, args: &[u8]) {
        self.0.write_all(&record(program, procedure, args)).unwrap();
    }

    /// The handle at the beginning of a reply's results.
    fn handle(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).unwrap();
        // REPLY, accepted, no verifier, success; and the procedure's own success.
        assert_eq!(reply[4..28], [1, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat());
        let length = u32::from_be_bytes(reply[28..32].try_into().unwrap()) as usize;
        reply[32..32 + length].to_vec()
    }
}

/// A call without a credential, as a record.
fn record(program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    // xid, CALL, RPC version, program, version, procedure, credential, verifier
    let header = [1, 0, 2, program, 3, procedure, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let mark = 0x8000_0000 | u32::try_from(header.len() + args.len()).unwrap();
    [&mark.to_be_bytes(), header.as_slice(), args].concat()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let padding = bytes.len().next_multiple_of(4) - bytes.len();
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes(), bytes, &[0; 3][..padding]].concat()
}

#[test]
fn the_service_manager_is_notified() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    fs::create_dir(scratch.path().join("export")).unwrap();
    let mut command = samehost(["serve", "--listen", "127.0.0.1:0", "--no-rpcbind", "--until-stdin-ends"]);
    command.arg("--export").arg(format!("{} *(ro)", scratch.path().join("export").display()));
    command.arg("--run-dir").arg(scratch.path().join("run"));
    command.arg("--state-dir").arg(scratch.path().join("state"));
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "2000").env_remove("WATCHDOG_PID");
    let (mut child, line) = ready(&mut command);
    let mut buffer = [0; 4096];
    let mut receive = || {
        let len = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let is_ready = format!("READY=1\nSTATUS={line}");
    assert_eq!(receive(), is_ready);
    (0..3).for_each(|_| assert_eq!(receive(), "WATCHDOG=1"));
    let mut next = || {
        loop {
            let message = receive();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    };
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    let reloading = next();
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(since.is_some_and(|usec| usec.parse::<u64>().is_ok()), "{reloading}");
    assert_eq!(next(), is_ready);
    drop(child.stdin.take());
    // Three times the grace of 5 s, and 30 s.
    assert_eq!(next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=45000000");
    assert_eq!(common::wait(&mut child), Some(0));
}
