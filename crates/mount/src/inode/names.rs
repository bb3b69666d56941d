//! The names under which the kernel knows one file.

use std::sync::Arc;

/// Names that are kept for a file; the oldest one makes room.
const MAX_NAMES: usize = 64;

/// A directory's node ID and a name in it.
pub(crate) type NameRef = (u64, Arc<[u8]>);

/// A file's names, at most [`MAX_NAMES`], the oldest first. Only the path cache changes them, so that both
/// have the same names.
#[derive(Debug, Default)]
pub(crate) struct InodeNames(Vec<NameRef>);

impl InodeNames {
    /// The oldest name.
    pub(crate) fn first(&self) -> Option<NameRef> {
        self.0.first().cloned()
    }

    pub(crate) fn list(&self) -> Vec<NameRef> {
        self.0.clone()
    }

    /// Adds a name. Returns the one that makes room for it.
    pub(crate) fn push(&mut self, directory: u64, name: Arc<[u8]>) -> Option<NameRef> {
        let oldest = (self.0.len() >= MAX_NAMES).then(|| self.0.remove(0));
        if self.0.is_empty() {
            // Most files have one name only.
            self.0.reserve_exact(1);
        }
        self.0.push((directory, name));
        oldest
    }

    /// Removes a name and returns it.
    pub(crate) fn remove(&mut self, directory: u64, name: &[u8]) -> Option<Arc<[u8]>> {
        let index = self.0.iter().position(|(other, named)| *other == directory && **named == *name)?;
        Some(self.0.remove(index).1)
    }

    /// Removes all names.
    pub(crate) fn take(&mut self) -> Vec<NameRef> {
        std::mem::take(&mut self.0)
    }

    #[cfg(test)]
    pub(crate) const MAX: usize = MAX_NAMES;
}
