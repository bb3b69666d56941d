//! A server of CephFS that can be killed and started again, and the service manager that keeps the
//! descriptors of a Samehost meanwhile.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use samehost_tests::process::Daemon;
use samehost_tests::samehost::binary;
use samehost_tests::{Scratch, run_ok, wait_for};

use super::{Ceph, CephMount};
use crate::nfs4::session::Session;
use crate::nfs4::wire::Wire;

/// The lease and, for nfs-ganesha, the grace period in seconds.
pub const LEASE: u32 = 20;
/// The client that waits for the server's start. One that never comes back would prolong grace periods.
pub const FIRST_CLIENT: &[u8] = b"client 0";
/// The path of the mount in nfs-ganesha.
const PSEUDO: &str = "/export";
/// Stored descriptors are passed at these numbers first, out of the way of those that the server expects.
const PASSED: i32 = 200;

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Samehost,
    Ganesha,
}

/// A server at a port of 127.0.0.1.
pub struct ClusterServer {
    program: Program,
    pub name: &'static str,
    pub port: u16,
    ceph: PathBuf,
    /// The namespace of the cluster's objects.
    cluster: Option<String>,
    mount: Option<PathBuf>,
    scratch: Scratch,
    daemon: Option<Daemon>,
    kept: Arc<Mutex<Descriptors>>,
}

/// The stored descriptors, with their names.
type Descriptors = Vec<(String, OwnedFd)>;

impl ClusterServer {
    /// Starts a server, as a node of a cluster if there is one, and waits until a client has a session.
    pub fn start(
        ceph: &Ceph,
        program: Program,
        name: &'static str,
        port: u16,
        cluster: Option<&str>,
        mount: Option<&CephMount>,
    ) -> Result<Self> {
        let mut server = Self {
            program,
            name,
            port,
            ceph: ceph.configuration.clone(),
            cluster: cluster.map(|namespace| format!("rados://cephfs.a.meta/{namespace}")),
            mount: mount.map(|mount| mount.path().to_owned()),
            scratch: Scratch::new(),
            daemon: None,
            kept: Arc::default(),
        };
        if let Some(address) = &server.cluster {
            let mut command = Command::new(binary());
            command.args(["cluster", "add", name, "--cluster", address, "--ceph-conf"]).arg(&server.ceph);
            run_ok(&mut command);
        }
        server.keep_descriptors()?;
        server.restart()?;
        wait_for("the server to give sessions", || {
            let wire = Wire::connect(port).ok()?;
            Session::new(wire, FIRST_CLIENT, 1).ok()
        });
        Ok(server)
    }

    /// The exported directory from NFSv4's root.
    pub fn export(&self) -> String {
        match &self.mount {
            Some(mount) => mount.display().to_string(),
            None => PSEUDO.to_owned(),
        }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.scratch.join("run")
    }

    /// Stores the descriptors that the server sends to NOTIFY_SOCKET, as systemd does, until this process
    /// ends.
    fn keep_descriptors(&self) -> Result<()> {
        let socket = UnixDatagram::bind(self.scratch.join("notify"))?;
        let kept = Arc::clone(&self.kept);
        std::thread::spawn(move || {
            while let Some((what, name, file)) = receive(&socket) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                match (what.as_str(), file) {
                    ("FDSTORE=1", Some(file)) => kept.push((name, file)),
                    ("FDSTOREREMOVE=1", _) => kept.retain(|(other, _)| *other != name),
                    _ => {}
                }
            }
        });
        Ok(())
    }

    /// Starts the program, without waiting for it.
    pub fn restart(&mut self) -> Result<()> {
        // The passed descriptors are closed here once the program has them.
        let (mut command, _passed) = match self.program {
            Program::Samehost => self.samehost()?,
            Program::Ganesha => (self.ganesha()?, Vec::new()),
        };
        let log = self.scratch.join("log");
        self.daemon = Some(Daemon::start(self.name, &mut command, &log)?);
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// The command, and the stored descriptors that it inherits.
    fn samehost(&self) -> Result<(Command, Vec<OwnedFd>)> {
        let mount = self.mount.as_deref().context("a Samehost needs a mount")?;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut passed, mut duplicates, mut names) = (Vec::new(), String::new(), Vec::new());
        for ((name, file), to) in kept.iter().zip(3..) {
            let file = fcntl_dupfd_cloexec(file, PASSED)?;
            fcntl_setfd(&file, FdFlags::empty())?;
            duplicates.push_str(&format!("exec {to}<&{from} {from}<&-; ", from = file.as_raw_fd()));
            names.push(name.as_str());
            passed.push(file);
        }
        let script = format!(
            "{duplicates}export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={}; exec \"$@\"",
            names.len(),
            names.join(":")
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash"]).arg(binary()).args(["serve", "--no-rpcbind", "--export"]);
        command.arg(format!("{} *(rw,insecure,no_root_squash,fsid=7)", mount.display()));
        command.args(["--listen", &format!("127.0.0.1:{}", self.port), "--lease", &LEASE.to_string()]);
        command.arg("--run-dir").arg(self.run_dir()).arg("--state-dir").arg(self.scratch.join("state"));
        if let Some(address) = &self.cluster {
            command.args(["--cluster", address, "--node", self.name, "--ceph-conf"]).arg(&self.ceph);
        }
        command.env("NOTIFY_SOCKET", self.scratch.join("notify")).env("FDSTORE", "100");
        Ok((command, passed))
    }

    fn ganesha(&self) -> Result<Command> {
        let (_, namespace) =
            self.cluster.as_deref().and_then(|address| address.rsplit_once('/')).context("a cluster")?;
        let (ceph, name, port) = (self.ceph.display(), self.name, self.port);
        let text = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; \
             Bind_addr = 127.0.0.1; }}\n\
             NFSV4 {{ RecoveryBackend = rados_cluster; Minor_Versions = 1, 2; Delegations = false; \
             Lease_Lifetime = {LEASE}; Grace_Period = {LEASE}; }}\n\
             RADOS_KV {{ ceph_conf = {ceph}; UserId = admin; pool = cephfs.a.meta; namespace = {namespace}; \
             nodeid = {name}; }}\n\
             CEPH {{ ceph_conf = {ceph}; }}\n\
             EXPORT_DEFAULTS {{ SecType = sys; }}\n\
             EXPORT {{ Export_Id = 1; Path = /; Pseudo = {PSEUDO}; Access_Type = RW; \
             Squash = No_Root_Squash; Protocols = 4; Transports = TCP; PrivilegedPort = false; \
             FSAL {{ Name = CEPH; }} }}\n\
             LOG {{ Default_Log_Level = EVENT; }}\n"
        );
        let configuration: &Path = &self.scratch.join("ganesha.conf");
        std::fs::write(configuration, text)?;
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(configuration).args(["-L", "STDOUT", "-p"]);
        command.arg(self.scratch.join("ganesha.pid"));
        Ok(command)
    }
}

/// The next message about a descriptor: what to do, its name, and the descriptor.
fn receive(socket: &UnixDatagram) -> Option<(String, String, Option<OwnedFd>)> {
    loop {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [std::io::IoSliceMut::new(&mut bytes)];
        let received = rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        let file = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                _ => None,
            })
            .next();
        let message = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
        // Other messages say that the service is ready, or stops.
        if let Some((what, name)) = message.split_once("\nFDNAME=") {
            return Some((what.to_owned(), name.lines().next().unwrap_or_default().to_owned(), file));
        }
    }
}
