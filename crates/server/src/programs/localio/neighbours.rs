//! Who shares this kernel, and what that saves.
//!
//! A `sync` export makes a change of names or attributes durable before it answers, so that a client may rely
//! on what it was told although the server crashes (RFC 1813 section 4.7). A client with a lane is on this
//! very kernel: what ends with the server's process is in the page cache still, and what ends with the kernel
//! ends the client, too. To it such a change is what it is to a local process: durable when it is synced. The
//! client says over the lane that it knows ([`lane::GrantService::async_from_now`]); from then on only COMMIT and
//! stable WRITEs of its connection wait for a disk.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use parking_lot::RwLock;

/// The client's end of each connection with such a lane, and the numbers of its lanes, which bound them.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(RwLock<HashMap<SocketAddr, HashSet<u64>>>);

impl Neighbours {
    /// The client of a lane syncs for itself.
    pub(crate) fn came(&self, lane: u64, peer: SocketAddr) {
        self.0.write().entry(peer).or_default().insert(lane);
    }

    /// A lane of this connection has ended.
    pub(crate) fn went(&self, lane: u64, peer: SocketAddr) {
        let mut connections = self.0.write();
        if let Some(lanes) = connections.get_mut(&peer) {
            lanes.remove(&lane);
            if lanes.is_empty() {
                connections.remove(&peer);
            }
        }
    }

    /// Whether this is a connection of such a client.
    pub(crate) fn has(&self, peer: SocketAddr) -> bool {
        let connections = self.0.read();
        !connections.is_empty() && connections.contains_key(&peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_a_neighbours_as_long_as_one_of_its_lanes() {
        let (neighbours, peer) = (Neighbours::default(), "127.0.0.1:700".parse().unwrap());
        assert!(!neighbours.has(peer));
        neighbours.came(1, peer);
        neighbours.came(2, peer);
        neighbours.went(1, peer);
        assert!(neighbours.has(peer) && !neighbours.has("127.0.0.1:701".parse().unwrap()));
        neighbours.went(2, peer);
        assert!(!neighbours.has(peer));
    }
}
