//! The memory held by replies that peers don't read, and which connection is closed when there is too much:
//! the one that holds the most, of the peer that holds the most. The last connection to add to the sum isn't
//! to blame for what others hold, and spreading replies over many connections doesn't help a peer.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use super::Peer;
use fairness::Peer as Share;

/// The unread replies of all connections.
#[derive(Debug)]
pub struct UnreadReplies {
    /// The sum: read without the lock, changed under it.
    held: AtomicUsize,
    limit: usize,
    holders: Mutex<HashMap<Share, PeerReplies>>,
}

/// What one peer holds.
#[derive(Debug, Default)]
struct PeerReplies {
    total: usize,
    connections: HashMap<u64, usize>,
}

impl UnreadReplies {
    /// At most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit, holders: Mutex::default() })
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets what the connection of `peer` holds to `bytes`.
    pub fn set(&self, peer: &Peer, bytes: usize) {
        let mut holders = self.holders.lock();
        let share = peer.share();
        let holder = holders.entry(share).or_default();
        let before = if bytes == 0 {
            holder.connections.remove(&peer.connection)
        } else {
            holder.connections.insert(peer.connection, bytes)
        };
        let before = before.unwrap_or(0);
        holder.total = holder.total - before + bytes;
        if holder.total == 0 {
            holders.remove(&share);
        }
        self.held.store(self.held() - before + bytes, Ordering::Relaxed);
    }

    /// A connection to be closed because the sum exceeds the limit. Its bytes are no longer counted. Call
    /// until it returns `None`.
    pub fn surplus(&self) -> Option<u64> {
        if self.held() <= self.limit {
            return None;
        }
        let mut holders = self.holders.lock();
        let held = self.held();
        if held <= self.limit {
            return None; // another thread has closed enough
        }
        let (&share, holder) = holders.iter_mut().max_by_key(|(_, holder)| holder.total)?;
        let (&connection, &bytes) = holder.connections.iter().max_by_key(|(_, bytes)| **bytes)?;
        holder.connections.remove(&connection);
        holder.total -= bytes;
        if holder.total == 0 {
            holders.remove(&share);
        }
        self.held.store(held - bytes, Ordering::Relaxed);
        Some(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8, connection: u64) -> Peer {
        let address = ([192, 0, 2, host], 1000).into();
        Peer { connection, address, local: address, owner: sys::TcpOwner::Remote }
    }

    #[test]
    fn the_peer_that_holds_the_most_loses_its_largest_connection() {
        let unread = UnreadReplies::new(100);
        unread.set(&peer(1, 1), 40);
        unread.set(&peer(2, 2), 25);
        unread.set(&peer(2, 3), 30);
        assert_eq!((unread.surplus(), unread.held()), (None, 95));
        // A peer that holds hardly anything exceeds the limit.
        unread.set(&peer(3, 4), 6);
        assert_eq!((unread.surplus(), unread.held()), (Some(3), 71));
        assert_eq!(unread.surplus(), None);
        // A removed connection may still be reported.
        unread.set(&peer(2, 3), 0);
        assert_eq!(unread.held(), 71);
        unread.set(&peer(1, 1), 300);
        unread.set(&peer(2, 2), 200);
        assert_eq!((unread.surplus(), unread.surplus(), unread.surplus()), (Some(1), Some(2), None));
        unread.set(&peer(3, 4), 0);
        assert_eq!(unread.held(), 0);
        assert!(unread.holders.lock().is_empty());
    }
}
