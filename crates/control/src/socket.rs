//! The end that answers: a listening socket and its thread.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::ask::{connect, sockets};
use crate::{LONGEST_REQUEST, PATIENCE};

/// Who may wait to be let in.
const BACKLOG: i32 = 16;
/// Who may be in and not have said yet what they want.
const MAX_ASKERS: usize = 16;
/// How often those are looked at who say nothing.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// A listening socket with its thread. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Socket {
    /// Listens as `<instance>.<ending>` in `run_dir`, which is there already, and removes what dead processes
    /// left behind under this ending. `answer` gets each request (empty: the status is asked for) on the
    /// socket's thread and returns the JSON to be sent, or nothing when its process is about to go.
    ///
    /// # Errors
    /// When the socket can't be made there or the thread can't be started.
    pub fn start(
        run_dir: &Path,
        instance: &str,
        ending: &str,
        answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> io::Result<Self> {
        for path in sockets(run_dir, ending)? {
            if matches!(connect(&path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = std::fs::remove_file(path);
            }
        }
        let path = run_dir.join(format!("{instance}.{ending}"));
        let listener = listen(&path)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            serve(&listener, &stopped, &answer);
        })?;
        Ok(Self { path, stop, thread: Some(thread) })
    }

    /// Where it listens.
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

/// A listening socket that nobody but its user can connect to, not even for a moment: a socket's file gets
/// the mode that the socket has when it is bound.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let (address, _directory) = lane::run_dir::address(path)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Somebody whose request isn't complete yet.
struct Asker {
    stream: UnixStream,
    request: Vec<u8>,
    until: Instant,
}

fn serve(listener: &UnixListener, stop: &OwnedFd, answer: &dyn Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut askers: Vec<Asker> = Vec::with_capacity(MAX_ASKERS);
    loop {
        let mut ready = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        ready.extend(askers.iter().map(|asker| PollFd::new(&asker.stream, PollFlags::IN)));
        if askers.len() < MAX_ASKERS {
            ready.push(PollFd::new(listener, PollFlags::IN));
        }
        let timeout = (!askers.is_empty()).then_some(LOOK_AGAIN);
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        if !ready[0].revents().is_empty() {
            return;
        }
        let somebody_knocks = ready.len() > 1 + askers.len() && !ready[1 + askers.len()].revents().is_empty();
        drop(ready);
        let now = Instant::now();
        let mut index = 0;
        while index < askers.len() {
            match hear(&mut askers[index]) {
                Ok(true) => {
                    let asker = askers.swap_remove(index);
                    // None: the process is about to go.
                    let Some(text) = answer(&asker.request) else { return };
                    if let Err(error) = say(asker.stream, text) {
                        tracing::debug!(%error, "who asked didn't wait for the answer");
                    }
                }
                Ok(false) if now < askers[index].until => index += 1,
                Ok(false) | Err(_) => drop(askers.swap_remove(index)),
            }
        }
        if somebody_knocks {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    askers.push(Asker { stream, request: Vec::new(), until: now + PATIENCE });
                }
                // Out of descriptors, most likely: no reason to spin.
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

/// Reads what there is of a request; whether that is all of it.
fn hear(asker: &mut Asker) -> io::Result<bool> {
    let mut piece = [0; 4096];
    loop {
        match asker.stream.read(&mut piece) {
            Ok(0) => return Ok(true),
            Ok(count) => asker.request.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if asker.request.len() > LONGEST_REQUEST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
    }
}

fn say(mut stream: UnixStream, mut text: Vec<u8>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    text.push(b'\n');
    stream.write_all(&text)
}
