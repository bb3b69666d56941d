//! RPC calls to one server, many at a time on each connection (tokio).
//!
//! A [`Client`] holds one or more TCP connections to one address. Each has a driver task that owns the
//! socket, writes many calls with one `writev`, and reads many small replies with one `recv`, or the payload
//! of a large reply straight into the caller's buffer. A call occupies a slot in the connection's table until
//! its reply arrives. Callers wait on their slot, so replies may arrive in any order.
//!
//! When a connection is lost the driver makes a new one and resends every unanswered call under its old
//! transaction id, in the order in which the calls were made: a server with a duplicate-request cache
//! executes none of them twice. Nothing is resent on a connection that stands, since TCP doesn't lose it.
//! [`recovery`] decides what to resend, how long to wait between attempts and when to give up; it uses
//! neither sockets nor clocks.
//!
//! A server of the same host may also give the client a [`CallSocket`] for small calls.
//!
//! A client with a [`CallbackProgram`] also executes calls of the server on these connections.
//!
//! Every queue is bounded: calls in flight by [`Options::in_flight`], a reply by [`Options::max_reply`].

mod call;
mod call_socket;
mod callbacks;
mod driver;
mod error;
mod options;
mod reader;
pub mod recovery;
mod request;
mod running;
mod silence;
mod socket;
mod table;
mod timeouts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use xdr::Encoder;

use call::Connection;
pub use call_socket::CallSocket;
pub use callbacks::CallbackProgram;
pub use error::Error;
pub use options::{Options, Stats};
pub use recovery::Policy;
pub use request::{DIRECT_MIN, HEAD_MAX, Receive, Reply, Request, Split};
use silence::Silence;
pub use socket::ReservedPort;

/// Connections to one server. Dropping it closes them; pending calls end with [`Error::Closed`].
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    connections: Vec<Arc<Connection>>,
    turn: AtomicUsize,
}

impl Client {
    /// Connects. The first connection is made here, so that an unreachable server is an error whatever the
    /// policy says. Further connections are made when they are first used.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn connect(address: SocketAddr, options: Options) -> Result<Self, Error> {
        let stream = socket::connect(address, options.reserved_port, None, options.connect_timeout)
            .await
            .map_err(|source| Error::Connect { address, source })?;
        let mut connections = Vec::new();
        let mut first = Some(stream);
        let silence = Arc::<Silence>::default();
        for _ in 0..options.connections.clamp(1, 16) {
            let connection = Arc::new(Connection::new(address, &options, silence.clone()));
            tokio::spawn(driver::drive(connection.clone(), first.take()));
            connections.push(connection);
        }
        Ok(Self { address, connections, turn: AtomicUsize::new(0) })
    }

    /// The server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters since the client was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.connections.iter().map(|connection| connection.stats()).fold(Stats::default(), |sum, one| {
            Stats {
                reconnects: sum.reconnects + one.reconnects,
                retransmits: sum.retransmits + one.retransmits,
            }
        })
    }

    /// Makes a call and waits for its results; `args` writes the arguments. Dropping the future forgets the
    /// call, which the server may still execute.
    ///
    /// # Errors
    /// Why the call has no results. A hard client waits without a limit.
    pub async fn call(&self, request: Request<'_>, args: impl FnOnce(&mut Encoder)) -> Result<Reply, Error> {
        self.connection().call(request, args, None).await
    }

    /// As [`Client::call`], on a call socket, for calls with small replies and without payloads. Without a
    /// successful reply there, the call is made over TCP under the same transaction id: at once if the socket
    /// ends, and after a part of the call's timeout if it doesn't reply.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_on(
        &self,
        socket: &CallSocket,
        request: Request<'_>,
        args: impl FnOnce(&mut Encoder),
    ) -> Result<Reply, Error> {
        self.connection().call(request, args, Some(socket)).await
    }

    /// Closes the connections as if the client were dropped, for a client with several owners.
    pub fn close(&self) {
        self.connections.iter().for_each(|connection| connection.close());
    }

    /// The connection of the next call.
    fn connection(&self) -> &Connection {
        match &*self.connections {
            [only] => only,
            many => &many[self.turn.fetch_add(1, Relaxed) % many.len()],
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}
