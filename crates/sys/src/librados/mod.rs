//! RADOS, Ceph's object store, through librados.
//!
//! librados is loaded at run time ([`load`]), so that a program runs where there is no Ceph. A
//! [`RadosSession`] is a connection to one namespace of a pool. Only [`RadosSession::connect`] blocks. Every
//! other operation is started, and its caller waits for it as long as it wants ([`Pending::wait`]): an
//! operation that is abandoned keeps its memory until librados is done with it.
//!
//! Versions are those of RADOS: a number for each object that grows with each change.

mod functions;
mod operation;
mod session;
mod watch;

pub use functions::{Functions, LoadError, exit_with_librados, load};
pub use operation::{Completed, Entries, OperationError, Pending};
pub use session::{RadosSession, ReadParts, WriteStep};
pub use watch::{Watch, WatchEvent};

use rustix::io::Errno;
use std::ffi::c_int;

/// Converts librados's return values: negative ones are error numbers.
fn check(returned: c_int) -> rustix::io::Result<c_int> {
    if returned < 0 { Err(Errno::from_raw_os_error(returned.saturating_neg())) } else { Ok(returned) }
}
