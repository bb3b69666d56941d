//! The shared code of the whole-system tests.
//!
//! A test starts real things (our server, a foreign one, a container, a virtual machine), gives them ports,
//! directories and a network of their own, and removes everything when the value is dropped. No test relies
//! on the machine's own services, and no test waits for time to pass: [`wait_for`] polls a condition, with a
//! generous timeout.

pub mod application;
pub mod capture;
pub mod cgroup;
pub mod cpio;
pub mod data_path;
pub mod disk;
pub mod failing;
pub mod ganesha;
pub mod knfsd;
pub mod mount;
pub mod netns;
pub mod podman;
pub mod process;
pub mod qemu;
pub mod rpcbind;
pub mod samehost;
pub mod scratch;
pub mod uring;

pub use application::Application;
pub use data_path::DataPath;
pub use mount::Mount;
pub use netns::Netns;
pub use process::{Daemon, run, run_ok, wait_for};
pub use samehost::{Serve, Server};
pub use scratch::Scratch;
pub use uring::UringSwitch;

use std::path::PathBuf;
use std::time::Duration;

/// How long anything on this machine may take before a test reports a hang. Generous, so that slow machines
/// pass.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Fails a test that wasn't started as root, with a message. Mounting, namespaces and foreign daemons need
/// it.
///
/// # Panics
/// When the effective user isn't root.
pub fn need_root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "the whole-system tests need root (namespaces, mounts, foreign daemons): run `make test` as root"
    );
}

/// The directory of the workspace.
pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_owned()
}

/// The directory in which `scripts/setup` puts downloaded files that aren't installed (a kernel to boot).
pub fn assets() -> PathBuf {
    std::env::var_os("SAMEHOST_TEST_ASSETS")
        .map_or_else(|| workspace().join("target/test-assets"), PathBuf::from)
}
