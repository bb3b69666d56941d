//! [`UserContext`]: a thread that acts as a user in a store, and what all operations share.

use std::rc::Rc;

use parking_lot::MutexGuard;
use rustix::io::Errno;

use crate::attributes::{FileStatus, Wcc, status};
use crate::error::{Error, Result};
use crate::identity::{Identity, Privilege, UserIds, as_process_user};
use crate::inner::{HandleScheme, StoreInner};
use crate::node::Node;

/// This thread acting as a user in one store. Not `Send`: the user's ids belong to the thread.
///
/// Making one costs no system call, using one none as long as the thread acts as the same user.
#[derive(Debug)]
pub struct UserContext<'s> {
    pub(super) store: &'s StoreInner,
    pub(super) who: Rc<UserIds>,
    pub(super) read_only: bool,
    /// Unstable data that gets lost is noticed.
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
        let acting = UserContext {
            store,
            who: UserIds::of(identity),
            read_only,
            promises: true,
            modes: ::io::IoModes::default(),
        };
        acting.assume_ids()?;
        Ok(acting)
    }

    /// From now on nobody minds if unstable data gets lost, and no descriptor is kept to notice it: what an
    /// `async` export promises (exports(5)).
    #[must_use]
    pub fn with_async_writes(self) -> Self {
        UserContext { promises: false, ..self }
    }

    /// The user that operations are done as: not the one asked for when the store is unprivileged.
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
        if self.is_privileged() { self.who.assume_ids() } else { Ok(()) }
    }

    pub(super) fn is_privileged(&self) -> bool {
        self.store.privilege == Privilege::Full
    }

    /// Runs `work` with the process's capabilities if the context acts as another user, else as the process
    /// anyway.
    pub(super) fn as_process<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.is_privileged() { as_process_user(work) } else { work() }
    }

    /// The user is root, and so are the rights.
    pub(super) fn is_root(&self) -> bool {
        self.is_privileged() && self.who.identity.uid == 0
    }

    pub(super) fn fsid(&self) -> u64 {
        self.store.tree.filesystem.fsid
    }

    /// The node's status; a node whose file is gone leaves the cache.
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

    /// Opens something; where there is no descriptor left for it, the caches give way, and it is tried again.
    pub(super) fn with_room<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                crate::reaper::make_room();
                open()
            }
            other => other,
        }
    }

    fn lock(&self, node: &Node) -> MutexGuard<'s, ()> {
        self.store.locks.one(node.fileid())
    }

    /// Runs a change of `node` with the attributes taken before and after, and nobody else's change of its
    /// names or attributes through this store between.
    pub(super) fn changing<T>(
        &self,
        node: &Node,
        wcc: &mut Wcc,
        change: impl FnOnce(&FileStatus) -> Result<T>,
    ) -> Result<T> {
        let _alone = self.lock(node);
        self.overlapping(node, wcc, change)
    }

    /// As [`UserContext::changing`], but others may change the node meanwhile; if anybody did there are no
    /// attributes from before.
    pub(super) fn overlapping<T>(
        &self,
        node: &Node,
        wcc: &mut Wcc,
        change: impl FnOnce(&FileStatus) -> Result<T>,
    ) -> Result<T> {
        let turn = self.store.locks.enter(node.fileid());
        let before = self.live(node)?;
        wcc.before = Some(before.attributes);
        let result = if self.read_only {
            Err(Error::ReadOnly)
        } else {
            self.assume_ids().and_then(|()| change(&before))
        };
        wcc.after = status(node.file(), self.fsid()).ok().map(|after| after.attributes);
        if !turn.was_alone() {
            wcc.before = None;
        }
        result
    }

    /// A name that isn't there in a directory that isn't either is another matter.
    pub(super) fn gone_or<T>(&self, dir: &Node, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::NotFound) => self.live(dir).and(Err(Error::NotFound)),
            other => other,
        }
    }
}
