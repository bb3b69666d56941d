//! Operations on a store, each done as a user.
//!
//! Every operation that touches names or data first wears the user's ids (`identity`), so that the kernel
//! refuses what the user may not. Exceptions are few, and each says why: opening by handle needs the
//! process's own rights, and an owner may read and write his own file whatever its mode, for that is what a
//! local process with the file open could do.

mod access;
mod acls;
mod attributes;
mod cold;
mod create;
mod data;
mod directory;
mod durable;
mod filesystem;
mod grant;
mod locking;
mod lookup;
mod modes;
mod quota;
mod remove;
mod space;
mod types;
mod xattrs;

use std::rc::Rc;

use parking_lot::MutexGuard;
use rustix::io::Errno;

pub(crate) use cold::Askable;
pub use grant::{Grant, Holder, Made};
pub use locking::{InheritedLockFile, inherited_lock_file, lock, test_lock, unlock};
pub(crate) use lookup::{ONE_STEP, PATH_ONLY};
pub use quota::Room;
pub use space::{Extent, Seek};
pub use types::{
    AccessMode, CreateHow, DirEntry, DirPage, Found, FsInfo, FsStat, PathConf, Read, Special, Written,
};
pub use xattrs::SetXattr;

use crate::attributes::{Status, Wcc, status};
use crate::error::{Error, Result};
use crate::identity::{Identity, Who};
use crate::node::Node;
use crate::open::{Inner, Privilege, Scheme};

/// This thread acting as a user in one store. Not `Send`: the user's ids belong to the thread.
///
/// Making one costs no system call, using one none as long as the thread acts as the same user.
#[derive(Debug)]
pub struct Acting<'s> {
    store: &'s Inner,
    who: Rc<Who>,
    read_only: bool,
    /// Unstable data that gets lost is noticed.
    promises: bool,
    modes: ::io::IoModes,
}

impl<'s> Acting<'s> {
    pub(crate) fn new(store: &'s Inner, identity: &Identity, read_only: bool) -> Result<Acting<'s>> {
        let identity = if store.privilege == Privilege::Full { identity } else { &store.process };
        let acting = Acting {
            store,
            who: Who::of(identity),
            read_only,
            promises: true,
            modes: ::io::IoModes::default(),
        };
        acting.wear()?;
        Ok(acting)
    }

    /// From now on nobody minds if unstable data gets lost, and no descriptor is kept to notice it: what an
    /// `async` export promises (exports(5)).
    #[must_use]
    pub fn without_promises(self) -> Self {
        Acting { promises: false, ..self }
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

    /// Puts the user's ids on, should something else have been done on this thread since.
    fn wear(&self) -> Result<()> {
        if self.is_privileged() { self.who.wear() } else { Ok(()) }
    }

    pub(crate) fn inner(&self) -> &'s Inner {
        self.store
    }

    pub(crate) fn wear_now(&self) -> Result<()> {
        self.wear()
    }

    pub(crate) fn can_act(&self) -> bool {
        self.is_privileged()
    }

    fn is_privileged(&self) -> bool {
        self.store.privilege == Privilege::Full
    }

    /// The user is root, and so are the rights.
    fn is_root(&self) -> bool {
        self.is_privileged() && self.who.identity.uid == 0
    }

    fn fsid(&self) -> u64 {
        self.store.filesystem.fsid
    }

    /// The node's status; a node whose file is gone leaves the cache.
    fn live(&self, node: &Node) -> Result<Status> {
        node.live(self.fsid()).inspect_err(|error| {
            if *error == Error::Stale {
                self.store.nodes.remove(node.handle());
                if let Scheme::Located(places) = &self.store.scheme {
                    places.miss(node.id());
                }
            }
        })
    }

    /// Opens something; where there is no descriptor left for it, the caches give way, and it is tried again.
    fn with_room<T>(&self, open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                crate::tidy::make_room();
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
    fn changing<T>(
        &self,
        node: &Node,
        wcc: &mut Wcc,
        change: impl FnOnce(&Status) -> Result<T>,
    ) -> Result<T> {
        let _alone = self.lock(node);
        self.overlapping(node, wcc, change)
    }

    /// As [`Acting::changing`], but others may change the node meanwhile; if anybody did there are no
    /// attributes from before.
    fn overlapping<T>(
        &self,
        node: &Node,
        wcc: &mut Wcc,
        change: impl FnOnce(&Status) -> Result<T>,
    ) -> Result<T> {
        let turn = self.store.locks.enter(node.fileid());
        let before = self.live(node)?;
        wcc.before = Some(before.attributes);
        let result =
            if self.read_only { Err(Error::ReadOnly) } else { self.wear().and_then(|()| change(&before)) };
        wcc.after = status(node.file(), self.fsid()).ok().map(|after| after.attributes);
        if !turn.was_alone() {
            wcc.before = None;
        }
        result
    }

    /// A name that isn't there in a directory that isn't either is another matter.
    fn gone_or<T>(&self, dir: &Node, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::NotFound) => self.live(dir).and(Err(Error::NotFound)),
            other => other,
        }
    }
}
