//! What the server keeps open for the states of NFSv4 clients. The engine holds it with the state, and
//! returns it with the effects when the state ends.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use state::Engine;
use store::{FileHandle, Lease};

use super::granted_attributes::GrantedAttributes;
use super::inherited::{self, KeptLocks};
use super::lock_file::{LockFile, OwnerLocks};

/// What the server keeps open for a state: it is closed when the state ends.
#[derive(Debug, Default)]
pub(crate) struct StateResources {
    /// A lock owner's locks in the kernel, from its first lock on.
    pub locks: Mutex<Option<OwnerLocks>>,
    /// The kernel lease of a delegation, which keeps local processes out.
    pub lease: OnceLock<Lease>,
    /// The file on which the holder of a write delegation makes its locks.
    leased_file: OnceLock<Arc<LockFile>>,
    /// The file's attributes when a write delegation was granted.
    pub granted: OnceLock<GrantedAttributes>,
}

impl StateResources {
    /// The file on which the holder of a write delegation makes its locks, if its lease keeps local processes
    /// out.
    pub(crate) fn leased_file(&self, kept: Option<&KeptLocks>) -> Option<&Arc<LockFile>> {
        let file = self.lease.get()?.only_file()?;
        Some(self.leased_file.get_or_init(|| {
            let stored = kept.and_then(|kept| kept.keep(inherited::SHARED, &file));
            LockFile::new(file, true, stored)
        }))
    }
}

/// The engine with the server's types: files are named by handles.
pub(crate) type StateEngine = Engine<FileHandle, StateResources>;
