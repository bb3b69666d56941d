//! The server end: a listening socket and its thread. If the socket's file is removed with the run directory,
//! and the directory is created again, the thread listens there again.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use serde::Serialize;

use crate::directory::remove_dead_socket;
use crate::{ACCEPTED, MAX_REQUEST, ProcessKind, Reply, TIMEOUT};

/// The length of the kernel's queue of connections.
const BACKLOG: i32 = 16;
/// The most connections whose requests are incomplete.
const MAX_REQUESTS: usize = 16;
/// The interval at which silent connections are checked.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The interval between two checks that the socket's file exists.
const FILE_CHECKS: Duration = Duration::from_secs(2);

/// What a process answers to a request.
#[derive(Debug)]
pub enum ControlAnswer {
    /// This JSON, at once.
    Now(Vec<u8>),
    /// The request is accepted, and its result takes time: another thread gets the connection, and sends the
    /// answer.
    Later(SyncSender<LateAnswer>),
    /// Nothing: the process is about to exit.
    Ending,
}

impl ControlAnswer {
    /// This value at once, as JSON.
    pub fn now(answer: &impl Serialize) -> Self {
        Self::Now(json(answer))
    }
}

/// The JSON of an answer. Where it can't be written, that is the answer, as a [`Reply`]: the process remains
/// to be asked other things.
fn json(answer: &impl Serialize) -> Vec<u8> {
    let failed = |error: serde_json::Error| {
        let reason = format!("the answer can't be written: {error}");
        serde_json::to_vec(&Reply::Error { reason, next: None }).unwrap_or_default()
    };
    serde_json::to_vec(answer).unwrap_or_else(failed)
}

/// A connection whose client waits for an answer. Dropping it tells the client that there is none.
#[derive(Debug)]
pub struct LateAnswer(UnixStream);

impl LateAnswer {
    /// Tells the client that its request is accepted: from now on it waits as long as it takes.
    fn accept(mut stream: UnixStream) -> io::Result<Self> {
        prepare(&stream)?;
        stream.write_all(&[ACCEPTED])?;
        Ok(Self(stream))
    }

    /// Sends the answer.
    ///
    /// # Errors
    /// When the client is gone.
    pub fn send(mut self, answer: &impl Serialize) -> io::Result<()> {
        send_reply(&mut self.0, json(answer))
    }
}

/// A listening socket with its thread. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Socket {
    /// Listens as `<instance>.<suffix of kind>` in `run_dir`, which exists, and removes the sockets of dead
    /// processes of this kind. `answer` gets each request (an empty one asks for the status) on the socket's
    /// thread, which it must not block.
    ///
    /// When the socket's file is removed, the thread creates it again within some seconds, in a directory at
    /// `run_dir` that gives no other user more power than the first one did. It creates no directory.
    ///
    /// # Errors
    /// When the socket can't be created or the thread can't be started.
    pub fn start(
        run_dir: &Path,
        instance: &str,
        kind: ProcessKind,
        answer: impl Fn(&[u8]) -> ControlAnswer + Send + 'static,
    ) -> io::Result<Self> {
        for (_, path) in lane::run_dir::sockets(run_dir, kind.suffix())? {
            // What can't be removed, such as another user's, is left.
            let _ = remove_dead_socket(&path);
        }
        let path = run_dir.join(format!("{instance}.{}", kind.suffix()));
        let mut listener = ControlListener::open(run_dir, path.clone())?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            serve(&mut listener, &stopped, &answer);
        })?;
        Ok(Self { path, stop, thread: Some(thread) })
    }

    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A listening socket that only its user can connect to, from the first moment: a socket's file gets the mode
/// that the socket has when it is bound.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let (address, _directory) = lane::run_dir::address(path)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// The owner and the write permissions of a run directory.
#[derive(Debug, Clone, Copy)]
struct DirectoryAccess {
    owner: u32,
    group: u32,
    mode: u32,
}

impl DirectoryAccess {
    fn of(directory: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(directory)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { owner: metadata.uid(), group: metadata.gid(), mode: metadata.mode() })
    }

    /// Whether a directory that has replaced the first one gives no other user more power over the files in
    /// it. It must belong to the same user, to root or to this process's user (`own`); it may be writable
    /// only by users who could write to the first one; and it must have the sticky bit if the first one had
    /// it.
    fn is_as_safe_as(self, first: Self, own: u32) -> bool {
        const GROUP_WRITES: u32 = 0o020;
        const OTHERS_WRITE: u32 = 0o002;
        const STICKY: u32 = 0o1000;
        let writers = self.mode & (GROUP_WRITES | OTHERS_WRITE);
        [first.owner, 0, own].contains(&self.owner)
            && writers & !first.mode == 0
            && (writers & GROUP_WRITES == 0 || self.group == first.group)
            && (writers == 0 || self.mode & STICKY >= first.mode & STICKY)
    }
}

/// The listening socket and its file in the run directory.
struct ControlListener {
    socket: UnixListener,
    run_dir: PathBuf,
    path: PathBuf,
    /// The run directory's permissions at the start.
    first: DirectoryAccess,
    /// The time of the next check that the file exists.
    check_at: Instant,
    /// Reserved: closed to accept a connection when the process has no other descriptor left, so that it
    /// still answers.
    spare: Option<OwnedFd>,
}

impl ControlListener {
    fn open(run_dir: &Path, path: PathBuf) -> io::Result<Self> {
        let first = DirectoryAccess::of(run_dir)?;
        let socket = listen(&path)?;
        let check_at = Instant::now() + FILE_CHECKS;
        let spare = socket.as_fd().try_clone_to_owned().ok();
        Ok(Self { socket, run_dir: run_dir.to_owned(), path, first, check_at, spare })
    }

    /// Accepts the next connection, in non-blocking mode.
    fn accept(&mut self) -> io::Result<UnixStream> {
        let out_of_descriptors =
            |error: &io::Error| matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        let accepted = match self.socket.accept() {
            Err(error) if out_of_descriptors(&error) && self.spare.take().is_some() => self.socket.accept(),
            accepted => accepted,
        };
        let (stream, _) = accepted?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Creates the file again when it is missing, and reserves the spare descriptor again when it was used.
    /// Failures are retried at the next check.
    fn maintain(&mut self, now: Instant) {
        if now >= self.check_at {
            self.check_at = now + FILE_CHECKS;
            let file = std::fs::symlink_metadata(&self.path);
            if file.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                self.listen_again();
            }
        }
        if self.spare.is_none() {
            self.spare = self.socket.as_fd().try_clone_to_owned().ok();
        }
    }

    fn listen_again(&mut self) {
        // The directory may not exist yet.
        let Ok(access) = DirectoryAccess::of(&self.run_dir) else { return };
        if !access.is_as_safe_as(self.first, rustix::process::geteuid().as_raw()) {
            let run_dir = self.run_dir.display();
            tracing::debug!(%run_dir, "the new run directory gives others more power");
            return;
        }
        match listen(&self.path) {
            Ok(socket) => {
                self.socket = socket;
                // It is a duplicate of the former socket.
                self.spare = None;
                tracing::info!(path = %self.path.display(), "the control socket's file was gone: made again");
            }
            Err(error) => tracing::debug!(path = %self.path.display(), %error, "no new control socket"),
        }
    }
}

/// A connection whose request isn't complete yet.
struct PendingRequest {
    stream: UnixStream,
    received: Vec<u8>,
    until: Instant,
}

fn serve(listener: &mut ControlListener, stop: &OwnedFd, answer: &dyn Fn(&[u8]) -> ControlAnswer) {
    let mut requests: Vec<PendingRequest> = Vec::with_capacity(MAX_REQUESTS);
    loop {
        let mut ready = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        ready.extend(requests.iter().map(|request| PollFd::new(&request.stream, PollFlags::IN)));
        if requests.len() < MAX_REQUESTS {
            ready.push(PollFd::new(&listener.socket, PollFlags::IN));
        }
        let longest = if requests.is_empty() { FILE_CHECKS } else { LOOK_AGAIN };
        let timeout = listener.check_at.saturating_duration_since(Instant::now()).min(longest);
        match poll(&mut ready, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if !ready[0].revents().is_empty() {
            return;
        }
        let can_accept = ready.len() > 1 + requests.len() && !ready[1 + requests.len()].revents().is_empty();
        drop(ready);
        let now = Instant::now();
        let mut index = 0;
        while index < requests.len() {
            match receive(&mut requests[index]) {
                Ok(true) => {
                    let request = requests.swap_remove(index);
                    let answered = match answer(&request.received) {
                        ControlAnswer::Now(text) => reply(request.stream, text),
                        // Without a receiver nothing will be sent, and the connection is closed.
                        ControlAnswer::Later(to) => {
                            LateAnswer::accept(request.stream).map(|late| drop(to.send(late)))
                        }
                        ControlAnswer::Ending => return,
                    };
                    if let Err(error) = answered {
                        tracing::debug!(%error, "the client closed the connection before the reply");
                    }
                }
                Ok(false) if now < requests[index].until => index += 1,
                Ok(false) | Err(_) => drop(requests.swap_remove(index)),
            }
        }
        if can_accept {
            match listener.accept() {
                Ok(stream) => {
                    requests.push(PendingRequest { stream, received: Vec::new(), until: now + TIMEOUT })
                }
                // Out of descriptors, most likely: no reason to spin.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        listener.maintain(now);
    }
}

/// Reads the received part of a request. Returns whether it is complete.
fn receive(request: &mut PendingRequest) -> io::Result<bool> {
    let mut piece = [0; 4096];
    loop {
        match request.stream.read(&mut piece) {
            Ok(0) => return Ok(true),
            Ok(count) => request.received.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if request.received.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
    }
}

fn reply(mut stream: UnixStream, text: Vec<u8>) -> io::Result<()> {
    prepare(&stream)?;
    send_reply(&mut stream, text)
}

/// Bounds each write.
fn prepare(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TIMEOUT))
}

fn send_reply(stream: &mut UnixStream, mut text: Vec<u8>) -> io::Result<()> {
    text.push(b'\n');
    stream.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_run_directory_is_used_when_it_gives_nobody_more_power() {
        const OWN: u32 = 1000;
        let dir = |owner, group, mode| DirectoryAccess { owner, group, mode };
        let cases = [
            // The first one, the new one, whether it is as safe.
            (dir(0, 0, 0o755), dir(0, 0, 0o755), true),
            (dir(0, 0, 0o755), dir(OWN, 5, 0o700), true),
            (dir(7, 0, 0o755), dir(7, 0, 0o755), true),
            (dir(0, 0, 0o755), dir(7, 0, 0o755), false),
            (dir(0, 0, 0o755), dir(0, 0, 0o775), false),
            (dir(0, 3, 0o775), dir(0, 3, 0o775), true),
            (dir(0, 3, 0o775), dir(0, 4, 0o775), false),
            (dir(0, 0, 0o755), dir(0, 0, 0o1777), false),
            (dir(0, 0, 0o1777), dir(0, 0, 0o1777), true),
            (dir(0, 0, 0o1777), dir(0, 0, 0o777), false),
            (dir(0, 0, 0o1777), dir(0, 0, 0o755), true),
            (dir(0, 0, 0o777), dir(0, 0, 0o777), true),
        ];
        for (first, new, safe) in cases {
            assert_eq!(new.is_as_safe_as(first, OWN), safe, "{first:?} {new:?}");
        }
    }
}
