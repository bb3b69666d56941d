//! What direct I/O with a file needs: its alignment, and descriptors with `O_DIRECT`, opened when first
//! needed beside the ordinary ones.
//!
//! They carry no promise: a direct write's error is told to the writer at once, and what its edges leave in
//! the page cache is synced through the ordinary descriptor, which stays as long as `unsynced` wants. So
//! these can be closed at any time.

use std::sync::OnceLock;

use ::io::Alignment;

use crate::node::DataFile;

/// A file's alignment, once it was asked for, and its direct descriptors.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    alignment: OnceLock<Option<Alignment>>,
    read: DataFile,
    write: DataFile,
}

impl Direct {
    /// The alignment; `ask` is called the first time.
    pub fn alignment(&self, ask: impl FnOnce() -> Option<Alignment>) -> Option<Alignment> {
        *self.alignment.get_or_init(ask)
    }

    /// The descriptor for reading or for writing.
    pub fn file(&self, for_writing: bool) -> &DataFile {
        if for_writing { &self.write } else { &self.read }
    }
}
