//! Taking a kernel lease on a file (see `leases`).

use std::sync::Arc;

use rustix::fs::OFlags;
use sys::lease::LeaseType;

use super::context::UserContext;
use crate::error::Result;
use crate::leases::{Lease, Leases};
use crate::node::Node;

impl UserContext<'_> {
    /// Takes a lease that keeps local processes from opening the file for writing or, with `exclusive`, from
    /// opening it at all. The caller has checked that the file exists and that the client may open it.
    ///
    /// # Errors
    /// `TryLater` when a process has the file open in a way that the lease excludes; `Invalid`,
    /// `NotSupported` or `Access` where there are no leases.
    pub fn lease(&self, node: &Arc<Node>, exclusive: bool, leases: &Leases) -> Result<Lease> {
        // Descriptors that the store keeps for later calls would conflict with the lease, too.
        self.store.nodes.pins.close_unless_pinned(node);
        let (access, kind) = if exclusive {
            drop((node.data_file(false).take(), node.direct().file(false).take()));
            (OFlags::RDWR, LeaseType::Write)
        } else {
            (OFlags::RDONLY, LeaseType::Read)
        };
        let file = Arc::new(self.as_process(|| self.open_again(node.file(), access))?);
        let mut lease = Lease::new(leases, node, Arc::clone(&file), kind);
        self.as_process(|| lease.watch_changes(node))?;
        self.as_process(|| lease.take(leases))?;
        if exclusive {
            lease.keep_open(node, &self.store.nodes.leased, &self.store.nodes.pins);
        } else {
            // The client's READs need one, too.
            node.data_file(false).keep(&file, self.store.limits.data);
        }
        Ok(lease)
    }
}
