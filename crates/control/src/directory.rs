//! Directories with the sockets of processes, and the sockets in them.
//!
//! Root asks processes of all users, whose directories they can change at any time. A directory and a socket
//! are therefore opened before they are examined, and a connection goes to what was examined.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lane::run_dir;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use sys::peer::{PeerCredentials, overflow_uid};

use crate::{AskError, ProcessKind};

/// The most sockets of each kind that are asked in another user's directory.
pub const MAX_SOCKETS_OF_USER: usize = 64;

/// A directory with the sockets of processes.
#[derive(Debug)]
pub struct SocketDirectory {
    path: PathBuf,
    directory: OwnedFd,
    /// `None` for a user whom this user namespace doesn't map.
    owner: Option<u32>,
    /// The most sockets of each kind that are asked.
    max_sockets: usize,
}

impl SocketDirectory {
    /// The directory at a path that this process's user has chosen.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Self::new(directory, path.to_owned(), run_dir::MAX_NAMES)
    }

    /// The directory `name` in a directory of another user, who may replace it by anything. Links are not
    /// followed, and mounts not entered: the process that serves a mounted filesystem may never answer.
    /// `path` is for messages.
    ///
    /// # Errors
    /// When it is no directory in the same filesystem, or can't be read.
    pub fn open_of_user(of_user: impl AsFd, name: &OsStr, path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let directory = openat2(of_user, name, flags, Mode::empty(), resolve)?;
        Self::new(directory, path, MAX_SOCKETS_OF_USER)
    }

    fn new(directory: OwnedFd, path: PathBuf, max_sockets: usize) -> io::Result<Self> {
        let owner = Some(fstat(&directory)?.st_uid).filter(|uid| *uid != overflow_uid());
        Ok(Self { path, directory, owner, max_sockets })
    }

    /// The sockets of this kind, in the order of their names, and whether there are more than are asked.
    /// Reads at most [`run_dir::MAX_NAMES`] names.
    pub(crate) fn sockets(self: &Arc<Self>, kind: ProcessKind) -> io::Result<(Vec<ProcessSocket>, bool)> {
        let mut names = Vec::new();
        // Without `.` and `..`.
        for entry in Dir::read_from(&self.directory)?.take(run_dir::MAX_NAMES + 2) {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if run_dir::instance_of(&name, kind.suffix()).is_some() {
                names.push(name);
            }
        }
        names.sort();
        let has_more = names.len() > self.max_sockets;
        names.truncate(self.max_sockets);
        let socket = |name| ProcessSocket { directory: Arc::clone(self), name, kind };
        Ok((names.into_iter().map(socket).collect(), has_more))
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a process of this user is believed here: root's, this process's own user's, or the owner's.
    fn trusts(&self, uid: Option<u32>) -> bool {
        let own = rustix::process::geteuid().as_raw();
        match uid {
            Some(uid) => uid == 0 || uid == own || self.owner == Some(uid),
            // The user nobody has the id that stands for users without a mapping, too.
            None => own == overflow_uid(),
        }
    }
}

/// The socket of a process, in its directory.
#[derive(Debug, Clone)]
pub struct ProcessSocket {
    directory: Arc<SocketDirectory>,
    name: OsString,
    kind: ProcessKind,
}

impl ProcessSocket {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    /// The kind of its process.
    #[must_use]
    pub const fn kind(&self) -> ProcessKind {
        self.kind
    }

    /// Connects without waiting for room in the backlog. The process belongs to a trusted user; its process
    /// id is 0 if it isn't visible here.
    pub(crate) fn connect(&self) -> Result<(UnixStream, u32), AskError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&self.directory.directory, &self.name, flags, Mode::empty()).map_err(io::Error::from)?;
        if FileType::from_raw_mode(fstat(&file).map_err(io::Error::from)?.st_mode) != FileType::Socket {
            return Err(AskError::NotASocket);
        }
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        let stream = match connect_to(&SocketAddrUnix::new(opened).map_err(io::Error::from)?) {
            // There is no /proc.
            Err(Errno::NOENT) => connect(&self.path()),
            other => other.map_err(io::Error::from),
        };
        let stream = stream.map_err(|error| match error.kind() {
            // A process that hangs doesn't accept either: earlier clients fill its backlog.
            io::ErrorKind::WouldBlock => AskError::NotAccepting,
            _ => error.into(),
        })?;
        let PeerCredentials { pid, uid, .. } = PeerCredentials::of(&stream).map_err(io::Error::from)?;
        if !self.directory.trusts(uid) {
            return Err(AskError::Untrusted { pid: pid.unwrap_or(0), uid });
        }
        Ok((stream, pid.unwrap_or(0)))
    }
}

/// Connects to the socket at a path without waiting for room in the backlog.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let (address, _directory) = run_dir::address(path)?;
    Ok(connect_to(&address)?)
}

fn connect_to(address: &SocketAddrUnix) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, address)?;
    Ok(UnixStream::from(socket))
}

/// Removes the socket at a path if no process listens on it. Nothing else there is removed: no file of
/// another type, no link, and no socket whose process is merely busy.
pub(crate) fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path)
        .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()));
    let is_dead = || matches!(connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_dead() { std::fs::remove_file(path) } else { Ok(()) }
}
