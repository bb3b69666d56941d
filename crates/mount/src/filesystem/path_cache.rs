//! The path cache: every name that the kernel may know, its inode, and the directory's version for which that
//! holds.
//!
//! It tells which file loses its name when a name is removed or replaced; a file may have several, and an
//! OPEN doesn't say by which one it came. It also answers LOOKUPs without the server while there is no
//! foreign change of the directory (nfs(5), lookupcache).

use std::sync::Arc;
use std::time::Instant;

use ahash::HashMap;
use parking_lot::Mutex;

use crate::inode::Inode;

/// The most names of a directory that [`PathCache::names_in`] returns.
const MAX_LISTED: usize = 1024;

#[derive(Debug)]
struct CachedName {
    inode: Arc<Inode>,
    /// The directory's version for which this holds; `None`: the server must be asked.
    version: Option<u64>,
    /// Until when the kernel uses the name without a LOOKUP.
    kernel_until: Instant,
}

/// The names by directory. The kernel bounds them: what it forgets leaves the cache.
#[derive(Debug, Default)]
pub(crate) struct PathCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries(HashMap<u64, HashMap<Arc<[u8]>, CachedName>>);

impl Entries {
    fn get(&self, directory: u64, name: &[u8]) -> Option<&CachedName> {
        self.0.get(&directory)?.get(name)
    }

    /// Removes a name; with `of` only if it is that inode's.
    fn remove(&mut self, directory: u64, name: &[u8], of: Option<&Arc<Inode>>) -> Option<Arc<Inode>> {
        let names = self.0.get_mut(&directory)?;
        if of.is_some_and(|inode| !names.get(name).is_some_and(|named| Arc::ptr_eq(&named.inode, inode))) {
            return None;
        }
        let named = names.remove(name)?;
        if names.is_empty() {
            self.0.remove(&directory);
        }
        Some(named.inode)
    }
}

impl PathCache {
    /// Enters a name for a version of the directory. The kernel may use it until `kernel_until`.
    pub(super) fn insert(
        &self,
        inode: &Arc<Inode>,
        (directory, name): (u64, &[u8]),
        version: Option<u64>,
        kernel_until: Instant,
    ) {
        let mut table = self.0.lock();
        let names = table.0.entry(directory).or_default();
        let before = match names.get_mut(name) {
            Some(named) if Arc::ptr_eq(&named.inode, inode) => {
                (named.version, named.kernel_until) = (version, kernel_until);
                return;
            }
            Some(named) => {
                (named.version, named.kernel_until) = (version, kernel_until);
                Some(std::mem::replace(&mut named.inode, inode.clone()))
            }
            None => None,
        };
        let name = match &before {
            Some(before) => before.lock().names.remove(directory, name).unwrap_or_else(|| name.into()),
            None => Arc::from(name),
        };
        if before.is_none() {
            names.insert(name.clone(), CachedName { inode: inode.clone(), version, kernel_until });
        }
        let oldest = inode.lock().names.push(directory, name);
        if let Some((directory, name)) = oldest {
            table.remove(directory, &name, Some(inode));
        }
    }

    /// Removes all names of a file that the kernel has forgotten.
    pub(super) fn forget(&self, inode: &Arc<Inode>) {
        let mut table = self.0.lock();
        let names = inode.lock().names.take();
        for (directory, name) in names {
            table.remove(directory, &name, Some(inode));
        }
    }

    /// A file's handle is stale: LOOKUPs of its names must ask the server.
    pub(super) fn invalidate(&self, inode: &Arc<Inode>) {
        let mut table = self.0.lock();
        let names = inode.lock().names.list();
        for (directory, name) in names {
            if let Some(named) = table.0.get_mut(&directory).and_then(|names| names.get_mut(&name)) {
                named.version = None;
            }
        }
    }

    /// The file that the kernel was last told for this name.
    pub(super) fn get(&self, directory: u64, name: &[u8]) -> Option<Arc<Inode>> {
        self.0.lock().get(directory, name).map(|named| named.inode.clone())
    }

    /// The names that the kernel may know in a directory, and their files; none if there are very many.
    pub(super) fn names_in(&self, directory: u64) -> Vec<(Arc<[u8]>, Arc<Inode>)> {
        let table = self.0.lock();
        let names = table.0.get(&directory).filter(|names| names.len() <= MAX_LISTED);
        let names = names.into_iter().flatten();
        names.map(|(name, named)| (name.clone(), named.inode.clone())).collect()
    }

    /// The file of this name, if that holds for this version of the directory.
    pub(super) fn get_current(&self, directory: u64, name: &[u8], version: u64) -> Option<Arc<Inode>> {
        let table = self.0.lock();
        let named = table.get(directory, name).filter(|named| named.version == Some(version))?;
        Some(named.inode.clone())
    }

    /// The file of this name, if that holds for this version of the directory and the kernel needs no LOOKUP.
    pub(super) fn get_known_to_kernel(
        &self,
        (directory, name): (u64, &[u8]),
        version: u64,
        now: Instant,
    ) -> Option<Arc<Inode>> {
        let table = self.0.lock();
        let named = table.get(directory, name).filter(|named| named.version == Some(version))?;
        (named.kernel_until > now).then(|| named.inode.clone())
    }

    /// The kernel may use the name of this file until `kernel_until`.
    pub(super) fn extend(&self, inode: &Arc<Inode>, (directory, name): (u64, &[u8]), kernel_until: Instant) {
        let mut table = self.0.lock();
        let named = table.0.get_mut(&directory).and_then(|names| names.get_mut(name));
        if let Some(named) = named.filter(|named| Arc::ptr_eq(&named.inode, inode)) {
            named.kernel_until = kernel_until;
        }
    }

    /// Removes a name that the server has removed.
    pub(super) fn remove(&self, directory: u64, name: &[u8]) -> Option<Arc<Inode>> {
        let inode = self.0.lock().remove(directory, name, None)?;
        let mut state = inode.lock();
        state.names.remove(directory, name);
        // NFSv3's replies to REMOVE and RENAME carry the directories' attributes only.
        state.attributes.expire(Instant::now());
        drop(state);
        Some(inode)
    }

    /// Renames, for a version of the new directory.
    pub(super) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), version: Option<u64>) {
        self.remove(to.0, to.1);
        if let Some(inode) = self.remove(from.0, from.1) {
            self.insert(&inode, to, version, Instant::now());
        }
    }

    /// The names in a directory, which the kernel must look up from now on.
    pub(super) fn revoke_names_in(&self, directory: u64) -> Vec<Arc<[u8]>> {
        let now = Instant::now();
        let mut table = self.0.lock();
        let names = table.0.get_mut(&directory).into_iter().flatten();
        let revoked = names.map(|(name, named)| {
            named.kernel_until = now;
            name.clone()
        });
        revoked.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use client::Handle;

    use super::*;
    use crate::inode::{InodeNames, InodeTable, NameRef};

    fn inodes(count: u8) -> (InodeTable, Vec<Arc<Inode>>) {
        let table = InodeTable::default();
        table.insert_root(Handle::new(&[0; 8]).unwrap());
        let inodes = (1..=count).map(|byte| table.reference(&Handle::new(&[byte; 8]).unwrap())).collect();
        (table, inodes)
    }

    fn names(inode: &Inode) -> Vec<String> {
        let names: Vec<NameRef> = inode.lock().names.list();
        names.iter().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn a_name_is_current_for_one_version_until_its_file_is_stale() {
        let (_table, inodes) = inodes(1);
        let paths = PathCache::default();
        paths.insert(&inodes[0], (1, b"a"), Some(7), Instant::now());
        paths.insert(&inodes[0], (1, b"b"), None, Instant::now());
        assert!(paths.get_current(1, b"a", 7).is_some() && paths.get_current(1, b"a", 8).is_none());
        assert!(paths.get_current(1, b"b", 0).is_none() && paths.get(1, b"b").is_some());
        paths.insert(&inodes[0], (1, b"a"), Some(8), Instant::now());
        assert!(paths.get_current(1, b"a", 8).is_some());
        paths.invalidate(&inodes[0]);
        assert!(paths.get_current(1, b"a", 8).is_none() && paths.get(1, b"a").is_some());
        assert_eq!(names(&inodes[0]), ["a", "b"]);
    }

    #[test]
    fn the_kernel_knows_a_name_for_a_while() {
        let (_table, inodes) = inodes(1);
        let (paths, now) = (PathCache::default(), Instant::now());
        let minute = Duration::from_secs(60);
        let is_known = |at| paths.get_known_to_kernel((1, b"a"), 7, at).is_some();
        paths.insert(&inodes[0], (1, b"a"), Some(7), now);
        assert!(!is_known(now));
        paths.extend(&inodes[0], (1, b"a"), now + minute);
        assert!(is_known(now) && !is_known(now + minute));
        assert!(paths.get_known_to_kernel((1, b"a"), 8, now).is_none());
        assert_eq!(paths.revoke_names_in(1).len(), 1);
        assert!(!is_known(Instant::now()) && paths.get_current(1, b"a", 7).is_some());
    }

    #[test]
    fn a_name_has_one_file_and_is_forgotten_with_it() {
        let (_table, inodes) = inodes(2);
        let paths = PathCache::default();
        paths.insert(&inodes[0], (1, b"a"), None, Instant::now());
        paths.insert(&inodes[0], (2, b"link"), None, Instant::now());
        paths.insert(&inodes[1], (1, b"a"), None, Instant::now());
        assert_eq!((names(&inodes[0]), names(&inodes[1])), (vec!["link".to_owned()], vec!["a".to_owned()]));
        paths.rename((2, b"link"), (1, b"a"), Some(3));
        assert_eq!((names(&inodes[0]), names(&inodes[1])), (vec!["a".to_owned()], vec![]));
        assert!(paths.get_current(1, b"a", 3).is_some_and(|inode| Arc::ptr_eq(&inode, &inodes[0])));
        paths.forget(&inodes[1]);
        assert_eq!(paths.revoke_names_in(1).len(), 1);
        paths.forget(&inodes[0]);
        assert!(paths.revoke_names_in(1).is_empty() && paths.0.lock().0.is_empty());
    }

    #[test]
    fn a_files_names_are_bounded() {
        let (_table, inodes) = inodes(1);
        let paths = PathCache::default();
        for number in 0..200 {
            paths.insert(&inodes[0], (1, format!("{number}").as_bytes()), None, Instant::now());
        }
        assert_eq!(
            (names(&inodes[0]).len(), paths.revoke_names_in(1).len()),
            (InodeNames::MAX, InodeNames::MAX)
        );
        assert!(paths.get(1, b"199").is_some() && paths.get(1, b"0").is_none());
    }
}
