//! Three servers of one CephFS, as processes in network namespaces of their own, each with a ceph-fuse mount.
//!
//! The cluster is that of `tests/ceph/run`, by the environment variable `SAMEHOST_TEST_CEPH`, and the servers
//! are `SAMEHOST_BIN`: `make test-cluster` sets both. Without them the test says so and passes.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::manager::Manager;
use common::v4::{NFS_OK, Ops, Session, compound};
use common::{Client, wait_for};
use proto::nfs4::*;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use xdr::{Array, Opaque};

/// The most that a step may take that waits for the cluster.
const CONDITION: Duration = Duration::from_secs(120);
const DENIED: u32 = Nfsstat4::Denied as u32;
const GRACE: u32 = Nfsstat4::Grace as u32;
const DELAY: u32 = Nfsstat4::Delay as u32;
const NO_GRACE: u32 = Nfsstat4::NoGrace as u32;

/// Where the test finds what it needs.
struct Rig {
    ceph: String,
    binary: PathBuf,
    directory: tempfile::TempDir,
}

/// A server, its network namespace and its mount.
struct Gateway<'a> {
    rig: &'a Rig,
    name: &'static str,
    address: SocketAddr,
    manager: Manager,
    process: Option<Child>,
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Rig {
    fn new() -> Option<Self> {
        let (Ok(ceph), Some(binary)) =
            (std::env::var("SAMEHOST_TEST_CEPH"), std::env::var_os("SAMEHOST_BIN"))
        else {
            eprintln!("skipped: no Ceph here (SAMEHOST_TEST_CEPH); `make test-cluster` starts one");
            return None;
        };
        Some(Self { ceph, binary: binary.into(), directory: tempfile::tempdir().unwrap() })
    }

    fn cluster(&self, words: &[&str]) -> String {
        let cluster = ["--cluster", "rados://cephfs.a.meta/gateways", "--ceph-conf", &self.ceph];
        succeed(Command::new(&self.binary).arg("cluster").args(words).args(cluster))
    }

    fn ganesha(&self) -> String {
        let mut command = Command::new("ganesha-rados-grace");
        succeed(command.args(["--cephconf", &self.ceph, "--pool", "cephfs.a.meta", "--ns", "gateways"]))
    }

    /// Whether all servers give state.
    fn is_normal(&self, nodes: usize) -> bool {
        self.cluster(&["status"]).matches("  gives opens and locks").count() == nodes
    }
}

impl<'a> Gateway<'a> {
    /// Number `number` of the rig's bridge, with its mount.
    fn new(rig: &'a Rig, name: &'static str, number: u8) -> Self {
        let (netns, address) = (format!("gateway-{name}"), format!("10.91.0.{number}"));
        let mount = rig.directory.path().join(name);
        std::fs::create_dir(&mount).unwrap();
        let script = "set -e; ip netns add $1; ip link add g-$2 type veth peer name eth0 netns $1; \
                      ip link set g-$2 master ceph up; ip -n $1 addr add $3/16 dev eth0; \
                      ip -n $1 link set eth0 up; ip -n $1 link set lo up; \
                      nsenter --net=/run/netns/$1 ceph-fuse -c $4 -k $(dirname $4)/keyring -n client.admin \
                      --pid-file=/run/$2.pid $5 >/dev/null 2>&1";
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash", &netns, name, &address, &rig.ceph]).arg(mount);
        succeed(&mut command);
        let manager = Manager::at(rig.directory.path().join(format!("notify-{name}")));
        let address = format!("{address}:2049").parse().unwrap();
        Self { rig, name, address, manager, process: None }
    }

    /// Starts the server, which gets the descriptors that the service manager has.
    fn start(&mut self) {
        self.manager.names();
        // Out of the way of the numbers that the server expects.
        let passed: Vec<(&str, OwnedFd)> = self
            .manager
            .kept
            .iter()
            .map(|(name, file)| {
                let file = fcntl_dupfd_cloexec(file, 200).unwrap();
                fcntl_setfd(&file, FdFlags::empty()).unwrap();
                (name.as_str(), file)
            })
            .collect();
        let duplicates: String = passed
            .iter()
            .zip(3..)
            .map(|((_, file), to)| format!("exec {to}<&{from} {from}<&-; ", from = file.as_raw_fd()))
            .collect();
        let names: Vec<_> = passed.iter().map(|(name, _)| *name).collect();
        let script = format!(
            "{duplicates}mount --bind $1 /srv; shift; export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={}; \
             exec \"$@\"",
            names.len(),
            names.join(":")
        );
        let (directory, listen) = (self.rig.directory.path(), self.address.to_string());
        let of = |what: &str| directory.join(format!("{what}-{}", self.name));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/gateway-{}", self.name));
        command.args(["unshare", "--mount", "bash", "-c", &script, "bash"]).arg(directory.join(self.name));
        command.arg(&self.rig.binary).args(["serve", "--export", "/srv *(rw,insecure,no_root_squash)"]);
        command.args(["--no-rpcbind", "--listen", &listen, "--run-dir"]).arg(of("run"));
        command.arg("--state-dir").arg(of("state")).args(["--cluster", "rados://cephfs.a.meta/gateways"]);
        command.args(["--ceph-conf", &self.rig.ceph, "--node", self.name]);
        command.env("NOTIFY_SOCKET", &self.manager.path).env("FDSTORE", "100");
        let log = std::fs::File::options().append(true).create(true).open(of("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        let status = process.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}: {}", self.log());
    }

    fn log(&self) -> String {
        let path = self.rig.directory.path().join(format!("log-{}", self.name));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// A session of the client `owner`, once the server accepts one.
    fn session(&self, owner: &[u8]) -> Session {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < CONDITION, "no session with {}: {}", self.name, self.log());
            if TcpStream::connect(self.address).is_ok() {
                let args = ExchangeId4Args {
                    clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(owner) },
                    flags: EXCHGID_USE_NON_PNFS,
                    state_protect: StateProtect4A::None,
                    client_impl_id: Array(vec![]),
                };
                let ops = Ops::new().op(Operation::ExchangeId, &args);
                match compound(&mut Client::to(self.address), 1, &ops).status {
                    NFS_OK => return Session::from(Client::to(self.address), 1, owner),
                    status => assert_eq!(status, DELAY, "{}", self.log()),
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.name, self.log());
        }
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        self.manager.kept.clear();
        let _ = Command::new("umount").arg("--lazy").arg(self.rig.directory.path().join(self.name)).status();
    }
}

/// Repeats a request while the server asks to try again.
fn until_decided<T>(mut attempt: impl FnMut() -> Result<T, u32>) -> Result<T, u32> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(GRACE | DELAY) if begun.elapsed() < CONDITION => {
                std::thread::sleep(Duration::from_millis(20))
            }
            other => return other,
        }
    }
}

fn open(session: &mut Session, file: &[u8], claim: OpenClaim4<'_>) -> Result<Stateid4, u32> {
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    session.open_shared(file, claim, false, access, 0).map(|(stateid, _)| stateid)
}

/// Opens a file by its handle, and locks it.
fn open_and_lock(session: &mut Session, file: &[u8]) -> Result<Stateid4, u32> {
    let stateid = until_decided(|| open(session, file, OpenClaim4::Fh)).unwrap();
    until_decided(|| session.lock(file, stateid, false))
}

#[test]
fn locks_of_a_killed_gateway_are_reclaimed_and_never_given_to_others() {
    let Some(rig) = Rig::new() else { return };
    std::fs::create_dir_all("/srv").unwrap();
    rig.cluster(&["add", "a", "b", "c"]);
    let [mut a, mut b, mut c] =
        [("a", 11), ("b", 12), ("c", 13)].map(|(name, number)| Gateway::new(&rig, name, number));
    for gateway in [&mut a, &mut b, &mut c] {
        gateway.start();
    }
    wait_for("three gateways that give state", || rig.is_normal(3));
    let [mut one, mut two, mut three] = [a.session(b"one"), b.session(b"two"), c.session(b"three")];
    for session in [&mut one, &mut two, &mut three] {
        session.reclaim_complete();
    }

    // A handle of one is valid on the others, and names the same file.
    let root = one.walk(Path::new("/srv"));
    assert_eq!((two.walk(Path::new("/srv")), three.walk(Path::new("/srv"))), (root.clone(), root.clone()));
    let claim = OpenClaim4::Null(Opaque(b"f"));
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    let (opened, file) = one.open_shared(&root, claim, true, access, 0).unwrap();
    for number in [attributes::FSID, attributes::FILEID] {
        let on_a = one.attribute(&file, number);
        assert_eq!(two.attribute(&file, number), on_a);
        assert_eq!(three.attribute(&file, number), on_a);
    }

    // A lock of one excludes the others.
    until_decided(|| one.lock(&file, opened, false)).unwrap();
    assert_eq!(open_and_lock(&mut two, &file).unwrap_err(), DENIED);
    assert_eq!(open_and_lock(&mut three, &file).unwrap_err(), DENIED);

    // No open may deny anything: the others would not know.
    let denies = two.open_shared(&file, OpenClaim4::Fh, false, access, SHARE_DENY_BOTH);
    assert_eq!(denies.unwrap_err(), Nfsstat4::ShareDenied as u32);

    // While its gateway is killed and recovers, others try all the time.
    let (stops, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for session in [&mut two, &mut three] {
            let (file, stops, tries) = (&file, &stops, &tries);
            scope.spawn(move || {
                let stateid = until_decided(|| open(session, file, OpenClaim4::Fh)).unwrap();
                while !stops.load(Ordering::Acquire) {
                    let tried = session.lock(file, stateid, false);
                    tries.fetch_add(1, Ordering::Relaxed);
                    if !matches!(tried, Err(DENIED | GRACE | DELAY)) {
                        stops.store(true, Ordering::Release);
                        panic!("{tried:?}: another client has the lock");
                    }
                }
            });
        }
        let more_tries = |than: usize| {
            wait_for("tries", || stops.load(Ordering::Acquire) || tries.load(Ordering::Relaxed) > than)
        };
        more_tries(10);
        a.kill();
        more_tries(tries.load(Ordering::Relaxed) + 10);
        a.start();
        one = a.session(b"one");
        let again = until_decided(|| open(&mut one, &file, OpenClaim4::Previous(0))).unwrap();
        until_decided(|| one.lock(&file, again, true)).unwrap();
        one.reclaim_complete();
        wait_for("the end of the grace period", || rig.is_normal(3));
        more_tries(tries.load(Ordering::Relaxed) + 10);
        stops.store(true, Ordering::Release);
    });
    assert!(rig.ganesha().contains("cur=2 rec=0"), "one grace period: {}", rig.ganesha());

    // A gateway whose locks were not kept: its clients can't reclaim, and others get the locks.
    a.kill();
    a.manager.kept.clear();
    a.start();
    one = a.session(b"one");
    assert_eq!(until_decided(|| open(&mut one, &file, OpenClaim4::Previous(0))).unwrap_err(), NO_GRACE);
    one.reclaim_complete();
    wait_for("a gateway without clients to reclaim", || rig.is_normal(3));
    open_and_lock(&mut two, &file).unwrap();
    drop((one, two, three));

    // A gateway that stops leaves nothing behind.
    let process = c.process.as_ref().unwrap().id();
    let pid = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait_for("the gateway to stop", || c.process.as_mut().unwrap().try_wait().unwrap().is_some());
    c.process = None;
}
