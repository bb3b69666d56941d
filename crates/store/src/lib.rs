//! A POSIX filesystem made safe to serve.
//!
//! A [`Store`] is one exported directory as the server sees it. It hands out [`FileHandle`]s that survive
//! restarts and can't be forged, turns them back into files, and does every operation as the user who asked,
//! so that the kernel itself checks the permissions. Nothing here knows a protocol; errors and attributes are
//! in words that NFSv3 and the lane translate one to one.
//!
//! How a request goes:
//! 1. `store.act_as(&identity)` gives an [`Acting`]: this thread now does things as that user.
//! 2. `acting.node(handle)` gives the [`Node`]: one file, with its descriptors, from a bounded cache.
//! 3. One operation on the node. Reading, writing and [`Acting::grant`] make the one permission check
//!    ([`Acting::may`]) themselves.
//!
//! What the process must bring: `umask(0)` (it belongs to the whole process, so the store doesn't touch it;
//! modes asked by clients must not be masked by the server's), `/proc` mounted, and threads of its own for
//! acting: a thread keeps the last user's filesystem ids until it acts as another or calls
//! [`act_as_process`].

mod acl;
mod acting;
mod attributes;
mod direct;
mod error;
mod file_changes;
mod filesystem;
mod handle;
mod held;
mod identity;
mod leases;
mod limits;
mod locate;
mod locks;
mod mounts;
mod name;
mod node;
mod nodes;
mod open;
mod open_dirs;
mod other_exports;
mod places;
mod refusals;
mod survey;
#[cfg(test)]
mod testing;
mod tidy;
mod unsynced;
mod verifier;

pub use acl::PosixAcl;
pub use acting::{
    AccessMode, Acting, CreateHow, DirEntry, DirPage, Found, FsInfo, FsStat, Grant, Holder, Made, PathConf,
    Read, Special, Written,
};
pub use acting::{
    Extent, InheritedLockFile, Room, Seek, SetXattr, inherited_lock_file, lock, test_lock, unlock,
};
pub use attributes::{Attributes, FileKind, SetAttributes, SetTime, Timestamp, Wcc};
pub use error::{Error, Result};
pub use handle::{FileHandle, HandleKey};
pub use held::Held;
pub use identity::{Identity, act_as_process, as_process_user};
pub use leases::{Lease, Leases, OwnChange};
pub use limits::Limits;
pub use mounts::{DirectoryId, Followed, Mounts};
pub use node::Node;
pub use open::{OpenError, Privilege, Store, StoreOptions};
pub use other_exports::OtherExport;
pub use sys::Access;
pub use sys::locks::FileLock;
pub use verifier::WriteVerifier;
