//! Network namespaces, and veth pairs between them.

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
    /// Creates one. `hint` appears in its name.
    ///
    /// # Panics
    /// When it can't be created; needs root.
    pub fn new(hint: &str) -> Self {
        let name = format!("shtest{}-{}-{hint}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run_ok(Command::new("ip").args(["netns", "add", &name]));
        let netns = Self { name };
        netns.set_loopback(true);
        netns
    }

    /// Switches its loopback on or off. While it is off, nobody inside learns what has become of a peer.
    ///
    /// # Panics
    /// When it can't be switched.
    pub fn set_loopback(&self, is_up: bool) {
        let to = if is_up { "up" } else { "down" };
        run_ok(Command::new("ip").args(["-n", &self.name, "link", "set", "lo", to]));
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, as containers expect it.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// A command that runs inside. The process id is the program's own; the mount namespace is the caller's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// The same command inside. Its working directory and standard streams aren't those that `inner` has set.
    pub fn inside(&self, inner: &Command) -> Command {
        let mut command = self.command(inner.get_program());
        command.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Creates a veth pair to another namespace, with an address at each end.
    ///
    /// # Panics
    /// When it can't be created.
    pub fn add_veth(&self, own: &str, other: &Self, others: &str, prefix: u8) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Device names have at most 15 bytes.
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

    /// Creates a veth pair to the machine's own network namespace.
    ///
    /// # Panics
    /// When it can't be created.
    pub fn add_veth_to_host(&self, own: &str, hosts: &str, prefix: u8) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (inside, outside) =
            (format!("sh{number}a"), format!("sh{}-{number}", std::process::id() % 1_000_000));
        // Created from the inside, so that it is deleted with the namespace; then its other end is moved out
        // (to process 1's namespace).
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
        // The kernel deletes its devices and their peers once the last process inside has exited.
        let _ = run(Command::new("ip").args(["netns", "delete", &self.name]));
    }
}
