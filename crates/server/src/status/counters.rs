//! Counters by transport and procedure: relaxed atomics, since no decision depends on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proto::{localio, mount3, nfs3, nfs4, nfsacl};

control::metrics! {
    /// Counters of one procedure.
    pub struct ProcedureStatus, counted by ProcedureCounters {
        /// Calls.
        ops: Counter<Count> = "calls",
        /// Those answered with an error.
        errors: Counter<Count> = "errors",
        /// Payload bytes (READ and WRITE).
        bytes: Counter<Bytes> = "payload",
    }
}

impl ProcedureCounters {
    /// Counts one call with `bytes` of payload.
    pub(crate) fn count(&self, failed: bool, bytes: u64) {
        self.ops.fetch_add(1, Relaxed);
        if failed {
            self.errors.fetch_add(1, Relaxed);
        }
        if bytes > 0 {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

/// The counters of a program, by the position of the procedure in its `ALL`.
type Procedures<const N: usize> = [ProcedureCounters; N];

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    nfs3: Procedures<{ nfs3::Procedure::ALL.len() }>,
    /// By operation: each operation of a COMPOUND is counted.
    nfs4: Procedures<{ nfs4::Operation::ALL.len() }>,
    mount3: Procedures<{ mount3::Procedure::ALL.len() }>,
    nfsacl: Procedures<{ nfsacl::Procedure::ALL.len() }>,
    localio: Procedures<{ localio::Procedure::ALL.len() }>,
    /// Opens on the lane.
    pub open: ProcedureCounters,
    /// Opens on the lane of whole directories, also counted in `open`.
    pub trees: ProcedureCounters,
    /// Opens on the lane of names that don't exist. A client that creates a file asks for it first.
    pub open_not_found: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            nfs3: std::array::from_fn(|_| ProcedureCounters::default()),
            nfs4: std::array::from_fn(|_| ProcedureCounters::default()),
            mount3: std::array::from_fn(|_| ProcedureCounters::default()),
            nfsacl: std::array::from_fn(|_| ProcedureCounters::default()),
            localio: std::array::from_fn(|_| ProcedureCounters::default()),
            open: ProcedureCounters::default(),
            trees: ProcedureCounters::default(),
            open_not_found: AtomicU64::default(),
        }
    }
}

impl Counters {
    pub(crate) fn nfs3(&self, procedure: nfs3::Procedure) -> &ProcedureCounters {
        &self.nfs3[procedure as usize]
    }

    pub(crate) fn nfs4(&self, operation: nfs4::Operation) -> &ProcedureCounters {
        // The numbers of the operations are consecutive.
        &self.nfs4[operation as usize - nfs4::Operation::ALL[0] as usize]
    }

    pub(crate) fn mount3(&self, procedure: mount3::Procedure) -> &ProcedureCounters {
        &self.mount3[procedure as usize]
    }

    pub(crate) fn nfsacl(&self, procedure: nfsacl::Procedure) -> &ProcedureCounters {
        &self.nfsacl[procedure as usize]
    }

    pub(crate) fn localio(&self, procedure: localio::Procedure) -> &ProcedureCounters {
        &self.localio[procedure as usize]
    }

    /// All counters by transport and procedure, zeros included. NULL is answered by the RPC engine and not
    /// counted.
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
            .map(|(name, counters)| (name, counters.snapshot()))
            .collect();
        let lane = BTreeMap::from([("OPEN".to_owned(), self.open.snapshot())]);
        BTreeMap::from([("wire".to_owned(), wire), ("lane".to_owned(), lane)])
    }
}
