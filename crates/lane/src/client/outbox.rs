//! What a lane's client has yet to say, and the answers that it waits for.

use super::{OpenError, Opened, Then};
use crate::message::MAX_RELEASES;
use std::collections::HashMap;
use std::fmt;
use tokio::sync::oneshot;

/// The answer to an Open, when it comes; an error when it never will.
pub(super) type Answer = oneshot::Receiver<Result<Opened, OpenError>>;

/// Who waits for an answer.
pub(super) enum Waiter {
    Open(oneshot::Sender<Result<Opened, OpenError>>),
    Ahead(Then),
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Open(_)) { "Open" } else { "Ahead" })
    }
}

/// See the module. Bounded by what the server lets a client have: Opens under way and open grants.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    serial: u32,
    pending: HashMap<u32, Waiter>,
    /// Grants that were closed here and that the server doesn't know of yet.
    pub(super) releases: Vec<u64>,
    spare_bytes: Vec<u8>,
    spare_releases: Vec<u64>,
    hung_up: bool,
}

impl Outbox {
    /// One more Open will be under way.
    pub(super) fn expect(&mut self) -> (u32, Answer) {
        let (sender, answer) = oneshot::channel();
        (self.wait(Waiter::Open(sender)), answer)
    }

    /// One more request will be under way; its number. When nobody will answer any more the waiter is
    /// dropped.
    pub(super) fn wait(&mut self, waiter: Waiter) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        if !self.hung_up {
            self.pending.insert(self.serial, waiter);
        }
        self.serial
    }

    /// The request was not sent. Its waiter is to be dropped after the lock.
    #[must_use]
    pub(super) fn forget(&mut self, serial: u32) -> Option<Waiter> {
        self.pending.remove(&serial)
    }

    /// Who waits for this answer; `None` if nobody ever asked.
    pub(super) fn answered(&mut self, serial: u32) -> Option<Waiter> {
        self.pending.remove(&serial)
    }

    /// Whether everything has been answered.
    pub(super) fn expects_nothing(&self) -> bool {
        self.pending.is_empty()
    }

    /// As many releases as a message has room for.
    pub(super) fn take_releases(&mut self) -> Vec<u64> {
        if self.releases.len() <= MAX_RELEASES {
            let spare = std::mem::take(&mut self.spare_releases);
            return std::mem::replace(&mut self.releases, spare);
        }
        let rest = self.releases.split_off(MAX_RELEASES);
        std::mem::replace(&mut self.releases, rest)
    }

    /// An empty buffer for a message, used before.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare_bytes)
    }

    /// Keeps the memory of a message for the next.
    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>, mut releases: Vec<u64>) {
        bytes.clear();
        releases.clear();
        self.spare_bytes = bytes;
        self.spare_releases = releases;
    }

    /// Nobody will answer any more: the waiters, to be dropped after the lock.
    #[must_use]
    pub(super) fn hang_up(&mut self) -> HashMap<u32, Waiter> {
        self.hung_up = true;
        self.releases.clear();
        std::mem::take(&mut self.pending)
    }
}
