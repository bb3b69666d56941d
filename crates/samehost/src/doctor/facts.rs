//! What doctor looks at, gathered by reading and by calls that change nothing.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use control::{Answers, Unresponsive};
use rustix::fs::{Access, CWD, Mode, OFlags, access, open};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};
use sys::handle::KernelHandle;

use super::firewall;
use crate::commands::status;
use crate::fuse_device;

/// NFS's port, in the hexadecimal form of /proc/net/tcp.
const NFS_PORT: &str = ":0801";
/// TCP_LISTEN, in the same file.
const LISTENING: &str = "0A";

/// What was found on this host.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The kernel.
    pub kernel: Kernel,
    /// The effective user id.
    pub uid: u32,
    /// The effective capabilities.
    pub capabilities: CapabilitySet,
    /// Whether this process is in the initial user namespace, as far as its id map shows.
    pub initial_user_namespace: bool,
    /// Whether programs that this process starts ignore their set-user-ID bits.
    pub no_new_privileges: bool,
    /// The hard limit of open files, which the server and the mounts raise their own to; `None`: unlimited.
    pub descriptor_limit: Option<u64>,
    /// Opening /dev/fuse.
    pub fuse_device: Result<(), Errno>,
    /// fusermount3.
    pub fuse_helper: FuseHelper,
    /// Whether /etc/fuse.conf has `user_allow_other`.
    pub user_allow_other: bool,
    /// The switch for FUSE over io_uring; `None`: the kernel has no such switch.
    pub fuse_uring: Option<bool>,
    /// The sysctl kernel.io_uring_disabled: 0 for everyone, 1 only with CAP_SYS_ADMIN or a group, 2 for
    /// no process. `None`: the kernel is older than the sysctl.
    pub io_uring_disabled: Option<u32>,
    /// The sysctl fs.leases-enable.
    pub leases: bool,
    /// name_to_handle_at(2) and open_by_handle_at(2), tried on a directory of a filesystem that has handles;
    /// `None` if none was found.
    pub handles: Option<Result<(), Errno>>,
    /// The run directory.
    pub run_dir: RunDir,
    /// Whether a socket listens on TCP port 2049.
    pub nfs_port_taken: bool,
    /// Whether a server of Samehost in the run directory is that listener.
    pub nfs_port_ours: bool,
    /// The addresses that the servers of Samehost in the run directory listen on.
    pub listen: Vec<String>,
    /// Threads of the kernel's NFS server.
    pub knfsd_threads: u32,
    /// Whether rpcbind answers at its Unix socket.
    pub rpcbind: bool,
    /// Whether a packet filter drops NFS; `None` if its rules can't be read.
    pub drops_nfs: Option<bool>,
    /// The directories that the user named.
    pub directories: Vec<ExportDirectory>,
}

/// The kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// As uname(2) has it.
    pub release: String,
    /// The first two numbers of it.
    pub version: (u32, u32),
    /// CONFIG_FUSE_PASSTHROUGH; `None` if the configuration isn't readable.
    pub fuse_passthrough: Option<bool>,
}

/// The program by which ordinary users mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseHelper {
    /// It isn't in the search path.
    Missing,
    /// It is there without root's set-user-ID bit.
    NotSetUid,
    /// It works as far as its file shows.
    SetUid,
}

/// The run directory.
#[derive(Clone, Debug)]
pub struct RunDir {
    /// Its path.
    pub path: PathBuf,
    /// Whether it exists.
    pub exists: bool,
    /// Whether this user can create sockets in it, or create the directory if it doesn't exist.
    pub writable: bool,
    /// Whether users other than its owner can create sockets in it.
    pub open_to_others: bool,
    /// Servers that answered.
    pub servers: usize,
    /// Servers whose status this user may not ask for.
    pub closed_servers: usize,
}

/// A directory that is to be served.
#[derive(Clone, Debug)]
pub struct ExportDirectory {
    /// Its path.
    pub path: PathBuf,
    /// Opening it.
    pub opened: Result<(), Errno>,
    /// Whether its filesystem has file handles.
    pub has_handles: bool,
    /// The filesystem's type; empty if unknown.
    pub filesystem: String,
}

impl Facts {
    /// Looks at everything. `directories` are those that are to be served.
    pub fn gather(run_dir: &Path, directories: &[PathBuf]) -> Self {
        let Answers { answers: servers, silent } = status::servers(run_dir).unwrap_or_default();
        let is_closed = |silent: &&Unresponsive| silent.error.is_denied();
        let listens = |address: &String| address.ends_with(":2049");
        Self {
            kernel: kernel(),
            uid: geteuid().as_raw(),
            capabilities: capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective),
            initial_user_namespace: read("/proc/self/uid_map")
                .is_none_or(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"])),
            no_new_privileges: read("/proc/self/status").is_some_and(|text| {
                text.lines().any(|line| line.split_once(":\t") == Some(("NoNewPrivs", "1")))
            }),
            descriptor_limit: getrlimit(Resource::Nofile).maximum,
            fuse_device: open(fuse_device::PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(drop),
            fuse_helper: fuse_helper(),
            user_allow_other: read("/etc/fuse.conf")
                .is_some_and(|text| text.lines().any(|line| line.trim() == "user_allow_other")),
            fuse_uring: read("/sys/module/fuse/parameters/enable_uring").map(|value| value.trim() == "Y"),
            io_uring_disabled: read("/proc/sys/kernel/io_uring_disabled")
                .and_then(|value| value.trim().parse().ok()),
            leases: read("/proc/sys/fs/leases-enable").is_none_or(|value| value.trim() != "0"),
            handles: ["/run", "/dev/shm", "/var", "/"].into_iter().find_map(handles),
            run_dir: examine_run_dir(run_dir, servers.len(), silent.iter().filter(is_closed).count()),
            nfs_port_taken: ["/proc/net/tcp", "/proc/net/tcp6"]
                .into_iter()
                .filter_map(read)
                .any(|table| listens_on_nfs_port(&table)),
            nfs_port_ours: servers.iter().any(|server| server.answer.listen.iter().any(listens)),
            listen: servers.iter().flat_map(|server| server.answer.listen.clone()).collect(),
            knfsd_threads: read("/proc/fs/nfsd/threads")
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(0),
            rpcbind: UnixStream::connect("/run/rpcbind.sock").is_ok(),
            drops_nfs: output("nft", &["list", "ruleset"]).map(|rules| firewall::drops_nfs(&rules)),
            directories: directories.iter().map(|path| examine_directory(path)).collect(),
        }
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The standard output of a program that succeeds.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn kernel() -> Kernel {
    let release = uname().release().to_string_lossy().into_owned();
    let config = read(&format!("/boot/config-{release}"));
    let config = config.or_else(|| output("gzip", &["-dc", "/proc/config.gz"]));
    Kernel {
        version: version(&release),
        fuse_passthrough: config.map(|config| config.lines().any(|line| line == "CONFIG_FUSE_PASSTHROUGH=y")),
        release,
    }
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a table of /proc/net has a socket that listens on the port.
fn listens_on_nfs_port(table: &str) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, state) = (fields.next().unwrap_or(""), fields.nth(1).unwrap_or(""));
        local.ends_with(NFS_PORT) && state == LISTENING
    })
}

fn fuse_helper() -> FuseHelper {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find_map(|dir| dir.join("fusermount3").metadata().ok());
    match found {
        None => FuseHelper::Missing,
        Some(file) if file.mode() & 0o4000 != 0 && file.uid() == 0 => FuseHelper::SetUid,
        Some(_) => FuseHelper::NotSetUid,
    }
}

/// Tries a directory's handle; `None` if its filesystem has none.
fn handles(directory: &str) -> Option<Result<(), Errno>> {
    let file = open(directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    match KernelHandle::of(&file, c".") {
        Ok(handle) => Some(handle.open(file.as_fd(), OFlags::DIRECTORY | OFlags::CLOEXEC).map(drop)),
        Err(Errno::OPNOTSUPP) => None,
        Err(errno) => Some(Err(errno)),
    }
}

fn examine_run_dir(path: &Path, servers: usize, closed_servers: usize) -> RunDir {
    let metadata = path.metadata();
    let exists = metadata.is_ok();
    // What has to be created is created in the closest directory above that exists.
    let place = path.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(path);
    RunDir {
        path: path.to_owned(),
        exists,
        writable: access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        open_to_others: metadata.is_ok_and(|metadata| metadata.mode() & 0o022 != 0),
        servers,
        closed_servers,
    }
}

fn examine_directory(path: &Path) -> ExportDirectory {
    let opened = rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let has_handles = opened.as_ref().is_ok_and(|file| KernelHandle::of(file, c".").is_ok());
    let filesystem = filesystem(path).unwrap_or_default();
    ExportDirectory { path: path.to_owned(), opened: opened.map(drop), has_handles, filesystem }
}

/// The type of the filesystem that a path is on: that of the deepest mountpoint above it.
fn filesystem(path: &Path) -> io::Result<String> {
    let path = path.canonicalize()?;
    let mounts = mount::mountinfo::list()?;
    // Of several mounts at one place the last one is on top.
    let above = mounts.into_iter().filter(|mounted| path.starts_with(&mounted.at));
    Ok(above
        .max_by_key(|mounted| mounted.at.as_os_str().len())
        .map(|mounted| mounted.kind)
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_begin_with_two_numbers() {
        assert_eq!(version("6.12.57+deb13-amd64"), (6, 12));
        assert_eq!(version("6.1-rc3"), (6, 1));
        assert_eq!(version("strange"), (0, 0));
    }

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let line = |local: &str, state: &str| {
            format!("   0: 00000000:{local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000\n")
        };
        assert!(listens_on_nfs_port(&line("0801", "0A")));
        assert!(!listens_on_nfs_port(&line("0801", "01")));
        assert!(!listens_on_nfs_port(&line("0016", "0A")));
    }

    #[test]
    fn gathering_works_anywhere() {
        let scratch = tempfile::tempdir().unwrap();
        let facts = Facts::gather(&scratch.path().join("run"), &[scratch.path().to_owned()]);
        assert!(facts.kernel.version >= (5, 6), "{facts:?}");
        assert!(!facts.run_dir.exists && facts.run_dir.writable && facts.run_dir.servers == 0, "{facts:?}");
        assert_eq!(facts.directories[0].opened, Ok(()));
        assert!(!facts.directories[0].filesystem.is_empty());
    }
}
