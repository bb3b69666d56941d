//! The files with state: which peer is charged for the descriptor that keeps a file open, and the opens of
//! local processes (the lane's grants).
//!
//! Invariant: a file with an entry has an open, a delegation or a local open. The engine holds it, since
//! opens and delegations have tables of their own.

use std::hash::Hash;

use ahash::HashMap;
use fairness::Peer;

use crate::ids::ClientId;

/// All files with state.
#[derive(Debug)]
pub(crate) struct FileTable<K> {
    files: HashMap<K, FileEntry>,
}

/// The client and the peer that are charged for a file.
pub(crate) type Charged = (ClientId, Peer);

#[derive(Debug, Default)]
struct FileEntry {
    local: LocalOpens,
    /// The client that has had the file open for the longest time, as long as any has.
    charged: Option<Charged>,
}

/// The number of local opens for reading and for writing. They have no client and no lease: the kernel says
/// when the process is gone.
#[derive(Debug, Default)]
struct LocalOpens {
    readers: u32,
    writers: u32,
}

impl LocalOpens {
    const fn add(&mut self, access: u8) {
        self.readers += (access & 1) as u32;
        self.writers += (access >> 1 & 1) as u32;
    }

    const fn remove(&mut self, access: u8) {
        self.readers = self.readers.saturating_sub((access & 1) as u32);
        self.writers = self.writers.saturating_sub((access >> 1 & 1) as u32);
    }

    const fn access(&self) -> u8 {
        (self.readers > 0) as u8 | ((self.writers > 0) as u8) << 1
    }
}

impl<K> Default for FileTable<K> {
    fn default() -> Self {
        Self { files: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> FileTable<K> {
    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.files.contains_key(key)
    }

    /// The client and the peer that are charged for the file.
    pub fn charged(&self, key: &K) -> Option<Charged> {
        self.files.get(key)?.charged
    }

    /// Charges a file, which is entered if it isn't there.
    pub fn set_charged(&mut self, key: &K, charged: Charged) {
        self.files.entry(key.clone()).or_default().charged = Some(charged);
    }

    /// A local process has opened the file for `access`.
    pub fn add_local(&mut self, key: &K, access: u8) {
        self.files.entry(key.clone()).or_default().local.add(access);
    }

    /// A local process has closed the file.
    pub fn remove_local(&mut self, key: &K, access: u8) {
        if let Some(file) = self.files.get_mut(key) {
            file.local.remove(access);
        }
    }

    /// The access for which local processes have the file open: 1 to read, 2 to write.
    pub fn local_access(&self, key: &K) -> u8 {
        self.files.get(key).map_or(0, |file| file.local.access())
    }

    /// Removes a file; the client and the peer that were charged for it.
    pub fn remove(&mut self, key: &K) -> Option<Charged> {
        self.files.remove(key)?.charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_opens_are_counted_by_access() {
        let mut files = FileTable::default();
        for (access, all) in [(1, 1), (2, 3), (3, 3)] {
            files.add_local(&7, access);
            assert_eq!(files.local_access(&7), all);
        }
        for (access, left) in [(1, 3), (3, 2), (2, 0)] {
            files.remove_local(&7, access);
            assert_eq!(files.local_access(&7), left);
        }
        assert!(files.contains(&7) && files.charged(&7).is_none());
        files.set_charged(&7, (ClientId(1), Peer::Local(0)));
        assert_eq!(files.remove(&7), Some((ClientId(1), Peer::Local(0))));
        assert!(!files.contains(&7) && files.len() == 0);
    }
}
