//! The engine's bounds.

use std::time::Duration;

/// Bounds on what the peers together, and each of them, can make the engine hold.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Worker threads: the number of calls that can run (and wait for a disk) at the same time. At least 1.
    /// With four or more, one peer keeps at most three quarters of them busy.
    pub threads: usize,
    /// A worker's stack, in bytes. Only the used part becomes resident.
    pub stack: usize,
    /// Connections. Each peer may have its share, and parts are reserved for admitted peers and for root of
    /// this host. A connection above the limit is closed at once, unless an idle one is displaced: a
    /// stranger's, or one of a peer that has more.
    pub max_connections: usize,
    /// The longest call, in bytes. A longer one closes its connection.
    pub max_record: usize,
    /// Memory for calls above 32 KiB that are being received or run, all connections together, in bytes. Each
    /// peer may have its share. A connection whose call gets no memory isn't read from until its turn. At
    /// least `max_record` and a little (else it is raised to that).
    pub receive_memory: usize,
    /// Replies to one connection are sent at the latest when this many bytes are ready. While the peer leaves
    /// any of them unread, so that they don't fit into the socket, no further call of that connection is run;
    /// nor while this many bytes wait behind a reply that is being sent (from a file on a slow disk).
    pub reply_queue: usize,
    /// Memory for replies that peers leave unread, all connections together, in bytes. When it is exceeded,
    /// the connection that holds the most is closed, of those of the peer that holds the most.
    pub reply_memory: usize,
    /// How long a peer may leave its replies unread, or hold receive memory that others wait for, per 64 KiB
    /// moved.
    pub stall: Duration,
    /// How long a connection may be silent before TCP asks whether the peer is still there (keepalive).
    pub keepalive: Duration,
    /// A call that runs longer than this loses its connection to another worker, which runs the calls behind
    /// it.
    pub hand_over_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            threads: 16,
            stack: 512 << 10,
            max_connections: 4096,
            max_record: (1 << 20) + (8 << 10),
            receive_memory: 16 << 20,
            reply_queue: 256 << 10,
            reply_memory: 32 << 20,
            stall: Duration::from_secs(20),
            keepalive: Duration::from_secs(120),
            hand_over_after: Duration::from_millis(2),
        }
    }
}
