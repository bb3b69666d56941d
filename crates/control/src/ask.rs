//! The end that asks.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{LONGEST_ANSWER, PATIENCE, Reply};

/// Processes that are asked at the same time.
const AT_ONCE: usize = 16;

/// What a process answered, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked<T> {
    /// Its socket.
    pub path: PathBuf,
    /// Its answer.
    pub answer: T,
}

/// A process that was asked and has said nothing, or nothing that makes sense.
#[derive(Debug)]
pub struct Silent {
    /// Its socket.
    pub path: PathBuf,
    /// Why: it can't be used by this user (`PermissionDenied`), its process doesn't answer in time
    /// (`TimedOut`), or what it answers isn't what was asked for (`InvalidData`).
    pub error: io::Error,
}

/// What all that were asked have said, in the order of their sockets' names.
#[derive(Debug)]
pub struct Answers<T> {
    /// Those who answered.
    pub answers: Vec<Asked<T>>,
    /// Those who didn't.
    pub silent: Vec<Silent>,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self { answers: Vec::new(), silent: Vec::new() }
    }
}

impl<T> Answers<T> {
    /// The answers, for whoever needs all of them.
    ///
    /// # Errors
    /// That of the first who didn't answer.
    pub fn all(self) -> io::Result<Vec<Asked<T>>> {
        match self.silent.into_iter().next() {
            Some(silent) => Err(silent.error),
            None => Ok(self.answers),
        }
    }

    /// Adds those of another run directory, or of another kind.
    pub fn extend(&mut self, other: Self) {
        self.answers.extend(other.answers);
        self.silent.extend(other.silent);
    }
}

/// Asks every process with a socket of this ending in `run_dir` for its status, several at a time; the
/// sockets of dead ones are passed over. One that hangs costs [`PATIENCE`] and keeps nobody else from being
/// heard.
///
/// # Errors
/// When `run_dir` can't be read.
pub fn query<T: DeserializeOwned + Send>(run_dir: &Path, ending: &str) -> io::Result<Answers<T>> {
    let mut all = Answers::default();
    for some in sockets(run_dir, ending)?.chunks(AT_ONCE) {
        let said: Vec<io::Result<T>> = std::thread::scope(|scope| {
            let asking: Vec<_> = some.iter().map(|path| scope.spawn(|| ask(path, b""))).collect();
            let failed = |_| Err(io::Error::other("asking it has failed"));
            asking.into_iter().map(|asked| asked.join().unwrap_or_else(failed)).collect()
        });
        for (path, said) in some.iter().cloned().zip(said) {
            match said {
                Ok(answer) => all.answers.push(Asked { path, answer }),
                Err(error) if is_dead(&error) => {}
                Err(error) => all.silent.push(Silent { path, error }),
            }
        }
    }
    Ok(all)
}

/// Asks for a change.
///
/// # Errors
/// As [`Silent::error`]; a process that is gone is `ConnectionRefused` or `NotFound`.
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

/// Whether this is what a socket says whose process is gone, or goes while it is asked: then nobody will
/// accept what waits there.
fn is_dead(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), ConnectionRefused | NotFound | ConnectionReset | BrokenPipe)
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
