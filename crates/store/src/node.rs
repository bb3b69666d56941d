//! One file.
use crate::{FileHandle, Kind};

/// One file of a store.
#[derive(Debug)]
pub struct Node {
    handle: FileHandle,
    kind: Kind,
}

impl Node {
    /// The handle.
    #[must_use]
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// The type; it never changes.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
