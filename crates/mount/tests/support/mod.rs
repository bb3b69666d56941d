//! A server in a process of its own, which can be killed, frozen and started again, and mounts of it in this process.
//!
//! The server's process is this test program itself: it runs the one test `support::server_process`, which serves if the
//! environment says so and does nothing otherwise.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{LaneMode, Url};
use samehost_mount::{Mount, MountOptions};
use tempfile::TempDir;

const PORT: &str = "SAMEHOST_MOUNT_TEST_PORT";
const BASE: &str = "SAMEHOST_MOUNT_TEST_BASE";

/// Nothing here takes longer unless it is broken.
pub const BOUND: Duration = Duration::from_secs(60);

#[test]
fn server_process() {
    let (Ok(port), Ok(base)) = (std::env::var(PORT), std::env::var(BASE)) else { return };
    let base = PathBuf::from(base);
    let config = server::Config {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().unwrap()))],
        export_files: vec![base.join("exports")],
        run_dir: base.join("run"),
        state_dir: Some(base.join("state")),
        lane: true,
        rpcbind: false,
        ..server::Config::default()
    };
    let server = server::Server::start(config).expect("the server starts");
    println!("\nserving");
    // Until told to stop, or until the test is gone.
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if line.trim() == "stop" {
            server.stop();
            return;
        }
    }
}

/// A server process with a scratch export.
pub struct Served {
    dir: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Served {
    pub fn start() -> Self {
        Self::with("no_root_squash")
    }

    /// With these export options.
    pub fn with(options: &str) -> Self {
        // On tmpfs where there is one: the disk is not what is tested.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["export", "run", "state"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut served = Self { dir, port, child: None };
        let line = format!("{} *(rw,sync,insecure,fsid=7,{options})\n", served.export().display());
        fs::write(served.dir.path().join("exports"), line).unwrap();
        served.restart();
        served
    }

    /// The exported directory.
    pub fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Has it drain and stop, and waits for that.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            if let Some(mut stdin) = child.stdin.take() {
                let _ = stdin.write_all(b"stop\n");
            }
            let _ = child.wait();
        }
    }

    /// Starts it (again) and waits until it serves.
    pub fn restart(&mut self) {
        self.kill();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "support::server_process", "--nocapture"])
            .env(PORT, self.port.to_string())
            .env(BASE, self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.trim() == "serving"), "the server never served");
        std::thread::spawn(move || lines.for_each(drop));
        self.child = Some(child);
    }

    /// Lets it hang; returns when the last of its threads has stopped.
    pub fn freeze(&self) {
        let child = self.child.as_ref().expect("a server");
        signal(child, rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", child.id());
        wait_for("the stop", || {
            fs::read_dir(&tasks).unwrap().flatten().all(|task| {
                let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
            })
        });
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        signal(self.child.as_ref().expect("a server"), rustix::process::Signal::CONT);
    }

    pub fn mount(&self, road: Road) -> Mounted {
        self.mount_with(road, MountOptions::default())
    }

    pub fn mount_with(&self, road: Road, options: MountOptions) -> Mounted {
        Mounted::new(self, road, options)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// Passed through by the kernel.
    Passed,
    /// A granted file, read and written by the mount's process.
    Served,
    /// NFS.
    Wire,
}

pub const ROADS: [Road; 3] = [Road::Passed, Road::Served, Road::Wire];

/// A mount, unmounted when it is dropped.
pub struct Mounted {
    at: TempDir,
    pub mount: Mount,
    _runtime: tokio::runtime::Runtime,
}

impl Mounted {
    fn new(served: &Served, road: Road, options: MountOptions) -> Self {
        let at = tempfile::tempdir().unwrap();
        fs::set_permissions(at.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let runtime = samehost_mount::runtime().unwrap();
        let url = Url::new("127.0.0.1", Some(served.port), served.export().to_str().unwrap().as_bytes());
        let session = client::Options {
            lane: if road == Road::Wire { LaneMode::Off } else { LaneMode::Auto },
            run_dir: served.dir.path().join("run"),
            search_namespaces: false,
            timeo: Duration::from_secs(20),
            ..client::Options::default()
        };
        let options = MountOptions { passthrough: road == Road::Passed, allow_other: true, ..options };
        let mount = runtime.block_on(Mount::start(&url, session, options, at.path())).expect("a mount");
        assert_eq!(mount.report().lane.local, road != Road::Wire, "{:?}", mount.report().lane);
        Self { at, mount, _runtime: runtime }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.at.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.mount.unmount(true);
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("it is there");
}

/// Bytes that differ at every offset and for every seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at.wrapping_add(seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// Waits until `condition` holds.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a shell script as another user; its output, and whether it succeeded.
pub fn shell_as(uid: u32, gid: u32, groups: &str, script: &str) -> (String, bool) {
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    let output = Command::new("setpriv")
        .args([&format!("--reuid={uid}"), &format!("--regid={gid}"), &groups, "sh", "-c", script])
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (said, output.status.success())
}
