//! A server that is stopped (SIGSTOP) for longer than a lease: its clients keep their locks.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::v4::{ANYBODY, NFS_OK, Session};
use common::{Client, Scratch, encoded, wait_for};
use proto::nfs4::*;
use rustix::process::{Pid, Signal, kill_process};
use samehost_server::{Config, Server};
use xdr::Opaque;

const BASE: &str = "SAMEHOST_TEST_FROZEN_SERVER";
const LEASE: Duration = Duration::from_secs(3);

/// Serves in a process of its own until the test ends.
#[test]
fn server_process() {
    let Ok(base) = std::env::var(BASE) else { return };
    let base = PathBuf::from(base);
    let config = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        exports: vec![format!("{} {ANYBODY}", base.join("export").display())],
        run_dir: base.join("run"),
        state_dir: Some(base.join("state")),
        rpcbind: false,
        lane: samehost_server::LaneOffer::Off,
        threads: 2,
        lease: LEASE,
        ..Config::default()
    };
    let server = Server::start(config).unwrap();
    println!("\nserving {}", server.local_addrs()[0]);
    let _ = std::io::stdin().lines().count();
}

/// The process, killed when the test is over.
struct Frozen {
    child: Child,
    at: SocketAddr,
}

impl Frozen {
    fn start(scratch: &Scratch) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "server_process", "--nocapture"]).env(BASE, scratch.dir.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let at = lines.find_map(|line| Some(line.strip_prefix("serving ")?.parse().unwrap())).unwrap();
        std::thread::spawn(move || lines.count());
        Self { child, at }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the process; none of its threads runs when this returns.
    fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_for("all threads to stop", || {
            let stopped = |task: std::fs::DirEntry| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
            };
            std::fs::read_dir(&tasks).unwrap().flatten().all(stopped)
        });
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_lock_is_kept_while_the_server_does_not_run() {
    let scratch = Scratch::new();
    let server = Frozen::start(&scratch);
    let [mut holder, mut other] = [&b"holder"[..], b"other"].map(|name| {
        let mut session = Session::from(Client::to(server.at), 1, name);
        session.reclaim_complete();
        session
    });
    let root = holder.walk(&scratch.export());
    let f = OpenClaim4::Null(Opaque(b"f"));
    let (held, file) = holder.open(&root, f, true).unwrap();
    holder.lock(&file, held, false).unwrap();
    let (theirs, _) = other.open(&root, f, false).unwrap();
    let renewal = holder.sequence(false);
    assert_eq!(holder.run(&renewal).status, NFS_OK);
    server.freeze();
    std::thread::sleep(LEASE + Duration::from_millis(500));
    // Both requests are in the sockets' queues when the server runs again, the other client's first.
    let owner = StateOwner4 { clientid: other.clientid, owner: Opaque(b"locker") };
    let new = OpenToLockOwner4 { open_seqid: 0, open_stateid: theirs, lock_seqid: 0, lock_owner: owner };
    let args = Lock4Args {
        locktype: NfsLockType4::Write,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker4::New(new),
    };
    let put = Putfh4Args { object: Opaque(&file) };
    let lock = other.sequence(false).op(Operation::Putfh, &put).op(Operation::Lock, &args).minor(1);
    other.wire.xid += 1;
    let record = other.wire.record(PROGRAM, VERSION, COMPOUND, &lock);
    other.wire.stream.write_all(&record).unwrap();
    server.signal(Signal::CONT);
    let reply = other.wire.receive().unwrap();
    let denied = encoded(&(Nfsstat4::Denied as u32));
    assert!(reply.windows(4).any(|word| word == denied), "the holder's lock was taken away");
    let renewal = holder.sequence(false);
    assert_eq!(holder.run(&renewal).status, NFS_OK);
    holder.lock(&file, held, false).expect("it is still the holder's");
    // While the server runs leases expire as usual.
    wait_for("the holder's lease to run out", || match other.lock(&file, theirs, false) {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(status, Nfsstat4::Denied as u32);
            false
        }
    });
}
