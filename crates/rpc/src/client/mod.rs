//! Calls to one server, many at a time on each connection (tokio).
//!
//! A [`Client`] holds one or more TCP connections to one address. Each has a driver task that owns the
//! socket, writes many calls with one `writev`, and reads many small replies with one `recv`, or the payload
//! of a large one straight into the caller's buffer. A call is a slot in the connection's table until its
//! reply comes; callers wait on their slot, so replies may come in any order.
//!
//! When a connection is lost the driver makes a new one and sends every unanswered call again under its old
//! number, in the order in which they were made: a server with a duplicate-request cache executes none of
//! them twice. Nothing is sent again on a connection that stands (TCP doesn't lose it). What to send again,
//! how long to wait between attempts and when to give up is decided in [`recovery`], which knows neither
//! sockets nor clocks.
//!
//! Every queue is bounded: calls in flight by [`Options::in_flight`], a reply by [`Options::max_reply`].

mod call;
mod driver;
mod error;
mod reader;
pub mod recovery;
mod running;
mod silence;
mod socket;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use xdr::Encoder;

use crate::message::Credential;
use call::Connection;
pub use error::Error;
pub use recovery::Policy;
use silence::Silence;
pub use socket::ReservedPort;

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a call counts as unanswered, and what then.
    pub policy: Policy,
    /// Connections to the server, 1..=16; calls take turns.
    pub connections: usize,
    /// Calls in flight on each connection, 1..=4096; further ones wait.
    pub in_flight: usize,
    /// The longest reply in bytes, RPC header included. A server that announces a longer one is disconnected.
    pub max_reply: usize,
    /// Whether to connect from a port below 1024.
    pub reserved_port: ReservedPort,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            connections: 1,
            in_flight: 128,
            max_reply: (1 << 20) + (64 << 10),
            reserved_port: ReservedPort::No,
            connect_timeout: Duration::from_secs(15),
        }
    }
}

/// Where a procedure's results end and its bulk payload begins: given the first bytes of successful results
/// (all of them, or at least [`HEAD_MAX`]), the length of what stands before the payload and the length of
/// the payload; `None` if these results have no payload.
pub type Split = fn(results: &[u8]) -> Option<(usize, usize)>;

/// How many bytes of results a [`Split`] may need to see.
pub const HEAD_MAX: usize = 128;

/// A payload is received straight into the caller's buffer, and not through the staging buffer, from this
/// size on.
pub const DIRECT_MIN: usize = 32 << 10;

/// A buffer for a reply's payload.
pub struct Receive {
    /// The payload replaces its contents; its capacity is reused.
    pub into: Vec<u8>,
    /// The longest payload that makes sense, in bytes; a longer one is a malformed reply.
    pub limit: usize,
    /// Where the payload begins.
    pub split: Split,
}

/// A call but for its arguments.
pub struct Request<'a> {
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who calls.
    pub credential: &'a Credential,
    /// Bulk data behind the arguments, XDR padding excluded; sent without a copy.
    pub payload: Bytes,
    /// Where to put the payload of the reply, for a procedure that has one.
    pub receive: Option<Receive>,
}

/// A successful call's results.
#[derive(Debug, Default)]
pub struct Reply {
    /// The results; if there was a payload for [`Receive::into`], only what stands before it.
    pub results: Vec<u8>,
    /// [`Receive::into`] with the payload in it, XDR padding excluded; empty if there was none.
    pub payload: Vec<u8>,
}

/// What a client has been through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Connections that were made after the first on each road to the server.
    pub reconnects: u64,
    /// Calls that were sent again after a reconnect.
    pub retransmits: u64,
}

/// Connections to one server. Dropping it closes them; calls that still wait end with [`Error::Closed`].
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    connections: Vec<Arc<Connection>>,
    turn: AtomicUsize,
}

impl Client {
    /// Connects. The first connection is made here and now, so that a server that isn't there is an error
    /// whatever the policy says; further ones are made when their turn comes.
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

    /// What the client has been through.
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
    /// Why there are no results. A hard client waits as long as it takes.
    pub async fn call(&self, request: Request<'_>, args: impl FnOnce(&mut Encoder)) -> Result<Reply, Error> {
        let connection = match &*self.connections {
            [only] => only,
            many => &many[self.turn.fetch_add(1, Relaxed) % many.len()],
        };
        connection.call(request, args).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connections.iter().for_each(|connection| connection.close());
    }
}
