//! The client end: queries and changes.
//!
//! A process that is asked may be another user's and hostile: root asks those of all users. It can neither
//! delay nor fill this process beyond a bound, nor answer for a process of somebody else.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::directory::{MAX_SOCKETS_OF_USER, ProcessSocket, SocketDirectory};
use crate::{ACCEPTED, ProcessKind, Reply, TIMEOUT};

/// The most processes that are asked at the same time.
const AT_ONCE: usize = 64;
/// How long a query of any number of processes may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of one process.
#[derive(Debug, Clone)]
pub struct ProcessAnswer<T> {
    /// Its socket.
    pub socket: ProcessSocket,
    /// Its answer.
    pub answer: T,
}

/// Why there is no valid answer of a process.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It can't be connected to, for example because this user may not.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is none that a process listens on.
    #[error("it is no socket")]
    NotASocket,
    /// It doesn't accept connections.
    #[error("its process does not accept connections")]
    NotAccepting,
    /// It doesn't answer in time, or not to the end of its answer.
    #[error("process {pid} does not answer within {TIMEOUT:?}")]
    TimedOut {
        /// The process, 0 if it isn't visible here.
        pid: u32,
    },
    /// It has accepted a change and ended.
    #[error("its process has ended before the change was made")]
    Ended,
    /// It belongs to a user who may not answer here.
    #[error(
        "process {pid} belongs to {}: only root and the owner of the directory are believed",
        uid.map_or("a user whom this user namespace doesn't map".to_owned(), |uid| format!("user {uid}"))
    )]
    Untrusted {
        /// The process, 0 if it isn't visible here.
        pid: u32,
        /// Its user; `None` for one without a mapping in this user namespace.
        uid: Option<u32>,
    },
    /// Its answer has more bytes than any of its kind.
    #[error("its answer is longer than {most} bytes")]
    TooLong {
        /// The most bytes.
        most: usize,
    },
    /// Its answer isn't the expected JSON.
    #[error("its answer isn't understood: {0}")]
    Invalid(#[from] serde_json::Error),
    /// There were too many others.
    #[error("not asked: there are more than {most} sockets here")]
    TooMany {
        /// The most sockets that are asked.
        most: usize,
    },
    /// The others took all the time.
    #[error("not asked: others have not answered for {QUERY_TIMEOUT:?}")]
    NoTimeLeft,
}

impl AskError {
    /// Whether the socket's process is gone, or ended during the exchange, so that no process will answer.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
        match self {
            Self::NotASocket => true,
            Self::Io(error) => {
                matches!(error.kind(), ConnectionRefused | NotFound | ConnectionReset | BrokenPipe)
            }
            _ => false,
        }
    }

    /// Whether this user may not ask the process.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the process hangs.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::NotAccepting | Self::TimedOut { .. })
    }
}

impl From<AskError> for io::Error {
    fn from(error: AskError) -> Self {
        let kind = match &error {
            AskError::Io(error) => error.kind(),
            error if error.is_timeout() => io::ErrorKind::TimedOut,
            AskError::Ended => io::ErrorKind::ConnectionReset,
            AskError::Untrusted { .. } => io::ErrorKind::PermissionDenied,
            AskError::TooLong { .. } | AskError::Invalid(_) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// A process without a valid answer.
#[derive(Debug)]
pub struct Unresponsive {
    /// Its socket, or the directory of several.
    pub path: PathBuf,
    /// The reason.
    pub error: AskError,
}

/// The answers of all processes, in the order of their directories and of their sockets' names.
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
                let error = io::Error::from(error);
                Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
            }
            None => Ok(self.answers),
        }
    }
}

/// Asks every process with a socket of this kind in a run directory for its status. Sockets of dead processes
/// are skipped.
///
/// # Errors
/// When `run_dir` can't be read.
pub fn query<T: DeserializeOwned>(run_dir: &Path, kind: ProcessKind) -> io::Result<Answers<T>> {
    query_all(&[Arc::new(SocketDirectory::open(run_dir)?)], kind)
}

/// As [`query`], in several directories. A process that hangs costs [`TIMEOUT`] and doesn't keep the others
/// from being heard. The directories take turns, so that one with many such processes doesn't either.
///
/// # Errors
/// When a directory can't be read.
pub fn query_all<T: DeserializeOwned>(
    directories: &[Arc<SocketDirectory>],
    kind: ProcessKind,
) -> io::Result<Answers<T>> {
    let mut all = Answers::default();
    let (mut sockets, mut turns) = (Vec::new(), Vec::new());
    for directory in directories {
        let (here, has_more) = directory.sockets(kind)?;
        turns.extend((0..here.len()).map(|turn| (turn, sockets.len() + turn)));
        sockets.extend(here);
        if has_more {
            let path = directory.path().to_owned();
            all.silent.push(Unresponsive { path, error: AskError::TooMany { most: MAX_SOCKETS_OF_USER } });
        }
    }
    turns.sort_unstable();
    let turns = turns.into_iter().map(|(_, at)| at).collect();
    for (socket, text) in sockets.iter().zip(ask(&sockets, turns)) {
        match text.and_then(|text| Ok(serde_json::from_slice(&text)?)) {
            Ok(answer) => all.answers.push(ProcessAnswer { socket: socket.clone(), answer }),
            Err(error) if error.is_gone() => {}
            Err(error) => all.silent.push(Unresponsive { path: socket.path(), error }),
        }
    }
    Ok(all)
}

/// Requests a change, and waits for its result: for [`TIMEOUT`], or if a server accepts the request, until
/// it has made the change or has ended. Meanwhile `waiting` is called every [`TIMEOUT`]. A mount may be a
/// hostile user's, and gets no more time.
///
/// # Errors
/// When there is no valid reply. The change may be made all the same.
pub fn tell(
    socket: &ProcessSocket,
    change: &impl Serialize,
    mut waiting: impl FnMut(),
) -> Result<Reply, AskError> {
    let request = serde_json::to_vec(change)?;
    let mut exchange = Exchange::begin(socket, 0, &request, Instant::now() + TIMEOUT)?;
    loop {
        wait_for_any(std::slice::from_ref(&exchange));
        if exchange.advance()? {
            break;
        }
        if Instant::now() >= exchange.until {
            // The result, once it begins, has as long as any other answer.
            if exchange.received != [ACCEPTED] || !socket.kind().changes_take_long() {
                return Err(AskError::TimedOut { pid: exchange.pid });
            }
            waiting();
            exchange.until = Instant::now() + TIMEOUT;
        }
    }
    if exchange.received == [ACCEPTED] {
        Err(AskError::Ended)
    } else {
        Ok(serde_json::from_slice(&exchange.received)?)
    }
}

/// Asks all sockets' processes for their status, in the order of the indices in `turns`, several at a time.
/// Returns the texts of the answers in the order of the sockets.
fn ask(sockets: &[ProcessSocket], mut turns: VecDeque<usize>) -> Vec<Result<Vec<u8>, AskError>> {
    let end = Instant::now() + QUERY_TIMEOUT;
    let mut texts: Vec<_> = sockets.iter().map(|_| Err(AskError::NoTimeLeft)).collect();
    let mut exchanges: Vec<Exchange<'_>> = Vec::new();
    loop {
        let mut now = Instant::now();
        while now < end
            && exchanges.len() < AT_ONCE
            && let Some(at) = turns.pop_front()
        {
            match Exchange::begin(&sockets[at], at, b"", end) {
                Ok(exchange) => exchanges.push(exchange),
                Err(error) => texts[at] = Err(error),
            }
            now = Instant::now();
        }
        if exchanges.is_empty() {
            return texts;
        }
        wait_for_any(&exchanges);
        let now = Instant::now();
        exchanges.retain_mut(|exchange| {
            let text = match exchange.advance() {
                Ok(false) if now < exchange.until => return true,
                Ok(false) => Err(AskError::TimedOut { pid: exchange.pid }),
                Ok(true) => Ok(std::mem::take(&mut exchange.received)),
                Err(error) => Err(error),
            };
            texts[exchange.at] = text;
            false
        });
    }
}

/// Waits until one of the exchanges can go on or has taken too long.
fn wait_for_any(exchanges: &[Exchange<'_>]) {
    let mut ready: Vec<_> = exchanges
        .iter()
        .map(|exchange| {
            let flags = if exchange.unsent.is_empty() { PollFlags::IN } else { PollFlags::OUT };
            PollFd::new(&exchange.stream, flags)
        })
        .collect();
    let first = exchanges.iter().map(|exchange| exchange.until).min().unwrap_or_else(Instant::now);
    let left = first.saturating_duration_since(Instant::now());
    // A signal ends the wait early, which costs another turn.
    if !matches!(poll(&mut ready, Timespec::try_from(left).ok().as_ref()), Ok(_) | Err(Errno::INTR)) {
        std::thread::sleep(left.min(Duration::from_millis(10)));
    }
}

/// A request to one process, and its answer.
struct Exchange<'a> {
    /// The socket's index.
    at: usize,
    stream: UnixStream,
    pid: u32,
    unsent: &'a [u8],
    received: Vec<u8>,
    /// The most bytes of the answer.
    most: usize,
    until: Instant,
}

impl<'a> Exchange<'a> {
    fn begin(socket: &ProcessSocket, at: usize, request: &'a [u8], end: Instant) -> Result<Self, AskError> {
        let (stream, pid) = socket.connect()?;
        if request.is_empty() {
            stream.shutdown(Shutdown::Write)?;
        }
        let until = (Instant::now() + TIMEOUT).min(end);
        let most = socket.kind().max_reply();
        Ok(Self { at, stream, pid, unsent: request, received: Vec::new(), most, until })
    }

    /// Sends and receives what it can without waiting. Returns whether the answer is complete.
    fn advance(&mut self) -> Result<bool, AskError> {
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent) {
                Ok(count) => self.unsent = &self.unsent[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            if self.unsent.is_empty() {
                self.stream.shutdown(Shutdown::Write)?;
            }
        }
        let mut piece = [0; 64 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => return Ok(true),
            Ok(count) => self.received.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if self.received.len() > self.most {
            return Err(AskError::TooLong { most: self.most });
        }
        Ok(false)
    }
}
