//! Servers of one CephFS with Debian's Ceph. Each has a network namespace, with one link to Ceph and one to
//! the clients, and a ceph-fuse mount.

use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::{Index, IndexMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use samehost_tests::samehost::binary;
use samehost_tests::{run, run_ok};

/// The most that a step may take that waits for the cluster.
pub const CONDITION: Duration = Duration::from_secs(240);
/// The servers' lease in seconds, unless a test sets another.
pub const LEASE: u64 = 30;
/// One that is longer than the pauses of a client's TCP that has had no answer for a minute: each pause is
/// twice as long as the one before.
pub const LONG_LEASE: u64 = 90;

/// The names of network namespaces are the same in all tests: one of them runs at a time.
static ONE_TEST: Mutex<()> = Mutex::new(());

/// The program that moves a node's address in the clients' network. Every other gateway has it; the rest have
/// the addresses themselves.
const HOOK: &str = "#!/bin/sh
case $2 in a) number=11 ;; b) number=12 ;; c) number=13 ;; d) number=14 ;; esac
case $1 in
take) ip address add 10.92.1.$number/16 dev clients && arping -q -c 3 -A -I clients 10.92.1.$number ;;
give-up) ip address del 10.92.1.$number/16 dev clients ;;
esac
";

/// The cluster, which has no gateways yet.
pub struct Cluster {
    ceph: String,
    namespace: &'static str,
    directory: tempfile::TempDir,
    pub lease: u64,
    _one: MutexGuard<'static, ()>,
}

impl Cluster {
    /// One with these nodes; `None` without Ceph.
    pub fn new(namespace: &'static str, nodes: &[&str]) -> Option<Self> {
        let Ok(ceph) = std::env::var("SAMEHOST_TEST_CEPH") else {
            eprintln!("skipped: no Ceph here (SAMEHOST_TEST_CEPH); `make test-cluster` starts one");
            return None;
        };
        let one = ONE_TEST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::fs::create_dir_all("/srv").unwrap();
        // The clients' network.
        let script = "ip link show clients || { ip link add clients type bridge && \
                      ip addr add 10.92.0.1/16 dev clients && ip link set clients up; }";
        run_ok(Command::new("sh").args(["-c", script]));
        let directory = tempfile::tempdir().unwrap();
        let hook = directory.path().join("hook");
        std::fs::write(&hook, HOOK).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
        let cluster = Self { ceph, namespace, directory, lease: LEASE, _one: one };
        // As docs/cluster.md says: otherwise Ceph may end the session of a server that is cut off.
        cluster.ceph(&["fs", "set", "a", "session_timeout", "240"]);
        cluster.evict_all();
        cluster.command(&[&["add"], nodes].concat());
        Some(cluster)
    }

    /// The path of Ceph's configuration.
    pub fn configuration(&self) -> &Path {
        Path::new(&self.ceph)
    }

    /// The cluster's address.
    pub fn address(&self) -> String {
        format!("rados://cephfs.a.meta/{}", self.namespace)
    }

    /// `samehost cluster`.
    pub fn command(&self, words: &[&str]) -> String {
        let mut command = Command::new(binary());
        command.arg("cluster").args(words);
        run_ok(command.args(["--cluster", &self.address(), "--ceph-conf", &self.ceph]))
    }

    /// `ceph`, as its administrator.
    pub fn ceph(&self, words: &[&str]) -> String {
        run_ok(Command::new("ceph").args(["-c", &self.ceph, "-k", &self.beside("keyring")]).args(words))
    }

    /// Ends the sessions of mounts that earlier tests have killed: a request that needs what they have cached
    /// would wait for them.
    fn evict_all(&self) {
        let sessions = self.ceph(&["tell", "mds.m", "session", "ls"]);
        for line in sessions.lines() {
            if let Some(id) = line.trim().strip_prefix("\"id\": ") {
                let id = format!("id={}", id.trim_end_matches(','));
                self.ceph(&["tell", "mds.m", "session", "evict", &id]);
            }
        }
    }

    /// A path beside the configuration.
    fn beside(&self, name: &str) -> String {
        self.ceph.replace("ceph.conf", name)
    }

    /// Sends a signal to a daemon.
    pub fn signal(&self, daemon: &str, signal: &str) {
        let pid = std::fs::read_to_string(self.beside(&format!("run/{daemon}.pid"))).unwrap();
        run_ok(Command::new("kill").args([signal, pid.trim()]));
    }

    /// Starts the metadata server again.
    pub fn start_mds(&self) {
        run_ok(Command::new("ceph-mds").args(["-i", "m", "-c", &self.ceph]));
    }
}

/// The gateways of a cluster.
pub struct Gateways<'a> {
    pub all: Vec<Gateway<'a>>,
}

impl Gateways<'_> {
    /// Waits until a condition holds. Servers that have ended by themselves are started again, as a service
    /// manager does. `said` is for the message if the condition doesn't hold.
    pub fn wait(&mut self, what: &str, said: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < CONDITION, "{what}: {}", said());
            self.restart_ended();
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all gateways give opens and locks.
    pub fn until_normal(&mut self) {
        let (cluster, count) = (self.all[0].cluster, self.all.len());
        let status = || cluster.command(&["status"]);
        self.wait("gateways that give opens and locks", status, || {
            status().matches("  gives opens and locks").count() == count
        });
    }

    fn restart_ended(&mut self) {
        for gateway in &mut self.all {
            if let Some(process) = &mut gateway.process
                && process.try_wait().unwrap().is_some()
            {
                gateway.start();
            }
        }
    }
}

impl<'a> Index<char> for Gateways<'a> {
    type Output = Gateway<'a>;

    fn index(&self, name: char) -> &Gateway<'a> {
        self.all.iter().find(|gateway| gateway.name.starts_with(name)).expect("a gateway of that name")
    }
}

impl<'a> IndexMut<char> for Gateways<'a> {
    fn index_mut(&mut self, name: char) -> &mut Gateway<'a> {
        let found = self.all.iter_mut().find(|gateway| gateway.name.starts_with(name));
        found.expect("a gateway of that name")
    }
}

/// The service manager's part: it stores the descriptors of a server, and passes them to the next.
struct DescriptorStore {
    path: PathBuf,
    kept: Arc<Mutex<Vec<(String, OwnedFd)>>>,
}

impl DescriptorStore {
    fn at(path: PathBuf) -> Self {
        let socket = UnixDatagram::bind(&path).unwrap();
        let kept: Arc<Mutex<Vec<(String, OwnedFd)>>> = Arc::default();
        let filled = Arc::clone(&kept);
        std::thread::spawn(move || while receive(&socket, &filled) {});
        Self { path, kept }
    }
}

impl Drop for DescriptorStore {
    fn drop(&mut self) {
        self.kept.lock().unwrap().clear();
        let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"END", &self.path));
    }
}

/// Handles a message of sd_notify(3); false after the last one.
fn receive(socket: &UnixDatagram, kept: &Mutex<Vec<(String, OwnedFd)>>) -> bool {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [std::io::IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    let message = String::from_utf8(bytes[..received.bytes].to_vec()).unwrap();
    // Other messages say that the service is ready, or stops.
    if let Some((what, name)) = message.split_once("\nFDNAME=") {
        let name = name.lines().next().unwrap().to_owned();
        let mut kept = kept.lock().unwrap();
        match what {
            "FDSTORE=1" => kept.push((name, file.expect("a descriptor comes with it"))),
            _ => kept.retain(|(other, _)| *other != name),
        }
    }
    message != "END"
}

/// A server, its network namespace and its mount.
pub struct Gateway<'a> {
    cluster: &'a Cluster,
    name: &'static str,
    number: u8,
    store: DescriptorStore,
    process: Option<Child>,
}

impl<'a> Gateway<'a> {
    /// Number `number` of both networks, started.
    pub fn start_new(cluster: &'a Cluster, name: &'static str, number: u8) -> Self {
        let script = "set -e; ip netns add gw-$1; ip -n gw-$1 link set lo up; \
                      link() { ip link add $1-$2 type veth peer name $1 netns gw-$2; \
                      ip link set $1-$2 master $1 up; ip -n gw-$2 addr add $3/16 dev $1; \
                      ip -n gw-$2 link set $1 up; }; link ceph $1 10.91.1.$2; link clients $1 10.92.1.$2";
        run_ok(Command::new("bash").args(["-c", script, "bash", name, &number.to_string()]));
        let store = DescriptorStore::at(cluster.directory.path().join(format!("notify-{name}")));
        let mut gateway = Self { cluster, name, number, store, process: None };
        gateway.mount();
        gateway.start();
        gateway
    }

    fn path(&self, what: &str) -> PathBuf {
        self.cluster.directory.path().join(format!("{what}-{}", self.name))
    }

    /// Mounts CephFS.
    pub fn mount(&self) {
        let mount = self.path("mount");
        std::fs::create_dir_all(&mount).unwrap();
        let script = "nsenter --net=/run/netns/gw-$1 ceph-fuse -c $2 -k $(dirname $2)/keyring \
                      -n client.admin --fuse_disable_pagecache=true --pid-file=$3.pid $3 >/dev/null 2>&1";
        run_ok(Command::new("bash").args(["-c", script, "bash", self.name, &self.cluster.ceph]).arg(mount));
    }

    /// Whether this is its name.
    pub fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// Its address in the clients' network.
    pub fn address(&self) -> String {
        format!("10.92.1.{}", self.number)
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("nfs://{}/srv", self.address())
    }

    /// Starts the server, which gets the descriptors that the service manager has.
    pub fn start(&mut self) {
        let kept = self.store.kept.lock().unwrap();
        // Out of the way of the numbers that the server expects.
        let passed: Vec<(String, OwnedFd)> =
            kept.iter().map(|(name, file)| (name.clone(), fcntl_dupfd_cloexec(file, 500).unwrap())).collect();
        drop(kept);
        let duplicates: String = passed
            .iter()
            .zip(3..)
            .map(|((_, file), to)| format!("exec {to}<&{from} {from}<&-; ", from = file.as_raw_fd()))
            .collect();
        let names: Vec<_> = passed.iter().map(|(name, _)| name.as_str()).collect();
        let script = format!(
            "{duplicates}mount --bind $1 /srv; shift; export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={}; \
             exec \"$@\"",
            names.len(),
            names.join(":")
        );
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/gw-{}", self.name));
        command.args(["unshare", "--mount", "bash", "-c", &script, "bash"]).arg(self.path("mount"));
        command.arg(binary()).args(["serve", "--export", "/srv *(rw,insecure,no_root_squash)"]);
        command.args([
            "--no-rpcbind",
            "--listen",
            "0.0.0.0:2049",
            "--lease",
            &self.cluster.lease.to_string(),
        ]);
        command.arg("--run-dir").arg(self.path("run")).arg("--state-dir").arg(self.path("state"));
        command.args(["--cluster", &self.cluster.address(), "--ceph-conf", &self.cluster.ceph]);
        command.args(["--node", self.name]);
        if self.number.is_multiple_of(2) {
            command.arg("--address-hook").arg(self.cluster.directory.path().join("hook"));
        } else {
            for (name, number) in ["a", "b", "c", "d"].iter().zip(11..) {
                command.args(["--node-address", &format!("{name}=10.92.1.{number}/16%clients")]);
            }
        }
        command.env("NOTIFY_SOCKET", &self.store.path).env("FDSTORE", "400");
        let log = File::options().append(true).create(true).open(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        // No other thread of a test starts programs: they would inherit the descriptors, and keep the locks.
        passed.iter().for_each(|(_, file)| fcntl_setfd(file, FdFlags::empty()).unwrap());
        self.process = Some(command.spawn().unwrap());
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Its host ends: first the mount's process, which releases no lock, then all others.
    pub fn crash_host(&mut self) {
        run_ok(Command::new("sh").args(["-c", "kill -9 $(cat $1.pid)", "sh"]).arg(self.path("mount")));
        self.link("clients", "down");
        self.kill();
        self.unmount();
    }

    /// The host is there again, with another mount.
    pub fn boot_host(&mut self) {
        self.link("clients", "up");
        self.mount();
        self.start();
    }

    /// Waits until the server has ended by itself.
    pub fn until_ended(&mut self) {
        let mut process = self.process.take().unwrap();
        let begun = Instant::now();
        while process.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < CONDITION, "{} doesn't end", self.name);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends the mount, and what the service manager keeps of it.
    pub fn unmount(&self) {
        self.end_mount("TERM");
    }

    fn end_mount(&self, signal: &str) {
        self.store.kept.lock().unwrap().clear();
        let script = "umount --lazy $1; kill -$2 $(cat $1.pid)";
        run(Command::new("bash").args(["-c", script, "bash"]).arg(self.path("mount")).arg(signal));
    }

    /// The number of its session with the metadata server.
    pub fn session(&self) -> String {
        let mount = self.path("mount");
        let mut id = [0; 64];
        let length = rustix::fs::getxattr(mount, "ceph.client_id", &mut id[..]).unwrap();
        String::from_utf8_lossy(&id[..length]).trim_start_matches("client").to_owned()
    }

    /// Takes one of its links (`ceph`, `clients`) down or up.
    pub fn link(&self, which: &str, state: &str) {
        run_ok(Command::new("ip").args(["link", "set", &format!("{which}-{}", self.name), state]));
    }

    fn log(&self) -> String {
        format!("{}: {}", self.name, std::fs::read_to_string(self.path("log")).unwrap_or_default())
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        if let Some(process) = &mut self.process {
            let _ = process.kill();
        }
        // A process that waits for a mount ends after it; a mount that waits for Ceph ends by SIGKILL only.
        self.end_mount(if std::thread::panicking() { "KILL" } else { "TERM" });
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
        let script = "ip link del ceph-$1; ip link del clients-$1; ip netns del gw-$1";
        run(Command::new("bash").args(["-c", script, "bash", self.name]));
    }
}
