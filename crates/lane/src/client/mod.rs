//! The client's end of the lane.

use crate::nonce::Instance;
use crate::request::{Attributes, OpenRequest, Status};
use std::os::fd::{AsFd, BorrowedFd};

/// Why an Open gave no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server said no.
    #[error("{0}")]
    Refused(Status),
    /// The lane is gone (or draining): use the wire, and probe again.
    #[error("the lane is gone")]
    Gone,
    /// This process has no room for another descriptor (RLIMIT_NOFILE).
    #[error("too many open files in this process")]
    NoDescriptor,
    /// A handle, name or group list is longer than the lane carries.
    #[error("longer than the lane carries")]
    TooLong,
}

/// What the client knows of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// It works.
    Live,
    /// The server is about to stop: no new I/O, no new grants.
    Draining,
    /// It has ended.
    Gone,
}

/// A lane to one server. Clones are the same lane; it ends when the last clone and the last grant are dropped.
#[derive(Debug, Clone)]
pub struct Lane {}

/// What a successful Open brings.
#[derive(Debug)]
pub struct Opened {
    /// The open file.
    pub grant: Grant,
    /// The file's NFS handle.
    pub handle: Vec<u8>,
    /// The file's attributes.
    pub attributes: Attributes,
    /// The server's write verifier.
    pub verifier: [u8; 8],
}

impl Lane {
    /// Asks for a file. Any number may be under way at once. Dropping the future gives back what it would have got.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(&self, request: OpenRequest<'_>) -> Result<Opened, OpenError> {
        let _ = request;
        unimplemented!()
    }

    /// The state now. No system call.
    #[must_use]
    pub fn state(&self) -> LaneState {
        unimplemented!()
    }

    /// Waits until the lane is draining or gone.
    pub async fn gone(&self) {
        unimplemented!()
    }

    /// The server instance at the other end.
    #[must_use]
    pub fn instance(&self) -> Instance {
        unimplemented!()
    }

    /// The way the client came, for reports.
    #[must_use]
    pub fn through(&self) -> &str {
        unimplemented!()
    }

    /// Sends the releases that wait for company. Without this they go with the next Open, or when there are many, or
    /// after a few milliseconds if the runtime is driven; a blocking caller whose runtime sleeps between calls calls
    /// this. Never blocks.
    pub fn flush(&self) {
        unimplemented!()
    }
}

/// An open file that the server gave. Dropping it releases it.
#[derive(Debug)]
pub struct Grant {}

/// One I/O under way; dropping it ends it.
#[derive(Debug)]
pub struct InFlight<'a> {
    _grant: &'a Grant,
}

impl Grant {
    /// Begins one I/O on the file: hold the guard around each read, write or sync. `None` means that the server has
    /// taken the grant back or is going: use the wire (ENXIO inside the client). About 10 ns, no system call.
    #[must_use]
    pub fn try_get(&self) -> Option<InFlight<'_>> {
        unimplemented!()
    }

    /// Whether `try_get` would work, for choosing a road without beginning.
    #[must_use]
    pub fn is_live(&self) -> bool {
        unimplemented!()
    }
}

impl AsFd for Grant {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }
}
