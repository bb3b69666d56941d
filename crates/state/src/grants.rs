//! Files that local processes have been given open (the lane's grants): each counts as an open, as long as it
//! lasts.
//!
//! There's no client behind it and no lease: the kernel says when the process has gone. So it is counted, and
//! not listed. It keeps out what an open would keep out, and what an open would meet it meets; it isn't asked
//! for in return, since what a process has open can't be taken from it.

use std::hash::Hash;

use crate::conflicts::AccessKind;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::share::Share;

/// How many have a file open for what.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    readers: u32,
    writers: u32,
}

impl Granted {
    /// What the file is open for: 1 reading, 2 writing.
    pub const fn access(&self) -> u8 {
        (self.readers > 0) as u8 | ((self.writers > 0) as u8) << 1
    }

    const fn add(&mut self, access: u8) {
        self.readers += (access & 1) as u32;
        self.writers += (access >> 1 & 1) as u32;
    }

    const fn remove(&mut self, access: u8) {
        self.readers = self.readers.saturating_sub((access & 1) as u32);
        self.writers = self.writers.saturating_sub((access >> 1 & 1) as u32);
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// A local process is about to be given the file open for `access` (1 to read, 2 to write, 3 for both).
    /// Ends courtesy clients that are in the way.
    ///
    /// # Errors
    /// `Grace`; `ShareDenied` if somebody's open denies it, `Delay` while a delegation is being recalled.
    pub fn grant(&mut self, now: Time, key: &K, access: u8) -> Result<(), Error> {
        // Before anybody is given anything those are struck off who have lost it by that.
        self.end_grace_if_over(now);
        if self.in_grace(now) {
            return Err(Error::Grace);
        }
        self.check_conflicts(now, None, key, AccessKind::Open(Share { access, deny: 0 }))?;
        self.files.entry(key.clone()).or_default().granted.add(access);
        Ok(())
    }

    /// A local process has closed what [`Engine::grant`] was asked for, or it wasn't given.
    pub fn release_grant(&mut self, key: &K, access: u8) {
        if let Some(file) = self.files.get_mut(key) {
            file.granted.remove(access);
            self.charge_file(key, None);
        }
    }

    /// Whether a local process has the file open for something that `share` denies.
    pub(crate) fn is_granted_against(&self, key: &K, share: Share) -> bool {
        self.files.get(key).is_some_and(|file| file.granted.access() & share.deny != 0)
    }
}
