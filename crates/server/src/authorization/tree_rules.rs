//! Whether clients of this host may be given an export's directory itself, with everything below (a tree).
//!
//! A tree's holder makes system calls as itself, below the export's root. So a tree must show what NFS
//! clients of the export see, and its holder, and every process that it can pass the descriptor to, must be
//! allowed to act as itself there:
//!
//! - No other export and no mount lies in it, and the export doesn't have `subtree_check`.
//! - The export doesn't squash the process. Where it squashes root, the process must be in the server's own
//!   mount namespace: root of that namespace reaches the directory anyway. Root of a container without a user
//!   namespace doesn't, and could take the descriptor from any process of the container.
//!
//! A mount is given to root of the host only, because its holder can clear its flags, `ro` among them: to
//! uid 0 in the server's mount namespace and in the initial user namespace, not squashed, if the export says
//! so.

use exports::{ExportOptions, Squash};
use lane::{Bound, SharedNamespaces};
use store::{Holder, Mounts};

use crate::authorization::access::ExportAccess;
use crate::export_table::{ExportEntry, ExportTable};

/// Why a client gets no tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreeRefusal {
    /// The server offers files only.
    #[error("the server gives files only (--lane files)")]
    FilesOnly,
    /// The export's option.
    #[error("no_lane")]
    NoLane,
    /// The export's option.
    #[error("no_tree")]
    NoTree,
    /// The export squashes this user.
    #[error("users are squashed")]
    Squashed,
    /// The export doesn't give mounts, or not to this process.
    #[error("no mount_grant, or the client isn't root of this host")]
    NoMount,
    /// The export squashes root, and root of the client's container isn't root of the host.
    #[error(
        "root is squashed, and the client is in another mount namespace, or the kernel is older than 6.5"
    )]
    RootSquashed,
    /// The export isn't served.
    #[error("the export is not served")]
    NotServed,
    /// The export's option.
    #[error("subtree_check")]
    SubtreeCheck,
    /// The server can't act as other users, clone mounts, or open files by handle.
    #[error("the server lacks the privilege, or the filesystem has no handles")]
    Privilege,
    /// Other exports lie in it.
    #[error("other exports lie in it")]
    NestedExports,
    /// Something is mounted in it.
    #[error("something is mounted in it")]
    Mounts,
}

impl TreeRefusal {
    /// Why no process of clients with these options gets a tree.
    pub(crate) const fn of_options(options: &ExportOptions) -> Option<Self> {
        match (options.lane, options.tree, options.squash) {
            (false, ..) => Some(Self::NoLane),
            (true, false, _) => Some(Self::NoTree),
            (true, true, Squash::All) => Some(Self::Squashed),
            (true, true, Squash::Root | Squash::None) => None,
        }
    }

    /// Why a process gets no tree that has these rights and shares these namespaces with the server.
    const fn of_holder(holder: Holder, namespaces: SharedNamespaces) -> Option<Self> {
        match holder {
            Holder::Equal => None,
            Holder::Backed if namespaces.mount => None,
            Holder::Backed => Some(Self::RootSquashed),
            Holder::Stronger => Some(Self::Squashed),
        }
    }
}

impl ExportTable {
    /// Checks whether an export can be given as a tree at all.
    pub(crate) fn check_tree(&self, entry: &ExportEntry, mounts: &Mounts) -> Result<(), TreeRefusal> {
        let store = entry.open_store().ok_or(TreeRefusal::NotServed)?;
        let obstacles = [
            (entry.export.subtree_check(), TreeRefusal::SubtreeCheck),
            (!store.can_have_cells(), TreeRefusal::Privilege),
            (!self.inner_of(entry.id).is_empty(), TreeRefusal::NestedExports),
            (store.has_mounts_below(mounts), TreeRefusal::Mounts),
        ];
        obstacles.into_iter().find(|(there, _)| *there).map_or(Ok(()), |(_, refusal)| Err(refusal))
    }
}

impl ExportAccess {
    /// Checks whether the process of a lane may be given this export's directories.
    pub(crate) fn check_tree(&self, bound: &Bound) -> Result<(), TreeRefusal> {
        if let Some(refusal) = TreeRefusal::of_options(self.options()) {
            return Err(refusal);
        }
        let holder = self.holder(&bound.process).map_err(|_| TreeRefusal::NotServed)?;
        TreeRefusal::of_holder(holder, bound.namespaces).map_or(Ok(()), Err)
    }

    /// Checks whether the process of a lane may be given the mount of this export's directories.
    pub(crate) fn check_mount(&self, bound: &Bound) -> Result<(), TreeRefusal> {
        self.check_tree(bound)?;
        let of_host = bound.namespaces.mount && bound.namespaces.user && bound.process.uid == Some(0);
        if self.options().mount_grant && of_host { Ok(()) } else { Err(TreeRefusal::NoMount) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_root_is_squashed_the_client_must_be_in_the_servers_mount_namespace() {
        let refusal = |holder, mount| {
            TreeRefusal::of_holder(holder, SharedNamespaces { mount, ..SharedNamespaces::default() })
        };
        for mount in [false, true] {
            assert_eq!(refusal(Holder::Equal, mount), None);
            assert_eq!(refusal(Holder::Stronger, mount), Some(TreeRefusal::Squashed));
        }
        assert_eq!(refusal(Holder::Backed, true), None);
        assert_eq!(refusal(Holder::Backed, false), Some(TreeRefusal::RootSquashed));
    }
}
