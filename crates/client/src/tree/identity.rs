//! The identity of a file in a tree: [`FileIdentity`].

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::handle::IDENTITY_MAX;

/// What names a file of a tree: the bytes of [`crate::Handle::identity`]. As a value it needs no allocation,
/// and a map compares it without following a pointer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileIdentity {
    len: u8,
    bytes: [u8; IDENTITY_MAX],
}

impl FileIdentity {
    /// The identity of these parts, one after another. `None` if a handle has no room for it.
    pub(crate) fn new(parts: &[&[u8]]) -> Option<Self> {
        let (mut len, mut bytes) = (0, [0; IDENTITY_MAX]);
        for part in parts {
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        Some(Self { len: len as u8, bytes })
    }
}

impl Deref for FileIdentity {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Borrow<[u8]> for FileIdentity {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for FileIdentity {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for FileIdentity {}

impl Hash for FileIdentity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
