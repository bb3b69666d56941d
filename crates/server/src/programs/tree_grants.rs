//! Trees over the lane: directories with everything below, for clients that make the system calls themselves.
//!
//! An open through a tree counts nowhere in the server. So there are no trees while an NFSv4 open denies
//! access to others, nor in the grace period, when a client may reclaim such an open; and an open that denies
//! recalls the trees before it is answered. Delegations are recalled by their kernel leases, as for every
//! local process.

use lane::{Access, Bound, GrantAttributes, OpenGrant, OpenStatus};
use store::{Node, UserContext};

use super::lane_grants::{LaneGrantService, failed};
use crate::authorization::access::ExportAccess;
use crate::authorization::tree_rules::TreeRefusal;
use crate::export_table::mounts;

impl LaneGrantService {
    /// Gives the client a directory with everything below.
    pub(super) fn open_tree(
        &self,
        bound: &Bound,
        admitted: &ExportAccess,
        user_context: &UserContext<'_>,
        (directory, access): (&Node, Access),
    ) -> Result<OpenGrant, OpenStatus> {
        let decided = self.decide_tree(bound, admitted, user_context, (directory, access));
        self.service.counters.trees.count(decided.is_err(), 0);
        decided
    }

    fn decide_tree(
        &self,
        bound: &Bound,
        admitted: &ExportAccess,
        user_context: &UserContext<'_>,
        (directory, access): (&Node, Access),
    ) -> Result<OpenGrant, OpenStatus> {
        let service = &self.service;
        self.check_tree(bound, admitted)?;
        let held = service.trees.hold(bound.lane, admitted.export());
        let store = admitted.store().map_err(failed)?;
        let cell =
            store.cell(user_context.is_read_only() || !access.writes()).map_err(|error| match error {
                store::Error::NotSupported => OpenStatus::TreeIncomplete,
                other => failed(other),
            })?;
        let tree = user_context.grant_tree(directory, &cell).map_err(failed)?;
        // Checked again, because the exports, the mounts and the opens may have changed meanwhile. A change
        // after this finds the cell and the record of the tree, and recalls the grant.
        self.check_tree(bound, admitted)?;
        if !store.has_cell(&cell)
            || !service.access.still_admits(admitted)
            || !service.state.permits_uncounted_opens()
        {
            return Err(OpenStatus::TryWire);
        }
        Ok(OpenGrant {
            file: tree.file,
            handle: tree.handle.as_bytes().to_vec(),
            attributes: GrantAttributes { file: tree.attributes, modes: user_context.modes() },
            lasts: tree.lasts,
            directory: None,
            held: Some(Box::new(held)),
        })
    }

    fn check_tree(&self, bound: &Bound, admitted: &ExportAccess) -> Result<(), OpenStatus> {
        let service = &self.service;
        if !service.trees.offered() {
            return Err(status(TreeRefusal::FilesOnly));
        }
        admitted.check_tree(bound).map_err(status)?;
        let table = service.access.table();
        let entry = table.get(admitted.export()).ok_or(OpenStatus::Stale)?;
        let mounts = mounts::read().map_err(|_| OpenStatus::TreeIncomplete)?;
        table.check_tree(entry, &mounts).map_err(status)
    }
}

const fn status(refusal: TreeRefusal) -> OpenStatus {
    match refusal {
        TreeRefusal::FilesOnly | TreeRefusal::NoLane | TreeRefusal::NoTree => OpenStatus::NoTree,
        TreeRefusal::Squashed | TreeRefusal::RootSquashed => OpenStatus::TreeSquashed,
        TreeRefusal::NotServed => OpenStatus::Stale,
        TreeRefusal::SubtreeCheck
        | TreeRefusal::Privilege
        | TreeRefusal::NestedExports
        | TreeRefusal::Mounts => OpenStatus::TreeIncomplete,
    }
}
