//! Snapshots of the engine and its connections, for a status.

use std::time::SystemTime;

use super::Peer;

/// A snapshot of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The peer.
    pub peer: Peer,
    /// Whether the peer was admitted at the last check.
    pub admitted: bool,
    /// When it was accepted.
    pub since: SystemTime,
    /// Calls received so far.
    pub calls: u64,
    /// Bytes received so far.
    pub bytes_in: u64,
    /// Bytes sent so far.
    pub bytes_out: u64,
}

/// Totals since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections accepted.
    pub connections: u64,
    /// Connections closed at once because of a limit.
    pub refused: u64,
    /// Idle connections closed to make room for others.
    pub displaced: u64,
    /// Connections closed because the peer broke the protocol or stalled.
    pub broken: u64,
    /// Calls that were run or answered with an error.
    pub calls: u64,
    /// Calls denied because their peer isn't admitted.
    pub denied: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Receive memory in use now, in bytes.
    pub receive_memory: usize,
    /// The most receive memory that was in use at any time, in bytes.
    pub receive_memory_peak: usize,
    /// Memory held now by replies that peers leave unread, in bytes.
    pub reply_memory: usize,
}
