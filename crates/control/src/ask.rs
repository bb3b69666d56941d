//! The end that asks.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{LONGEST_ANSWER, PATIENCE, Reply};

/// What a process answered, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked<T> {
    /// Its socket.
    pub path: PathBuf,
    /// Its answer.
    pub answer: T,
}

/// Asks every process with a socket of this ending in `run_dir` for its status; the sockets of dead ones are passed
/// over.
///
/// # Errors
/// When `run_dir` can't be read, when a socket can't be used by this user (`PermissionDenied`), when its process doesn't
/// answer in time (`TimedOut`), and when what it answers is no such status (`InvalidData`).
pub fn query<T: DeserializeOwned>(run_dir: &Path, ending: &str) -> io::Result<Vec<Asked<T>>> {
    let mut found = Vec::new();
    for path in sockets(run_dir, ending)? {
        match ask(&path, b"") {
            Ok(answer) => found.push(Asked { path, answer }),
            Err(error) if is_dead(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Asks for a change.
///
/// # Errors
/// As [`query`]; a process that is gone is `ConnectionRefused` or `NotFound`.
pub fn tell(path: &Path, change: &impl Serialize) -> io::Result<Reply> {
    ask(path, &serde_json::to_vec(change)?)
}

/// Sends one request and reads its answer.
///
/// # Errors
/// As [`tell`].
pub fn ask<T: DeserializeOwned>(path: &Path, request: &[u8]) -> io::Result<T> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let stream = connect(path).map_err(|error| match error.kind() {
        // A process that hangs doesn't accept either: those who gave up wait there in front of us.
        io::ErrorKind::WouldBlock => {
            let what = format!("{}: its process does not accept connections", path.display());
            io::Error::new(io::ErrorKind::TimedOut, what)
        }
        _ => named(error),
    })?;
    let process = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.pid);
    converse(stream, request).map_err(|error| match (error.kind(), process) {
        (io::ErrorKind::WouldBlock, Ok(pid)) => {
            let what = format!("process {pid} does not answer within {PATIENCE:?}");
            io::Error::new(io::ErrorKind::TimedOut, what)
        }
        _ => named(error),
    })
}

fn converse<T: DeserializeOwned>(mut stream: UnixStream, request: &[u8]) -> io::Result<T> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Whether this is what a socket says whose process is gone.
fn is_dead(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Connects without waiting for room in the backlog.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let (address, _directory) = lane::run_dir::address(path)?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// The sockets with this ending in a run directory, in the order of their names.
///
/// # Errors
/// When the directory can't be read.
pub fn sockets(run_dir: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    Ok(lane::run_dir::sockets(run_dir, ending)?.into_iter().map(|(_, path)| path).collect())
}
