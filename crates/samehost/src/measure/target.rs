//! The targets of the measuring loop.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use client::Url;

use crate::connect;
use crate::exit::Failure;

/// A file with reads and writes at any offset.
pub trait MeasureTarget {
    /// Fills `buffer` from `offset` and returns it. An earlier end of the file is an error.
    fn read(&self, buffer: Vec<u8>, offset: u64) -> impl Future<Output = Result<Vec<u8>, Failure>>;

    /// Writes all of `data` at `offset`.
    fn write(&self, data: Bytes, offset: u64) -> impl Future<Output = Result<(), Failure>>;

    /// Makes written data durable.
    fn commit(&self) -> impl Future<Output = Result<(), Failure>>;
}

/// A local file, without a server.
pub struct Raw {
    file: File,
    path: PathBuf,
    scratch: bool,
}

impl Raw {
    /// Opens the file at `path`.
    pub fn existing(path: &Path) -> Result<Self, Failure> {
        Self::open(path, OpenOptions::new().read(true).write(true), false)
    }

    /// Creates a file at `path`, which is removed on drop.
    pub fn scratch(path: &Path) -> Result<Self, Failure> {
        Self::open(path, OpenOptions::new().read(true).write(true).create_new(true), true)
    }

    fn open(path: &Path, how: &OpenOptions, scratch: bool) -> Result<Self, Failure> {
        let file = how.open(path).map_err(|error| Failure::new(path.display().to_string(), error))?;
        Ok(Self { file, path: path.to_path_buf(), scratch })
    }

    fn to_failure(&self, error: io::Error) -> Failure {
        Failure::new(self.path.display().to_string(), error)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.scratch {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl MeasureTarget for Raw {
    async fn read(&self, mut buffer: Vec<u8>, offset: u64) -> Result<Vec<u8>, Failure> {
        self.file.read_exact_at(&mut buffer, offset).map_err(|error| self.to_failure(error))?;
        Ok(buffer)
    }

    async fn write(&self, data: Bytes, offset: u64) -> Result<(), Failure> {
        self.file.write_all_at(&data, offset).map_err(|error| self.to_failure(error))
    }

    async fn commit(&self) -> Result<(), Failure> {
        // As over the other data paths, so that no run leaves work in the journal to the next one.
        self.file.sync_all().map_err(|error| self.to_failure(error))
    }
}

/// A file of the client library. Its session determines the data path.
pub struct Served {
    /// The file.
    pub file: client::File,
    /// Its URL.
    pub url: Url,
}

impl Served {
    fn to_failure(&self, error: client::Error) -> Failure {
        connect::failure(&self.url, error)
    }
}

impl MeasureTarget for Served {
    async fn read(&self, buffer: Vec<u8>, offset: u64) -> Result<Vec<u8>, Failure> {
        let wanted = buffer.len();
        let buffer =
            self.file.read_into(buffer, offset, wanted).await.map_err(|error| self.to_failure(error))?;
        if buffer.len() < wanted {
            return Err(Failure::new(self.url.to_string(), "became shorter while it was measured"));
        }
        Ok(buffer)
    }

    async fn write(&self, data: Bytes, offset: u64) -> Result<(), Failure> {
        self.file.write_bytes(data, offset).await.map_err(|error| self.to_failure(error))
    }

    async fn commit(&self) -> Result<(), Failure> {
        self.file.commit().await.map_err(|error| self.to_failure(error))
    }
}
