//! The session of the exported CephFS mount with the metadata server.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use store::FileLock;

use super::ClusterError;

/// The virtual extended attribute with a mount's session, `client4123` (Ceph 15 and newer).
const CLIENT_ID: &str = "ceph.client_id";

/// The session of a CephFS mount.
#[derive(Debug)]
pub(crate) struct CephSession {
    /// Its name in the grace database.
    pub name: String,
    directory: PathBuf,
    /// A file without a name. Whether it is locked only the metadata server knows.
    probe: OwnedFd,
}

/// What has become of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    Alive,
    /// The metadata server has dropped it, or the mount is another one now.
    Lost,
    /// There was no useful answer.
    Unknown,
}

fn client_id(path: &Path) -> io::Result<String> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, CLIENT_ID, &mut value[..])?;
    Ok(String::from_utf8_lossy(&value[..length]).into_owned())
}

impl CephSession {
    /// The session of the mount on which all of `exported` are.
    pub fn of(exported: &[PathBuf]) -> Result<Option<Self>, ClusterError> {
        let Some(first) = exported.first() else { return Ok(None) };
        let id = |path: &PathBuf| {
            client_id(path).map_err(|source| ClusterError::NotCephFs { path: path.clone(), source })
        };
        let name = id(first)?;
        for path in &exported[1..] {
            if id(path)? != name {
                return Err(ClusterError::TwoMounts(first.clone(), path.clone()));
            }
        }
        let probe = unnamed_file(first, &name);
        let probe = probe.map_err(|source| ClusterError::Probe { path: first.clone(), source })?;
        Ok(Some(Self { name, directory: first.clone(), probe: probe.into() }))
    }

    /// Asks the metadata server. Blocks as long as it doesn't answer.
    pub fn state(&self) -> SessionState {
        let lock = FileLock { first: 0, last: 0, exclusive: true };
        let asked = store::test_lock(&self.probe, &lock).is_ok();
        match client_id(&self.directory) {
            Ok(name) if name == self.name && asked => SessionState::Alive,
            Ok(name) if name != self.name => SessionState::Lost,
            // The client was evicted, or the mount's process has ended.
            Err(error) if Errno::from_io_error(&error).is_some_and(is_end) => SessionState::Lost,
            _ if !asked && self.is_evicted() => SessionState::Lost,
            _ => SessionState::Unknown,
        }
    }

    /// Whether the mount refuses every request to the metadata server.
    fn is_evicted(&self) -> bool {
        let found = rustix::fs::statat(&self.probe, "", rustix::fs::AtFlags::EMPTY_PATH);
        found.err().is_some_and(is_end)
    }
}

/// The errors of a mount whose client was evicted (`SHUTDOWN`), or whose process has ended (`NOTCONN`).
fn is_end(error: Errno) -> bool {
    matches!(error, Errno::SHUTDOWN | Errno::NOTCONN)
}

fn unnamed_file(directory: &Path, session: &str) -> io::Result<File> {
    let path = directory.join(format!(".samehost-{session}-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
