//! The options that a client is made with, and what it counts.

use std::sync::Arc;
use std::time::Duration;

use super::callbacks::CallbackProgram;
use super::recovery::Policy;
use super::socket::ReservedPort;

/// The options of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a call counts as unanswered, and what follows.
    pub policy: Policy,
    /// Connections to the server, 1..=16; calls take turns.
    pub connections: usize,
    /// Calls in flight on each connection, 1..=4096. Further ones wait.
    pub in_flight: usize,
    /// The longest reply in bytes, RPC header included. A longer one ends the connection.
    pub max_reply: usize,
    /// Whether to connect from a port below 1024.
    pub reserved_port: ReservedPort,
    /// The time limit of one attempt to connect.
    pub connect_timeout: Duration,
    /// The program that the server may call on the connections. Without one, a call of the server ends the
    /// connection.
    pub callbacks: Option<Arc<dyn CallbackProgram>>,
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
            callbacks: None,
        }
    }
}

/// Counters of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reconnects: connections after the first one, over all connections of the client.
    pub reconnects: u64,
    /// Calls that were resent after a reconnect.
    pub retransmits: u64,
}
