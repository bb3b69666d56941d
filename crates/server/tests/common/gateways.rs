//! Servers of one CephFS, as processes in network namespaces of their own, each with a ceph-fuse mount.
//!
//! The cluster is that of `tests/ceph/run`, by the environment variable `SAMEHOST_TEST_CEPH`, and the servers
//! are `SAMEHOST_BIN`: `make test-cluster` sets both. The names of the network namespaces are those of the
//! gateways, so a test binary has one test with gateways.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proto::nfs4::*;
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use xdr::{Array, Opaque};

use super::Client;
use super::manager::Manager;
use super::v4::{NFS_OK, Ops, Session, compound};

/// The most that a step may take that waits for the cluster.
pub const CONDITION: Duration = Duration::from_secs(120);
pub const DENIED: u32 = Nfsstat4::Denied as u32;
pub const GRACE: u32 = Nfsstat4::Grace as u32;
pub const DELAY: u32 = Nfsstat4::Delay as u32;
pub const NO_GRACE: u32 = Nfsstat4::NoGrace as u32;

/// Where the test finds what it needs.
pub struct Rig {
    pub ceph: String,
    binary: PathBuf,
    /// The namespace of the cluster's objects.
    pub namespace: &'static str,
    pub directory: tempfile::TempDir,
}

/// A server, its network namespace and its mount.
pub struct Gateway<'a> {
    rig: &'a Rig,
    pub name: &'static str,
    pub address: SocketAddr,
    pub manager: Manager,
    /// Whether the service manager stores descriptors.
    pub stores: bool,
    pub process: Option<Child>,
}

pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Rig {
    pub fn new(namespace: &'static str) -> Option<Self> {
        let (Ok(ceph), Some(binary)) =
            (std::env::var("SAMEHOST_TEST_CEPH"), std::env::var_os("SAMEHOST_BIN"))
        else {
            eprintln!("skipped: no Ceph here (SAMEHOST_TEST_CEPH); `make test-cluster` starts one");
            return None;
        };
        std::fs::create_dir_all("/srv").unwrap();
        let directory = tempfile::tempdir().unwrap();
        Some(Self { ceph, binary: binary.into(), namespace, directory })
    }

    fn address(&self) -> String {
        format!("rados://cephfs.a.meta/{}", self.namespace)
    }

    /// `samehost cluster`.
    pub fn cluster(&self, words: &[&str]) -> String {
        let cluster = ["--cluster", &self.address(), "--ceph-conf", &self.ceph];
        succeed(Command::new(&self.binary).arg("cluster").args(words).args(cluster))
    }

    /// `ganesha-rados-grace`. Ceph's part of it aborts now and then ("std::out_of_range", "map::at"), also
    /// when all is done: then it is executed again, and may find its node added or removed already.
    pub fn ganesha(&self, words: &[&str]) -> String {
        const DONE_ALREADY: [i32; 2] = [Errno::EXIST.raw_os_error(), Errno::NOKEY.raw_os_error()];
        let mut command = Command::new("ganesha-rados-grace");
        command.args(["--cephconf", &self.ceph, "--pool", "cephfs.a.meta", "--ns", self.namespace]);
        command.args(words);
        let (begun, mut is_repeated) = (Instant::now(), false);
        loop {
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_done = DONE_ALREADY.iter().any(|errno| said.trim() == format!("Failure: -{errno}"));
            if output.status.success() || is_repeated && is_done {
                return String::from_utf8(output.stdout).unwrap();
            }
            is_repeated = output.status.signal().is_some() && begun.elapsed() < CONDITION;
            assert!(is_repeated, "{command:?}: {said}");
        }
    }

    /// A network namespace at number `number` of the rig's bridge; its address.
    pub fn network(&self, name: &str, number: u8) -> String {
        let (netns, address) = (format!("gateway-{name}"), format!("10.91.0.{number}"));
        let script = "set -e; ip netns add $1; ip link add g-$2 type veth peer name eth0 netns $1; \
                      ip link set g-$2 master ceph up; ip -n $1 addr add $3/16 dev eth0; \
                      ip -n $1 link set eth0 up; ip -n $1 link set lo up";
        succeed(Command::new("bash").args(["-c", script, "bash", &netns, name, &address]));
        address
    }

    /// Removes a network namespace.
    pub fn remove_network(name: &str) {
        let _ = Command::new("ip").args(["link", "del", &format!("g-{name}")]).status();
        let _ = Command::new("ip").args(["netns", "del", &format!("gateway-{name}")]).status();
    }

    /// Whether all servers give state.
    pub fn is_normal(&self, nodes: usize) -> bool {
        self.cluster(&["status"]).matches("  gives opens and locks").count() == nodes
    }
}

impl<'a> Gateway<'a> {
    /// Number `number` of the rig's bridge, with its mount.
    pub fn new(rig: &'a Rig, name: &'static str, number: u8) -> Self {
        let address = rig.network(name, number);
        let mount = rig.directory.path().join(name);
        std::fs::create_dir(&mount).unwrap();
        // The daemon would keep a pipe open.
        let script = "nsenter --net=/run/netns/gateway-$1 ceph-fuse -c $2 -k $(dirname $2)/keyring \
                      -n client.admin --fuse_disable_pagecache=true --pid-file=$3.pid $3 >$3.log 2>&1 || \
                      { cat $3.log >&2; exit 1; }";
        succeed(Command::new("bash").args(["-c", script, "bash", name, &rig.ceph]).arg(mount));
        let manager = Manager::at(rig.directory.path().join(format!("notify-{name}")));
        let address = format!("{address}:2049").parse().unwrap();
        Self { rig, name, address, manager, stores: true, process: None }
    }

    /// Starts the server, which gets the descriptors that the service manager has.
    pub fn start(&mut self) {
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
        command.arg("--state-dir").arg(of("state")).args(["--cluster", &self.rig.address()]);
        command.args(["--ceph-conf", &self.rig.ceph, "--node", self.name]);
        if self.name == "c" {
            command.arg("--cluster-nfs40");
        }
        command.env("NOTIFY_SOCKET", &self.manager.path);
        if self.stores {
            command.env("FDSTORE", "100");
        }
        let log = std::fs::File::options().append(true).create(true).open(of("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        let status = process.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}: {}", self.log());
    }

    pub fn log(&self) -> String {
        let path = self.rig.directory.path().join(format!("log-{}", self.name));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// A session of the client `owner`, once the server accepts one.
    pub fn session(&self, owner: &[u8]) -> Session {
        session_with(self.address, owner, &|| self.log())
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
        // ceph-fuse ends its session with the metadata server while it has a network: another mount would
        // wait for what a session has cached whose client is gone. The other servers' mount namespaces have
        // the mount, too, so that unmounting it ends nothing.
        let script = "umount --lazy $1; pid=$(cat $1.pid); kill $pid; \
                      for _ in $(seq 100); do kill -0 $pid || exit 0; sleep 0.1; done; kill -9 $pid";
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash"]).arg(self.rig.directory.path().join(self.name));
        let _ = command.stderr(Stdio::null()).status();
        Rig::remove_network(self.name);
    }
}

/// Repeats a request while the server asks to try again.
pub fn until_decided<T>(mut attempt: impl FnMut() -> Result<T, u32>) -> Result<T, u32> {
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

pub fn open(session: &mut Session, file: &[u8], claim: OpenClaim4<'_>) -> Result<Stateid4, u32> {
    let access = SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_NO_DELEG;
    session.open_shared(file, claim, false, access, 0).map(|(stateid, _)| stateid)
}

/// Opens a file by its handle, and locks it.
pub fn open_and_lock(session: &mut Session, file: &[u8]) -> Result<Stateid4, u32> {
    let stateid = until_decided(|| open(session, file, OpenClaim4::Fh)).unwrap();
    until_decided(|| session.lock(file, stateid, false))
}

/// A session of the client `owner` with the server at `address`, once it accepts one; `log` is the server's.
pub fn session_with(address: SocketAddr, owner: &[u8], log: &dyn Fn() -> String) -> Session {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < CONDITION, "no session with {address}: {}", log());
        if TcpStream::connect(address).is_ok() {
            let args = ExchangeId4Args {
                clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(owner) },
                flags: EXCHGID_USE_NON_PNFS,
                state_protect: StateProtect4A::None,
                client_impl_id: Array(vec![]),
            };
            let ops = Ops::new().op(Operation::ExchangeId, &args);
            match compound(&mut Client::to(address), 1, &ops).status {
                NFS_OK => return Session::from(Client::to(address), 1, owner),
                status => assert_eq!(status, DELAY, "{}", log()),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
