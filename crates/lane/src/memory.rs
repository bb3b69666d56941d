//! The interlock's words in a sealed memfd that both processes map.

use crate::interlock::{CONTROL, FIRST_SLOT, IN_FLIGHT, RECEIVED, SIZE, SLOT_SIZE, SLOTS, Words};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use sys::SharedMemory;
use sys::shared_memory::{InvalidMemory, Layout};

const LAYOUT: Layout = Layout { narrow: 0, wide: (SIZE / 8) as u16 };

/// Shared memory with the interlock's layout.
#[derive(Debug)]
pub(crate) struct InterlockMemory(SharedMemory);

impl InterlockMemory {
    /// Creates the memory, in the server.
    pub(crate) fn create() -> rustix::io::Result<Self> {
        SharedMemory::create("samehost-lane", LAYOUT).map(Self)
    }

    /// Maps the server's memory, in the client, if it is sealed and of the right size.
    pub(crate) fn from_peer(file: OwnedFd) -> Result<Self, InvalidMemory> {
        SharedMemory::from_peer(file, LAYOUT).map(Self)
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        match self.0.wide((offset / 8) as u16) {
            Some(word) => word,
            // All offsets are within the layout, which `create` and `from_peer` have checked.
            None => unreachable!("the interlock's words are inside its memory"),
        }
    }
}

impl Words for InterlockMemory {
    type Word = AtomicU64;

    #[inline]
    fn control(&self) -> &AtomicU64 {
        self.word(CONTROL)
    }

    #[inline]
    fn in_flight(&self) -> &AtomicU64 {
        self.word(IN_FLIGHT)
    }

    #[inline]
    fn slot(&self, index: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + index.min(SLOTS - 1) * SLOT_SIZE)
    }

    #[inline]
    fn received(&self) -> &AtomicU64 {
        self.word(RECEIVED)
    }
}

impl AsFd for InterlockMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
