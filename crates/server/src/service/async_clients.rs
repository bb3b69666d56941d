//! Clients on this kernel that sync metadata themselves.
//!
//! A `sync` export makes changes of names and attributes durable before the reply, so that a client can rely
//! on the reply even if the server crashes (RFC 1813 section 4.7). A client with a lane runs on the server's
//! kernel: if the server's process dies the changes are still in the page cache, and if the kernel crashes
//! the client goes down with it. For such a client a change is durable when it is synced, as for a local
//! process. The client declares over the lane that it relies on this
//! ([`lane::GrantService::async_from_now`]). From then on only COMMIT and stable WRITEs of its connection
//! wait for a disk.

use std::net::SocketAddr;

use ahash::{HashMap, HashSet};
use parking_lot::RwLock;

/// The client's end of each such connection, with the numbers of its lanes.
#[derive(Debug, Default)]
pub(crate) struct AsyncClients(RwLock<HashMap<SocketAddr, HashSet<u64>>>);

impl AsyncClients {
    /// The client of a lane syncs metadata itself.
    pub(crate) fn add(&self, lane: u64, peer: SocketAddr) {
        self.0.write().entry(peer).or_default().insert(lane);
    }

    /// A lane of this connection has ended.
    pub(crate) fn remove(&self, lane: u64, peer: SocketAddr) {
        let mut connections = self.0.write();
        if let Some(lanes) = connections.get_mut(&peer) {
            lanes.remove(&lane);
            if lanes.is_empty() {
                connections.remove(&peer);
            }
        }
    }

    /// Whether the client of this connection syncs metadata itself.
    pub(crate) fn contains(&self, peer: SocketAddr) -> bool {
        let connections = self.0.read();
        !connections.is_empty() && connections.contains_key(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stays_as_long_as_one_of_its_lanes() {
        let (async_clients, peer) = (AsyncClients::default(), "127.0.0.1:700".parse().unwrap());
        assert!(!async_clients.contains(peer));
        async_clients.add(1, peer);
        async_clients.add(2, peer);
        async_clients.remove(1, peer);
        assert!(async_clients.contains(peer) && !async_clients.contains("127.0.0.1:701".parse().unwrap()));
        async_clients.remove(2, peer);
        assert!(!async_clients.contains(peer));
    }
}
