//! All connections of an engine, how many each peer may have, and which may be displaced.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use fairness::{Peer, Shares, Standing};
use parking_lot::{Condvar, Mutex, RwLock};

use super::{
    Limits, Totals,
    connection::Connection,
    displacing::{self, Candidate, Newcomer},
    workers_share::WorkersShare,
};

/// The fraction of connections (one in so many) that is reserved for admitted peers, and the fraction
/// reserved for root of this host.
const FOR_ADMITTED: usize = 4;
const FOR_LOCAL_ROOT: usize = 64;

/// All connections of an engine.
#[derive(Debug)]
pub struct Registry {
    table: RwLock<ConnectionTable>,
    emptied: (Mutex<()>, Condvar),
}

#[derive(Debug)]
struct ConnectionTable {
    connections: HashMap<u64, Arc<Connection>>,
    /// The number of connections of each peer.
    shares: Shares<Peer>,
    /// What the connections of a peer share, while one of them exists or a worker is busy with a closed one.
    workers: HashMap<Peer, Weak<WorkersShare>>,
    /// Totals of the connections that are closed.
    totals: Totals,
}

impl Registry {
    /// An empty registry.
    pub fn new(limits: &Limits) -> Self {
        let most = limits.max_connections;
        let table = ConnectionTable {
            connections: HashMap::new(),
            shares: Shares::new(most).with_reserves(most / FOR_ADMITTED, most / FOR_LOCAL_ROOT),
            workers: HashMap::new(),
            totals: Totals::default(),
        };
        Self { table: RwLock::new(table), emptied: (Mutex::new(()), Condvar::new()) }
    }

    /// What the connections of `peer` share.
    pub fn workers_of(&self, peer: &Peer) -> Arc<WorkersShare> {
        let mut table = self.table.write();
        if let Some(share) = table.workers.get(peer).and_then(Weak::upgrade) {
            return share;
        }
        if table.workers.len() > 2 * table.connections.len() {
            table.workers.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::default();
        table.workers.insert(*peer, Arc::downgrade(&share));
        share
    }

    /// Adds a connection if its peer may have one more, or if another connection was displaced for it.
    pub fn insert(&self, connection: &Arc<Connection>, another_made_way: bool) -> bool {
        let peer = connection.share;
        let mut table = self.table.write();
        if !table.shares.take(&peer, connection.standing(), 1) {
            if !another_made_way || table.shares.total() >= table.shares.limit() {
                return false;
            }
            // One connection was removed and one is added, so the total stays within the limit.
            table.shares.charge(&peer, 1);
        }
        table.totals.connections += u64::from(connection.call_socket.is_none());
        table.connections.insert(connection.number(), Arc::clone(connection));
        true
    }

    /// Counts a connection that was refused for lack of room.
    pub fn refused(&self) {
        self.table.write().totals.refused += 1;
    }

    /// Counts a connection that was displaced.
    pub fn displaced(&self) {
        self.table.write().totals.displaced += 1;
    }

    /// The connections that may be closed for `newcomer`, the best choice first. Some of them may be in use.
    pub fn displaced_by(&self, newcomer: Newcomer) -> Vec<u64> {
        let table = self.table.read();
        // A flood of connections from a stranger ends at this check: the stranger already has the most.
        if newcomer.standing == Standing::Stranger && table.shares.displaced_by(&newcomer.peer, 1).is_none() {
            return Vec::new();
        }
        let candidates = table.connections.values().map(|connection| Candidate {
            number: connection.number(),
            peer: connection.share,
            stranger: connection.standing() == Standing::Stranger,
            last_used: connection.last_used(),
        });
        displacing::order(newcomer, &table.shares, candidates.collect())
    }

    /// What the connections of each peer share.
    pub fn all_workers(&self) -> Vec<Arc<WorkersShare>> {
        self.table.read().workers.values().filter_map(Weak::upgrade).collect()
    }

    /// Looks up a connection by its number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Arc<Connection>> {
        self.table.read().connections.get(&number).cloned()
    }

    /// All connections.
    pub fn all(&self) -> Vec<Arc<Connection>> {
        self.table.read().connections.values().cloned().collect()
    }

    /// Removes a connection, which is closed, so that its numbers are final. `broken` means that the peer
    /// broke the protocol or stalled.
    pub fn remove(&self, connection: &Connection, broken: bool) {
        let info = connection.info();
        let mut table = self.table.write();
        if table.connections.remove(&connection.number()).is_none() {
            return;
        }
        table.shares.give_back(&connection.share, 1);
        table.totals.broken += u64::from(broken);
        add(&mut table.totals, &info);
        let empty = table.connections.is_empty();
        drop(table);
        if empty {
            drop(self.emptied.0.lock());
            self.emptied.1.notify_all();
        }
    }

    /// Waits until there is no connection. Returns false if there still is one at `deadline`.
    pub fn wait_until_empty(&self, deadline: Instant) -> bool {
        let mut guard = self.emptied.0.lock();
        while !self.table.read().connections.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return false;
            }
            self.emptied.1.wait_for(&mut guard, left);
        }
        true
    }

    /// Totals over all connections, closed and open.
    pub fn totals(&self) -> Totals {
        let (mut totals, connections) = {
            let table = self.table.read();
            // At one moment, so that each connection is in one of them. One that is removed meanwhile has no
            // lower numbers at its end than those that are read here.
            (table.totals, table.connections.values().cloned().collect::<Vec<_>>())
        };
        connections.iter().for_each(|connection| add(&mut totals, &connection.info()));
        totals
    }
}

fn add(totals: &mut Totals, info: &super::ConnectionInfo) {
    totals.calls += info.calls;
    totals.bytes_in += info.bytes_in;
    totals.bytes_out += info.bytes_out;
}
