//! Call sockets: Unix sockets on which a peer on this host makes the calls of one of its TCP connections.
//!
//! Within a host, a call over a Unix socket takes less time than one over TCP. A call socket is a connection
//! like any other: the engine's workers serve it, and every bound applies. It shares the identity of a TCP
//! connection, so a call on it has the same rights, and a retransmission from one to the other is recognized.
//! [`CallSocketRules`] restrict it further.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, Weak},
};

use super::{Peer, accepting, connection::Connection, engine::Engine};
use crate::{
    message::{AuthStat, Credential, ReplyStatus},
    transport::Transport,
};

/// The calls that are permitted on a call socket.
pub struct CallSocketRules {
    /// The number of the TCP connection whose calls they are.
    pub connection: u64,
    /// The numbers and versions of the programs that may be called. For a call of another one the reply is
    /// PROG_UNAVAIL.
    pub programs: &'static [(u32, u32)],
    /// Whether the peer may send calls with this credential. Otherwise the reply is AUTH_TOOWEAK.
    pub may_claim: Box<dyn Fn(&Credential) -> bool + Send + Sync>,
}

impl CallSocketRules {
    /// Checks a call.
    pub(super) fn check(&self, program: (u32, u32), credential: &Credential) -> Result<(), ReplyStatus> {
        if !self.programs.contains(&program) {
            return Err(ReplyStatus::ProgUnavail);
        }
        if (self.may_claim)(credential) { Ok(()) } else { Err(ReplyStatus::AuthError(AuthStat::TooWeak)) }
    }
}

impl std::fmt::Debug for CallSocketRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallSocketRules").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// Why there is no call socket.
#[derive(Debug, thiserror::Error)]
pub enum CallSocketError {
    /// The server or the connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// The peer has as many connections as it may. None is displaced for a call socket.
    #[error("the peer has as many connections as it may")]
    TooMany,
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Opens the call sockets of a server's connections.
#[derive(Clone)]
pub struct CallSockets {
    engine: Weak<Engine>,
}

impl CallSockets {
    pub(super) const fn new(engine: Weak<Engine>) -> Self {
        Self { engine }
    }

    /// Opens a call socket of a connection. Returns its own number, for [`CallSockets::close`], and the end
    /// for the peer. It doesn't end with the connection; the caller closes it.
    ///
    /// # Errors
    /// [`CallSocketError`].
    pub fn open(&self, rules: CallSocketRules) -> Result<(u64, OwnedFd), CallSocketError> {
        let engine = self.engine.upgrade().ok_or(CallSocketError::Ended)?;
        let of = engine.registry.get(rules.connection).ok_or(CallSocketError::Ended)?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let peer = Peer { connection: engine.number(), ..of.peer };
        let transport = Transport::plain(OwnedFd::from(ours));
        let connection = Arc::new(Connection::new(&engine, transport, peer, Some(rules)));
        if engine.is_stopping() {
            return Err(CallSocketError::Ended);
        }
        if !engine.registry.insert(&connection, false) {
            return Err(CallSocketError::TooMany);
        }
        accepting::watch(&engine, &connection).map_err(io::Error::from)?;
        Ok((peer.connection, theirs.into()))
    }

    /// Closes the call socket with this number, if it is still open. Calls that have arrived are run, and
    /// their replies are sent.
    pub fn close(&self, number: u64) {
        if let Some(engine) = self.engine.upgrade()
            && let Some(connection) = engine.registry.get(number)
            && connection.call_socket.is_some()
        {
            // Behind the calls that have arrived, a worker then finds the end of the stream.
            connection.transport.shutdown_receiving();
            connection.finish(&engine.epoll);
        }
    }
}
