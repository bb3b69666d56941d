//! An open file whose methods block.

use std::sync::Arc;

use bytes::Bytes;
use io::Stability;
use tokio::runtime::Runtime;

use crate::error::Result;
use crate::file::DataPath;
use crate::types::{Attributes, Handle};

/// An open file whose methods block. Clones share it; it may be used from many threads at once.
#[derive(Debug, Clone)]
pub struct File {
    inner: crate::File,
    runtime: Arc<Runtime>,
}

impl File {
    pub(super) const fn new(inner: crate::File, runtime: Arc<Runtime>) -> Self {
        Self { inner, runtime }
    }

    /// The async file.
    #[must_use]
    pub const fn file(&self) -> &crate::File {
        &self.inner
    }

    /// As [`crate::File::handle`].
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.inner.handle()
    }

    /// As [`crate::File::attributes_at_open`].
    #[must_use]
    pub fn attributes_at_open(&self) -> Option<Attributes> {
        self.inner.attributes_at_open()
    }

    /// As [`crate::File::data_path`].
    #[must_use]
    pub fn data_path(&self) -> DataPath {
        self.inner.data_path()
    }

    /// As [`crate::File::read_at`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let inner = self.inner.inner();
        inner.check_readable()?;
        match inner.lane_read(buffer, offset) {
            Some(result) => result,
            None => self.runtime.block_on(self.inner.read_at(buffer, offset)),
        }
    }

    /// As [`crate::File::read_into`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn read_into(&self, mut buffer: Vec<u8>, offset: u64, len: usize) -> Result<Vec<u8>> {
        if self.data_path() == DataPath::Lane {
            buffer.resize(len, 0);
            let count = self.read_at(&mut buffer, offset)?;
            buffer.truncate(count);
            return Ok(buffer);
        }
        self.runtime.block_on(self.inner.read_into(buffer, offset, len))
    }

    /// As [`crate::File::write_at`].
    ///
    /// # Errors
    /// Those of that method.
    #[inline]
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let inner = self.inner.inner();
        inner.check_writable()?;
        match inner.lane_write(data, offset) {
            Some(result) => result,
            None => self.runtime.block_on(self.inner.write_at(data, offset)),
        }
    }

    /// As [`crate::File::write_stable`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn write_stable(&self, data: Bytes, offset: u64, stability: Stability) -> Result<()> {
        self.runtime.block_on(self.inner.write_stable(data, offset, stability))
    }

    /// As [`crate::File::commit`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn commit(&self) -> Result<()> {
        let inner = self.inner.inner();
        let grant = inner.sync_grant_blocking();
        let revoked = inner.sync_revoked_blocking();
        let uncommitted = match inner.has_uncommitted() {
            true => self.runtime.block_on(inner.commit_uncommitted()),
            false => Ok(()),
        };
        grant.and(revoked).and(uncommitted)
    }

    /// As [`crate::File::attributes`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn attributes(&self) -> Result<Attributes> {
        self.runtime.block_on(self.inner.attributes())
    }

    /// As [`crate::File::size`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn size(&self) -> Result<u64> {
        match self.inner.inner().lane_size() {
            Some(size) => size,
            None => self.runtime.block_on(self.inner.size()),
        }
    }

    /// As [`crate::File::set_len`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.runtime.block_on(self.inner.set_len(len))
    }

    /// As [`crate::File::close`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn close(self) -> Result<()> {
        if self.inner.inner().is_dirty() { self.commit() } else { self.inner.inner().take_sync_error() }
    }
}
