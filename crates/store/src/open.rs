//! Opening a store.
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Acting, FileHandle, HandleKey, Identity, Result, WriteVerifier};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The exported directory.
    pub path: PathBuf,
    /// Part of every handle. The same export must have the same id after a restart, and no two exports the same.
    pub export_id: u32,
    /// The secret that seals the handles.
    pub key: HandleKey,
    /// Nobody may change anything through this store.
    pub read_only: bool,
    /// Refuse handles whose file isn't below the exported directory any more (exports(5)).
    pub subtree_check: bool,
    /// The server's write verifier.
    pub verifier: Arc<WriteVerifier>,
    /// How many files to keep open at most; `None` chooses by RLIMIT_NOFILE.
    pub max_nodes: Option<usize>,
}

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path can't be opened.
    #[error("can't open {path}: {source}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// What the store may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Acts as any user.
    Full,
    /// Everything is done as the process's own user.
    Unprivileged {
        /// What is missing, in words for an admin.
        reason: String,
    },
}

/// One exported directory.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// Opens the directory.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: StoreOptions) -> std::result::Result<Store, OpenError> {
        let _ = options;
        unimplemented!()
    }

    /// The exported directory's handle.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        unimplemented!()
    }

    /// What this store may do.
    #[must_use]
    pub fn privilege(&self) -> &Privilege {
        unimplemented!()
    }

    /// The write verifier as it is now.
    #[must_use]
    pub fn verifier(&self) -> [u8; 8] {
        unimplemented!()
    }

    /// From now on this thread acts as `identity` (an unprivileged store: as the process's user, whatever is said).
    ///
    /// # Errors
    /// `Access` for ids that can't be taken on.
    pub fn act_as(&self, identity: &Identity) -> Result<Acting<'_>> {
        let _ = identity;
        unimplemented!()
    }

    /// As [`Store::act_as`], for a client that has the export read-only: changes are refused with `ReadOnly`, and grants can't be
    /// re-opened for writing.
    ///
    /// # Errors
    /// As for [`Store::act_as`].
    pub fn act_as_reader(&self, identity: &Identity) -> Result<Acting<'_>> {
        let _ = identity;
        unimplemented!()
    }
}
