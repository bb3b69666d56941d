//! Where files are: every name that the kernel was told of and may still know, and as of which version of its
//! directory.
//!
//! It answers two questions. Which file loses its name when a name is removed or replaced (a file may have
//! several, and is opened by any of them without our being told by which)? And is a name still what it was:
//! if nobody else has changed the directory since, nobody need be asked (nfs(5), lookupcache).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::inodes::{Node, Place};

/// Names of one file that are remembered.
const NAMES: usize = 64;

#[derive(Debug)]
struct Named {
    node: Arc<Node>,
    /// The directory's version of which this is true; `None`: it is to be asked for.
    version: Option<u64>,
}

/// The names, by directory. The kernel bounds them: what it forgets goes.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Table>);

#[derive(Debug, Default)]
struct Table(HashMap<u64, HashMap<Arc<[u8]>, Named>>);

impl Table {
    fn get(&self, directory: u64, name: &[u8]) -> Option<&Named> {
        self.0.get(&directory)?.get(name)
    }

    /// Takes a name out, if it is this file's or if it doesn't matter whose it is.
    fn remove(&mut self, directory: u64, name: &[u8], of: Option<&Arc<Node>>) -> Option<Arc<Node>> {
        let names = self.0.get_mut(&directory)?;
        if of.is_some_and(|node| !names.get(name).is_some_and(|named| Arc::ptr_eq(&named.node, node))) {
            return None;
        }
        let named = names.remove(name)?;
        if names.is_empty() {
            self.0.remove(&directory);
        }
        Some(named.node)
    }
}

impl Places {
    /// The kernel is being told that a name is this file's, as of a version of the directory.
    pub(super) fn told(&self, node: &Arc<Node>, directory: u64, name: &[u8], version: Option<u64>) {
        let mut table = self.0.lock();
        let names = table.0.entry(directory).or_default();
        let before = match names.get_mut(name) {
            Some(named) if Arc::ptr_eq(&named.node, node) => {
                named.version = version;
                return;
            }
            Some(named) => {
                named.version = version;
                Some(std::mem::replace(&mut named.node, node.clone()))
            }
            None => None,
        };
        let name = match &before {
            Some(before) => take_place(before, directory, name).unwrap_or_else(|| name.into()),
            None => Arc::from(name),
        };
        if before.is_none() {
            names.insert(name.clone(), Named { node: node.clone(), version });
        }
        let mut state = node.state.lock();
        let oldest = (state.places.len() >= NAMES).then(|| state.places.remove(0));
        state.places.push((directory, name));
        drop(state);
        if let Some((directory, name)) = oldest {
            table.remove(directory, &name, Some(node));
        }
    }

    /// The kernel has forgotten a file.
    pub(super) fn forgotten(&self, node: &Arc<Node>) {
        let mut table = self.0.lock();
        let places = std::mem::take(&mut node.state.lock().places);
        for (directory, name) in places {
            table.remove(directory, &name, Some(node));
        }
    }

    /// A file isn't what its names lead to any more, or so it seems.
    pub(super) fn doubt(&self, node: &Arc<Node>) {
        let mut table = self.0.lock();
        let places = node.state.lock().places.clone();
        for (directory, name) in places {
            if let Some(named) = table.0.get_mut(&directory).and_then(|names| names.get_mut(&name)) {
                named.version = None;
            }
        }
    }

    /// The file of this name, as far as it was told.
    pub(super) fn at(&self, directory: u64, name: &[u8]) -> Option<Arc<Node>> {
        self.0.lock().get(directory, name).map(|named| named.node.clone())
    }

    /// The file of this name, if that is true of this version of the directory.
    pub(super) fn known(&self, directory: u64, name: &[u8], version: u64) -> Option<Arc<Node>> {
        let table = self.0.lock();
        let named = table.get(directory, name).filter(|named| named.version == Some(version))?;
        Some(named.node.clone())
    }

    /// A name is gone.
    pub(super) fn removed(&self, directory: u64, name: &[u8]) -> Option<Arc<Node>> {
        let node = self.0.lock().remove(directory, name, None)?;
        take_place(&node, directory, name);
        // NFSv3's replies to REMOVE and RENAME tell of the directories only.
        node.state.lock().cache.distrust();
        Some(node)
    }

    /// A name is another one now, as of a version of the directory that it is in now.
    pub(super) fn moved(&self, from: (u64, &[u8]), to: (u64, &[u8]), version: Option<u64>) {
        self.removed(to.0, to.1);
        if let Some(node) = self.removed(from.0, from.1) {
            self.told(&node, to.0, to.1, version);
        }
    }

    /// The names in a directory.
    pub(super) fn names_in(&self, directory: u64) -> Vec<Arc<[u8]>> {
        let table = self.0.lock();
        table.0.get(&directory).map_or_else(Vec::new, |names| names.keys().cloned().collect())
    }
}

/// Takes a name from a file.
fn take_place(node: &Node, directory: u64, name: &[u8]) -> Option<Arc<[u8]>> {
    let is_it = |place: &Place| place.0 == directory && &*place.1 == name;
    let mut state = node.state.lock();
    let at = state.places.iter().position(is_it)?;
    Some(state.places.remove(at).1)
}

#[cfg(test)]
mod tests {
    use client::Handle;

    use super::*;
    use crate::inodes::Inodes;

    fn nodes(count: u8) -> (Inodes, Vec<Arc<Node>>) {
        let inodes = Inodes::default();
        inodes.plant(Handle::new(&[0; 8]).unwrap());
        let nodes = (1..=count).map(|byte| inodes.remember(&Handle::new(&[byte; 8]).unwrap(), 1)).collect();
        (inodes, nodes)
    }

    fn names(node: &Node) -> Vec<String> {
        let state = node.state.lock();
        state.places.iter().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn a_name_is_known_as_of_one_version_and_until_its_file_is_doubted() {
        let (_inodes, nodes) = nodes(1);
        let places = Places::default();
        places.told(&nodes[0], 1, b"a", Some(7));
        places.told(&nodes[0], 1, b"b", None);
        assert!(places.known(1, b"a", 7).is_some() && places.known(1, b"a", 8).is_none());
        assert!(places.known(1, b"b", 0).is_none() && places.at(1, b"b").is_some());
        places.told(&nodes[0], 1, b"a", Some(8));
        assert!(places.known(1, b"a", 8).is_some());
        places.doubt(&nodes[0]);
        assert!(places.known(1, b"a", 8).is_none() && places.at(1, b"a").is_some());
        assert_eq!(names(&nodes[0]), ["a", "b"]);
    }

    #[test]
    fn a_name_is_one_files_and_goes_with_it() {
        let (_inodes, nodes) = nodes(2);
        let places = Places::default();
        places.told(&nodes[0], 1, b"a", None);
        places.told(&nodes[0], 2, b"link", None);
        places.told(&nodes[1], 1, b"a", None);
        assert_eq!((names(&nodes[0]), names(&nodes[1])), (vec!["link".to_owned()], vec!["a".to_owned()]));
        places.moved((2, b"link"), (1, b"a"), Some(3));
        assert_eq!((names(&nodes[0]), names(&nodes[1])), (vec!["a".to_owned()], vec![]));
        assert!(places.known(1, b"a", 3).is_some_and(|node| Arc::ptr_eq(&node, &nodes[0])));
        places.forgotten(&nodes[1]);
        assert_eq!(places.names_in(1).len(), 1);
        places.forgotten(&nodes[0]);
        assert!(places.names_in(1).is_empty() && places.0.lock().0.is_empty());
    }

    #[test]
    fn a_file_has_so_many_names_and_no_more() {
        let (_inodes, nodes) = nodes(1);
        let places = Places::default();
        for number in 0..200 {
            places.told(&nodes[0], 1, format!("{number}").as_bytes(), None);
        }
        assert_eq!((names(&nodes[0]).len(), places.names_in(1).len()), (NAMES, NAMES));
        assert!(places.at(1, b"199").is_some() && places.at(1, b"0").is_none());
    }
}
