//! Kernel leases (fcntl(2), `F_SETLEASE`), which keep local processes from opening a file, or from opening it
//! for writing. A process that opens the file waits, and the lease's holder is notified.
//!
//! The kernel treats an open by the lease's holder as any other. So the descriptor of a write lease is the
//! only one through which the store reads and writes the file, and the node and the descriptor stay open as
//! long as the lease. The descriptor of a read lease may also serve reads; the store's next open for writing
//! conflicts with the lease as any other would (`Error::TryLater`).
//!
//! A lease concerns opens only. Other changes by local processes (unlink, rename, link, mode, owner) are
//! reported afterwards; see `file_changes`.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use ahash::HashMap;
use parking_lot::Mutex;
use sys::lease::{LeaseBreak, LeaseBreaks, LeaseType, SignalTarget};

use crate::error::Result;
use crate::file_changes::{FileChanges, Watch};
use crate::handle::FileHandle;
use crate::node::Node;
use crate::pinned_nodes::PinnedNodes;

/// The nodes with a write lease, by handle. They are found even when the cache has dropped them.
#[derive(Debug, Default)]
pub(crate) struct LeasedNodes {
    /// Bounded by the caller that takes leases: each costs a descriptor.
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

/// A lease as the watching thread sees it.
#[derive(Debug)]
struct Watched {
    handle: FileHandle,
    file: Weak<OwnedFd>,
    how: LeaseType,
}

/// State shared by the watching thread and the leases, with one entry for each lease.
#[derive(Debug)]
struct Shared {
    /// By the descriptor that the lease is on.
    watched: Mutex<HashMap<RawFd, Watched>>,
    changes: FileChanges,
}

/// The thread that is notified when a lease is being broken.
#[derive(Debug)]
pub struct Leases {
    watcher: SignalTarget,
    shared: Arc<Shared>,
    end: OwnedFd,
}

impl Leases {
    /// Starts the thread. It calls `broken` with the file and `true` when a process wants to write to it or
    /// has changed its names or attributes, `false` when a process wants to read it: the lease should be
    /// dropped soon. The thread ends when the returned value is dropped.
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

    /// Announces that the server is about to change a leased file's names or attributes for the client that
    /// has the lease. Changes that this process makes before the returned value is dropped aren't reported;
    /// those of other processes are. `None` for a file without a lease.
    #[must_use]
    pub fn own_change(&self, file: &FileHandle) -> Option<OwnChange> {
        OwnChange::begin(&self.shared, file)
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        // Fails only when the counter is full, and then the thread has been notified already.
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

/// If the lease is being broken: the file, and whether the breaking open is for writing.
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

/// A kernel lease. Dropping it admits the processes that wait.
#[derive(Debug)]
pub struct Lease {
    file: Arc<OwnedFd>,
    kind: LeaseType,
    descriptor: RawFd,
    shared: Arc<Shared>,
    watch: Option<Watch>,
    /// For a write lease.
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
    /// written. No other can have been opened in between: an earlier one would have conflicted with the
    /// lease, a later one would have met it.
    pub(crate) fn keep_open(&mut self, node: &Arc<Node>, nodes: &Arc<LeasedNodes>, pins: &Arc<PinnedNodes>) {
        node.data_file(false).hold(&self.file);
        node.data_file(true).hold(&self.file);
        node.set_leased(true);
        nodes.change(|nodes| drop(nodes.insert(*node.handle(), Arc::clone(node))));
        self.node = Some((Arc::clone(node), Arc::clone(nodes), Arc::clone(pins)));
    }

    /// For a write lease: the descriptor, open for reading and writing, which is the only one while the lease
    /// lasts.
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
            // With uncommitted data it stays open until a sync.
            pins.close_unless_pinned(&node);
        }
        // Closing isn't enough: current readers and lock owners hold references to the descriptor.
        let _ = sys::lease::release(&self.file);
    }
}
