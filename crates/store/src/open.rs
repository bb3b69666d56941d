//! Opening a store: finding out what this process may do here, and setting up accordingly.
//!
//! 1. Open the directory, and clone its mount where that is allowed (`CAP_SYS_ADMIN`), so that nothing
//!    mounted below leaks in and the store doesn't depend on what happens to the path. For a read-only export
//!    the clone is read-only. The directory itself stays open, so that the mount is busy (see `mounts`).
//! 2. Try whether acting as others works. If not, everything is done as the process's own user.
//! 3. Try whether the filesystem's file handles can be made and opened. If not (or for `subtree_check`),
//!    handles are located in the tree.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use ::io::Stability;
use rustix::fs::{CWD, Mode, OFlags, openat};
use sys::KernelHandle;
use sys::mount::{CloneAttributes, clone_detached};

use crate::acting::{Acting, Askable};
use crate::attributes::{FileKind, Status, status};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::handle::{FileHandle, FileId, HandleKey, Sealer};
use crate::identity::{Identity, can_act_as_others, process_identity};
use crate::limits::Limits;
use crate::locks::Locks;
use crate::mounts::Attached;
use crate::node::Node;
use crate::nodes::NodeCache;
use crate::open_dirs::OpenDirs;
use crate::other_exports::{OtherExport, OtherExports, Place};
use crate::places::Places;
use crate::refusals;
use crate::verifier::WriteVerifier;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The exported directory. Symbolic links on the way to it are followed, once.
    pub path: PathBuf,
    /// Part of every handle. The same export must have the same id after a restart, and no two exports the
    /// same.
    pub export_id: u32,
    /// The secret that seals the handles.
    pub key: HandleKey,
    /// Nobody may change anything through this store.
    pub read_only: bool,
    /// Refuse handles whose file isn't below the exported directory any more, and those below directories
    /// that the user may not search (exports(5)). Every use of a handle then walks the file's path; a file
    /// that a local process renames is looked for in the tree, and a file with several names counts as below
    /// as long as the name is found under which it was seen, or another by a bounded search. Handles made
    /// with the option don't fit a store without it, and the reverse.
    pub subtree_check: bool,
    /// The server's write verifier.
    pub verifier: Arc<WriteVerifier>,
    /// How many descriptors to keep.
    pub limits: Limits,
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path can't be opened.
    #[error("can't open {path}: {source}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The path isn't a directory.
    #[error("{path} isn't a directory")]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// /proc isn't there; descriptors can't be re-opened without it.
    #[error("/proc/self/fd can't be opened ({source}): mount /proc")]
    NoProc {
        /// The reason.
        source: std::io::Error,
    },
    /// The filesystem doesn't answer the most basic questions.
    #[error("can't examine {path}: {source}")]
    Examine {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: Error,
    },
}

/// What the store may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Acts as any user.
    Full,
    /// Everything is done as the process's own user, whoever asks.
    Unprivileged {
        /// What is missing, in words for an admin.
        reason: String,
    },
}

/// How files are found again by handle.
#[derive(Debug)]
pub(crate) enum Scheme {
    /// By the filesystem's own handles.
    Kernel,
    /// By their place in the tree.
    Located(Places),
}

/// One exported directory.
#[derive(Debug)]
pub struct Store(Arc<Inner>);

/// What the store, its users and the tidying thread share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub read_only: bool,
    pub subtree_check: bool,
    pub verifier: Arc<WriteVerifier>,
    pub key: HandleKey,
    pub sealer: Sealer,
    pub privilege: Privilege,
    /// Whom everybody is when unprivileged.
    pub process: Identity,
    pub scheme: Scheme,
    pub filesystem: Filesystem,
    /// Whether the filesystem says what is cached.
    pub askable: Askable,
    /// What it turned out not to do of the I/O modes, as all stores on it know.
    pub fallbacks: ::io::IoFallbacks,
    /// The root is that of a detached clone: nothing is mounted below, and nothing above can be reached.
    pub cloned: bool,
    /// The directory as it is attached.
    pub attached: Attached,
    /// A read-only clone of a store that can be written, for grants to clients that may only read.
    pub reader: Option<OwnedFd>,
    /// The descriptor that the read-only clone came by: without it the kernel takes the mount out of its
    /// namespace, and its options can't be changed any more.
    pub reader_clone: Option<OwnedFd>,
    /// Where the exported directory is, before it was cloned.
    pub place: Place,
    /// Exports below it.
    pub others: OtherExports,
    /// The root open for reading: open_by_handle_at(2) takes no `O_PATH` descriptor to say which mount it
    /// means. `None` without the kernel's handles.
    pub mount: Option<OwnedFd>,

    pub root: Arc<Node>,
    /// /proc/self/fd.
    pub proc: OwnedFd,
    pub nodes: NodeCache,
    pub dirs: OpenDirs,
    pub locks: Locks,
    pub limits: Limits,
    /// Different in every process, for directory cookies that don't outlive it.
    pub instance: [u8; 8],
}

impl Store {
    /// Opens the directory. Run it on a thread that doesn't act as a user (or after
    /// [`crate::act_as_process`]).
    ///
    /// # Errors
    /// See [`OpenError`]. Missing privileges are no error; see [`Store::privilege`].
    pub fn open(options: StoreOptions) -> std::result::Result<Store, OpenError> {
        let path = options.path.clone();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let proc = openat(CWD, c"/proc/self/fd", flags | OFlags::DIRECTORY, Mode::empty())
            .map_err(|source| OpenError::NoProc { source: source.into() })?;
        let original = openat(CWD, &options.path, flags, Mode::empty())
            .map_err(|source| OpenError::Path { path: path.clone(), source: source.into() })?;
        let examine = |source: Error| OpenError::Examine { path: path.clone(), source };
        if status(&original, 0).map_err(examine)?.attributes.kind != FileKind::Directory {
            return Err(OpenError::NotDirectory { path: path.clone() });
        }
        let inner = Inner::set_up(options, original, proc).map_err(examine)?;
        let inner = Arc::new(inner);
        crate::tidy::register(Arc::downgrade(&inner));
        Ok(Store(inner))
    }

    /// The exported directory's handle.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        *self.0.root.handle()
    }

    /// What this store may do.
    #[must_use]
    pub fn privilege(&self) -> &Privilege {
        &self.0.privilege
    }

    /// Whether handles are the filesystem's own. If not, they are found again by looking for the file in the
    /// tree, which after a restart takes time, and fails for files that were replaced meanwhile.
    #[must_use]
    pub fn has_kernel_handles(&self) -> bool {
        matches!(self.0.scheme, Scheme::Kernel)
    }

    /// Whether what is mounted below the export is hidden by a private clone of its mount. If not, such
    /// places can't be entered.
    #[must_use]
    pub fn is_cloned(&self) -> bool {
        self.0.cloned
    }

    /// The write verifier as it is now.
    #[must_use]
    pub fn verifier(&self) -> [u8; 8] {
        self.0.verifier.get()
    }

    /// Whom operations are done as for somebody who should be `identity`: an unprivileged store makes
    /// everybody its process.
    #[must_use]
    pub fn becomes<'a>(&'a self, identity: &'a Identity) -> &'a Identity {
        if self.0.privilege == Privilege::Full { identity } else { &self.0.process }
    }

    /// Changes how many files this store keeps open, as [`Limits::nodes`]: other stores need room, or leave
    /// some.
    pub fn set_max_nodes(&self, nodes: usize) {
        self.0.nodes.set_capacity(nodes);
    }

    /// Says which exports lie in this one. A name that leads to one of their directories is
    /// [`Error::OtherExport`] from now on, and what lies below is `Stale` by this store's handles. One on
    /// another mount isn't reached from here, and nothing changes for what it covers. Run it on a thread that
    /// doesn't act as a user.
    ///
    /// # Errors
    /// `TryLater` and `Io` when a directory can't be looked at; one that isn't there is none. The exports are
    /// then as they were.
    pub fn set_other_exports(&self, exports: &[OtherExport]) -> Result<()> {
        self.0.set_other_exports(exports)
    }

    /// The user that everything is done as, where this store can't act as others.
    #[must_use]
    pub fn only_user(&self) -> Option<u32> {
        (self.0.privilege != Privilege::Full).then_some(self.0.process.uid)
    }

    /// How many files are kept open now.
    #[must_use]
    pub fn open_nodes(&self) -> usize {
        self.0.nodes.len()
    }

    /// What is done instead of the I/O modes that were asked for, in words for an admin: known once it has
    /// happened.
    #[must_use]
    pub fn io_notes(&self) -> Vec<&'static str> {
        self.0.fallbacks.notes()
    }

    /// How many direct writes had to be copied to aligned memory first.
    #[must_use]
    pub fn copied_writes(&self) -> u64 {
        self.0.fallbacks.copies()
    }

    /// How often the whole tree was looked through for files of which only a handle was known. Never with the
    /// filesystem's own handles.
    #[must_use]
    pub fn surveys(&self) -> u64 {
        match &self.0.scheme {
            Scheme::Kernel => 0,
            Scheme::Located(places) => places.surveys(),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// From now on this thread acts as `identity` (an unprivileged store: as the process's user, whatever is
    /// said).
    ///
    /// # Errors
    /// `Access` for ids that can't be taken on.
    pub fn act_as(&self, identity: &Identity) -> Result<Acting<'_>> {
        Acting::new(&self.0, identity, self.0.read_only || self.0.attached.is_read_only())
    }

    /// As [`Store::act_as`], for a client that has the export read-only: changes are refused with `ReadOnly`,
    /// and grants can't be re-opened for writing.
    ///
    /// # Errors
    /// As for [`Store::act_as`].
    pub fn act_as_reader(&self, identity: &Identity) -> Result<Acting<'_>> {
        Acting::new(&self.0, identity, true)
    }
}

impl Inner {
    fn set_up(options: StoreOptions, original: OwnedFd, proc: OwnedFd) -> Result<Inner> {
        let limits = |read_only| CloneAttributes { read_only, no_devices: true, no_set_id: true };
        let clone = clone_detached(&original, limits(options.read_only)).ok();
        let cloned = clone.is_some();
        let reader =
            if cloned && !options.read_only { clone_detached(&original, limits(true)).ok() } else { None };
        let reader_clone = reader;
        let reader = reader_clone.as_ref().and_then(|clone| open_directory(clone).ok());

        let place = Place::of(&original)?;
        let root = match clone {
            Some(clone) => clone,
            None => original.try_clone().map_err(|_| Error::TryLater)?,
        };
        let attached = Attached::new(original)?;
        let filesystem = Filesystem::of(&root)?;

        let privilege = match can_act_as_others() {
            Ok(()) => Privilege::Full,
            Err(reason) => Privilege::Unprivileged { reason },
        };
        let sealer = Sealer::new(options.key.clone(), options.export_id);
        let wants_kernel = privilege == Privilege::Full && !options.subtree_check;
        let mount = open_directory(&root).ok().filter(|mount| wants_kernel && handles_work(mount, &sealer));
        let scheme = if mount.is_some() { Scheme::Kernel } else { Scheme::Located(Places::new()) };

        let root_status = status(&root, filesystem.fsid)?;
        let id = file_id(&root, &root_status);
        let handle = match &scheme {
            Scheme::Kernel => sealer.kernel(&KernelHandle::of(&root, c"")?).ok_or(Error::NotSupported)?,
            Scheme::Located(_) => sealer.located(id, &[]),
        };
        let mut instance = [0; 8];
        getrandom::fill(&mut instance).map_err(|_| Error::TryLater)?;
        Ok(Inner {
            read_only: options.read_only,
            subtree_check: options.subtree_check,
            verifier: options.verifier,
            key: options.key,
            sealer,
            privilege,
            process: process_identity(),
            scheme,
            filesystem,
            askable: Askable::default(),
            fallbacks: ::io::IoFallbacks::on(refusals::of(&root)?),
            cloned,
            attached,
            reader,
            reader_clone,
            place,
            others: OtherExports::default(),
            mount,
            root: Arc::new(Node::new(handle, id, FileKind::Directory, root)),
            proc,
            nodes: NodeCache::new(options.limits.nodes),
            dirs: OpenDirs::new(),
            locks: Locks::new(),
            limits: options.limits,
            instance,
        })
    }

    /// Closes what is kept for the next call. How many descriptors that were, about.
    pub fn make_room(&self) -> usize {
        self.dirs.clear() + self.nodes.make_room()
    }

    /// One round of tidying.
    pub fn tidy(&self) {
        self.nodes.tidy(self.privilege == Privilege::Full, &|node, file| {
            let sync = || self.sync_whole(node, file, Stability::DataSync);
            let _ = node.syncs().try_whole(Stability::DataSync, sync);
        });
        self.dirs.tidy();
        if let Scheme::Located(places) = &self.scheme {
            places.tidy();
        }
    }
}

impl Drop for Inner {
    /// With the descriptors goes the knowledge of what was lost.
    fn drop(&mut self) {
        if !self.nodes.pins.is_empty() {
            self.verifier.change();
        }
    }
}

fn open_directory(dir: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Whether the filesystem's handles can be made, fit, and can be opened again by this process.
fn handles_work(root: &OwnedFd, sealer: &Sealer) -> bool {
    let trial = || -> rustix::io::Result<bool> {
        let handle = KernelHandle::of(root, c"")?;
        let again = handle.open(root, OFlags::PATH)?;
        let same = rustix::fs::fstat(&again)?.st_ino == rustix::fs::fstat(root)?.st_ino;
        Ok(same && sealer.kernel(&handle).is_some())
    };
    trial().unwrap_or(false)
}

/// Who a file is without the filesystem's handles: inode number and birth time; where there is no birth time
/// but an unopenable handle, a hash of that.
pub(crate) fn file_id(file: impl AsFd, status: &Status) -> FileId {
    let generation = match status.birth {
        Some(birth) => {
            (birth.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(birth.nanoseconds))
        }
        None => KernelHandle::of(file, c"").map_or(0, |handle| {
            // FNV-1a: not secret, only to be the same after a restart.
            handle.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            })
        }),
    };
    FileId { fileid: status.attributes.fileid, generation }
}
