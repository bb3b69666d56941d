//! The engine's public face: build, start, look at, stop.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{Limits, Peer, Program};

/// What a server will be.
#[derive(Default)]
pub struct Builder {
    programs: Vec<Arc<dyn Program>>,
    limits: Limits,
    addresses: Vec<SocketAddr>,
}

impl Builder {
    /// Adds a program. The first one of a number and version answers.
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Program>) -> Self {
        self.programs.push(program);
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds an address to listen on; port 0 lets the system choose. An IPv6 address is IPv6 only.
    #[must_use]
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Binds and starts answering.
    ///
    /// # Errors
    /// What the system says about sockets, epoll or threads.
    pub fn start(self) -> io::Result<Server> {
        unimplemented!()
    }
}

/// One connection, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Who.
    pub peer: Peer,
    /// Since when.
    pub since: SystemTime,
    /// Calls received so far.
    pub calls: u64,
    /// Bytes received so far.
    pub bytes_in: u64,
    /// Bytes sent so far.
    pub bytes_out: u64,
}

/// What the engine has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections accepted.
    pub connections: u64,
    /// Connections closed at once because of a limit.
    pub refused: u64,
    /// Connections closed because the peer broke the protocol or stalled.
    pub broken: u64,
    /// Calls run or answered with an error.
    pub calls: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Receive memory in use now, in bytes.
    pub receive_memory: usize,
    /// The most receive memory that was in use at any time, in bytes.
    pub receive_memory_peak: usize,
}

/// A running server; dropping it stops it without grace.
pub struct Server {}

impl Server {
    /// Starts describing a server.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        unimplemented!()
    }

    /// Who is connected.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        unimplemented!()
    }

    /// What it has done so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        unimplemented!()
    }

    /// Stops listening, lets the calls that have come in finish and their replies go out, and closes; what isn't done
    /// after `grace` is closed all the same. Returns whether everything was done in time. A second call does nothing.
    pub fn shutdown(&self, grace: Duration) -> bool {
        let _ = grace;
        unimplemented!()
    }
}
