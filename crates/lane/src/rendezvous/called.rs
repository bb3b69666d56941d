//! Waiting to be called, for a client that may not enter the namespace in which its server listens.

use super::candidate::{Candidate, CandidateState};
use super::options::RendezvousOptions;
use super::reason::Reason;
use crate::client::Lane;
use crate::nonce::{Commitment, Nonce};
use crate::run_dir;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The most callers that are heard; a client has one server.
const MAX_CALLERS: usize = 8;
/// The interval at which the callers' sockets are read, while there are any: for some milliseconds at the end
/// of a wait.
const LOOK: Duration = Duration::from_millis(2);

/// The socket on which the client waits.
pub(super) struct Called {
    listener: AsyncFd<OwnedFd>,
    options: RendezvousOptions,
    commitment: Commitment,
}

impl Called {
    /// Starts listening.
    pub(super) fn listen(options: &RendezvousOptions, commitment: Commitment) -> io::Result<Self> {
        let name = run_dir::calling_name(&commitment);
        let socket = run_dir::seqpacket()?;
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&socket, MAX_CALLERS as i32)?;
        let listener = crate::socket::watch(socket, Interest::READABLE)?;
        Ok(Self { listener, options: options.clone(), commitment })
    }

    /// Waits for the server's call.
    pub(super) async fn wait(
        &self,
        nonce: &Nonce,
        until: Instant,
        reasons: &mut Vec<Reason>,
    ) -> Option<Lane> {
        let until = tokio::time::Instant::from_std(until);
        let mut callers: Vec<Candidate> = Vec::new();
        let mut seen = 0;
        loop {
            tokio::select! {
                caller = self.accept(), if seen < MAX_CALLERS => {
                    seen += 1;
                    match caller.map(|caller| self.register(caller)) {
                        Some(Ok(caller)) => callers.push(caller),
                        Some(Err(reason)) => reasons.push(reason),
                        None => {}
                    }
                }
                () = tokio::time::sleep(LOOK), if !callers.is_empty() => {}
                () = tokio::time::sleep_until(until) => return None,
            }
            let mut index = 0;
            while let Some(caller) = callers.get(index) {
                match caller.look(nonce) {
                    CandidateState::NotYet => index += 1,
                    CandidateState::Never(reason) => {
                        callers.remove(index);
                        reasons.push(reason);
                    }
                    CandidateState::Local(established) => return Lane::begin(*established).ok(),
                }
            }
        }
    }

    fn register(&self, caller: OwnedFd) -> Result<Candidate, Reason> {
        let through = "a call of the server's".into();
        Candidate::register(caller, through, None, &self.options, self.commitment)
    }

    async fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = self.listener.async_io(Interest::READABLE, |listener| {
            rustix::net::accept_with(listener.as_fd(), flags).map_err(io::Error::from)
        });
        accepted.await.ok()
    }
}
