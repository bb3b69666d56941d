//! The run directory, and the socket names in it and in the abstract namespace.
//!
//! A server instance has `<instance>.lane` (this crate's) and may have `<instance>.status` (the server's)
//! there; the instance is 32 lower-case hex digits. A socket is bound under another name and renamed when it
//! listens, so a socket that refuses connections belongs to a dead server, and the next start removes it.

use crate::nonce::{Commitment, Instance, hex, parse_instance};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The default run directory.
pub const DEFAULT: &str = "/run/samehost";
/// The most names of a run directory that are read.
pub const MAX_NAMES: usize = 1024;

/// A lane socket's file name.
#[must_use]
pub fn lane_name(instance: &Instance) -> String {
    format!("{}.lane", hex(instance))
}

/// A status socket's file name.
#[must_use]
pub fn status_name(instance: &Instance) -> String {
    format!("{}.status", hex(instance))
}

/// A server's abstract socket (without the leading NUL).
#[must_use]
pub fn abstract_name(instance: &Instance) -> String {
    format!("samehost/{}", hex(instance))
}

/// The abstract socket of a client that waits to be called (without the leading NUL).
#[must_use]
pub fn calling_name(commitment: &Commitment) -> String {
    format!("samehost/client/{}", commitment.calling_name())
}

/// The instance whose abstract socket has this name (without the leading NUL or @).
#[must_use]
pub fn instance_of_abstract(name: &str) -> Option<Instance> {
    parse_instance(name.strip_prefix("samehost/")?)
}

/// The socket files in a run directory with this suffix (`lane` or `status`), and their instances. Reads at
/// most [`MAX_NAMES`] names.
///
/// # Errors
/// When the directory can't be read.
pub fn sockets(dir: &Path, suffix: &str) -> io::Result<Vec<(Instance, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)?.take(MAX_NAMES) {
        let entry = entry?;
        if let Some(instance) = instance_of(&entry.file_name(), suffix) {
            found.push((instance, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// A socket file's owner, and the file.
pub type Owned = (Option<u32>, (Instance, PathBuf));

/// The socket files in a run directory with this suffix, and the owner of each (`None`: a user whom this user
/// namespace doesn't map). Reads names until `deadline`, but at least [`MAX_NAMES`]: any process that may
/// write to the directory can put any number of names there.
///
/// # Errors
/// When the directory can't be read.
pub fn owned_sockets(dir: &Path, suffix: &str, deadline: Instant) -> io::Result<Vec<Owned>> {
    let overflow = sys::peer::overflow_uid();
    let mut found = Vec::new();
    for (number, entry) in std::fs::read_dir(dir)?.enumerate() {
        if number >= MAX_NAMES && Instant::now() > deadline {
            break;
        }
        let entry = entry?;
        let Some(instance) = instance_of(&entry.file_name(), suffix) else { continue };
        // The entry's owner, not that of a symbolic link's target. The entry may be gone already.
        let Ok(metadata) = entry.metadata() else { continue };
        let owner = Some(metadata.uid()).filter(|uid| *uid != overflow);
        found.push((owner, (instance, entry.path())));
    }
    Ok(found)
}

/// The instance whose socket file with this suffix has this name.
#[must_use]
pub fn instance_of(name: &OsStr, suffix: &str) -> Option<Instance> {
    parse_instance(name.to_str()?.strip_suffix(suffix)?.strip_suffix('.')?)
}

/// Creates the run directory (mode 0755) if it is missing.
///
/// # Errors
/// When it can't be made.
pub fn create(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    // The umask may be 0: those above must not be open to other users either.
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
}

/// Removes the sockets of dead servers: those that refuse a connection. Returns their number. Sockets that
/// can't be removed (another user's) are left.
pub fn remove_stale(dir: &Path) -> usize {
    let mut removed = 0;
    for suffix in ["lane", "status", "binding"] {
        for (_, path) in sockets(dir, suffix).unwrap_or_default() {
            let dead = address(&path).and_then(|(address, _dir)| {
                let probe = seqpacket()?;
                Ok(rustix::net::connect(&probe, &address) == Err(Errno::CONNREFUSED))
            });
            if dead.unwrap_or(false) && std::fs::remove_file(&path).is_ok() {
                removed += 1;
            }
        }
    }
    removed
}

/// Binds and listens under this path, mode 0666. The name appears only once connections are accepted.
///
/// # Errors
/// When the directory can't be written to, mostly.
pub fn listen(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    listen_with(path, backlog, || ())
}

/// As [`listen`]. Calls `bound` each time when the socket is bound and doesn't listen yet.
fn listen_with(path: &Path, backlog: i32, mut bound: impl FnMut()) -> io::Result<OwnedFd> {
    let mut more = 1..BINDINGS;
    loop {
        let listening = try_listen(path, backlog, &mut bound);
        let is_gone = matches!(&listening, Err(error) if error.kind() == io::ErrorKind::NotFound);
        // A directory that doesn't exist is not found either.
        if !is_gone || more.next().is_none() {
            return listening;
        }
    }
}

/// How many times a socket is bound whose file is removed. Until it listens, it looks like a dead server's to
/// another server that starts.
const BINDINGS: usize = 16;

/// As [`listen_with`], once.
fn try_listen(path: &Path, backlog: i32, bound: impl FnOnce()) -> io::Result<OwnedFd> {
    let binding = path.with_extension("binding");
    let socket = seqpacket()?;
    let (address, _dir) = address(&binding)?;
    rustix::net::bind(&socket, &address)?;
    bound();
    let listening = (|| {
        set_socket_mode(&binding, Mode::from_raw_mode(0o666))?;
        rustix::net::listen(&socket, backlog)?;
        std::fs::rename(&binding, path)
    })();
    if let Err(error) = listening {
        let _ = std::fs::remove_file(&binding);
        return Err(error);
    }
    Ok(socket)
}

/// Gives the file of a socket that this process has bound a mode, and returns the file's status. Another
/// process that may write to the directory can have put something else there, so only a socket of this
/// process's user is changed, and no link is followed.
///
/// # Errors
/// When something else is there, mostly.
pub fn set_socket_mode(path: &Path, mode: Mode) -> io::Result<Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    if !is_socket || stat.st_uid != rustix::process::geteuid().as_raw() {
        let what = format!("another process has replaced the socket {}", path.display());
        return Err(io::Error::other(what));
    }
    match sys::empty_path::chmod(&file, mode) {
        // Before Linux 6.6.
        Err(Errno::NOSYS) => {
            let entry = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::chmod(entry, mode).map_err(|errno| sys::proc_error(errno.into()))
        }
        other => other.map_err(io::Error::from),
    }?;
    Ok(stat)
}

/// A non-blocking SOCK_SEQPACKET socket in the calling thread's network namespace.
///
/// # Errors
/// When no descriptor is left.
pub fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The address of a socket file. A path that is too long for an address (108 bytes) is reached through /proc
/// and the directory's descriptor, which must live as long as the address is used.
///
/// # Errors
/// When the directory can't be opened, or the path is too long and /proc isn't mounted.
pub fn address(path: &Path) -> io::Result<(SocketAddrUnix, Option<OwnedFd>)> {
    if let Ok(address) = SocketAddrUnix::new(path) {
        return Ok((address, None));
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let descriptors = Path::new("/proc/self/fd");
    // Otherwise a socket that can't be named looks like one that isn't there.
    if let Err(error) = descriptors.metadata() {
        let error = sys::proc_error(error);
        let what =
            format!("{} is too long for the address of a socket without /proc: {error}", path.display());
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let short = descriptors.join(dir.as_raw_fd().to_string()).join(name);
    Ok((SocketAddrUnix::new(short)?, Some(dir)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_names_are_servers_sockets() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["x.lane", "00112233445566778899aabbccddeeff.lane", "00112233445566778899AABBCCDDEEFF.lane"]
        {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = sockets(dir.path(), "lane").unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(lane_name(&found[0].0), "00112233445566778899aabbccddeeff.lane");
        assert!(sockets(&dir.path().join("none"), "lane").is_err());
    }

    const ALL: Mode = Mode::from_raw_mode(0o666);

    #[test]
    fn only_a_socket_of_this_user_is_opened_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let [secret, link, socket, link_to_socket] =
            ["secret", "link", "socket", "link-to-socket"].map(|name| dir.path().join(name));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let private = || std::fs::Permissions::from_mode(0o600);
        std::fs::write(&secret, "").unwrap();
        std::fs::set_permissions(&secret, private()).unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let _socket = listen(&socket, 8).unwrap();
        std::fs::set_permissions(&socket, private()).unwrap();
        std::os::unix::fs::symlink(&socket, &link_to_socket).unwrap();
        for replaced in [&secret, &link, &link_to_socket] {
            let error = set_socket_mode(replaced, ALL).unwrap_err().to_string();
            assert_eq!(error, format!("another process has replaced the socket {}", replaced.display()));
        }
        assert_eq!((mode(&secret), mode(&socket)), (0o600, 0o600));
        // Only root can make it another user's.
        if std::os::unix::fs::chown(&socket, Some(4711), None).is_ok() {
            set_socket_mode(&socket, ALL).unwrap_err();
            assert_eq!(mode(&socket), 0o600);
            std::os::unix::fs::chown(&socket, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        set_socket_mode(&socket, ALL).unwrap();
        assert_eq!(mode(&socket), 0o666);
    }

    #[test]
    fn a_socket_that_another_server_takes_for_dead_is_bound_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(lane_name(&[7; 16]));
        let mut starting = 0;
        let socket = listen_with(&path, 8, || {
            starting += 1;
            if starting < 3 {
                assert_eq!(remove_stale(dir.path()), 1);
            }
        });
        socket.unwrap();
        assert!(path.exists());
        assert_eq!(starting, 3);
        let nowhere = dir.path().join("none").join("socket");
        assert_eq!(listen(&nowhere, 8).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_sockets_of_dead_servers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than a socket address can be.
        let dir = dir.path().join("d".repeat(120));
        create(&dir).unwrap();
        let (dead, alive) = (dir.join(lane_name(&[1; 16])), dir.join(lane_name(&[2; 16])));
        drop(listen(&dead, 8).unwrap());
        let _alive = listen(&alive, 8).unwrap();
        assert_eq!(remove_stale(&dir), 1);
        assert!(!dead.exists());
        assert!(alive.exists());
        assert_eq!(std::fs::metadata(&alive).unwrap().permissions().mode() & 0o777, 0o666);
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o755);
    }
}
