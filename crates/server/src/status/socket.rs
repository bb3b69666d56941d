//! The status socket: `<instance>.status` in the run directory, a stream socket that answers every connection with
//! one JSON text and closes it. Only the server's own user (and root) can connect.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::Status;

/// The ending of the sockets' names.
pub(crate) const SUFFIX: &str = "status";
/// How long either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who may wait to be answered.
const BACKLOG: i32 = 16;
/// The longest status that is read.
const LONGEST: u64 = 64 << 20;

/// A listening status socket with its thread. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// Listens in `run_dir`, which is there already, and removes what dead servers left behind.
    pub(crate) fn start(
        run_dir: &Path,
        instance: &str,
        status: impl Fn() -> Option<Status> + Send + 'static,
    ) -> io::Result<Self> {
        sockets(run_dir)?.into_iter().for_each(|path| {
            if matches!(UnixStream::connect(&path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = std::fs::remove_file(path);
            }
        });
        let path = run_dir.join(format!("{instance}.{SUFFIX}"));
        let listener = listen(&path)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("status".into()).spawn(move || {
            serve(&listener, &stopped, &status);
        })?;
        Ok(Self { path, stop, thread: Some(thread) })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A listening socket that nobody but its user can connect to, not even for a moment: a socket's file gets the mode
/// that the socket has when it is bound.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn serve(listener: &UnixListener, stop: &OwnedFd, status: &dyn Fn() -> Option<Status>) {
    loop {
        let mut ready =
            [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !ready[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, most likely: no reason to spin.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // None: the server has just gone.
        let Some(status) = status() else { return };
        if let Err(error) = answer(stream, &status) {
            tracing::debug!(%error, "a status was not taken");
        }
    }
}

fn answer(mut stream: UnixStream, status: &Status) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(status)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// Asks every running server in `run_dir` for its [`Status`]; the sockets of dead servers are passed over.
///
/// # Errors
/// When `run_dir` can't be read, when a server's socket can't be used by this user, and when what it answers is no
/// status.
pub fn query(run_dir: &Path) -> io::Result<Vec<Status>> {
    let mut found = Vec::new();
    for path in sockets(run_dir)? {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match connect(&path) {
            Ok(stream) => {
                let process = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.pid);
                found.push(read(stream).map_err(|error| match (error.kind(), process) {
                    (io::ErrorKind::WouldBlock, Ok(pid)) => {
                        let what = format!("process {pid} does not answer within {PATIENCE:?}");
                        io::Error::new(io::ErrorKind::TimedOut, what)
                    }
                    _ => named(error),
                })?);
            }
            // A server that hangs doesn't accept either: those who gave up wait there in front of us.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let what = format!("{}: its server does not accept connections", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {}
            Err(error) => return Err(named(error)),
        }
    }
    Ok(found)
}

/// Connects without waiting for room in the backlog.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn read(stream: UnixStream) -> io::Result<Status> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The status sockets of a run directory, in the order of their names.
fn sockets(run_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(run_dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
