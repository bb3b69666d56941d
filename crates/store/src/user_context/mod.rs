//! Operations on a store, each done as a user.
//!
//! Every operation that touches names or data first assumes the user's ids (see `user_ids`), so that the
//! kernel refuses what the user may not do. There are two exceptions. Opening by handle needs the process's
//! own capabilities. And an owner may read and write a file of theirs whatever its mode says, as a local
//! process that has the file open could.

mod access;
mod acls;
mod attributes;
mod cached_reads;
mod context;
mod create;
mod data;
mod export_boundary;
mod fs_info;
mod grant;
mod handle_resolver;
mod io_modes;
mod lease;
mod lock_file;
mod lookup;
mod quota;
mod read_dir;
mod remove;
mod space;
mod sync_metadata;
mod tree;
mod types;
mod xattrs;

pub use context::UserContext;
pub use grant::{CreatedFile, Grant, Holder};
pub use lock_file::{InheritedLockFile, inherited_lock_file, lock, test_lock, unlock};
pub use quota::QuotaAvailable;
pub use space::{DataContent, Extent};
pub use types::{
    AccessMode, CreateHow, DirEntry, DirPage, FsInfo, FsStat, LookupResult, PathConf, ReadResult,
    SpecialFile, WriteResult,
};
pub use xattrs::SetXattr;
