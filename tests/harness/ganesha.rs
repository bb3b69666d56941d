//! Debian's nfs-ganesha: a foreign server for our client, and the reference for comparisons.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Daemon, run, wait_for};
use crate::rpcbind::Rpcbind;
use crate::{Netns, Scratch};

/// nfs-ganesha with FSAL_VFS, in a network namespace of its own: it refuses to start without rpcbind, and
/// must not use the machine's rpcbind.
#[derive(Debug)]
pub struct Ganesha {
    daemon: Daemon,
    rpcbind: Rpcbind,
    scratch: Scratch,
    export: PathBuf,
}

impl Ganesha {
    /// The port of NFS.
    pub const NFS_PORT: u16 = 20490;
    /// The port of MOUNT.
    pub const MOUNT_PORT: u16 = 20491;
    /// The export's path from NFSv4's root.
    pub const PSEUDO: &str = "/export";

    /// Serves `export` (read-write, no root squash, any source port) in `netns` and waits until it replies.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn start(netns: &Netns, export: &Path) -> Self {
        Self::start_with(netns, export, "No_Root_Squash")
    }

    /// As [`Ganesha::start`], with a grace period of 10 s after each start, and a lease of 5 s.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn start_with_grace(netns: &Netns, export: &Path) -> Self {
        let state = "Graceless = false; RecoveryBackend = fs; Lease_Lifetime = 5; Grace_Period = 10;";
        Self::launch(netns, export, "No_Root_Squash", state)
    }

    /// As [`Ganesha::start`], with delegations allowed as far as ganesha has them.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn start_with_delegations(netns: &Netns, export: &Path) -> Self {
        let squash = "No_Root_Squash; Delegations = ReadWrite";
        Self::launch(netns, export, squash, "Graceless = true; Delegations = true;")
    }

    /// As [`Ganesha::start`], with another value of ganesha's `Squash`.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn start_with(netns: &Netns, export: &Path, squash: &str) -> Self {
        Self::launch(netns, export, squash, "Graceless = true;")
    }

    /// `state` are options of ganesha's block NFSV4.
    fn launch(netns: &Netns, export: &Path, squash: &str, state: &str) -> Self {
        let scratch = Scratch::new();
        let rpcbind = Rpcbind::start(netns, &scratch);
        let config = scratch.join("ganesha.conf");
        let recovery = scratch.mkdir("recovery");
        fs::write(
            &config,
            format!(
                "NFS_CORE_PARAM {{ NFS_Port = {}; MNT_Port = {}; Protocols = 3, 4; Enable_NLM = false; \
                 Enable_RQUOTA = false; Enable_UDP = false; {} }}\n\
                 NFSV4 {{ {state} RecoveryRoot = {}; }}\n\
                 EXPORT_DEFAULTS {{ SecType = sys; }}\n\
                 EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = {}; Access_Type = RW; Squash = {squash}; \
                 Protocols = 3, 4; Transports = TCP; PrivilegedPort = false; FSAL {{ Name = VFS; }} }}\n\
                 LOG {{ Default_Log_Level = EVENT; }}\n",
                Self::NFS_PORT,
                Self::MOUNT_PORT,
                // Newer versions require a privilege that containers don't have, and older ones don't know
                // this option.
                if version() >= 6 { "allow_set_io_flusher_fail = true;" } else { "" },
                recovery.display(),
                Self::PSEUDO,
                export = export.display(),
            ),
        )
        .expect("own directory");
        let daemon = Self::spawn(&rpcbind, &scratch);
        let mut ganesha = Self { daemon, rpcbind, scratch, export: export.to_owned() };
        ganesha.wait_until_ready();
        ganesha
    }

    fn spawn(rpcbind: &Rpcbind, scratch: &Scratch) -> Daemon {
        let mut command = rpcbind.command("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(scratch.join("ganesha.conf"));
        command.args(["-L", "STDOUT", "-p", "/run/ganesha.pid"]);
        Daemon::start("nfs-ganesha", &mut command, &scratch.join("ganesha.log")).expect("nsenter")
    }

    fn wait_until_ready(&mut self) {
        wait_for("nfs-ganesha to answer", || {
            assert!(self.daemon.alive(), "nfs-ganesha ended:\n{}", self.daemon.log());
            let url = self.libnfs_url("");
            self.rpcbind.command("nfs-ls").arg(url).output().ok()?.status.success().then_some(())
        });
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Starts it again after [`Ganesha::kill`] and waits until it replies.
    ///
    /// # Panics
    /// When it doesn't come up.
    pub fn restart(&mut self) {
        self.daemon = Self::spawn(&self.rpcbind, &self.scratch);
        self.wait_until_ready();
    }

    /// A command inside its network and mount namespaces.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.rpcbind.command(program)
    }

    /// The URL of a file in the export, in the format of libnfs's tools.
    pub fn libnfs_url(&self, file: &str) -> String {
        let (nfs, mount) = (Self::NFS_PORT, Self::MOUNT_PORT);
        format!("nfs://127.0.0.1{}{file}?nfsport={nfs}&mountport={mount}&version=3", self.export.display())
    }

    /// The process.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its scratch directory, for files of the caller with the same lifetime.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

/// The major version of the installed nfs-ganesha.
fn version() -> u32 {
    let said = run(Command::new("ganesha.nfsd").arg("-v"));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.split_once("= V").and_then(|(_, v)| v.split('.').next()?.parse().ok()).unwrap_or(0)
}
