//! An open file: an object that knows its road.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::Result;
use crate::types::{Attributes, Handle, Stability};

/// Which way a file's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Road {
    /// NFS over TCP.
    Wire,
    /// A granted descriptor.
    Lane,
}

#[derive(Debug)]
struct Inner {}

/// An open file. Clones share it; it may be used from many tasks at once.
#[derive(Debug, Clone)]
pub struct File {
    inner: Arc<Inner>,
}

impl File {
    /// The file's persistent handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        let _ = &self.inner;
        unimplemented!()
    }

    /// Which road the next read or write would take.
    #[must_use]
    pub fn road(&self) -> Road {
        unimplemented!()
    }

    /// Reads at `offset` until `buffer` is full or the file ends; returns how many bytes were read.
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error.
    pub async fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let _ = (buffer, offset);
        unimplemented!()
    }

    /// Reads up to `len` bytes at `offset` into `buffer` (its old contents are lost, its capacity is reused) and gives
    /// it back, as long as what was read. The wire's payload is received straight into it.
    ///
    /// # Errors
    /// As [`File::read_at`]; the buffer is then lost.
    pub async fn read_into(&self, buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        let _ = (buffer, offset, len);
        unimplemented!()
    }

    /// Writes all of `data` at `offset`; [`File::commit`] makes it durable.
    ///
    /// # Errors
    /// The server's, the call's, or the granted file's error; some of the data may have been written.
    pub async fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let _ = (data, offset);
        unimplemented!()
    }

    /// Writes all of `data` at `offset` without copying it.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_bytes(&self, data: Bytes, offset: u64) -> Result<()> {
        let _ = (data, offset);
        unimplemented!()
    }

    /// Writes all of `data` at `offset`, as durable as `stability` says when this returns.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_stable(&self, data: Bytes, offset: u64, stability: Stability) -> Result<()> {
        let _ = (data, offset, stability);
        unimplemented!()
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// As [`File::write_at`]; data may then be lost.
    pub async fn commit(&self) -> Result<()> {
        unimplemented!()
    }

    /// The file's attributes as of now.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn attributes(&self) -> Result<Attributes> {
        unimplemented!()
    }

    /// Cuts the file off at `len`, or fills it with zeros up to there.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn set_len(&self, len: u64) -> Result<()> {
        let _ = len;
        unimplemented!()
    }

    /// Commits what is not durable, and gives the grant back if this was the last clone. Dropping a file gives the
    /// grant back, too, but can't report an error.
    ///
    /// # Errors
    /// As [`File::commit`].
    pub async fn close(self) -> Result<()> {
        unimplemented!()
    }
}
