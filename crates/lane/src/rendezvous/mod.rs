//! The rendezvous: how a client finds the servers of its host and identifies the one that it is connected to.
//!
//! A handshake on the client's side:
//! 1. [`Rendezvous::register`] makes a nonce, searches the run directory, the abstract namespace and, with
//!    the privilege, the other network namespaces, connects to every server that it trusts, and registers the
//!    nonce's commitment.
//! 2. The caller sends the nonce over the NFS connection (UUID_IS_LOCAL).
//! 3. After the reply, [`Candidates::look`] finds the server's message in one of the sockets, or there is
//!    none: the server sends it before it answers the RPC.
//! 4. A client that may not enter other namespaces also waits to be called by a privileged server, in
//!    [`Candidates::finish`]. Only this takes time.

mod called;
mod candidate;
mod discover;
mod options;
mod reason;

pub use options::RendezvousOptions;
pub use reason::{NotLocal, Reason};

use crate::client::Lane;
use crate::nonce::Nonce;
use called::Called;
use candidate::{Candidate, CandidateState};
use std::time::{Duration, Instant};

/// The entry point of the handshake.
pub struct Rendezvous;

impl Rendezvous {
    /// Makes a nonce, searches this host for servers, connects to every trusted one and registers the nonce's
    /// commitment there. Takes milliseconds, at most some 2 s with tens of thousands of sockets and
    /// processes. Must run in a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// When the kernel returns no random numbers or no thread. Finding no server is no error here: see
    /// [`Candidates::finish`].
    pub async fn register(options: RendezvousOptions) -> std::io::Result<Candidates> {
        let nonce = Nonce::random()?;
        let commitment = nonce.commitment();
        let asked = options.clone();
        let found = on_a_thread("lane-rendezvous", move || discover::discover(&asked, commitment)).await?;
        let called =
            found.wait_to_be_called.then(|| Called::listen(&options, commitment)).and_then(Result::ok);
        Ok(Candidates { nonce, candidates: found.candidates, reasons: found.reasons, called })
    }
}

/// Servers that may be the one at the other end of the NFS connection.
pub struct Candidates {
    nonce: Nonce,
    candidates: Vec<Candidate>,
    reasons: Vec<Reason>,
    called: Option<Called>,
}

impl Candidates {
    /// The argument of UUID_IS_LOCAL: to be sent once, over the NFS connection of the server in question,
    /// within 10 s.
    #[must_use]
    pub const fn nonce(&self) -> [u8; 16] {
        self.nonce.0
    }

    /// Whether an unreachable server may still call this client. [`Candidates::finish`] then waits, unless
    /// [`Candidates::look`] finds a lane.
    #[must_use]
    pub const fn may_be_called(&self) -> bool {
        self.called.is_some()
    }

    /// Checks, after the reply to UUID_IS_LOCAL, whether one of the candidates is that server. Doesn't wait:
    /// a server sends its message before it answers the RPC.
    pub fn look(&mut self) -> Option<Lane> {
        let mut index = 0;
        while let Some(candidate) = self.candidates.get(index) {
            match candidate.look(&self.nonce) {
                CandidateState::NotYet => index += 1,
                CandidateState::Never(reason) => {
                    self.candidates.remove(index);
                    self.reasons.push(reason);
                }
                CandidateState::Local(established) => {
                    let through = established.through.clone();
                    self.candidates.remove(index);
                    match Lane::begin(*established) {
                        Ok(lane) => return Some(lane),
                        Err(error) => self.reasons.push(Reason::Failed { through, error: error.to_string() }),
                    }
                }
            }
        }
        None
    }

    /// Checks, after the reply to UUID_IS_LOCAL, as [`Candidates::look`] does. If that finds nothing and this
    /// client waits to be called by a privileged server, waits for it up to `wait` (2 s is a good value; run
    /// it in the background).
    ///
    /// # Errors
    /// [`NotLocal`] with a reason for every place that was searched.
    pub async fn finish(mut self, wait: Duration) -> Result<Lane, NotLocal> {
        if let Some(lane) = self.look() {
            return Ok(lane);
        }
        if let Some(called) = self.called.take() {
            match called.wait(&self.nonce, Instant::now() + wait, &mut self.reasons).await {
                Some(lane) => return Ok(lane),
                None => self.reasons.push(Reason::NotCalled),
            }
        }
        let silent = self.candidates.drain(..).map(|candidate| Reason::AnotherServer(candidate.through));
        self.reasons.extend(silent);
        Err(NotLocal { reasons: self.reasons })
    }
}

/// Runs code that blocks for a short time on a thread of its own.
async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| std::io::Error::other("the thread that looks for servers panicked"))
}
