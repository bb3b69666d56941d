//! The memory that peers make us hold by not reading, and who makes way when there's too much of it: of the
//! peer that holds the most, the connection that holds the most. Who comes last is not to blame for what
//! others hold, and who spreads it over many connections is no better than who doesn't.

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

/// Unread replies of all connections.
#[derive(Debug)]
pub struct Unread {
    /// The sum, to be looked at without the lock; changed under it.
    held: AtomicUsize,
    limit: usize,
    holders: Mutex<HashMap<Share, Holder>>,
}

/// What one peer holds.
#[derive(Debug, Default)]
struct Holder {
    total: usize,
    connections: HashMap<u64, usize>,
}

impl Unread {
    /// At most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit, holders: Mutex::default() })
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// From now on `peer` holds `bytes`.
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

    /// A connection that is to be closed because there's too much; its share doesn't count any more. To be
    /// asked until there's none.
    pub fn surplus(&self) -> Option<u64> {
        if self.held() <= self.limit {
            return None;
        }
        let mut holders = self.holders.lock();
        let held = self.held();
        if held <= self.limit {
            return None; // somebody else has seen to it
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
    fn the_greediest_peer_makes_way_with_its_largest_connection() {
        let unread = Unread::new(100);
        unread.set(&peer(1, 1), 40);
        unread.set(&peer(2, 2), 25);
        unread.set(&peer(2, 3), 30);
        assert_eq!((unread.surplus(), unread.held()), (None, 95));
        // One more byte too many, of somebody who has hardly any.
        unread.set(&peer(3, 4), 6);
        assert_eq!((unread.surplus(), unread.held()), (Some(3), 71));
        assert_eq!(unread.surplus(), None);
        // What was struck out may still be heard of.
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
