//! Descriptors kept for the moment when there are no others. A connection that waits to be accepted when all
//! descriptors are in use can't even be closed; with these it can be accepted, and then either another one
//! makes way for it or it is closed, which its peer notices at once.

use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

/// One for a connection, and one to ask the system whose it is.
const KEPT: usize = 2;

/// The descriptors.
#[derive(Debug)]
pub struct Spare(Mutex<Vec<OwnedFd>>);

impl Spare {
    /// Takes them, if there are any.
    pub fn new() -> Self {
        let spare = Self(Mutex::default());
        spare.refill();
        spare
    }

    /// Gives them back to the system, for others to be opened. False if there are none.
    pub fn release(&self) -> bool {
        let mut kept = self.0.lock();
        let had_any = !kept.is_empty();
        kept.clear();
        had_any
    }

    /// Takes what is missing; returns whether nothing is missing now.
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

/// Whether an error says that there are no descriptors left.
pub fn is_shortage(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE)
}
