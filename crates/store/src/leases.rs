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
use rustix::fs::OFlags;
use sys::lease::{Break, Breaks, Watcher};

use crate::acting::Acting;
use crate::error::{Error, Result};
use crate::file_changes::{FileChanges, Watch};
use crate::handle::FileHandle;
use crate::identity::as_process_user;
use crate::node::Node;
use crate::unsynced::Pins;

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
    how: sys::lease::Lease,
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
    watcher: Watcher,
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
        let (theirs, end) = sys::lease::end()?;
        let changes = FileChanges::new()?;
        let events = changes.events();
        let shared = Arc::new(Shared { watched: Mutex::default(), changes });
        let (seen, (sender, receiver)) = (Arc::clone(&shared), std::sync::mpsc::sync_channel(1));
        std::thread::Builder::new().name("store-leases".into()).spawn(move || {
            match Breaks::new(theirs, events) {
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

fn watch(mut breaks: Breaks, shared: &Shared, broken: &impl Fn(&FileHandle, bool)) {
    while let Some(which) = breaks.wait() {
        let found: Vec<_> = match which {
            Break::Of(descriptor) => {
                shared.watched.lock().get(&descriptor).and_then(in_danger).into_iter().collect()
            }
            Break::Any => shared.watched.lock().values().filter_map(in_danger).collect(),
            Break::Other => shared.changes.changed().into_iter().map(|handle| (handle, true)).collect(),
        };
        found.iter().for_each(|(handle, writer)| broken(handle, *writer));
    }
}

/// The file, and whether somebody wants to write to it, if the lease is being broken.
fn in_danger(watched: &Watched) -> Option<(FileHandle, bool)> {
    let left = sys::lease::left(watched.file.upgrade()?).ok()?;
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
    file: Option<Arc<OwnedFd>>,
    descriptor: RawFd,
    shared: Arc<Shared>,
    watch: Option<Watch>,
    /// For one against everybody.
    node: Option<(Arc<Node>, Arc<LeasedNodes>, Arc<Pins>)>,
}

impl Lease {
    /// For a lease against everybody: what the file is open as, for reading and writing. There is nothing
    /// else as long as the lease lasts.
    #[must_use]
    pub fn only_file(&self) -> Option<Arc<OwnedFd>> {
        self.node.as_ref().and(self.file.clone())
    }
}

impl Acting<'_> {
    /// Keeps local processes from opening the file for writing; with `everybody` from opening it at all.
    /// Nothing is checked: whoever it is for must have been allowed to open the file.
    ///
    /// # Errors
    /// `TryLater` when somebody has it open so, `Invalid`, `NotSupported` or `Access` where there are no
    /// leases, `Stale`.
    pub fn lease(&self, node: &Arc<Node>, everybody: bool, leases: &Leases) -> Result<Lease> {
        node.live(0)?;
        let store = self.inner();
        // What the store keeps open for the next time is in the way, too.
        store.nodes.pins.close_unless_pinned(node);
        let (access, how) = if everybody {
            drop((node.data_file(false).take(), node.direct().file(false).take()));
            (OFlags::RDWR, sys::lease::Lease::Everybody)
        } else {
            (OFlags::RDONLY, sys::lease::Lease::Writers)
        };
        let open = || self.open_again(node.file(), access);
        let file = Arc::new(if self.can_act() { as_process_user(open)? } else { open()? });
        let descriptor = file.as_raw_fd();
        let watched = Watched { handle: *node.handle(), file: Arc::downgrade(&file), how };
        // Before it is taken: it may be broken at once.
        leases.shared.watched.lock().insert(descriptor, watched);
        let shared = Arc::clone(&leases.shared);
        let mut lease = Lease { file: Some(file), descriptor, shared, watch: None, node: None };
        let watch = || leases.shared.changes.watch(node);
        lease.watch = Some(if self.can_act() { as_process_user(watch)? } else { watch()? });
        let Some(file) = &lease.file else { return Err(Error::Invalid) };
        let take = || sys::lease::take(file, how, leases.watcher).map_err(Error::from);
        if self.can_act() {
            as_process_user(take)?
        } else {
            take()?
        };
        if everybody {
            // Who opened it meanwhile would have met the lease, and what was open before would have been in
            // its way.
            node.data_file(false).hold(file);
            node.data_file(true).hold(file);
            node.set_leased(true);
            let nodes = Arc::clone(&store.nodes.leased);
            nodes.change(|nodes| drop(nodes.insert(*node.handle(), Arc::clone(node))));
            lease.node = Some((Arc::clone(node), nodes, Arc::clone(&store.nodes.pins)));
        }
        Ok(lease)
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
        if let Some(file) = self.file.take() {
            let _ = sys::lease::give_back(&file);
        }
    }
}
