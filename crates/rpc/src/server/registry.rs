//! Who is connected, who may still come, and who makes way.

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

/// Of all connections, the part that is kept from strangers, and the part that is kept from everybody but
/// root of this host: one in so many.
const FOR_ADMITTED: usize = 4;
const FOR_LOCAL_ROOT: usize = 64;

/// All connections of an engine.
#[derive(Debug)]
pub struct Registry {
    table: RwLock<Table>,
    emptied: (Mutex<()>, Condvar),
}

#[derive(Debug)]
struct Table {
    connections: HashMap<u64, Arc<Connection>>,
    /// How many each peer has.
    shares: Shares<Peer>,
    /// What the connections of a peer share, as long as one of them is there or a worker is busy with one
    /// that was.
    workers: HashMap<Peer, Weak<WorkersShare>>,
    /// What has been counted on connections that are gone.
    totals: Totals,
}

impl Registry {
    /// Nobody is connected.
    pub fn new(limits: &Limits) -> Self {
        let most = limits.max_connections;
        let table = Table {
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

    /// Enters a connection, if its peer may have one more, or if another one has just made way for it.
    pub fn insert(&self, connection: &Arc<Connection>, another_made_way: bool) -> bool {
        let peer = connection.share;
        let mut table = self.table.write();
        if !table.shares.take(&peer, connection.standing(), 1) {
            if !another_made_way || table.shares.total() >= table.shares.limit() {
                return false;
            }
            // One has gone and one comes: what the others may have is what it was.
            table.shares.charge(&peer, 1);
        }
        table.totals.connections += 1;
        table.connections.insert(connection.number(), Arc::clone(connection));
        true
    }

    /// Counts a connection that there was no room for.
    pub fn refused(&self) {
        self.table.write().totals.refused += 1;
    }

    /// Counts a connection that has made way.
    pub fn displaced(&self) {
        self.table.write().totals.displaced += 1;
    }

    /// The connections that may be closed for `newcomer`, the best choice first. Some of them may be in use.
    pub fn displaced_by(&self, newcomer: Newcomer) -> Vec<u64> {
        let table = self.table.read();
        // A flood of a stranger's connections costs no more than to see that it has the most already.
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

    /// Finds a connection.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Arc<Connection>> {
        self.table.read().connections.get(&number).cloned()
    }

    /// Everybody.
    pub fn all(&self) -> Vec<Arc<Connection>> {
        self.table.read().connections.values().cloned().collect()
    }

    /// Strikes a connection out; `broken` if it was the peer's fault.
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

    /// Waits until nobody is connected; false if somebody still is at `deadline`.
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

    /// What has been counted, on connections gone and present.
    pub fn totals(&self) -> Totals {
        let mut totals = self.table.read().totals;
        self.all().iter().for_each(|connection| add(&mut totals, &connection.info()));
        totals
    }
}

fn add(totals: &mut Totals, info: &super::ConnectionInfo) {
    totals.calls += info.calls;
    totals.bytes_in += info.bytes_in;
    totals.bytes_out += info.bytes_out;
}
