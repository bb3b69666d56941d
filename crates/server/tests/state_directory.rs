//! One server at a time uses a state directory: another one waits for its end, or is refused.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use common::disk::Disk;
use common::v4::Session;
use common::{Client, Scratch, TIMEOUT};
use proto::nfs3::{self, Procedure, Write3Args};
use proto::nfs4::OpenClaim4;
use samehost_server::{Config, MetricsAddress, Server, StartError, StartMonitor};
use xdr::Opaque;

const OPEN: &str = "*(rw,insecure,no_root_squash)";

/// Reports the steps of a start.
struct Steps {
    begun: SyncSender<(String, Duration)>,
    is_cancelled: AtomicBool,
}

impl Steps {
    fn new() -> (Self, Receiver<(String, Duration)>) {
        let (begun, steps) = sync_channel(16);
        (Self { begun, is_cancelled: AtomicBool::new(false) }, steps)
    }
}

impl StartMonitor for Steps {
    fn begins(&self, doing: &str, at_most: Duration) {
        let _ = self.begun.try_send((doing.to_owned(), at_most));
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

fn in_use(started: Result<Server, StartError>) -> String {
    match started {
        Err(error @ StartError::StateDirInUse { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two servers use one state directory"),
    }
}

/// Also on port 0, where two servers have different addresses.
#[test]
fn a_second_server_is_refused_and_the_first_one_named() {
    let scratch = Scratch::new();
    let first = scratch.serve(OPEN);
    let config = Config { takeover: Duration::ZERO, ..scratch.config(OPEN) };
    let refused = in_use(Server::start(config.clone()));
    let state = scratch.dir.path().join("state");
    let named = format!("{} is in use by process {}", state.display(), std::process::id());
    assert!(refused.contains(&named), "{refused}");
    let other = Config { state_dir: Some(scratch.dir.path().join("other")), ..config.clone() };
    Server::start(other).unwrap().stop();
    first.stop();
    Server::start(config).unwrap().stop();
}

#[test]
fn a_server_waits_for_the_end_of_its_predecessor_and_says_so() {
    let scratch = Scratch::new();
    let first = scratch.serve(OPEN);
    let config = Config { takeover: TIMEOUT, ..scratch.config(OPEN) };
    let (monitor, steps) = Steps::new();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Server::start_monitored(config, &monitor).unwrap());
        let (doing, at_most) = steps.recv_timeout(TIMEOUT).unwrap();
        assert!(doing.contains("waiting for another server: state directory "), "{doing}");
        assert!(at_most <= TIMEOUT && at_most > TIMEOUT / 2, "{at_most:?}");
        first.stop();
        second.join().unwrap().stop();
    });
}

/// No client can find it again.
#[test]
fn on_port_0_a_server_waits_for_no_clients_of_earlier_runs() {
    let scratch = Scratch::new();
    for name in [b"f", b"g"] {
        let server = scratch.serve(OPEN);
        let mut client = Session::new(&server, 1, name);
        client.reclaim_complete();
        let root = client.walk(&scratch.export());
        client.open(&root, OpenClaim4::Null(Opaque(name)), true).expect("no grace period");
        // As if it was killed.
        drop(server);
    }
}

#[test]
fn a_server_that_waits_can_be_cancelled() {
    let scratch = Scratch::new();
    let first = scratch.serve(OPEN);
    let config = Config { takeover: TIMEOUT * 60, ..scratch.config(OPEN) };
    let (monitor, steps) = Steps::new();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Server::start_monitored(config, &monitor));
        steps.recv_timeout(TIMEOUT).unwrap();
        monitor.is_cancelled.store(true, Ordering::Release);
        assert!(matches!(second.join().unwrap(), Err(StartError::Cancelled)));
    });
    first.stop();
}

/// A filesystem on which changes hang while this exists, or this process.
struct Suspended(Child);

impl Suspended {
    fn new(disk: &Disk) -> Self {
        let script = "fsfreeze --freeze \"$0\" && echo frozen; read -r line; fsfreeze --unfreeze \"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(disk.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "frozen\n");
        Self(child)
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The number of calls that are being executed.
fn running_calls(metrics: &Path) -> u64 {
    let mut stream = UnixStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().find_map(|line| line.strip_prefix("samehost_workers_busy ")?.parse().ok()).unwrap()
}

/// A call that hangs may record its client, or take a lock, whenever it goes on.
#[test]
fn a_server_has_its_state_directory_while_a_call_is_executed() {
    let disk = Disk::ext4(&[]);
    let scratch = Scratch::new();
    let metrics = scratch.dir.path().join("metrics");
    let config = Config {
        exports: vec![format!("{} {OPEN}", disk.path().display())],
        takeover: Duration::ZERO,
        grace: Duration::ZERO,
        metrics: Some(MetricsAddress::Unix(metrics.clone())),
        ..scratch.config(OPEN)
    };
    let first = Server::start(config.clone()).unwrap();
    let mut client = Client::new(&first);
    let root = client.mnt(disk.path()).unwrap();
    let file = client.create(&root, "f").unwrap();
    let suspended = Suspended::new(&disk);
    let write = Write3Args {
        file: Opaque(&file),
        offset: 0,
        count: 4,
        stable: nfs3::StableHow::FileSync,
        data: Opaque(b"data"),
    };
    let record =
        client.record(nfs3::PROGRAM, nfs3::VERSION, Procedure::Write as u32, &common::encoded(&write));
    client.stream.write_all(&record).unwrap();
    common::wait_for("the call to begin", || running_calls(&metrics) > 0);
    first.stop();
    in_use(Server::start(config.clone()));
    drop(suspended);
    Server::start(Config { takeover: TIMEOUT, ..config }).unwrap().stop();
}
