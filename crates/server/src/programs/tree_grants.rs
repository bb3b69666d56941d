//! Trees over the lane: directories with everything below, for clients that make the system calls themselves.
//!
//! An open through a tree counts nowhere in the server. So there are no trees while an NFSv4 open denies
//! access to others, nor in the grace period, when a client may reclaim such an open; and an open that denies
//! recalls the trees before it is answered. Delegations are recalled by their kernel leases, as for every
//! local process. All of this holds for mounts, too, which root of the host gets.

use lane::{Access, Bound, GrantAttributes, OpenGrant, OpenStatus};
use store::{Node, UserContext};

use super::lane_grants::{LaneGrantService, end_of, failed};
use crate::authorization::access::ExportAccess;
use crate::authorization::tree_rules::TreeRefusal;
use crate::export_table::mounts;
use crate::status::counters::{BegunCall, CountedOperation};

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    /// The directory in a cell.
    Tree,
    /// A detached clone of the mount that it is on.
    Mount,
}

impl LaneGrantService {
    /// Gives the client a directory with everything below.
    pub(super) fn open_tree(
        &self,
        bound: &Bound,
        admitted: &ExportAccess,
        user_context: &UserContext<'_>,
        (directory, access, whole): (&Node, Access, Whole),
    ) -> Result<OpenGrant, OpenStatus> {
        let begun = BegunCall::timed_in_turn();
        let decided = self.decide_tree(bound, admitted, user_context, (directory, access, whole));
        self.service.counters.record(begun, &end_of(CountedOperation::LaneTree, &decided));
        decided
    }

    fn decide_tree(
        &self,
        bound: &Bound,
        admitted: &ExportAccess,
        user_context: &UserContext<'_>,
        (directory, access, whole): (&Node, Access, Whole),
    ) -> Result<OpenGrant, OpenStatus> {
        let service = &self.service;
        self.check_tree(bound, admitted, whole)?;
        let held = service.trees.hold(bound.lane, admitted.export());
        let store = admitted.store().map_err(failed)?;
        let read_only = user_context.is_read_only() || !access.writes();
        let cell = match whole {
            Whole::Tree => Some(store.cell(read_only).map_err(incomplete)?),
            Whole::Mount => None,
        };
        let granted = match &cell {
            Some(cell) => user_context.grant_tree(directory, cell),
            None => user_context.grant_mount(directory, read_only),
        };
        let granted = granted.map_err(incomplete)?;
        // Checked again, because the exports, the mounts and the opens may have changed meanwhile. A change
        // after this finds the cell and the record of the tree, and recalls the grant.
        self.check_tree(bound, admitted, whole)?;
        if cell.is_some_and(|cell| !store.has_cell(&cell))
            || !service.access.still_admits(admitted)
            || !service.state.permits_uncounted_opens()
        {
            return Err(OpenStatus::TryWire);
        }
        Ok(OpenGrant {
            file: granted.file,
            handle: granted.handle.as_bytes().to_vec(),
            attributes: GrantAttributes { file: granted.attributes, modes: user_context.modes() },
            lasts: granted.lasts,
            directory: None,
            held: Some(Box::new(held)),
        })
    }

    fn check_tree(&self, bound: &Bound, admitted: &ExportAccess, whole: Whole) -> Result<(), OpenStatus> {
        let service = &self.service;
        if !service.trees.offered() {
            return Err(status(TreeRefusal::FilesOnly));
        }
        match whole {
            Whole::Tree => admitted.check_tree(bound),
            Whole::Mount => admitted.check_mount(bound),
        }
        .map_err(status)?;
        let table = service.access.table();
        let entry = table.get(admitted.export()).ok_or(OpenStatus::Stale)?;
        let mounts = mounts::read().map_err(|_| OpenStatus::TreeIncomplete)?;
        table.check_tree(entry, &mounts).map_err(status)
    }
}

/// As [`failed`], where the store can't do it.
const fn incomplete(error: store::Error) -> OpenStatus {
    match error {
        store::Error::NotSupported => OpenStatus::TreeIncomplete,
        other => failed(other),
    }
}

const fn status(refusal: TreeRefusal) -> OpenStatus {
    match refusal {
        TreeRefusal::FilesOnly | TreeRefusal::NoLane | TreeRefusal::NoTree | TreeRefusal::NoMount => {
            OpenStatus::NoTree
        }
        TreeRefusal::Squashed | TreeRefusal::RootSquashed => OpenStatus::TreeSquashed,
        TreeRefusal::NotServed => OpenStatus::Stale,
        TreeRefusal::SubtreeCheck
        | TreeRefusal::Privilege
        | TreeRefusal::NestedExports
        | TreeRefusal::Mounts => OpenStatus::TreeIncomplete,
    }
}
