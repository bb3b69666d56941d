//! Why there is no lane, in words that an administrator can act on.

use crate::message::HandshakeRefusal;
use std::path::PathBuf;

/// There is no lane, and the reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no lane: {}", .reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct NotLocal {
    /// One for every place that was searched.
    pub reasons: Vec<Reason>,
}

/// Why one server, or one searched place, gave no lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The run directory isn't there.
    #[error(
        "there is no run directory {}: if the server is on this host, share its run directory with this \
         client (a bind mount into the container does) or name it with --run-dir",
        .0.display()
    )]
    NoRunDir(PathBuf),
    /// The run directory can't be read.
    #[error("the run directory {} can't be read: {error}", .dir.display())]
    UnreadableRunDir {
        /// The directory.
        dir: PathBuf,
        /// The error.
        error: String,
    },
    /// The run directory has no server's socket.
    #[error(
        "no server socket in {}: if the server is on this host, start it with the same --run-dir, or share \
         its run directory with this client by a bind mount",
        .0.display()
    )]
    NoSocket(PathBuf),
    /// A server's socket without a listening process.
    #[error("no process listens on {0}: that server is dead")]
    Dead(String),
    /// The server's queue of connections is full.
    #[error("the server at {0} is too busy to accept connections")]
    Busy(String),
    /// A system call failed.
    #[error("{through}: {error}")]
    Failed {
        /// The server's socket.
        through: String,
        /// The error.
        error: String,
    },
    /// The server's user isn't trusted.
    #[error(
        "the server at {through} is uid {uid}, which this client doesn't trust: --trust-uid {uid} if you do"
    )]
    Untrusted {
        /// The server's socket.
        through: String,
        /// Its user.
        uid: u32,
    },
    /// The server's user isn't mapped in our user namespace.
    #[error(
        "the server at {through} is a user whom this user namespace doesn't map (shown as uid {overflow}): \
         if you trust all users who can place a socket there, --trust-uid {overflow}"
    )]
    UntrustedUnmapped {
        /// The server's socket.
        through: String,
        /// The overflow id.
        overflow: u32,
    },
    /// The server refused the lane.
    #[error("the server at {through} gives no lane: {refusal}")]
    Refused {
        /// The server's socket.
        through: String,
        /// Its reason.
        refusal: HandshakeRefusal,
    },
    /// A server of this host, but not the one at the other end of the NFS connection.
    #[error(
        "the server at {0} didn't get our nonce: it isn't the one at the other end of the NFS connection (or \
         it has the lane switched off)"
    )]
    AnotherServer(String),
    /// It closed the connection without a message.
    #[error("the server at {0} closed the connection")]
    HungUp(String),
    /// It claims to be the server but doesn't know the nonce.
    #[error("{0} claims to be the server but doesn't know the nonce: it impersonates the server")]
    Impostor(String),
    /// It broke the protocol.
    #[error("the server at {through} sent {what}")]
    Violation {
        /// The server's socket.
        through: String,
        /// The violation.
        what: &'static str,
    },
    /// Not everything was searched.
    #[error("{0} has more sockets with servers' names than can be looked at, and not all were")]
    TooMany(String),
    /// The abstract sockets of this network namespace can't be listed.
    #[error("the sockets of this network namespace can't be listed: {0}")]
    SocketsNotListed(String),
    /// The network namespaces of other processes can't be found.
    #[error("other network namespaces were not searched: {0}")]
    NamespacesNotListed(String),
    /// This process may not enter other network namespaces.
    #[error(
        "other network namespaces were not searched (that needs CAP_SYS_ADMIN): if the server is in a \
         container or this client is, share the run directory"
    )]
    MayNotSearch,
    /// The other network namespaces have no further server.
    #[error("no further server in {0} other network namespaces")]
    NothingInNamespaces(usize),
    /// No server has called.
    #[error("no privileged server of this host called us")]
    NotCalled,
}
