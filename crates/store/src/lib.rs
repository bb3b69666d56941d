//! A POSIX filesystem made safe to serve.
//!
//! A [`Store`] is one exported directory. It hands out [`FileHandle`]s that survive restarts and can't be
//! forged, finds their files again, and does every operation as the requesting user, so that the kernel
//! checks the permissions. The crate knows no protocol: its errors and attributes translate one to one to
//! NFSv3 and the lane.
//!
//! A request takes three steps:
//! 1. `store.as_user(&identity)` returns a [`UserContext`]: the thread now acts as that user.
//! 2. `context.node(handle)` returns the [`Node`]: one file with its descriptors, from a bounded cache.
//! 3. One operation on the node. Reading, writing and [`UserContext::grant`] check permissions themselves
//!    ([`UserContext::may`]).
//!
//! The process must provide:
//! - `umask(0)`, because modes from clients must not be masked. The umask belongs to the whole process, so
//!   the store doesn't set it.
//! - a mounted `/proc`;
//! - threads for acting as users. A thread keeps the last user's filesystem ids until it acts as another user
//!   or calls [`restore_process_ids`].

mod attributes;
mod cells;
mod data_file;
mod descriptor_limits;
mod error;
mod export_tree;
mod file_changes;
mod filesystem;
mod follow_mount;
mod handle;
mod inner;
mod leases;
mod mount;
mod name;
mod nested_exports;
mod node;
mod node_cache;
mod nowait_read;
mod object_locks;
mod open_dirs;
mod path_cache;
mod permission_cache;
mod pinned_nodes;
mod preserved_file;
mod reaper;
mod store;
#[cfg(test)]
mod testing;
mod tree_scan;
mod uncommitted;
mod unsupported_modes;
mod user_context;
mod write_verifier;

pub use attributes::{Attributes, FileKind, SetAttributes, SetTime, Timestamp, Wcc};
pub use descriptor_limits::DescriptorLimits;
pub use error::{Error, Result};
pub use handle::{FileHandle, HandleKey};
pub use leases::{Lease, Leases, OwnChange};
pub use mount::{DirectoryId, MountBelow, MountChange, Mounts};
pub use nested_exports::NestedExport;
pub use node::Node;
pub use preserved_file::PreservedFile;
pub use store::{OpenError, Store, StoreOptions};
pub use sys::cell::Cell;
pub use sys::locks::FileLock;
pub use sys::mount::MountFlags;
pub use sys::{Access, PosixAcl, PosixAcls};
pub use user_context::{
    AccessMode, CreateHow, CreatedFile, DataContent, DirEntry, DirPage, Extent, FsInfo, FsStat, Grant,
    Holder, InheritedLockFile, LookupResult, PathConf, QuotaAvailable, ReadResult, SetXattr, SpecialFile,
    UserContext, WriteResult, inherited_lock_file, lock, test_lock, unlock,
};
pub use user_ids::{Identity, Privilege, as_process_user, restore_process_ids};
pub use write_verifier::WriteVerifier;
