//! Server and client killed (SIGKILL) or stopped during I/O, over the lane and over the wire. Data that was
//! acknowledged as stable survives, the application sees no error, and no resource leaks.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use samehost_tests::process::Daemon;
use samehost_tests::scratch::pattern;
use samehost_tests::{Scratch, Serve, Server, need_root, wait_for};
use store::FileLock;

const RECORD: usize = 64 << 10;

/// The test's client program, started with a server's URL. As a mount does, it comes back as the same NFSv4
/// client: one for each path.
fn client(server: &Server, lane: &str, mode: &str, path: &Path, count: usize, log: &Path) -> Daemon {
    client_by("highest", server, lane, mode, path, count, log)
}

/// As [`client`], by a version of NFS.
fn client_by(
    version: &str,
    server: &Server,
    lane: &str,
    mode: &str,
    path: &Path,
    count: usize,
    log: &Path,
) -> Daemon {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samehost-test-client"));
    command
        .args([mode, &format!("{}?vers={version}", server.url(path))])
        .arg(server.run_dir())
        .args([lane, &count.to_string()]);
    Daemon::start("samehost-test-client", &mut command, log).expect("the test's own program")
}

/// The number of records acknowledged as stable, and the data path of the last commit.
fn stable(client: &Daemon) -> (usize, String) {
    let log = client.log();
    let line = log.lines().rev().find(|l| l.starts_with("stable ")).unwrap_or("stable 0 none");
    let mut words = line.split(' ').skip(1);
    (words.next().and_then(|n| n.parse().ok()).unwrap_or(0), words.next().unwrap_or_default().to_owned())
}

fn assert_records(file: &Path, count: usize) {
    let bytes = fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    assert!(bytes.len() >= count * RECORD, "{} bytes where {count} records were acknowledged", bytes.len());
    for (i, record) in bytes.chunks(RECORD).take(count).enumerate() {
        assert!(record == pattern(i as u64, RECORD), "record {i} of {count} differs");
    }
}

/// A write stream over `lane` by each version. Several times while it runs, `end` ends the server and it is
/// restarted.
fn interrupted_stream(lane: &str, data_path: &str, end: impl Fn(&mut Server)) {
    need_root();
    for version in ["4.2", "3"] {
        interrupted_stream_by(version, lane, data_path, &end);
    }
}

fn interrupted_stream_by(version: &str, lane: &str, data_path: &str, end: &impl Fn(&mut Server)) {
    const COUNT: usize = 600;
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let file = export.join("file");
    let mut server = Serve::openly(&export).start();
    let log = scratch.join("client.log");
    let mut writer = client_by(version, &server, lane, "stream", &file, COUNT, &log);
    for round in 1..=3 {
        let (acknowledged, seen) = wait_for("the stream to progress", || {
            assert!(writer.alive(), "the client ended:\n{}", writer.log());
            let (n, seen) = stable(&writer);
            (n >= round * 80).then_some((n, seen))
        });
        if round == 1 {
            assert_eq!(seen, data_path, "the stream's data path");
        }
        end(&mut server);
        assert_records(&file, acknowledged);
        server.restart();
    }
    let ended = writer.wait();
    assert!(ended.success() && writer.log().contains("done"), "{ended}:\n{}", writer.log());
    assert_eq!(stable(&writer).0, COUNT);
    assert_records(&file, COUNT);
}

#[test]
fn server_killed_during_a_lane_stream() {
    interrupted_stream("auto", "Lane", Server::kill);
}

#[test]
fn server_killed_during_a_wire_stream() {
    interrupted_stream("off", "Wire", Server::kill);
}

#[test]
fn server_stopped_during_a_lane_stream() {
    interrupted_stream("auto", "Lane", |server| assert!(server.stop().success(), "a clean stop"));
}

#[test]
fn server_stopped_during_a_wire_stream() {
    interrupted_stream("off", "Wire", |server| assert!(server.stop().success(), "a clean stop"));
}

/// A stream that lost its lane gets a new one from the restarted server without help.
#[test]
fn the_lane_comes_back_after_a_restart() {
    need_root();
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let mut server = Serve::openly(&export).start();
    let mut writer =
        client(&server, "auto", "stream", &export.join("file"), 100_000, &scratch.join("client.log"));
    wait_for("the stream to start", || (stable(&writer).0 > 0).then_some(()));
    server.kill();
    server.restart();
    wait_for("a lane to the new server", || {
        assert!(writer.alive(), "the client ended:\n{}", writer.log());
        (server.status().lanes() == 1 && server.status().granted() >= 1 && stable(&writer).1 == "Lane")
            .then_some(())
    });
}

/// The grants of a client that is killed are all released, and the server is unharmed.
#[test]
fn client_killed_with_grants_open() {
    need_root();
    const FILES: usize = 200;
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    // With a tree the server would know of one grant only.
    let server = Serve::openly(&export).arguments(["--lane", "files"]).start();
    let mut descriptors = Vec::new();
    for round in 0..4 {
        let log = scratch.join(format!("client{round}.log"));
        let mut holder = client(&server, "required", "hold", &export, FILES, &log);
        wait_for("the client to hold its files", || {
            assert!(holder.alive(), "the client ended:\n{}", holder.log());
            holder.log().contains("holding").then_some(())
        });
        assert!(holder.log().contains(&format!("holding {FILES} Some(Lane)")), "{}", holder.log());
        assert_eq!(server.status().grants(), FILES as u64, "open grants");
        holder.kill();
        wait_for("the grants to be released", || {
            let status = server.status();
            (status.grants() == 0 && status.lanes() == 0 && status.connections() == 0).then_some(())
        });
        descriptors.push(server.daemon().descriptors().expect("it runs"));
    }
    assert_eq!(server.status().data_calls(), 0, "all data over the lane");
    // The store's cache of nodes may keep descriptors of these files; the rounds after the first add none.
    assert!(descriptors[3] <= descriptors[0] + 8, "descriptors after each round: {descriptors:?}");
}

/// Two hundred rounds: clients work, one of them is killed, the server stops (every other time it is killed)
/// and restarts, and the client comes back: nobody waits for what it had. Compared are the files that each
/// server leaves behind, and the resources of a client that lives through all rounds.
#[test]
fn two_hundred_rounds_leak_nothing() {
    need_root();
    const ROUNDS: usize = 200;
    // After some rounds all caches and pools are filled. This round ends as the last one does: the server was
    // killed, and the next visitor uses the lane.
    const BASE: usize = 19;
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let mut server = Serve::openly(&export).arguments(["--grace", "2"]).start();
    // This client never finishes: it is asked for more records than it can write.
    let mut survivor =
        client(&server, "auto", "stream", &export.join("survivor"), 1 << 30, &scratch.join("s.log"));
    let sockets = |server: &Server| fs::read_dir(server.run_dir()).map_or(0, Iterator::count);
    let visit = |server: &Server, round: usize| {
        let lane = if round.is_multiple_of(3) { "off" } else { "auto" };
        let log = scratch.join("visitor.log");
        let _ = fs::remove_file(&log);
        client(server, lane, "stream", &export.join("visitor"), 1 << 30, &log)
    };
    let mut base = (0, 0, 0);
    let mut visitor = visit(&server, 0);
    for round in 0..ROUNDS {
        wait_for("both clients to work", || {
            assert!(visitor.alive(), "the visitor ended:\n{}", visitor.log());
            assert!(survivor.alive(), "the survivor ended:\n{}", survivor.log());
            (stable(&visitor).0 > 0).then_some(())
        });
        let progress = stable(&survivor).0;
        visitor.kill();
        if round % 2 == 0 {
            assert!(server.stop().success(), "a clean stop in round {round}");
            assert_eq!(sockets(&server), 0, "socket files after a clean stop in round {round}");
        } else {
            server.kill();
        }
        server.restart();
        visitor = visit(&server, round + 1);
        // A client with a lane has other descriptors than one without, and so has the server for it.
        let is_compared = round == BASE || round + 1 == ROUNDS;
        wait_for("the survivor to progress", || {
            let (records, data_path) = stable(&survivor);
            (records > progress && (!is_compared || data_path == "Lane")).then_some(())
        });
        if is_compared {
            wait_for("the next visitor to use the lane", || (stable(&visitor).1 == "Lane").then_some(()));
        }
        assert!(sockets(&server) <= 2, "{} files in the run directory in round {round}", sockets(&server));
        let _ = fs::File::options().write(true).open(export.join("survivor")).and_then(|f| f.set_len(0));
        let now = (
            survivor.descriptors().expect("it runs"),
            survivor.resident_kib().expect("it runs"),
            server.daemon().descriptors().expect("it runs"),
        );
        if round == BASE {
            base = now;
            println!(
                "round {round}: client {} descriptors, {} KiB; server {} descriptors",
                now.0, now.1, now.2
            );
        }
        if round + 1 == ROUNDS {
            println!(
                "round {round}: client {} descriptors, {} KiB; server {} descriptors",
                now.0, now.1, now.2
            );
            assert!(now.0 <= base.0 + 8, "the client's descriptors grew from {} to {}", base.0, now.0);
            assert!(
                now.1 <= base.1 + (16 << 10),
                "the client's memory grew from {} to {} KiB",
                base.1,
                now.1
            );
            assert!(now.2 <= base.2 + 8, "the server's descriptors grew from {} to {}", base.2, now.2);
        }
    }
    survivor.kill();
    drop((survivor, visitor));
    let mut server = server;
    wait_for("the last lane to close", || (server.status().lanes() == 0).then_some(()));
    assert!(server.stop().success());
    assert_eq!(sockets(&server), 0, "socket files at the end");
}

/// The test acts as the service manager: it has stored an open file with a lock that a client of a killed
/// server held, and passes it to the next server.
#[test]
fn the_next_server_takes_over_locks_from_the_service_manager() {
    let scratch = Scratch::new();
    let export = scratch.mkdir("export");
    let path = export.join("file");
    fs::write(&path, "data").expect("there is room");
    let open = || OwnedFd::from(fs::File::options().read(true).write(true).open(&path).expect("it is there"));
    let lock = FileLock { first: 0, last: 9, exclusive: true };
    let kept = open();
    assert_eq!(store::lock(&kept, &lock), Ok(true));
    let local = open();
    assert_eq!(store::lock(&local, &lock), Ok(false));
    let socket = scratch.join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(samehost_tests::TIMEOUT)).expect("a time");
    // A descriptor without close-on-exec, for the child.
    let passed = rustix::io::dup(&kept).expect("room");
    drop(kept);
    let name = "nfs4-locks-0123456789abcdef-0000000000000001-0";
    let shell = format!(
        "export NOTIFY_SOCKET={} FDSTORE=10 LISTEN_FDS=1 LISTEN_FDNAMES={name} LISTEN_PID=$$; \
         exec \"$@\" 3<&{}",
        socket.display(),
        passed.as_raw_fd()
    );
    let server = Serve::openly(&export).through(["bash", "-c", &shell, "bash"]).start();
    // No client is left to reclaim the lock, so the server releases it.
    let mut buffer = [0; 4096];
    let removal = format!("FDSTOREREMOVE=1\nFDNAME={name}");
    loop {
        let length = manager.recv(&mut buffer).expect("the server sends a notification");
        if buffer[..length] == *removal.as_bytes() {
            break;
        }
    }
    assert_eq!(store::lock(&local, &lock), Ok(true));
    drop((server, passed));
}
