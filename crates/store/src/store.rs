//! [`Store`]: one exported directory, and how it is opened.
//!
//! 1. The directory is opened and, with `CAP_SYS_ADMIN`, its mount is cloned. In the clone nothing is mounted
//!    below the directory, and renames of its path don't matter. For a read-only export the clone is
//!    read-only. The directory itself stays open, so that the mount is busy (see `mount`).
//! 2. A trial thread assumes another user's ids. If that fails, everything is done as the process's own user.
//! 3. A handle of the filesystem is made and opened. If that fails, or for `subtree_check`, handles are
//!    located in the tree.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use sys::KernelHandle;
use sys::mount::{CloneAttributes, clone_detached};

use crate::attributes::{FileKind, status};
use crate::cells::Cells;
use crate::descriptor_limits::DescriptorLimits;
use crate::error::{Error, Result};
use crate::export_tree::{ExportTree, reopen_directory};
use crate::filesystem::Filesystem;
use crate::handle::{FileHandle, FileId, HandleContents, HandleKey, HandleSealer};
use crate::inner::{HandleScheme, StoreInner};
use crate::mount::AttachedMount;
use crate::nested_exports::{DirectoryPlace, NestedExport, NestedExports};
use crate::node::Node;
use crate::node_cache::NodeCache;
use crate::nowait_read::NowaitSupport;
use crate::object_locks::ObjectLocks;
use crate::open_dirs::OpenDirs;
use crate::path_cache::PathCache;
use crate::user_context::UserContext;
use crate::write_verifier::WriteVerifier;
use crate::{reaper, unsupported_modes};
use user_ids::{Identity, Privilege, process_identity};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The exported directory. Symbolic links on the way to it are followed, once.
    pub path: PathBuf,
    /// Part of every handle. An export must keep its id over restarts, and no two exports may share one.
    pub export_id: u32,
    /// The secret that seals the handles.
    pub key: HandleKey,
    /// Refuse all changes through this store ([`Store::set_read_only`]).
    pub read_only: bool,
    /// Refuse handles of files that aren't below the exported directory any more, or below directories that
    /// the user may not search (exports(5)). Every use of a handle then walks the file's path. A file that a
    /// local process renames is searched for in the tree. A file with several names counts as below while one
    /// of them is found: the last one seen, or another by a bounded search. Handles made with the option are
    /// invalid without it, and the reverse.
    pub subtree_check: bool,
    /// The server's write verifier.
    pub verifier: Arc<WriteVerifier>,
    /// How many descriptors to keep open.
    pub limits: DescriptorLimits,
    /// A name in the exported directory that no user may rename, remove or replace: the server's own file.
    pub reserved_name: Option<&'static CStr>,
}

/// Why a store can't be opened. The caller knows and names the directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path can't be opened.
    #[error("it can't be opened: {source}")]
    Path {
        /// The reason.
        source: std::io::Error,
    },
    /// The path isn't a directory.
    #[error("it isn't a directory")]
    NotDirectory,
    /// /proc isn't mounted; descriptors can't be re-opened without it.
    #[error("/proc/self/fd can't be opened ({source}): mount /proc")]
    NoProc {
        /// The reason.
        source: std::io::Error,
    },
    /// A basic call on the filesystem failed.
    #[error("it can't be examined: {source}")]
    Examine {
        /// The reason.
        source: Error,
    },
}

/// One exported directory.
#[derive(Debug)]
pub struct Store(Arc<StoreInner>);

impl Store {
    /// Opens the directory. The calling thread must not act as a user (see [`crate::restore_process_ids`]).
    ///
    /// # Errors
    /// See [`OpenError`]. Missing privileges are no error; see [`Store::privilege`].
    pub fn open(options: StoreOptions) -> std::result::Result<Store, OpenError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let proc = openat(CWD, c"/proc/self/fd", flags | OFlags::DIRECTORY, Mode::empty())
            .map_err(|source| OpenError::NoProc { source: source.into() })?;
        let original = openat(CWD, &options.path, flags, Mode::empty())
            .map_err(|source| OpenError::Path { source: source.into() })?;
        let examine = |source: Error| OpenError::Examine { source };
        if status(&original, 0).map_err(examine)?.attributes.kind != FileKind::Directory {
            return Err(OpenError::NotDirectory);
        }
        let inner = Arc::new(set_up(options, original, proc).map_err(examine)?);
        reaper::register(Arc::downgrade(&inner));
        Ok(Store(inner))
    }

    /// The exported directory's handle.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        *self.0.tree.root.handle()
    }

    /// Whether the store acts as users or as the process only.
    #[must_use]
    pub fn privilege(&self) -> &Privilege {
        &self.0.privilege
    }

    /// Whether handles are the filesystem's own. Otherwise files are located in the tree, which takes time
    /// after a restart and fails for files that were replaced meanwhile.
    #[must_use]
    pub fn has_kernel_handles(&self) -> bool {
        matches!(self.0.scheme, HandleScheme::Kernel)
    }

    /// Whether a private clone of the mount hides what is mounted below the export. Otherwise mount points
    /// below it can't be entered.
    #[must_use]
    pub fn is_cloned(&self) -> bool {
        self.0.cloned
    }

    /// The current write verifier.
    #[must_use]
    pub fn verifier(&self) -> [u8; 8] {
        self.0.verifier.get()
    }

    /// The identity that operations for `identity` are done as: an unprivileged store does all of them as its
    /// process.
    #[must_use]
    pub fn effective_identity<'a>(&'a self, identity: &'a Identity) -> &'a Identity {
        if self.0.privilege == Privilege::Full { identity } else { &self.0.process }
    }

    /// Changes how many files this store keeps open ([`DescriptorLimits::nodes`]), when the number of stores
    /// changes.
    pub fn set_max_nodes(&self, nodes: usize) {
        self.0.nodes.set_capacity(nodes);
    }

    /// Sets the exports below this one. A name that leads to one of their directories is then
    /// [`Error::NestedExport`], and this store's handles of files below it are `Stale`. Exports on another
    /// mount aren't reachable from here and have no effect. The calling thread must not act as a user.
    ///
    /// # Errors
    /// `TryLater` and `Io` when a directory can't be examined; one that doesn't exist is skipped. On errors
    /// the exports stay as they were.
    pub fn set_nested_exports(&self, exports: &[NestedExport]) -> Result<()> {
        if self.0.tree.nested.set(exports)?
            && let HandleScheme::Located(paths) = &self.0.scheme
        {
            paths.forget_scan();
        }
        Ok(())
    }

    /// The user id that all operations are done as, where this store can't act as others.
    #[must_use]
    pub fn only_user(&self) -> Option<u32> {
        (self.0.privilege != Privilege::Full).then_some(self.0.process.uid)
    }

    /// How many files are open now.
    #[must_use]
    pub fn open_nodes(&self) -> usize {
        self.0.nodes.len()
    }

    /// Which I/O modes fell back to buffered I/O so far and why, for the administrator.
    #[must_use]
    pub fn io_notes(&self) -> Vec<&'static str> {
        self.0.fallbacks.notes()
    }

    /// How many direct writes had to be copied to aligned memory first.
    #[must_use]
    pub fn copied_writes(&self) -> u64 {
        self.0.fallbacks.copies()
    }

    /// How often the whole tree was scanned for a file of which only the handle was known. Always 0 with the
    /// filesystem's own handles.
    #[must_use]
    pub fn tree_scans(&self) -> u64 {
        match &self.0.scheme {
            HandleScheme::Kernel => 0,
            HandleScheme::Located(paths) => paths.tree_scans(),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<StoreInner> {
        &self.0
    }

    /// Makes this thread act as `identity`. In an unprivileged store it acts as the process's user whatever
    /// `identity` is.
    ///
    /// # Errors
    /// `Access` for ids that the thread can't assume.
    pub fn as_user(&self, identity: &Identity) -> Result<UserContext<'_>> {
        UserContext::new(&self.0, identity, self.0.is_read_only() || self.0.attached.is_read_only())
    }

    /// As [`Store::as_user`], for a client with read-only access: changes are refused with `ReadOnly`, and
    /// grants can't be re-opened for writing.
    ///
    /// # Errors
    /// As for [`Store::as_user`].
    pub fn as_read_only_user(&self, identity: &Identity) -> Result<UserContext<'_>> {
        UserContext::new(&self.0, identity, true)
    }
}

fn set_up(options: StoreOptions, original: OwnedFd, proc: OwnedFd) -> Result<StoreInner> {
    let limits = |read_only| CloneAttributes { read_only, no_devices: true, no_set_id: true };
    let clone = clone_detached(&original, limits(options.read_only)).ok();
    let cloned = clone.is_some();
    let reader_clone = if cloned { clone_detached(&original, limits(true)).ok() } else { None };
    let reader = reader_clone.as_ref().and_then(|clone| reopen_directory(clone).ok());

    let place = DirectoryPlace::of(&original)?;
    let root = match clone {
        Some(clone) => clone,
        None => original.try_clone().map_err(|_| Error::TryLater)?,
    };
    let attached = AttachedMount::new(original)?;
    let filesystem = Filesystem::of(&root, options.export_id)?;

    let privilege = Privilege::detect();
    let wants_kernel = privilege == Privilege::Full && !options.subtree_check;
    let mount = reopen_directory(&root).ok().filter(|_| wants_kernel);
    let (mount, kernel) = mount.and_then(|mount| kernel_handle(&mount).map(|handle| (mount, handle))).unzip();
    let scheme = if mount.is_some() { HandleScheme::Kernel } else { HandleScheme::Located(PathCache::new()) };

    let id = FileId::of(&root, &status(&root, filesystem.fsid)?);
    let contents = match kernel {
        Some(handle) => HandleContents::Kernel(handle),
        None => HandleContents::Located { id, hints: Vec::new() },
    };
    let sealer = HandleSealer::new(&options.key, options.export_id, &contents);
    let handle = sealer.seal(&contents).ok_or(Error::NotSupported)?;
    let mut instance = [0; 8];
    getrandom::fill(&mut instance).map_err(|_| Error::TryLater)?;
    let fallbacks = ::io::IoFallbacks::on(unsupported_modes::of(&root)?);
    Ok(StoreInner {
        read_only: options.read_only.into(),
        subtree_check: options.subtree_check,
        reserved_name: options.reserved_name,
        verifier: options.verifier,
        key: options.key,
        privilege,
        process: process_identity(),
        scheme,
        tree: ExportTree {
            root: Arc::new(Node::new(handle, id, FileKind::Directory, root)),
            filesystem,
            sealer,
            nested: NestedExports::new(place, filesystem.fsid),
        },
        nowait: NowaitSupport::default(),
        fallbacks,
        cloned,
        attached,
        cells: Cells::default(),
        reader,
        reader_clone,
        mount,
        proc,
        nodes: NodeCache::new(options.limits.nodes),
        dirs: OpenDirs::new(),
        locks: ObjectLocks::new(),
        limits: options.limits,
        instance,
    })
}

/// The filesystem's handle of `root`, if such handles can be made, fit into ours, and can be opened by this
/// process.
fn kernel_handle(root: &OwnedFd) -> Option<KernelHandle> {
    let handle = KernelHandle::of(root, c"").ok()?;
    let again = handle.open(root, OFlags::PATH).ok()?;
    let is_same = rustix::fs::fstat(&again).ok()?.st_ino == rustix::fs::fstat(root).ok()?.st_ino;
    (is_same && HandleSealer::fits(&handle)).then_some(handle)
}
