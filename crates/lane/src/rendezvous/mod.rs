//! How a client finds the servers of its host, and learns which of them it is talking to.
//!
//! A handshake's life, on the client's side:
//! 1. [`Rendezvous::register`] makes a nonce, looks in the run directory, in the abstract namespace and,
//!    where it may, in the other network namespaces, connects to every server that it trusts, and registers
//!    the nonce's commitment;
//! 2. the caller sends the nonce over the NFS connection (UUID_IS_LOCAL);
//! 3. when that has been answered, [`Candidates::look`] finds the server's word in one of the sockets, or
//!    doesn't: the server speaks there before it answers the RPC;
//! 4. a client that may not enter other namespaces also waits to be called by a privileged server: this alone
//!    takes time, in [`Candidates::finish`].

mod called;
mod candidate;
mod discover;
mod reason;

pub use reason::{NotLocal, Reason};

use crate::client::Lane;
use crate::nonce::Nonce;
use called::Called;
use candidate::{Answer, Candidate};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How a client looks for servers.
#[derive(Debug, Clone)]
pub struct RendezvousOptions {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Users besides root and ourselves whose servers are trusted. The overflow id (65534) stands for
    /// everybody whom our user namespace doesn't map.
    pub trusted_uids: Vec<u32>,
    /// Whether to look for abstract sockets, in our own network namespace and, where we may (CAP_SYS_ADMIN),
    /// in the others; and, where we may not, to wait for a privileged server that looks for us.
    pub search_namespaces: bool,
}

impl RendezvousOptions {
    /// Nobody trusted but root and ourselves; namespaces searched.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Self {
        Self { run_dir, trusted_uids: Vec::new(), search_namespaces: true }
    }

    /// Whether a server of this user is trusted; `None` is a user whom our user namespace doesn't map.
    fn trusts(&self, uid: Option<u32>) -> bool {
        match uid {
            Some(uid) => {
                uid == 0 || uid == rustix::process::geteuid().as_raw() || self.trusted_uids.contains(&uid)
            }
            None => self.trusted_uids.contains(&sys::peer::overflow_uid()),
        }
    }

    /// The users who are trusted.
    fn trusted(&self) -> Vec<Option<u32>> {
        let overflow = sys::peer::overflow_uid();
        let own = rustix::process::geteuid().as_raw();
        let named = self.trusted_uids.iter().map(|uid| Some(*uid).filter(|uid| *uid != overflow));
        [Some(0), Some(own)].into_iter().chain(named).collect()
    }
}

/// The entrance.
pub struct Rendezvous;

impl Rendezvous {
    /// Makes a nonce, looks for servers on this host, connects to every one that is trusted and registers the
    /// nonce's commitment there. Takes milliseconds, at most some 2 s where tens of thousands of sockets and
    /// processes are looked through. Must run in a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// When the kernel gives no random numbers or no thread. That nobody was found is no error here: see
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

/// Servers that might be the one at the other end of the NFS connection.
pub struct Candidates {
    nonce: Nonce,
    candidates: Vec<Candidate>,
    reasons: Vec<Reason>,
    called: Option<Called>,
}

impl Candidates {
    /// What UUID_IS_LOCAL must carry: once, over the NFS connection of the server that is asked for, within
    /// 10 s.
    #[must_use]
    pub const fn nonce(&self) -> [u8; 16] {
        self.nonce.0
    }

    /// Whether a server that we can't reach may yet call us: then [`Candidates::finish`] waits, unless
    /// [`Candidates::look`] finds a lane.
    #[must_use]
    pub const fn may_be_called(&self) -> bool {
        self.called.is_some()
    }

    /// To be called when UUID_IS_LOCAL has been answered: whether one of the candidates is that server.
    /// Doesn't wait: a server says so before it answers the RPC.
    pub fn look(&mut self) -> Option<Lane> {
        let mut index = 0;
        while let Some(candidate) = self.candidates.get(index) {
            match candidate.look(&self.nonce) {
                Answer::NotYet => index += 1,
                Answer::Never(reason) => {
                    self.candidates.remove(index);
                    self.reasons.push(reason);
                }
                Answer::Local(established) => {
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

    /// To be called when UUID_IS_LOCAL has been answered. Looks as [`Candidates::look`] does; if that finds
    /// nothing and we wait to be called by a privileged server, waits up to `wait` for it (2 s is a good
    /// value; run it in the background).
    ///
    /// # Errors
    /// [`NotLocal`] with a reason for every place that was looked at.
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

/// Runs what blocks (a little) on a thread of its own.
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
