//! Counters per road and procedure: relaxed atomics, because nobody decides anything by them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::{localio, mount3, nfs3, nfs4, nfsacl};

use crate::status::ProcedureStatus;

/// One procedure's counters.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    ops: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
}

/// One number that goes up.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    nfs3: [Counter; nfs3::Procedure::ALL.len()],
    /// By operation; of a COMPOUND each is counted.
    nfs4: [Counter; nfs4::Operation::ALL.len()],
    mount3: [Counter; mount3::Procedure::ALL.len()],
    nfsacl: [Counter; nfsacl::Procedure::ALL.len()],
    localio: [Counter; localio::Procedure::ALL.len()],
    /// Opens on the lane.
    pub open: Counter,
    /// Those among them of names that don't exist: a client that creates a file asks first.
    pub open_not_found: Tally,
}

impl Counter {
    /// Counts one call with `bytes` of payload.
    pub(crate) fn count(&self, failed: bool, bytes: u64) {
        self.ops.fetch_add(1, Ordering::Relaxed);
        if failed {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        if bytes > 0 {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The counters as they stand.
    pub(crate) fn status(&self) -> ProcedureStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProcedureStatus { ops: read(&self.ops), errors: read(&self.errors), bytes: read(&self.bytes) }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            nfs3: std::array::from_fn(|_| Counter::default()),
            nfs4: std::array::from_fn(|_| Counter::default()),
            mount3: std::array::from_fn(|_| Counter::default()),
            nfsacl: std::array::from_fn(|_| Counter::default()),
            localio: std::array::from_fn(|_| Counter::default()),
            open: Counter::default(),
            open_not_found: Tally::default(),
        }
    }
}

impl Counters {
    pub(crate) fn nfs3(&self, procedure: nfs3::Procedure) -> &Counter {
        &self.nfs3[procedure as usize]
    }

    pub(crate) fn nfs4(&self, operation: nfs4::Operation) -> &Counter {
        // Their numbers follow one another.
        &self.nfs4[operation as usize - nfs4::Operation::ALL[0] as usize]
    }

    pub(crate) fn mount3(&self, procedure: mount3::Procedure) -> &Counter {
        &self.mount3[procedure as usize]
    }

    pub(crate) fn nfsacl(&self, procedure: nfsacl::Procedure) -> &Counter {
        &self.nfsacl[procedure as usize]
    }

    pub(crate) fn localio(&self, procedure: localio::Procedure) -> &Counter {
        &self.localio[procedure as usize]
    }

    /// All counters by road and procedure, zeros included; NULL is the RPC engine's and counted nowhere.
    pub(crate) fn status(&self) -> BTreeMap<String, BTreeMap<String, ProcedureStatus>> {
        let nfs3 = nfs3::Procedure::ALL.iter().map(|p| (p.name().to_owned(), self.nfs3(*p)));
        let nfs4 = nfs4::Operation::ALL.iter().map(|o| (format!("NFS4.{}", o.name()), self.nfs4(*o)));
        let mount3 = mount3::Procedure::ALL.iter().map(|p| (format!("MOUNT.{}", p.name()), self.mount3(*p)));
        let nfsacl = nfsacl::Procedure::ALL.iter().map(|p| (format!("NFSACL.{}", p.name()), self.nfsacl(*p)));
        let localio =
            localio::Procedure::ALL.iter().map(|p| (format!("LOCALIO.{}", p.name()), self.localio(*p)));
        let wire = nfs3
            .chain(nfs4)
            .chain(mount3)
            .chain(nfsacl)
            .chain(localio)
            .filter(|(name, _)| !name.ends_with("NULL"))
            .map(|(name, counter)| (name, counter.status()))
            .collect();
        let lane = BTreeMap::from([("OPEN".to_owned(), self.open.status())]);
        BTreeMap::from([("wire".to_owned(), wire), ("lane".to_owned(), lane)])
    }
}
