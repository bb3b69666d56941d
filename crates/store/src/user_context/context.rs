//! [`UserContext`]: the current thread acting as a user in a store, with the helpers that all operations
//! share.

use std::rc::Rc;

use parking_lot::MutexGuard;
use rustix::io::Errno;

use crate::attributes::{FileStatus, Wcc, status};
use crate::error::{Error, Result};
use crate::inner::{HandleScheme, StoreInner};
use crate::node::Node;
use user_ids::{Identity, Privilege, UserIds, as_process_user};

/// The current thread acting as a user in one store. Not `Send`: the user's ids belong to the thread.
///
/// Creating one costs no system call, and neither does using one while the thread acts for the same user.
#[derive(Debug)]
pub struct UserContext<'s> {
    pub(super) store: &'s StoreInner,
    pub(super) who: Rc<UserIds>,
    pub(super) read_only: bool,
    /// Lost writes of uncommitted data change the write verifier.
    pub(super) promises: bool,
    pub(super) modes: ::io::IoModes,
}

impl<'s> UserContext<'s> {
    pub(crate) fn new(
        store: &'s StoreInner,
        identity: &Identity,
        read_only: bool,
    ) -> Result<UserContext<'s>> {
        let identity = if store.privilege == Privilege::Full { identity } else { &store.process };
        let context = UserContext {
            store,
            who: UserIds::of(identity),
            read_only,
            promises: true,
            modes: ::io::IoModes::default(),
        };
        context.assume_ids()?;
        Ok(context)
    }

    /// Stops tracking uncommitted data: the guarantees of an `async` export (exports(5)), whose clients
    /// aren't told when it is lost.
    #[must_use]
    pub fn with_async_writes(self) -> Self {
        UserContext { promises: false, ..self }
    }

    /// The user that operations are done as. In an unprivileged store that is the process's user.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.who.identity
    }

    /// Whether changes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Makes the thread's filesystem ids the user's, unless they are already.
    pub(super) fn assume_ids(&self) -> Result<()> {
        if self.is_privileged() {
            self.who.assume_ids()?
        }
        Ok(())
    }

    pub(super) fn is_privileged(&self) -> bool {
        self.store.privilege == Privilege::Full
    }

    /// Runs `work` with the process's capabilities if the context acts as another user, else as the process
    /// anyway.
    pub(super) fn as_process<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_privileged() { as_process_user(work) } else { work() }
    }

    /// The user is root, with root's rights.
    pub(super) fn is_root(&self) -> bool {
        self.is_privileged() && self.who.identity.uid == 0
    }

    pub(super) fn fsid(&self) -> u64 {
        self.store.tree.filesystem.fsid
    }

    /// The node's status. A node whose file is gone is removed from the cache.
    pub(super) fn live(&self, node: &Node) -> Result<FileStatus> {
        node.live(self.fsid()).inspect_err(|error| {
            if *error == Error::Stale {
                self.store.nodes.remove(node.handle());
                if let HandleScheme::Located(paths) = &self.store.scheme {
                    paths.miss(node.id());
                }
            }
        })
    }

    /// Opens a file. If no descriptor is left, the caches release theirs and it is tried again.
    pub(super) fn with_room<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                crate::reaper::release_descriptors();
                open()
            }
            other => other,
        }
    }

    fn lock(&self, node: &Node) -> MutexGuard<'s, ()> {
        self.store.locks.one(node.fileid())
    }

    /// Runs a change of `node`, and takes the attributes before and after. No other change of its names or
    /// attributes through this store runs in between.
    pub(super) fn changing<T>(
        &self,
        node: &Node,
        wcc: &mut Wcc,
        change: impl FnOnce(&FileStatus) -> Result<T>,
    ) -> Result<T> {
        let _alone = self.lock(node);
        self.overlapping(node, wcc, change)
    }

    /// As [`UserContext::changing`], without excluding other changes. If another one overlapped, the
    /// attributes before are left out.
    pub(super) fn overlapping<T>(
        &self,
        node: &Node,
        wcc: &mut Wcc,
        change: impl FnOnce(&FileStatus) -> Result<T>,
    ) -> Result<T> {
        let turn = self.store.locks.enter(node.fileid());
        let before = self.live(node)?;
        wcc.before = Some(before.attributes);
        let result = self.change_from(&before, change);
        wcc.after = status(node.file(), self.fsid()).ok().map(|after| after.attributes);
        if !turn.was_alone() {
            wcc.before = None;
        }
        result
    }

    /// Runs a change of a node with this status as the user, if the user may change anything.
    pub(super) fn change_from<T>(
        &self,
        before: &FileStatus,
        change: impl FnOnce(&FileStatus) -> Result<T>,
    ) -> Result<T> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.assume_ids()?;
        change(before)
    }

    /// Turns `NotFound` into `Stale` if the directory itself is gone.
    pub(super) fn gone_or<T>(&self, dir: &Node, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::NotFound) => self.live(dir).and(Err(Error::NotFound)),
            other => other,
        }
    }
}
