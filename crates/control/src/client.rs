//! The client end: queries and changes.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{MAX_REPLY, Reply, TIMEOUT};

/// The most processes that are queried at the same time.
const AT_ONCE: usize = 16;

/// The answer of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessAnswer<T> {
    /// Its socket.
    pub path: PathBuf,
    /// Its answer.
    pub answer: T,
}

/// A process without a valid answer.
#[derive(Debug)]
pub struct Unresponsive {
    /// Its socket.
    pub path: PathBuf,
    /// The reason: this user may not connect (`PermissionDenied`), the process doesn't answer in time
    /// (`TimedOut`), or its answer is invalid (`InvalidData`).
    pub error: io::Error,
}

/// The answers of all processes, in the order of their sockets' names.
#[derive(Debug)]
pub struct Answers<T> {
    /// The processes that answered.
    pub answers: Vec<ProcessAnswer<T>>,
    /// The processes that didn't.
    pub silent: Vec<Unresponsive>,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self { answers: Vec::new(), silent: Vec::new() }
    }
}

impl<T> Answers<T> {
    /// The answers, for a caller that needs all of them.
    ///
    /// # Errors
    /// The error of the first process that didn't answer, with its socket.
    pub fn all(self) -> io::Result<Vec<ProcessAnswer<T>>> {
        match self.silent.into_iter().next() {
            Some(Unresponsive { path, error }) => {
                Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
            }
            None => Ok(self.answers),
        }
    }

    /// Adds the answers of another run directory, or of another kind.
    pub fn extend(&mut self, other: Self) {
        self.answers.extend(other.answers);
        self.silent.extend(other.silent);
    }
}

/// Asks every process with a socket of this suffix in `run_dir` for its status, several at a time. Sockets of
/// dead processes are skipped. A process that hangs costs [`TIMEOUT`] and doesn't keep the others from being
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
                Ok(answer) => all.answers.push(ProcessAnswer { path, answer }),
                Err(error) if is_dead(&error) => {}
                Err(error) => all.silent.push(Unresponsive { path, error }),
            }
        }
    }
    Ok(all)
}

/// Requests a change.
///
/// # Errors
/// As [`Unresponsive::error`]; `ConnectionRefused` or `NotFound` for a process that is gone. The caller knows
/// and names the socket.
pub fn tell(path: &Path, change: &impl Serialize) -> io::Result<Reply> {
    ask(path, &serde_json::to_vec(change)?)
}

/// Sends one request and reads its answer.
///
/// # Errors
/// As [`tell`].
pub fn ask<T: DeserializeOwned>(path: &Path, request: &[u8]) -> io::Result<T> {
    let stream = connect(path).map_err(|error| match error.kind() {
        // A process that hangs doesn't accept either: earlier clients fill its backlog.
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "its process does not accept connections")
        }
        _ => error,
    })?;
    let process = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.pid);
    exchange(stream, request).map_err(|error| match (error.kind(), process) {
        (io::ErrorKind::WouldBlock, Ok(pid)) => {
            let what = format!("process {pid} does not answer within {TIMEOUT:?}");
            io::Error::new(io::ErrorKind::TimedOut, what)
        }
        _ => error,
    })
}

fn exchange<T: DeserializeOwned>(mut stream: UnixStream, request: &[u8]) -> io::Result<T> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request)?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(MAX_REPLY).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Whether the error means that the socket's process is gone, or ends during the query, so that no process
/// will accept the connection.
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

/// The sockets with this suffix in a run directory, in the order of their names.
///
/// # Errors
/// When the directory can't be read.
pub fn sockets(run_dir: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    Ok(lane::run_dir::sockets(run_dir, ending)?.into_iter().map(|(_, path)| path).collect())
}
