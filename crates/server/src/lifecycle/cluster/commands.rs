//! The programs that a node of a cluster executes: those that move addresses, and `ceph`, which ends the
//! session of a former mount. The wait for each is bounded. Each has the umask 022, and a process group of
//! its own, so that what it has started ends with it when the time is up.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rados::Settings;
use rustix::process::{Pid, Signal, kill_process_group};

/// The longest time that a program may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// The programs' umask: what they create is writable to their user only.
const PROGRAM_UMASK: u32 = 0o022;
/// The time between two looks at a running program.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How the addresses of drained nodes are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressHook {
    /// The administrator's program: `PROGRAM take NODE` on the server that takes the node's clients over, and
    /// `PROGRAM give-up NODE` on that node, if it runs.
    Program(PathBuf),
    /// The addresses are added to interfaces, and removed from them, with ip(8).
    Interface(Vec<NodeAddress>),
}

/// An address of a node: `NODE=ADDRESS/LENGTH%INTERFACE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    node: String,
    /// With the length of its prefix.
    address: String,
    /// The interface on every server that may have the address.
    interface: String,
}

/// A text that isn't a node's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not NODE=ADDRESS/LENGTH%INTERFACE, such as alpha=10.0.0.1/24%eth0")]
pub struct NodeAddressError(String);

impl FromStr for NodeAddress {
    type Err = NodeAddressError;

    fn from_str(text: &str) -> Result<Self, NodeAddressError> {
        let parse = || {
            let (node, rest) = text.split_once('=')?;
            let (address, interface) = rest.split_once('%')?;
            let (ip, length) = address.split_once('/')?;
            let ip: std::net::IpAddr = ip.parse().ok()?;
            let length: u32 = length.parse().ok()?;
            let is_valid = length <= if ip.is_ipv4() { 32 } else { 128 };
            let has_names = !node.is_empty() && !interface.is_empty() && !interface.starts_with('-');
            (is_valid && has_names).then(|| Self {
                node: node.to_owned(),
                address: format!("{ip}/{length}"),
                interface: interface.to_owned(),
            })
        };
        parse().ok_or_else(|| NodeAddressError(text.to_owned()))
    }
}

/// What is done with a node's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressMove {
    /// This server gets it.
    Take,
    /// This server has it no more.
    GiveUp,
}

impl AddressHook {
    /// Moves the address of `node`, and waits for that. What fails is logged.
    pub(super) fn run(&self, to: AddressMove, node: &str) {
        let addresses = match self {
            Self::Program(program) => {
                let verb = if to == AddressMove::Take { "take" } else { "give-up" };
                report(Command::new(program).args([verb, node]));
                return;
            }
            Self::Interface(addresses) => addresses.iter().filter(|address| address.node == node),
        };
        let mut is_known = false;
        for NodeAddress { address, interface, .. } in addresses {
            is_known = true;
            // `replace` is `add` that succeeds if it is there.
            let verb = if to == AddressMove::Take { "replace" } else { "del" };
            report(Command::new("ip").args(["address", verb, address, "dev", interface]));
            let ip = address.split('/').next().unwrap_or_default();
            if to == AddressMove::Take && !ip.contains(':') {
                // Neighbours that know the old place learn the new one at once.
                report(Command::new("arping").args(["-c", "3", "-A", "-I", interface, ip]));
            }
        }
        if !is_known {
            tracing::warn!("no --address-hook, and no --node-address of {node}: its address isn't moved");
        }
    }
}

/// Executes a program, and logs how it ended.
fn report(command: &mut Command) {
    let shown = format!("{command:?}").replace('"', "");
    match execute(command) {
        Ok(()) => tracing::info!("{shown}: done"),
        Err(error) => tracing::error!("{shown}: {error}"),
    }
}

/// Executes a program; one that takes too long is killed, with the processes that it has started.
fn execute(command: &mut Command) -> io::Result<()> {
    let begun = Instant::now();
    execute_until(command, || begun.elapsed() >= PROGRAM_TIMEOUT)
}

/// As [`execute`], until `is_late`.
fn execute_until(command: &mut Command, mut is_late: impl FnMut() -> bool) -> io::Result<()> {
    // The server's own umask is 0, since clients choose the modes of their files.
    let command = sys::child::set_umask(command.stdin(Stdio::null()).process_group(0), PROGRAM_UMASK);
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if is_late() {
            // Its group's number is its own, which no other process can have before the wait.
            kill_process_group(Pid::from_child(&child), Signal::KILL)?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "killed after 60 s"));
        }
        std::thread::sleep(LOOK_AGAIN);
    };
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

/// Asks the metadata servers to end a session, `client4123`, of another mount. Its client can't reach the
/// filesystem any more.
pub(super) fn evict(ceph: &Settings, session: &str) -> io::Result<()> {
    let id = session.trim_start_matches("client");
    let mut command = Command::new("ceph");
    command.args(["--connect-timeout", "10", "--name"]).arg(format!("client.{}", ceph.user));
    if let Some(configuration) = &ceph.configuration {
        command.arg("--conf").arg(configuration);
    }
    command.args(["tell", "mds.*", "client", "evict"]).arg(format!("id={id}")).stdout(Stdio::null());
    execute(&mut command)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn addresses_of_nodes_are_parsed() {
        let address: NodeAddress = "alpha=10.0.0.1/24%eth0".parse().unwrap();
        let expected = ("alpha", "10.0.0.1/24", "eth0");
        assert_eq!((&*address.node, &*address.address, &*address.interface), expected);
        assert!("a=fd00::1/64%eth0".parse::<NodeAddress>().is_ok());
        for wrong in
            ["", "a", "a=1.2.3.4", "a=1.2.3.4/24", "a=1.2.3.4/33%e", "=1.2.3.4/1%e", "a=x/1%e", "a=::/0%-e"]
        {
            assert!(wrong.parse::<NodeAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_end_with_their_status() {
        assert!(execute(&mut Command::new("true")).is_ok());
        assert!(execute(&mut Command::new("false")).unwrap_err().to_string().contains("exit status: 1"));
        assert!(execute(&mut Command::new("/nonexistent")).is_err());
    }

    #[test]
    fn programs_create_files_that_others_cannot_write_to() {
        const FILE: &str = "SAMEHOST_TEST_PROGRAMS_FILE";
        if let Some(file) = std::env::var_os(FILE) {
            return execute(Command::new("touch").arg(file)).unwrap();
        }
        // The umask is the process's: this test runs again in one that has the server's.
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        let name = format!("{}::programs_create_files_that_others_cannot_write_to", module_path!());
        let name = name.split_once("::").unwrap().1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        sys::child::set_umask(command.args(["--exact", name]).env(FILE, &file), 0);
        assert!(command.status().unwrap().success());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_program_that_is_late_ends_with_its_children() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("child");
        // The rename makes the number appear at once.
        let script = "sleep 1000 & echo $! >\"$0.new\"; mv \"$0.new\" \"$0\"; wait";
        let mut command = Command::new("sh");
        let late = execute_until(command.args(["-c", script]).arg(&file), || file.exists()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let child = std::fs::read_to_string(&file).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        let runs = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            // Nothing may be there that waits for it.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
        };
        let since = Instant::now();
        while runs() && since.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(LOOK_AGAIN);
        }
        assert!(!runs());
    }
}
