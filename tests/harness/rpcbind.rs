//! Debian's rpcbind in its own network and /run, invisible to the machine's own rpcbind.

use std::fs;
use std::process::Command;

use crate::process::{Daemon, wait_for};
use crate::{Netns, Scratch};

/// rpcbind in a network namespace.
///
/// It talks to local programs through /run/rpcbind.sock, so a program must see the same /run to reach it:
/// [`Rpcbind::command`] starts a program in both namespaces.
#[derive(Debug)]
pub struct Rpcbind {
    daemon: Daemon,
}

impl Rpcbind {
    /// Starts it in `netns` and waits until it answers.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn start(netns: &Netns, scratch: &Scratch) -> Self {
        let log = scratch.join("rpcbind.log");
        let script =
            "mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/lock /run/ganesha && exec rpcbind -w -f";
        let mut command = netns.command("unshare");
        command.args(["--mount", "--propagation", "private", "--", "sh", "-c", script]);
        let daemon = Daemon::start("rpcbind", &mut command, &log).expect("unshare can be started");
        let rpcbind = Self { daemon };
        // rpcinfo over TCP: libtirpc prefers the Unix socket, which only the namespace sees.
        wait_for("rpcbind to answer", || {
            let socket = format!("/proc/{}/root/run/rpcbind.sock", rpcbind.daemon.pid());
            fs::metadata(socket).ok()?;
            rpcbind
                .command("rpcinfo")
                .args(["-T", "tcp", "127.0.0.1", "100000", "2"])
                .output()
                .ok()?
                .status
                .success()
                .then_some(())
        });
        rpcbind
    }

    /// A command that runs in rpcbind's network and mount namespaces.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let pid = self.daemon.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid, "--net", "--mount", "--"]).arg(program);
        command
    }
}
