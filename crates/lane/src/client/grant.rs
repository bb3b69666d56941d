//! One open file in the client's hands.

use super::Owner;
use crate::about::{About, Changed};
use crate::interlock::Counted;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a successful Open brings.
#[derive(Debug)]
pub struct Opened {
    /// The open file.
    pub grant: Grant,
    /// The file's NFS handle.
    pub handle: Vec<u8>,
    /// What else there is to know of it.
    pub about: About,
    /// What has become of its directory; for [`crate::Target::New`].
    pub directory: Option<Box<Changed>>,
    /// The server's write verifier.
    pub verifier: [u8; 8],
}

/// An open file that the server gave. Dropping it releases it.
#[derive(Debug)]
pub struct Grant {
    /// Closed before the server is told: `Drop` takes it.
    file: Option<OwnedFd>,
    id: u64,
    /// What control must say for I/O to begin: live, and the generation of this grant.
    expected: u64,
    owner: Arc<Owner>,
    modes: io::IoModes,
}

/// One I/O under way, by the thread that began it; dropping it ends it.
#[derive(Debug)]
pub struct InFlight<'a> {
    grant: &'a Grant,
    counted: Counted,
    /// The count is the thread's.
    _thread: PhantomData<*const ()>,
}

impl Grant {
    pub(super) const fn new(
        file: OwnedFd,
        id: u64,
        expected: u64,
        owner: Arc<Owner>,
        modes: io::IoModes,
    ) -> Self {
        Self { file: Some(file), id, expected, owner, modes }
    }

    /// Begins one I/O on the file: hold the guard around each read, write or sync. `None` means that the
    /// server has taken the grant back or is going: use the wire (ENXIO inside the client). No system call
    /// and, on most threads, no locked instruction.
    #[inline]
    #[must_use]
    pub fn try_get(&self) -> Option<InFlight<'_>> {
        self.try_get_at(sys::thread_slot::current())
    }

    /// As [`Grant::try_get`], on a thread whose [`sys::thread_slot`] is known; `None` if it isn't, or there is
    /// none.
    #[inline]
    #[must_use]
    pub fn try_get_at(&self, slot: Option<usize>) -> Option<InFlight<'_>> {
        let counted = self.owner.shared.interlock.try_get(slot, self.expected)?;
        Some(InFlight { grant: self, counted, _thread: PhantomData })
    }

    /// Whether `try_get` would work, for choosing a road without beginning.
    #[inline]
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.owner.shared.interlock.is(self.expected)
    }

    /// How the server reads and writes the file.
    #[must_use]
    pub const fn modes(&self) -> io::IoModes {
        self.modes
    }

    /// The grant's number on its lane.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for Grant {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some(file) => file.as_fd(),
            None => unreachable!("only `drop` takes the file"),
        }
    }
}

impl AsFd for InFlight<'_> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.grant.as_fd()
    }
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.grant.owner.shared.interlock.put(self.counted);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        drop(self.file.take());
        self.owner.shared.release(self.id);
    }
}
