//! Shared parts of the mount's tests: a server in a process of its own (`served`, from the client's tests),
//! and mounts of it in this process.

#![allow(dead_code, unused_imports, reason = "each test program uses a part")]

#[path = "../../../client/tests/support/served.rs"]
mod served;

mod proxy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::{LaneMode, Url, Version};
pub use proxy::proxy;
use samehost_mount::{Mount, MountOptions};
pub use served::{BOUND, Served, pattern};
use tempfile::TempDir;

impl Served {
    pub fn start() -> Self {
        Self::with("no_root_squash")
    }

    /// A server that gives no trees: every name and attribute is requested from it.
    pub fn without_tree() -> Self {
        Self::with("no_root_squash,no_tree")
    }

    /// A server with these export options.
    pub fn with(options: &str) -> Self {
        Self::new(true, options)
    }

    pub fn mount(&self, transport: Transport) -> Mounted {
        self.mount_with(transport, MountOptions::default())
    }

    pub fn mount_with(&self, transport: Transport, options: MountOptions) -> Mounted {
        Mounted::new(self, transport, |session| session, options)
    }

    /// A mount with other options of its session.
    pub fn mount_adjusted(
        &self,
        transport: Transport,
        adjust: impl FnOnce(client::Options) -> client::Options,
        options: MountOptions,
    ) -> Mounted {
        Mounted::new(self, transport, adjust, options)
    }

    /// A mount over TCP through another port, which forwards to the server's, without delegations.
    pub fn mount_through(&self, port: u16, options: MountOptions) -> Mounted {
        Mounted::at_port(self, port, Transport::Wire, |session| session.delegations(false), options)
    }

    /// A mount by this version of NFS.
    pub fn mount_by(&self, version: Version, transport: Transport, options: MountOptions) -> Mounted {
        Mounted::new(self, transport, |session| session.version(version), options)
    }
}

/// A tmpfs of 2,560 KiB, unmounted on drop.
pub struct SmallFilesystem<'a>(&'a Path);

impl<'a> SmallFilesystem<'a> {
    pub fn mount(at: &'a Path) -> Self {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2560k", "none"]).arg(at).status();
        assert!(mounted.unwrap().success());
        Self(at)
    }
}

impl Drop for SmallFilesystem<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// The transport of a mount's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Passed through by the kernel.
    Passed,
    /// Granted files, read and written by the mount's process.
    Served,
    /// NFSv4.2 over TCP.
    Wire,
    /// NFSv3 over TCP.
    Wire3,
}

pub const TRANSPORTS: [Transport; 3] = [Transport::Passed, Transport::Served, Transport::Wire];

/// The same with each version of the wire.
pub const TRANSPORTS_AND_VERSIONS: [Transport; 4] =
    [Transport::Passed, Transport::Served, Transport::Wire, Transport::Wire3];

impl Transport {
    pub fn is_wire(self) -> bool {
        matches!(self, Self::Wire | Self::Wire3)
    }
}

/// How long the end of a session may take: the server may be down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A mount, unmounted when it is dropped.
pub struct Mounted {
    at: TempDir,
    pub mount: Mount,
    runtime: tokio::runtime::Runtime,
}

impl Mounted {
    fn new(
        served: &Served,
        transport: Transport,
        adjust: impl FnOnce(client::Options) -> client::Options,
        options: MountOptions,
    ) -> Self {
        Self::at_port(served, served.port(), transport, adjust, options)
    }

    fn at_port(
        served: &Served,
        port: u16,
        transport: Transport,
        adjust: impl FnOnce(client::Options) -> client::Options,
        options: MountOptions,
    ) -> Self {
        let at = tempfile::tempdir().unwrap();
        fs::set_permissions(at.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let runtime = samehost_mount::runtime().unwrap();
        let url = Url::new("127.0.0.1", Some(port), served.export().to_str().unwrap().as_bytes());
        let lane = if transport.is_wire() { LaneMode::Off } else { LaneMode::Auto };
        let session = client::Options::new()
            .lane(lane)
            .run_dir(served.run_dir())
            .search_namespaces(false)
            .timeo(Duration::from_secs(20))
            .version(if transport == Transport::Wire3 { Version::V3 } else { Version::Highest });
        let session = adjust(session);
        let options =
            MountOptions { passthrough: transport == Transport::Passed, allow_other: true, ..options };
        let mount = runtime.block_on(Mount::start(&url, session, options, at.path())).expect("a mount");
        assert_eq!(mount.report().lane.local, !transport.is_wire(), "{:?}", mount.report().lane);
        Self { at, mount, runtime }
    }

    /// A path in the mount.
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
        // As a mount's process does: the server waits for nothing of it after a restart.
        let session = self.mount.session().clone();
        let _ = self.runtime.block_on(async { tokio::time::timeout(CLOSE_TIMEOUT, session.close()).await });
    }
}

/// Waits until `condition` holds.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a shell script as another user. Returns its output, and whether it succeeded.
pub fn shell_as(uid: u32, gid: u32, groups: &str, script: &str) -> (String, bool) {
    let groups = if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
    let output = Command::new("setpriv")
        .args([&format!("--reuid={uid}"), &format!("--regid={gid}"), &groups, "sh", "-c", script])
        .output()
        .unwrap();
    let output_text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output_text, output.status.success())
}
