//! Who is connected, and who may still come.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, RwLock};

use super::{Limits, Totals, connection::Connection};

/// All connections of an engine.
#[derive(Debug)]
pub struct Registry {
    table: RwLock<Table>,
    emptied: (Mutex<()>, Condvar),
    max_connections: usize,
    max_per_address: usize,
}

#[derive(Debug, Default)]
struct Table {
    connections: HashMap<u64, Arc<Connection>>,
    by_address: HashMap<IpAddr, usize>,
    /// What has been counted on connections that are gone.
    totals: Totals,
}

impl Registry {
    /// Nobody is connected.
    pub fn new(limits: &Limits) -> Self {
        Self {
            table: RwLock::default(),
            emptied: (Mutex::new(()), Condvar::new()),
            max_connections: limits.max_connections,
            max_per_address: limits.max_connections_per_address,
        }
    }

    /// Enters a connection, unless there are too many.
    pub fn insert(&self, connection: &Arc<Connection>) -> bool {
        let mut table = self.table.write();
        let from = connection.peer.address.ip();
        let full = table.connections.len() >= self.max_connections
            || table.by_address.get(&from).is_some_and(|count| *count >= self.max_per_address);
        if full {
            table.totals.refused += 1;
            return false;
        }
        table.totals.connections += 1;
        *table.by_address.entry(from).or_default() += 1;
        table.connections.insert(connection.number(), Arc::clone(connection));
        true
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
        let from = connection.peer.address.ip();
        if let Some(count) = table.by_address.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                table.by_address.remove(&from);
            }
        }
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
