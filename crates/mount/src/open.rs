//! The open files and directories, by the number that the kernel was given for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use client::File;
use parking_lot::RwLock;

use crate::inodes::Node;
use crate::listing::Listing;
use crate::passthrough::Hold;
use crate::users::User;

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: Arc<Node>,
    pub(crate) file: File,
    /// What it counts as in the node's mode.
    pub(crate) hold: Hold,
    pub(crate) write: bool,
    /// It can be mapped to be written through the kernel's cache: what is in the mapping is written when the
    /// kernel thinks fit.
    pub(crate) mappable: bool,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) node: Arc<Node>,
    pub(crate) user: Arc<User>,
    pub(crate) listing: tokio::sync::Mutex<Listing>,
}

/// What is open, by number. The kernel bounds it: by what its processes may have open.
#[derive(Debug)]
pub(crate) struct Opened<T> {
    table: RwLock<HashMap<u64, Arc<T>>>,
    next: AtomicU64,
}

impl<T> Default for Opened<T> {
    fn default() -> Self {
        Self { table: RwLock::default(), next: AtomicU64::new(1) }
    }
}

impl<T> Opened<T> {
    /// A number for what is opened.
    pub(crate) fn insert(&self, opened: T) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        self.table.write().insert(number, Arc::new(opened));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.table.read().get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.table.write().remove(&number)
    }

    /// Everything that is open now.
    pub(crate) fn list(&self) -> Vec<Arc<T>> {
        self.table.read().values().cloned().collect()
    }

    /// The numbers of everything that is open now.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.table.read().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.read().len()
    }
}
