//! How a client finds the servers of its host.

use crate::client::Lane;
use std::path::PathBuf;
use std::time::Duration;

/// How a client looks for servers.
#[derive(Debug, Clone)]
pub struct RendezvousOptions {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Users besides root and ourselves whose servers are trusted.
    pub trusted_uids: Vec<u32>,
    /// Whether to look in other network namespaces, where we may (CAP_SYS_ADMIN); and, where we may not and found
    /// nobody, to wait for a privileged server to look for us.
    pub search_namespaces: bool,
}

impl RendezvousOptions {
    /// Nobody trusted but root and ourselves; namespaces searched.
    #[must_use]
    pub fn new(run_dir: PathBuf) -> Self {
        Self { run_dir, trusted_uids: Vec::new(), search_namespaces: true }
    }
}

/// The entrance.
pub struct Rendezvous;

impl Rendezvous {
    /// Makes a nonce, looks for servers on this host, connects to every one that is trusted and registers the
    /// nonce's commitment there. Takes milliseconds, at most some 500 ms where thousands of processes are looked
    /// through. Must run in a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// When the kernel gives no random numbers. That nobody was found is no error here: see [`Candidates::finish`].
    pub async fn register(options: RendezvousOptions) -> std::io::Result<Candidates> {
        let _ = options;
        unimplemented!()
    }
}

/// Servers that might be the one at the other end of the NFS connection.
pub struct Candidates {}

impl Candidates {
    /// What UUID_IS_LOCAL must carry. Once, over the NFS connection of the server that is asked for, within 10 s.
    #[must_use]
    pub fn nonce(&self) -> [u8; 16] {
        unimplemented!()
    }

    /// Whether [`Candidates::finish`] will wait for a server that looks for us. If not, it answers at once.
    #[must_use]
    pub fn may_be_called(&self) -> bool {
        unimplemented!()
    }

    /// To be called when UUID_IS_LOCAL has been answered: tells whether one of the candidates is that server. A
    /// server says so before it answers the RPC, so this doesn't wait; only if nobody was found and we wait to be
    /// called by a privileged server does it wait up to `wait` (2 s is a good value; run it in the background).
    ///
    /// # Errors
    /// [`NotLocal`] with a reason for every candidate.
    pub async fn finish(self, wait: Duration) -> Result<Lane, NotLocal> {
        let _ = wait;
        unimplemented!()
    }
}

/// There's no lane, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no lane: {}", .reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct NotLocal {
    /// One for every place that was looked at, in words that an admin can act on.
    pub reasons: Vec<Reason>,
}

/// Why one candidate, or one place to look for candidates, gave no lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The run directory has no server's socket.
    #[error("no server socket in {}", .0.display())]
    NoSocket(PathBuf),
}
