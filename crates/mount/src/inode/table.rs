//! The inodes that the kernel knows, by node ID and by server handle.
//!
//! 1. A reply to LOOKUP, CREATE or the like, and every entry of a reply to READDIRPLUS, refers to an inode
//!    and counts one reference. The table makes the inode, or takes the one that has the handle.
//! 2. FORGET returns references. At zero the inode leaves the table; an open file may keep it alive.
//!
//! Node IDs are never reused, so a late request can't reach another file. The kernel bounds the table: it
//! forgets inodes as its own caches shrink.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ahash::{HashMap, HashSet};
use client::Handle;
use parking_lot::Mutex;

use super::Inode;
use crate::fuse::abi;

/// An inode, as an element of a set by handle. The table needs no copy of the handle then.
#[derive(Debug)]
struct ByHandle(Arc<Inode>);

impl Borrow<Handle> for ByHandle {
    fn borrow(&self) -> &Handle {
        &self.0.handle
    }
}

impl PartialEq for ByHandle {
    fn eq(&self, other: &Self) -> bool {
        self.0.handle == other.0.handle
    }
}

impl Eq for ByHandle {}

impl Hash for ByHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.handle.hash(state);
    }
}

#[derive(Debug, Default)]
struct Tables {
    by_number: HashMap<u64, Arc<Inode>>,
    by_handle: HashSet<ByHandle>,
    next: u64,
}

impl Tables {
    fn find(&self, handle: &Handle) -> Option<&Arc<Inode>> {
        self.by_handle.get(handle).map(|ByHandle(inode)| inode)
    }

    /// Whether it is this inode that its handle leads to.
    fn is_found(&self, inode: &Inode) -> bool {
        self.find(&inode.handle).is_some_and(|found| found.number == inode.number)
    }
}

/// The inodes that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct InodeTable(Mutex<Tables>);

impl InodeTable {
    /// Enters the root, before any other inode.
    pub(crate) fn insert_root(&self, root: Handle) -> Arc<Inode> {
        let inode = Inode::new(abi::ROOT, root);
        let mut table = self.0.lock();
        table.by_number.insert(abi::ROOT, inode.clone());
        table.by_handle.insert(ByHandle(inode.clone()));
        table.next = abi::ROOT + 1;
        inode
    }

    /// The inode with this node ID.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Inode>> {
        self.0.lock().by_number.get(&number).cloned()
    }

    /// The inode of a handle, if the kernel knows it.
    pub(crate) fn find(&self, handle: &Handle) -> Option<Arc<Inode>> {
        self.0.lock().find(handle).cloned()
    }

    /// The inode of a handle, made if need be, with one more reference for the reply that will carry it.
    pub(crate) fn reference(&self, handle: &Handle) -> Arc<Inode> {
        let mut table = self.0.lock();
        let inode = if let Some(known) = table.find(handle) {
            known.handle.seal(handle);
            known.clone()
        } else {
            let inode = Inode::new(table.next, handle.clone());
            table.next += 1;
            table.by_number.insert(inode.number, inode.clone());
            table.by_handle.insert(ByHandle(inode.clone()));
            inode
        };
        inode.state.lock().lookups += 1;
        inode
    }

    /// Counts one more reference to an inode. Returns false if another inode has its handle by now.
    pub(crate) fn reference_again(&self, inode: &Inode) -> bool {
        let table = self.0.lock();
        let is_current = table.is_found(inode);
        if is_current {
            inode.state.lock().lookups += 1;
        }
        is_current
    }

    /// The kernel returns `count` references. Returns the inode if those were the last ones.
    pub(crate) fn forget(&self, number: u64, count: u64) -> Option<Arc<Inode>> {
        if number == abi::ROOT {
            return None;
        }
        let mut table = self.0.lock();
        let inode = table.by_number.get(&number).cloned()?;
        let mut state = inode.state.lock();
        state.lookups = state.lookups.saturating_sub(count);
        if state.lookups > 0 {
            return None;
        }
        drop(state);
        table.by_number.remove(&number);
        if table.is_found(&inode) {
            table.by_handle.remove(&inode.handle);
        }
        Some(inode)
    }

    /// Takes the handle from an inode: the next LOOKUP makes another inode of the same file.
    pub(crate) fn replace(&self, inode: &Arc<Inode>) {
        let mut table = self.0.lock();
        if inode.number != abi::ROOT && table.is_found(inode) {
            table.by_handle.remove(&inode.handle);
        }
    }

    /// All inodes that the kernel knows.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.0.lock().by_number.values().cloned().collect()
    }

    /// The number of inodes that the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().by_number.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(byte: u8) -> Handle {
        Handle::new(&[byte; 8]).unwrap()
    }

    #[test]
    fn an_inode_stays_until_its_last_reference_is_returned() {
        let inodes = InodeTable::default();
        inodes.insert_root(handle(0));
        let first = inodes.reference(&handle(1));
        assert_eq!(inodes.reference(&handle(1)).number, first.number);
        inodes.forget(first.number, 1);
        assert!(inodes.get(first.number).is_some());
        inodes.forget(first.number, 1);
        assert!(inodes.get(first.number).is_none() && inodes.find(&handle(1)).is_none());
        assert_ne!(inodes.reference(&handle(1)).number, first.number, "node IDs aren't reused");
        inodes.forget(abi::ROOT, 99);
        assert!(inodes.get(abi::ROOT).is_some());
    }

    #[test]
    fn a_replaced_inode_keeps_its_node_id_and_loses_its_handle() {
        let inodes = InodeTable::default();
        inodes.insert_root(handle(0));
        let old = inodes.reference(&handle(1));
        inodes.replace(&old);
        let new = inodes.reference(&handle(1));
        assert_ne!(old.number, new.number);
        inodes.forget(old.number, 1);
        assert_eq!(inodes.find(&handle(1)).unwrap().number, new.number);
        assert!(inodes.get(old.number).is_none());
    }
}
