//! File handles.
use std::fmt;

/// The secret under which handles are sealed: 16 random bytes that the server keeps over restarts.
#[derive(Clone)]
pub struct HandleKey([u8; 16]);

impl HandleKey {
    /// From the server's state directory.
    #[must_use]
    pub fn new(bytes: [u8; 16]) -> HandleKey {
        HandleKey(bytes)
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

/// A file handle: at most [`FileHandle::MAX`] bytes that mean something to the store that made them only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; FileHandle::MAX],
}

impl FileHandle {
    /// The longest handle in bytes (RFC 1813 section 2.4, `NFS3_FHSIZE`).
    pub const MAX: usize = 64;

    /// The handle as it goes over the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Which export a handle says it belongs to. Nothing is checked: it is only good for choosing the store to ask.
    #[must_use]
    pub fn export_of(bytes: &[u8]) -> Option<u32> {
        let _ = bytes;
        unimplemented!()
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
