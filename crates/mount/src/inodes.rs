//! The files that the kernel knows of: a node's number stands for a server's handle as long as the kernel may
//! use it.
//!
//! 1. A LOOKUP, CREATE or the like, or a READDIRPLUS, answers with a node: made, or the one that stands for
//!    the handle already. Every such answer counts.
//! 2. FORGET takes counts back. At zero the node is gone; an open file of it may hold on to what it needs.
//!
//! Numbers are never used twice, so a late request can't meet another file. The kernel bounds the table: it
//! forgets as its own caches shrink.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use client::{Access, AttributeUpdate, Attributes, FileKind, Handle};
use parking_lot::Mutex;

use crate::attributes::{Cache, Lesson};
use crate::backing::Backing;
use crate::filesystem::{Pages, Searching};
use crate::fuse::abi;
use crate::passthrough::Mode;
use crate::settings::AttributeTimes;
use crate::users::User;

/// Users whose rights to one file are remembered.
const RIGHTS: usize = 16;

/// A directory's node and a name in it.
pub(crate) type Place = (u64, Arc<[u8]>);

/// A file that the kernel knows of.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) handle: Handle,
    pub(crate) state: Mutex<State>,
    /// Whether the kernel may have cached data of it.
    pub(crate) pages: Pages,
    /// The kernel was told a mode with set-id bits: whoever writes to the file has it forget that.
    pub(crate) told_set_id: AtomicBool,
    /// It was read here since its attributes were asked for: the time of access may be another one.
    pub(crate) read_since: AtomicBool,
}

/// What changes about a node.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Answers that the kernel hasn't taken back.
    lookups: u64,
    pub(crate) cache: Cache,
    /// Its names, as far as the kernel was told of them.
    pub(crate) places: Vec<Place>,
    pub(crate) mode: Mode<Arc<Backing>>,
    /// Opens that live.
    pub(crate) opens: u32,
    /// Those of them through which the kernel may write by itself: passed through, for writing.
    pub(crate) kernel_writers: u32,
    /// Those of them that [`crate::open::OpenFile::mappable`] is true of.
    pub(crate) mappable: u32,
    /// The last open that was granted, by its number; it may be closed by now.
    pub(crate) granted: Option<u64>,
    /// Its name was removed while it was open; what it is called until the last release.
    pub(crate) hidden: Option<Hidden>,
    rights: Vec<Rights>,
    /// Of a directory: what is known of its access control list.
    pub(crate) searching: Searching,
    /// Of a directory: the kernel may walk over names in it without asking who walks.
    pub(crate) names_told: bool,
}

/// A file that was removed, or replaced by another, while it was open.
#[derive(Debug, Clone)]
pub(crate) struct Hidden {
    pub(crate) directory: Handle,
    pub(crate) name: Vec<u8>,
    /// Who removed it.
    pub(crate) user: Arc<User>,
}

#[derive(Debug)]
struct Rights {
    user: Arc<User>,
    asked: Access,
    granted: Access,
    until: Instant,
}

impl State {
    /// Whether the file has set-id bits, as far as is known.
    pub(crate) fn has_set_id(&self) -> bool {
        self.cache
            .attributes()
            .is_some_and(|attributes| attributes.kind == FileKind::Regular && attributes.mode & 0o6000 != 0)
    }

    /// The rights of `user` among `wanted`, if they are remembered.
    pub(crate) fn rights(&self, user: &Arc<User>, wanted: Access, now: Instant) -> Option<Access> {
        let known = self.rights.iter().find(|rights| Arc::ptr_eq(&rights.user, user))?;
        (known.until > now && known.asked.contains(wanted)).then_some(Access(known.granted.0 & wanted.0))
    }

    /// The server has said which of `asked` the user has.
    pub(crate) fn learn_rights(&mut self, user: &Arc<User>, asked: Access, granted: Access, until: Instant) {
        self.rights.retain(|rights| !Arc::ptr_eq(&rights.user, user));
        if self.rights.len() >= RIGHTS {
            self.rights.remove(0);
        }
        self.rights.push(Rights { user: user.clone(), asked, granted, until });
    }
}

impl Node {
    fn new(number: u64, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            number,
            handle,
            state: Mutex::default(),
            pages: Pages::default(),
            told_set_id: AtomicBool::new(false),
            read_since: AtomicBool::new(false),
        })
    }

    /// The attributes as last heard of.
    pub(crate) fn attributes(&self) -> Option<Attributes> {
        self.state.lock().cache.attributes().copied()
    }

    /// A reply told of the file, received `now`.
    pub(crate) fn learn(&self, seen: &AttributeUpdate, now: Instant, times: &AttributeTimes) -> Lesson {
        let mut state = self.state.lock();
        let owner = |attributes: &Attributes| (attributes.mode, attributes.uid, attributes.gid);
        let before = state.cache.attributes().map(owner);
        let lesson = state.cache.learn(seen, now, times);
        if lesson == Lesson::Foreign || state.cache.attributes().map(owner) != before {
            // Who may do what is another question now: the owner, the mode, or an access control list, which
            // shows in the ctime only.
            state.rights.clear();
        }
        lesson
    }

    /// Of a directory: which version its names are of. Another one than before: somebody else has changed it.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().cache.version()
    }

    /// What kind of file it is, if that is known.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        self.attributes().map(|attributes| attributes.kind)
    }
}

#[derive(Debug, Default)]
struct Table {
    nodes: HashMap<u64, Arc<Node>>,
    by_handle: HashMap<Handle, Arc<Node>>,
    next: u64,
}

/// The table of nodes.
#[derive(Debug, Default)]
pub(crate) struct Inodes(Mutex<Table>);

impl Inodes {
    /// The root comes before all others.
    pub(crate) fn plant(&self, root: Handle) -> Arc<Node> {
        let node = Node::new(abi::ROOT, root);
        let mut table = self.0.lock();
        table.nodes.insert(abi::ROOT, node.clone());
        table.by_handle.insert(root, node.clone());
        table.next = abi::ROOT + 1;
        node
    }

    /// The node of this number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Node>> {
        self.0.lock().nodes.get(&number).cloned()
    }

    /// The node that stands for a handle, if the kernel knows of it.
    pub(crate) fn find(&self, handle: &Handle) -> Option<Arc<Node>> {
        self.0.lock().by_handle.get(handle).cloned()
    }

    /// The node for a handle that the kernel is about to be told of; `count` answers will have told it.
    pub(crate) fn remember(&self, handle: &Handle, count: u64) -> Arc<Node> {
        let mut table = self.0.lock();
        let Table { nodes, by_handle, next } = &mut *table;
        let node = by_handle.entry(*handle).or_insert_with(|| {
            let node = Node::new(*next, *handle);
            *next += 1;
            nodes.insert(node.number, node.clone());
            node
        });
        node.state.lock().lookups += count;
        node.clone()
    }

    /// The kernel is about to be told of a node once more; false if it isn't the one that stands for its file
    /// any more.
    pub(crate) fn tell_again(&self, node: &Node) -> bool {
        let table = self.0.lock();
        let stands = table.by_handle.get(&node.handle).is_some_and(|other| other.number == node.number);
        if stands {
            node.state.lock().lookups += 1;
        }
        stands
    }

    /// The kernel takes back `count` of the answers. Returns the node if those were the last: it is gone.
    pub(crate) fn forget(&self, number: u64, count: u64) -> Option<Arc<Node>> {
        if number == abi::ROOT {
            return None;
        }
        let mut table = self.0.lock();
        let node = table.nodes.get(&number).cloned()?;
        let mut state = node.state.lock();
        state.lookups = state.lookups.saturating_sub(count);
        if state.lookups > 0 {
            return None;
        }
        drop(state);
        table.nodes.remove(&number);
        if table.by_handle.get(&node.handle).is_some_and(|other| other.number == number) {
            table.by_handle.remove(&node.handle);
        }
        Some(node)
    }

    /// From now on another node stands for the file of this one; the kernel gets to know it when it looks the
    /// name up.
    pub(crate) fn replace(&self, node: &Arc<Node>) {
        let mut table = self.0.lock();
        if node.number != abi::ROOT
            && table.by_handle.get(&node.handle).is_some_and(|other| other.number == node.number)
        {
            table.by_handle.remove(&node.handle);
        }
    }

    /// How many files the kernel knows of.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(byte: u8) -> Handle {
        Handle::new(&[byte; 8]).unwrap()
    }

    #[test]
    fn a_node_lives_as_long_as_the_kernel_remembers_it() {
        let inodes = Inodes::default();
        inodes.plant(handle(0));
        let first = inodes.remember(&handle(1), 1);
        assert_eq!(inodes.remember(&handle(1), 1).number, first.number);
        inodes.forget(first.number, 1);
        assert!(inodes.get(first.number).is_some());
        inodes.forget(first.number, 1);
        assert!(inodes.get(first.number).is_none() && inodes.find(&handle(1)).is_none());
        assert_ne!(inodes.remember(&handle(1), 1).number, first.number, "no number twice");
        inodes.forget(abi::ROOT, 99);
        assert!(inodes.get(abi::ROOT).is_some());
    }

    #[test]
    fn a_replaced_node_keeps_its_number_and_leaves_the_file_to_the_next() {
        let inodes = Inodes::default();
        inodes.plant(handle(0));
        let old = inodes.remember(&handle(1), 1);
        inodes.replace(&old);
        let new = inodes.remember(&handle(1), 1);
        assert_ne!(old.number, new.number);
        inodes.forget(old.number, 1);
        assert_eq!(inodes.find(&handle(1)).unwrap().number, new.number);
        assert!(inodes.get(old.number).is_none());
    }
}
