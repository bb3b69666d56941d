//! Network namespaces and the cables between them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::{run, run_ok};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A named network namespace with its loopback up. Deleted when dropped.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// A new one. `hint` appears in its name.
    ///
    /// # Panics
    /// When it can't be made; needs root.
    pub fn new(hint: &str) -> Self {
        let name = format!("shtest{}-{}-{hint}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run_ok(Command::new("ip").args(["netns", "add", &name]));
        let netns = Self { name };
        run_ok(Command::new("ip").args(["-n", &netns.name, "link", "set", "lo", "up"]));
        netns
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, as containers want it.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// A command that runs inside. The process id is the program's own; the mount namespace stays the
    /// caller's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// Lays a cable between this namespace and another, with an address at each end.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn cable(&self, own: &str, other: &Self, others: &str, prefix: u8) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Names of devices have at most 15 bytes.
        let (a, b) = (format!("sh{number}a"), format!("sh{number}b"));
        run_ok(Command::new("ip").args([
            "-n",
            &self.name,
            "link",
            "add",
            &a,
            "type",
            "veth",
            "peer",
            "name",
            &b,
            "netns",
            &other.name,
        ]));
        for (netns, device, address) in [(self, &a, own), (other, &b, others)] {
            let address = format!("{address}/{prefix}");
            run_ok(Command::new("ip").args(["-n", &netns.name, "address", "add", &address, "dev", device]));
            run_ok(Command::new("ip").args(["-n", &netns.name, "link", "set", device, "up"]));
        }
    }

    /// Lays a cable between this namespace and the machine itself.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn cable_to_host(&self, own: &str, hosts: &str, prefix: u8) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (inside, outside) =
            (format!("sh{number}a"), format!("sh{}-{number}", std::process::id() % 1_000_000));
        // Made from the inside, so that it goes with the namespace; then its other end is pushed out to us
        // (process 1's net).
        run_ok(
            Command::new("ip").args([
                "link", "add", &outside, "type", "veth", "peer", "name", &inside, "netns", &self.name,
            ]),
        );
        run_ok(Command::new("ip").args(["address", "add", &format!("{hosts}/{prefix}"), "dev", &outside]));
        run_ok(Command::new("ip").args(["link", "set", &outside, "up"]));
        let own = format!("{own}/{prefix}");
        run_ok(Command::new("ip").args(["-n", &self.name, "address", "add", &own, "dev", &inside]));
        run_ok(Command::new("ip").args(["-n", &self.name, "link", "set", &inside, "up"]));
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // Its devices, and the far ends of its cables, go with it once the last process inside has gone.
        let _ = run(Command::new("ip").args(["netns", "delete", &self.name]));
    }
}
