//! A POSIX filesystem made safe to serve.
//!
//! A [`Store`] is one exported directory as the server sees it. It hands out [`FileHandle`]s that survive
//! restarts and can't be forged, turns them back into files, and does every operation as the user who asked,
//! so that the kernel itself checks the permissions. Nothing here knows a protocol; errors and attributes are
//! in words that NFSv3 and the lane translate one to one.
//!
//! How a request goes:
//! 1. `store.as_user(&identity)` gives an [`UserContext`]: this thread now does things as that user.
//! 2. `acting.node(handle)` gives the [`Node`]: one file, with its descriptors, from a bounded cache.
//! 3. One operation on the node. Reading, writing and [`UserContext::grant`] make the one permission check
//!    ([`UserContext::may`]) themselves.
//!
//! What the process must bring: `umask(0)` (it belongs to the whole process, so the store doesn't touch it;
//! modes asked by clients must not be masked by the server's), `/proc` mounted, and threads of its own for
//! acting: a thread keeps the last user's filesystem ids until it acts as another or calls
//! [`restore_process_ids`].

mod attributes;
mod data_file;
mod descriptor_limits;
mod error;
mod export_tree;
mod file_changes;
mod filesystem;
mod follow_mount;
mod handle;
mod identity;
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
mod posix_acl;
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
pub use identity::{Identity, Privilege, as_process_user, restore_process_ids};
pub use leases::{Lease, Leases, OwnChange};
pub use mount::{DirectoryId, MountChange, Mounts};
pub use nested_exports::NestedExport;
pub use node::Node;
pub use posix_acl::PosixAcl;
pub use preserved_file::PreservedFile;
pub use store::{OpenError, Store, StoreOptions};
pub use sys::Access;
pub use sys::locks::FileLock;
pub use user_context::{
    AccessMode, CreateHow, CreatedFile, DataContent, DirEntry, DirPage, Extent, FsInfo, FsStat, Grant,
    Holder, InheritedLockFile, LookupResult, PathConf, QuotaAvailable, ReadResult, SetXattr, SpecialFile,
    UserContext, WriteResult, inherited_lock_file, lock, test_lock, unlock,
};
pub use write_verifier::WriteVerifier;
