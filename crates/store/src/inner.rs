//! The state of a store, shared by the [`Store`](crate::Store), the users' contexts and the reaper.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::io::Stability;

use crate::cells::Cells;
use crate::descriptor_limits::DescriptorLimits;
use crate::error::{Error, Result};
use crate::export_tree::ExportTree;
use crate::handle::HandleKey;
use crate::mount::AttachedMount;
use crate::node::Node;
use crate::node_cache::NodeCache;
use crate::nowait_read::NowaitSupport;
use crate::object_locks::ObjectLocks;
use crate::open_dirs::OpenDirs;
use crate::path_cache::PathCache;
use crate::write_verifier::WriteVerifier;
use user_ids::{Identity, Privilege};

/// How a handle leads to its file.
#[derive(Debug)]
pub(crate) enum HandleScheme {
    /// The handle contains the filesystem's own handle.
    Kernel,
    /// The file is located by its path in the tree.
    Located(PathCache),
}

/// The state of a store.
#[derive(Debug)]
pub(crate) struct StoreInner {
    /// See [`crate::Store::set_read_only`].
    pub read_only: AtomicBool,
    pub subtree_check: bool,
    /// See [`crate::StoreOptions::reserved_name`].
    pub reserved_name: Option<&'static CStr>,
    pub verifier: Arc<WriteVerifier>,
    pub key: HandleKey,
    pub privilege: Privilege,
    /// The identity of all operations of an unprivileged store.
    pub process: Identity,
    pub scheme: HandleScheme,
    pub tree: ExportTree,
    pub nowait: NowaitSupport,
    /// The I/O modes that the filesystem doesn't support, shared by all stores on it.
    pub fallbacks: ::io::IoFallbacks,
    /// The root belongs to a detached clone: nothing is mounted below, and nothing above is reachable.
    pub cloned: bool,
    /// The directory where it is attached.
    pub attached: AttachedMount,
    pub cells: Cells,
    /// The root on a read-only clone, for grants to clients with read-only access.
    pub reader: Option<OwnedFd>,
    /// The descriptor of the read-only clone itself. Without it the kernel would remove the mount from its
    /// namespace, and its options couldn't be changed any more.
    pub reader_clone: Option<OwnedFd>,
    /// The root open for reading, for open_by_handle_at(2), which takes no `O_PATH` descriptor for the mount.
    /// `None` without kernel handles.
    pub mount: Option<OwnedFd>,

    /// /proc/self/fd.
    pub proc: OwnedFd,
    pub nodes: NodeCache,
    pub dirs: OpenDirs,
    pub locks: ObjectLocks,
    pub limits: DescriptorLimits,
    /// Random for each process, for directory cookies that don't outlive it.
    pub instance: [u8; 8],
}

impl StoreInner {
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Closes descriptors that are only kept for later calls. Returns about how many.
    pub fn release_descriptors(&self) -> usize {
        self.dirs.clear() + self.nodes.release_descriptors()
    }

    /// Closes what has been idle for too long. Runs once a second.
    pub fn reap(&self) {
        self.nodes.reap(self.privilege == Privilege::Full, &|node, file| {
            let sync = || self.sync_whole(node, file, Stability::DataSync);
            let _ = node.syncs().try_whole(Stability::DataSync, sync);
        });
        self.dirs.reap();
        if let HandleScheme::Located(paths) = &self.scheme {
            paths.reap();
        }
    }

    /// Syncs a whole file and unpins it. The caller holds the file's
    /// [`FileSyncs`](crate::uncommitted::FileSyncs).
    pub fn sync_whole(&self, node: &Node, file: &OwnedFd, how: Stability) -> Result<()> {
        node.uncommitted().sync_begins();
        let result = ::io::sync(file, how).map_err(Error::from);
        if let Err(error) = result {
            self.write_lost(node, error);
        }
        self.nodes.pins.release(node);
        result
    }

    /// Changes the write verifier: uncommitted data may be lost.
    pub fn write_lost(&self, node: &Node, error: Error) {
        tracing::warn!(handle = ?node.handle(), %error, "writing failed: clients will be told to send \
                                                         unstable data again");
        self.verifier.change();
    }
}

impl Drop for StoreInner {
    /// Closing the pinned descriptors makes it impossible to learn of failed writes.
    fn drop(&mut self) {
        if !self.nodes.pins.is_empty() {
            self.verifier.change();
        }
    }
}
