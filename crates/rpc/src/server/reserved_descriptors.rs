//! Descriptors reserved for accepting connections when all others are in use. Without them such a connection
//! can't even be closed. With them it is accepted, and then either another connection is displaced or it is
//! closed, which its peer notices at once.

use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

/// One for the connection, and one to query its owner.
const KEPT: usize = 2;

/// The descriptors.
#[derive(Debug)]
pub struct ReservedDescriptors(Mutex<Vec<OwnedFd>>);

impl ReservedDescriptors {
    /// Reserves the descriptors, as far as there are any.
    pub fn new() -> Self {
        let spare = Self(Mutex::default());
        spare.refill();
        spare
    }

    /// Closes them so that others can be opened. False if none was reserved.
    pub fn release(&self) -> bool {
        let mut kept = self.0.lock();
        let had_any = !kept.is_empty();
        kept.clear();
        had_any
    }

    /// Reserves the missing ones. Returns whether all are reserved now.
    pub fn refill(&self) -> bool {
        let mut kept = self.0.lock();
        while kept.len() < KEPT {
            match eventfd(0, EventfdFlags::CLOEXEC) {
                Ok(descriptor) => kept.push(descriptor),
                Err(_) => return false,
            }
        }
        true
    }
}

/// Whether an error means that no descriptor is left.
pub fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}
