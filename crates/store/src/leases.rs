//! Keeping local processes out of a file, or out of writing to it, by a kernel lease (fcntl(2),
//! `F_SETLEASE`): whoever opens the file against it waits, and is told of here.
//!
//! The kernel asks nobody who opens a file whether he is the lease's holder, so the store must not open it
//! either: what a lease against everybody is taken on is the one descriptor through which the file is read
//! and written from then on. The node and that descriptor stay for as long as the lease does. A lease against
//! writers is taken on a descriptor of its own; the store's next opening for writing meets it as anybody's
//! would (`Error::TryLater`).
//!
//! A lease is about opening only. What else a local process does to a leased file, removes or renames it,
//! links it, changes its mode or owner, is told afterwards (see `file_changes`).

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sys::lease::{LeaseBreak, LeaseBreaks, LeaseType, SignalTarget};

use crate::error::Result;
use crate::file_changes::{FileChanges, Watch};
use crate::handle::FileHandle;
use crate::node::Node;
use crate::pinned_nodes::PinnedNodes;

/// The nodes with a lease against everybody, by handle: they are found again whatever the cache does.
#[derive(Debug, Default)]
pub(crate) struct LeasedNodes {
    /// Bounded by who takes leases: each costs a descriptor.
    nodes: Mutex<HashMap<FileHandle, Arc<Node>>>,
    count: AtomicUsize,
}

impl LeasedNodes {
    /// The node, if it is leased.
    pub fn get(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { self.nodes.lock().get(handle).cloned() }
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<FileHandle, Arc<Node>>)) {
        let mut nodes = self.nodes.lock();
        change(&mut nodes);
        self.count.store(nodes.len(), Ordering::Release);
    }
}

/// A lease as the watching thread knows it.
#[derive(Debug)]
struct Watched {
    handle: FileHandle,
    file: Weak<OwnedFd>,
    how: LeaseType,
}

/// What the watching thread and the leases share. As many entries as there are leases.
#[derive(Debug)]
struct Shared {
    /// By the descriptor that the lease is on.
    watched: Mutex<HashMap<RawFd, Watched>>,
    changes: FileChanges,
}

/// Those who are told when a lease is being broken: one thread.
#[derive(Debug)]
pub struct Leases {
    watcher: SignalTarget,
    shared: Arc<Shared>,
    end: OwnedFd,
}

impl Leases {
    /// Starts the thread, which calls `broken` with the file, and whether somebody wants to write to it, or
    /// has changed its names or attributes: the lease should be dropped soon. It ends with what is returned.
    ///
    /// # Errors
    /// The system's.
    pub fn start(broken: impl Fn(&FileHandle, bool) + Send + 'static) -> std::io::Result<Self> {
        let (theirs, end) = sys::lease::stop_eventfds()?;
        let changes = FileChanges::new()?;
        let events = changes.events();
        let shared = Arc::new(Shared { watched: Mutex::default(), changes });
        let (seen, (sender, receiver)) = (Arc::clone(&shared), std::sync::mpsc::sync_channel(1));
        std::thread::Builder::new().name("store-leases".into()).spawn(move || {
            match LeaseBreaks::new(theirs, events) {
                Ok((breaks, watcher)) => {
                    let _ = sender.send(Ok(watcher));
                    watch(breaks, &seen, &broken);
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        })?;
        let watcher = receiver.recv().map_err(std::io::Error::other)??;
        Ok(Self { watcher, shared, end })
    }

    /// The server is going to change a leased file's names or attributes for the client that the lease is
    /// for: until what is returned is dropped, changes that this process makes aren't told. Those of others
    /// are. None for a file without a lease.
    #[must_use]
    pub fn own_change(&self, file: &FileHandle) -> Option<OwnChange> {
        OwnChange::begin(&self.shared, file)
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        // Fails only for a counter that is full: then the thread has been told.
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

fn watch(mut breaks: LeaseBreaks, shared: &Shared, broken: &impl Fn(&FileHandle, bool)) {
    while let Some(which) = breaks.wait() {
        let found: Vec<_> = match which {
            LeaseBreak::Of(descriptor) => {
                shared.watched.lock().get(&descriptor).and_then(in_danger).into_iter().collect()
            }
            LeaseBreak::Any => shared.watched.lock().values().filter_map(in_danger).collect(),
            LeaseBreak::Other => shared.changes.changed().into_iter().map(|handle| (handle, true)).collect(),
        };
        found.iter().for_each(|(handle, writer)| broken(handle, *writer));
    }
}

/// The file, and whether somebody wants to write to it, if the lease is being broken.
fn in_danger(watched: &Watched) -> Option<(FileHandle, bool)> {
    let left = sys::lease::after_break(watched.file.upgrade()?).ok()?;
    (left != Some(watched.how)).then_some((watched.handle, left.is_none()))
}

/// A change of a leased file's names or attributes that the server makes for the client that the lease is
/// for.
#[derive(Debug)]
pub struct OwnChange {
    shared: Arc<Shared>,
    watch: Watch,
}

impl OwnChange {
    fn begin(shared: &Arc<Shared>, file: &FileHandle) -> Option<Self> {
        let watch = shared.changes.announce(file)?;
        Some(Self { shared: Arc::clone(shared), watch })
    }
}

impl Drop for OwnChange {
    fn drop(&mut self) {
        self.shared.changes.is_made(&self.watch);
    }
}

/// A kernel lease. Dropping it lets those in who wait.
#[derive(Debug)]
pub struct Lease {
    file: Arc<OwnedFd>,
    kind: LeaseType,
    descriptor: RawFd,
    shared: Arc<Shared>,
    watch: Option<Watch>,
    /// For one against everybody.
    node: Option<(Arc<Node>, Arc<LeasedNodes>, Arc<PinnedNodes>)>,
}

impl Lease {
    /// A lease of `kind` that is about to be taken on `file`. It is registered before it is taken, because it
    /// may be broken at once.
    pub(crate) fn new(leases: &Leases, node: &Node, file: Arc<OwnedFd>, kind: LeaseType) -> Lease {
        let descriptor = file.as_raw_fd();
        let watched = Watched { handle: *node.handle(), file: Arc::downgrade(&file), how: kind };
        leases.shared.watched.lock().insert(descriptor, watched);
        let shared = Arc::clone(&leases.shared);
        Lease { file, kind, descriptor, shared, watch: None, node: None }
    }

    /// Starts watching changes of the file's names and attributes.
    pub(crate) fn watch_changes(&mut self, node: &Arc<Node>) -> Result<()> {
        self.watch = Some(self.shared.changes.watch(node)?);
        Ok(())
    }

    /// Takes the lease.
    pub(crate) fn take(&self, leases: &Leases) -> Result<()> {
        Ok(sys::lease::take(&self.file, self.kind, leases.watcher)?)
    }

    /// After taking a write lease: makes its descriptor the only one through which the node is read and
    /// written. No other can have been opened in between: an earlier one would have conflicted with the lease,
    /// a later one would have met it.
    pub(crate) fn keep_open(&mut self, node: &Arc<Node>, nodes: &Arc<LeasedNodes>, pins: &Arc<PinnedNodes>) {
        node.data_file(false).hold(&self.file);
        node.data_file(true).hold(&self.file);
        node.set_leased(true);
        nodes.change(|nodes| drop(nodes.insert(*node.handle(), Arc::clone(node))));
        self.node = Some((Arc::clone(node), Arc::clone(nodes), Arc::clone(pins)));
    }

    /// For a lease against everybody: what the file is open as, for reading and writing. There is nothing
    /// else as long as the lease lasts.
    #[must_use]
    pub fn only_file(&self) -> Option<Arc<OwnedFd>> {
        self.node.as_ref().map(|_| Arc::clone(&self.file))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.watched.lock().remove(&self.descriptor);
        if let Some(watch) = self.watch.take() {
            self.shared.changes.unwatch(&watch);
        }
        if let Some((node, nodes, pins)) = self.node.take() {
            nodes.change(|nodes| drop(nodes.remove(node.handle())));
            node.set_leased(false);
            drop(node.data_file(false).take());
            // With unstable data it stays until that is synced.
            pins.close_unless_pinned(&node);
        }
        // Closing isn't enough: who still reads keeps it open, and who keeps its locks.
        let _ = sys::lease::release(&self.file);
    }
}
