//! The pending releases of a lane's client, and the requests that wait for replies.

use crate::message::MAX_RELEASES;
use std::collections::HashMap;

/// `W` waits for a reply. Bounded by what the server allows a client: Opens in flight and open grants.
#[derive(Debug)]
pub(super) struct Outbox<W> {
    serial: u32,
    pending: HashMap<u32, W>,
    /// Grants that were closed here and whose release isn't sent yet.
    pub(super) releases: Vec<u64>,
    spare_bytes: Vec<u8>,
    spare_releases: Vec<u64>,
    hung_up: bool,
}

impl<W> Default for Outbox<W> {
    fn default() -> Self {
        Self {
            serial: 0,
            pending: HashMap::new(),
            releases: Vec::new(),
            spare_bytes: Vec::new(),
            spare_releases: Vec::new(),
            hung_up: false,
        }
    }
}

impl<W> Outbox<W> {
    /// Adds a request and returns its serial. After a hang-up the waiter is dropped.
    pub(super) fn wait(&mut self, waiter: W) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        if !self.hung_up {
            self.pending.insert(self.serial, waiter);
        }
        self.serial
    }

    /// Removes a request that was not sent. Its waiter is to be dropped after the lock.
    #[must_use]
    pub(super) fn forget(&mut self, serial: u32) -> Option<W> {
        self.pending.remove(&serial)
    }

    /// Removes the waiter of this reply; `None` if there was no such request.
    pub(super) fn answered(&mut self, serial: u32) -> Option<W> {
        self.pending.remove(&serial)
    }

    /// Whether every request is answered.
    pub(super) fn expects_nothing(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes as many releases as fit into a message.
    pub(super) fn take_releases(&mut self) -> Vec<u64> {
        if self.releases.len() <= MAX_RELEASES {
            let spare = std::mem::take(&mut self.spare_releases);
            return std::mem::replace(&mut self.releases, spare);
        }
        let rest = self.releases.split_off(MAX_RELEASES);
        std::mem::replace(&mut self.releases, rest)
    }

    /// An empty buffer for a message, reused.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare_bytes)
    }

    /// Keeps the memory of a message for the next one.
    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>, mut releases: Vec<u64>) {
        bytes.clear();
        releases.clear();
        self.spare_bytes = bytes;
        self.spare_releases = releases;
    }

    /// Notes the hang-up. Returns the waiters, to be dropped after the lock.
    #[must_use]
    pub(super) fn hang_up(&mut self) -> HashMap<u32, W> {
        self.hung_up = true;
        self.releases.clear();
        std::mem::take(&mut self.pending)
    }
}
