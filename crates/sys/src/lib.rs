//! What Linux offers and no crate wraps; the only crate with unsafe code.
//!
//! Everything that [rustix] wraps is used from there. This crate adds file handles, per-thread filesystem
//! ids, calls on `O_PATH` descriptors, extended attributes by name, leases, fanotify, mount clones, cells and
//! mount points, shared memory, FUSE queues, a scheduling policy, the owners of sockets, librados, and a
//! shared pointer that is read without locked instructions. It also defines the types for attributes, access
//! rights, access control lists and I/O modes that all other crates share. Each function is thin: one system
//! call (or the few that belong together), with the errno unchanged.

mod access;
pub mod attached_mount;
mod attributes;
pub mod barrier;
pub mod cell;
pub mod child;
pub mod credentials;
pub mod empty_path;
mod error_text;
pub mod fanotify;
pub mod fuse;
pub mod fuse_queue;
pub mod handle;
mod io_mode;
pub mod lease;
pub mod librados;
pub mod locks;
pub mod mount;
pub mod namespace;
pub mod netgroup;
pub mod page_cache;
pub mod peer;
mod posix_acl;
mod proc;
pub mod quota;
pub mod read_mostly;
mod reflink;
pub mod scheduling;
pub mod shared_memory;
pub mod socket_activation;
mod tcp_owner;
pub mod thread_slot;
mod unix_listeners;
pub mod xattr;

pub use access::Access;
pub use attributes::{Attributes, FileKind, FileStatus, SetAttributes, SetTime, Timestamp};
pub use error_text::without_error_numbers;
pub use handle::KernelHandle;
pub use io_mode::IoMode;
pub use peer::{PeerCredentials, SharedNamespaces, overflow_uid};
pub use posix_acl::{PosixAcl, PosixAcls};
pub use proc::proc_error;
pub use read_mostly::ReadMostly;
pub use reflink::clone_range;
pub use shared_memory::SharedMemory;
pub use tcp_owner::{TcpOwner, tcp_owner};
pub use unix_listeners::{AbstractListener, abstract_listeners};

use rustix::io::Errno;

/// Converts the return value of a system call.
fn check(returned: libc::c_long) -> rustix::io::Result<libc::c_long> {
    if returned == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(returned)
}
