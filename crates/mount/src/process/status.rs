//! The status of a mount's process and the changes it accepts, both at its socket (`INSTANCE.mount` in the
//! run directory, crate `control`).

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use client::{DataPathCounters, LaneMode, SessionEvents};
use control::{ControlAnswer, ProcessKind, Reply, Socket, SocketDirectory};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use crate::mount::Mount;
use crate::mount_grant::MountGrantState;
use crate::mountinfo;
use crate::report::{FuseTransport, MountCounters, MountReport};

/// The status of a running mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// The version of the mount's process.
    pub version: String,
    /// What is mounted, as the user wrote it.
    pub source: String,
    /// The mountpoint.
    #[serde(with = "control::path_text")]
    pub mountpoint: PathBuf,
    /// The server's address.
    pub server: String,
    /// The mount's process, in its own PID namespace.
    pub pid: u32,
    /// Seconds since it was mounted.
    pub uptime_seconds: u64,
    /// The data path of newly opened files, as the last open has shown it: `lane, mounted`, `lane, passed
    /// through`, `lane, served by the mount's process` or `wire`.
    #[serde(rename = "road")]
    pub data_path: String,
    /// Whether that is the lane.
    pub local: bool,
    /// Seconds since it became so.
    pub since_seconds: u64,
    /// Why it isn't a faster one.
    pub reasons: Vec<String>,
    /// Whether names and attributes are local, too, by the directory tree of the server's host.
    #[serde(default)]
    pub tree: bool,
    /// Why there is a lane and no tree.
    #[serde(default)]
    pub tree_refusal: Option<String>,
    /// How the kernel's requests arrive: `io_uring` or `/dev/fuse`.
    #[serde(default)]
    pub transport: String,
    /// Why it isn't io_uring.
    #[serde(default)]
    pub transport_reason: Option<String>,
    /// Whether the export's own mount is attached.
    #[serde(default)]
    pub mounted: bool,
    /// Why it isn't.
    #[serde(default)]
    pub mount_refusal: Option<String>,
    /// The server's instance, while there is a lane.
    pub instance: Option<String>,
    /// What the kernel asked of the process.
    #[serde(flatten)]
    pub kernel: MountCounters,
    /// What this process transferred over the lane. Reads and writes that the kernel passes through aren't
    /// counted.
    pub lane: DataPathCounters,
    /// What it transferred over the wire.
    pub wire: DataPathCounters,
    /// What happened to its session beside.
    #[serde(flatten)]
    pub events: SessionEvents,
    /// The last changes of the lane, the oldest first.
    pub changes: Vec<LaneChangeStatus>,
}

/// A change of the lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneChangeStatus {
    /// How many seconds ago.
    pub age_seconds: u64,
    /// Whether there was a lane from then on.
    pub local: bool,
    /// Why there was none.
    pub reasons: Vec<String>,
}

/// A change that a mount accepts at its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountRequest {
    /// Whether to use the lane.
    Lane(#[serde(with = "LaneModeName")] LaneMode),
}

/// The names of [`LaneMode`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "LaneMode", rename_all = "lowercase")]
enum LaneModeName {
    Auto,
    Off,
    Required,
}

/// What is mounted where.
#[derive(Debug)]
pub(super) struct MountIdentity {
    /// What is mounted, as the user wrote it.
    pub(super) source: String,
    pub(super) at: PathBuf,
    pub(super) since: Instant,
}

/// The present status.
pub(super) fn snapshot(identity: &MountIdentity, mount: &Mount) -> MountStatus {
    let report = mount.report();
    let data_path = NewFileDataPath::of(&report);
    MountStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        source: identity.source.clone(),
        mountpoint: identity.at.clone(),
        server: mount.session().server().to_string(),
        pid: std::process::id(),
        uptime_seconds: age(identity.since),
        data_path: data_path.words().to_owned(),
        local: report.lane.local,
        since_seconds: age(report.changes.last().map_or(identity.since, |change| change.at)),
        reasons: data_path.reasons(&report),
        tree: report.lane.tree,
        tree_refusal: report.lane.tree_refusal,
        transport: match &report.transport {
            FuseTransport::Uring => "io_uring".to_owned(),
            FuseTransport::Device { .. } => "/dev/fuse".to_owned(),
        },
        transport_reason: match report.transport {
            FuseTransport::Uring => None,
            FuseTransport::Device { reason } => Some(reason),
        },
        mounted: report.mount_grant == MountGrantState::Attached,
        mount_refusal: match report.mount_grant {
            MountGrantState::Attached => None,
            MountGrantState::Absent(reason) => Some(reason),
        },
        instance: report.lane.instance,
        kernel: report.kernel,
        lane: report.counters.lane,
        wire: report.counters.wire,
        events: report.counters.events,
        changes: report
            .changes
            .iter()
            .map(|change| LaneChangeStatus {
                age_seconds: age(change.at),
                local: change.local,
                reasons: change.reasons.clone(),
            })
            .collect(),
    }
}

/// The data path of newly opened files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewFileDataPath {
    /// The export's own mount is at the mountpoint.
    Mounted,
    /// The kernel reads and writes the server's file.
    Passed,
    /// The mount's process reads and writes the server's file.
    Served,
    /// The server does, over the wire.
    Wire,
}

impl NewFileDataPath {
    fn of(report: &MountReport) -> Self {
        match (report.lane.local, &report.not_passed) {
            _ if report.mount_grant == MountGrantState::Attached => Self::Mounted,
            (true, None) => Self::Passed,
            (true, Some(_)) => Self::Served,
            (false, _) => Self::Wire,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Mounted => "lane, mounted",
            Self::Passed => "lane, passed through",
            Self::Served => "lane, served by the mount's process",
            Self::Wire => "wire",
        }
    }

    /// Why it isn't a faster one.
    fn reasons(self, report: &MountReport) -> Vec<String> {
        match self {
            Self::Mounted | Self::Passed => Vec::new(),
            Self::Served => report.not_passed.iter().cloned().collect(),
            Self::Wire => report.lane.reasons.clone(),
        }
    }
}

/// The reply to a request at the socket; an empty one asks for the status.
fn answer(identity: &MountIdentity, mount: &Mount, request: &[u8]) -> ControlAnswer {
    if request.is_empty() {
        return ControlAnswer::now(&snapshot(identity, mount));
    }
    let reply = match serde_json::from_slice(request) {
        Ok(MountRequest::Lane(mode)) => {
            mount.set_lane_mode(mode);
            Reply::Done(format!("{}: lane {mode}", control::path_text::text(&identity.at)))
        }
        Err(error) => Reply::Error {
            reason: format!("the mount's process doesn't understand this: {error}"),
            next: Some("it may be of another version; mount again".to_owned()),
        },
    };
    ControlAnswer::now(&reply)
}

fn age(since: Instant) -> u64 {
    since.elapsed().as_secs()
}

/// The directories where the mounts of this user have their sockets: the run directory, or a directory of the
/// user's own if the user may not write there. Root gets those of all users.
///
/// # Errors
/// When the run directory or the user's own can't be read. One that doesn't exist has no sockets.
pub fn run_dirs(run_dir: &Path) -> io::Result<Vec<Arc<SocketDirectory>>> {
    let mut all = Vec::new();
    let own = if rustix::process::geteuid().is_root() { None } else { own_run_dir() };
    for path in [Some(run_dir.to_owned()), own.filter(|own| own != run_dir)].into_iter().flatten() {
        match SocketDirectory::open(&path) {
            Ok(directory) => all.push(directory),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
    }
    if rustix::process::geteuid().is_root() {
        all.extend(users_run_dirs(Path::new("/run/user"), run_dir));
    }
    Ok(all.into_iter().map(Arc::new).collect())
}

/// The users' own directories for sockets, `UID/samehost` in `users`, but for `run_dir`. What isn't one is
/// left out: its user can put anything there to delay or deceive who looks.
fn users_run_dirs(users: &Path, run_dir: &Path) -> Vec<SocketDirectory> {
    let Ok(entries) = std::fs::read_dir(users) else { return Vec::new() };
    let mounts = mountinfo::list().unwrap_or_default();
    // The number of a mount is known without asking its filesystem.
    let mount_of = |file: &OwnedFd| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        Some(statx(file, c"", flags, StatxFlags::MNT_ID).ok()?.stx_mnt_id)
    };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let usual = rustix::fs::open(users, flags, Mode::empty()).ok().and_then(|users| mount_of(&users));
    let open = |name: OsString| {
        let path = users.join(&name);
        let of_user = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
        // The user may have mounted a FUSE filesystem on it, whose process may never answer.
        let id = mount_of(&of_user)?;
        let is_in_memory = mounts.iter().any(|mount| mount.id == id && IN_MEMORY.contains(&&*mount.kind));
        let path = path.join("samehost");
        if !(is_in_memory || usual == Some(id)) || path == run_dir {
            return None;
        }
        SocketDirectory::open_of_user(of_user, OsStr::new("samehost"), path).ok()
    };
    names.into_iter().filter_map(open).collect()
}

/// The filesystems that a user's own directory for sockets may be in, besides that of all of them.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// The user's own directory for sockets.
fn own_run_dir() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|dir| !dir.is_empty())
        .map(|dir| Path::new(&dir).join("samehost"))
}

/// Starts the status socket, in the run directory or else in the user's own. A mount works without it.
pub(super) fn socket(run_dir: &Path, mount: &Arc<Mount>, identity: &Arc<MountIdentity>) -> Option<Socket> {
    let start = |dir: &Path| {
        let (mount, identity) = (Arc::downgrade(mount), Arc::clone(identity));
        let instance = lane::nonce::hex(&lane::nonce::random_instance()?);
        lane::run_dir::create(dir)?;
        Socket::start(dir, &instance, ProcessKind::Mount, move |request| {
            mount.upgrade().map_or(ControlAnswer::Ending, |mount| answer(&identity, &mount, request))
        })
    };
    let error = match start(run_dir) {
        Ok(socket) => return Some(socket),
        Err(error) => error,
    };
    if let Some(Ok(socket)) = own_run_dir().map(|dir| start(&dir)) {
        return Some(socket);
    }
    tracing::warn!(
        run_dir = %run_dir.display(),
        %error,
        "no socket for `samehost status` and `samehost ctl`"
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_cannot_lead_root_to_other_directories() {
        let scratch = tempfile::tempdir().unwrap();
        let users = scratch.path();
        for user in ["1000", "1001", "1003", "1004"] {
            std::fs::create_dir(users.join(user)).unwrap();
        }
        std::fs::create_dir(users.join("1000/samehost")).unwrap();
        std::os::unix::fs::symlink(users.join("1000/samehost"), users.join("1001/samehost")).unwrap();
        std::os::unix::fs::symlink(users.join("1000"), users.join("1002")).unwrap();
        std::fs::write(users.join("1003/samehost"), "no directory").unwrap();
        std::fs::create_dir(users.join("1004/samehost")).unwrap();
        let found = users_run_dirs(users, &users.join("1004/samehost"));
        let found: Vec<_> = found.iter().map(SocketDirectory::path).collect();
        assert_eq!(found, [users.join("1000/samehost")]);
    }

    /// The process of a FUSE filesystem may never answer. A mount of another kind is as well visible.
    #[test]
    fn what_a_user_has_mounted_is_not_entered() {
        /// A mount for the time of a test.
        struct Mounted(PathBuf);
        impl Drop for Mounted {
            fn drop(&mut self) {
                let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
            }
        }
        let (scratch, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let users = scratch.path();
        std::fs::create_dir(elsewhere.path().join("samehost")).unwrap();
        std::fs::create_dir_all(users.join("1000/samehost")).unwrap();
        std::fs::create_dir(users.join("1001")).unwrap();
        let at = |path: PathBuf| rustix::mount::mount_bind(elsewhere.path(), &path).map(|()| Mounted(path));
        let mounted = [at(users.join("1000/samehost")), at(users.join("1001"))];
        let kind = mountinfo::find(&users.join("1001")).unwrap().map(|mounted| mounted.kind);
        if mounted.iter().any(Result::is_err) || kind.is_some_and(|kind| IN_MEMORY.contains(&&*kind)) {
            eprintln!("only root can mount, and a directory in memory is a user's own: nothing tested");
            return;
        }
        let found = users_run_dirs(users, Path::new("/run/samehost"));
        assert!(found.is_empty(), "{found:?}");
    }
}
