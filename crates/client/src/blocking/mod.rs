//! Sessions and files whose methods block, for code without a runtime.
//!
//! A blocking session owns a current-thread runtime for the wire. The calling threads drive it. Reads and
//! writes over a lane don't enter it: they are a `pread` or `pwrite` on the calling thread.
//!
//! ```
//! use samehost_client::blocking::Session;
//! use samehost_client::{OpenOptions, Options, Url};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: Url = "nfs://server/export".parse()?;
//! # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
//! # let server = example::ExampleServer::start();
//! # let url = server.url();
//! let session = Session::connect(&url, Options::new())?;
//! let file = session.open(b"greeting", &OpenOptions::reading())?;
//! let mut buffer = [0; 100];
//! let count = file.read_at(&mut buffer, 0)?;
//! assert_eq!(&buffer[..count], b"hello\n");
//! file.close()?;
//! # Ok(())
//! # }
//! ```

mod file;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::options::{OpenOptions, Options};
use crate::session::Follow;
use crate::types::{Attributes, DirEntry, Found, FsStat, Handle, LaneReport, Plus, SetAttributes};
use crate::url::Url;

pub use file::File;

/// A session whose methods block. They panic inside an async runtime.
#[derive(Debug, Clone)]
pub struct Session {
    // Dropped first, because the end of a session needs the runtime.
    inner: crate::Session,
    runtime: Arc<tokio::runtime::Runtime>,
}

impl Session {
    /// As [`crate::Session::connect`].
    ///
    /// # Errors
    /// Those of that method; [`Error::Local`] if no runtime can be made.
    pub fn connect(url: &Url, options: Options) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::Local { object: "the client's event loop".to_owned(), source })?;
        // The caller waits for its operations anyway, so they need no threads of their own.
        let options = options.max_blocking(usize::MAX);
        let inner = runtime.block_on(crate::Session::connect(url, options))?;
        Ok(Self { inner, runtime: Arc::new(runtime) })
    }

    /// The async session; its futures must be run with [`Session::run`].
    #[must_use]
    pub const fn session(&self) -> &crate::Session {
        &self.inner
    }

    /// Runs a future of the async session to completion.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// As [`crate::Session::open`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn open(&self, path: &[u8], options: &OpenOptions) -> Result<File> {
        self.run(self.inner.open(path, options)).map(|file| File::new(file, self.runtime.clone()))
    }

    /// As [`crate::Session::open_at`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn open_at(&self, directory: &Handle, name: &[u8], options: &OpenOptions) -> Result<File> {
        self.run(self.inner.open_at(directory, name, options))
            .map(|file| File::new(file, self.runtime.clone()))
    }

    /// As [`crate::Session::walk`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn walk(&self, path: &[u8], follow: Follow) -> Result<Found> {
        self.run(self.inner.walk(path, follow))
    }

    /// As [`crate::Session::attributes`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn attributes(&self, file: &Handle) -> Result<Attributes> {
        self.run(self.inner.attributes(file))
    }

    /// As [`crate::Session::set_attributes`], without a guard.
    ///
    /// # Errors
    /// Those of that method.
    pub fn set_attributes(&self, file: &Handle, set: &SetAttributes) -> Result<()> {
        self.run(self.inner.set_attributes(file, set, None)).map(drop)
    }

    /// As [`crate::Session::make_dir`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn make_dir(&self, directory: &Handle, name: &[u8], set: &SetAttributes) -> Result<Found> {
        self.run(self.inner.make_dir(directory, name, set))
    }

    /// As [`crate::Session::remove`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn remove(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        self.run(self.inner.remove(directory, name))
    }

    /// As [`crate::Session::rename`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn rename(
        &self,
        from_directory: &Handle,
        from: &[u8],
        to_directory: &Handle,
        to: &[u8],
    ) -> Result<()> {
        self.run(self.inner.rename(from_directory, from, to_directory, to))
    }

    /// Lists a directory: names only, or with handles and attributes.
    ///
    /// # Errors
    /// As [`crate::Directory::next`].
    pub fn read_dir(&self, directory: &Handle, plus: Plus<'static>) -> Result<Vec<DirEntry>> {
        self.run(self.inner.read_dir(directory, plus).collect())
    }

    /// As [`crate::Session::fs_stat`].
    ///
    /// # Errors
    /// Those of that method.
    pub fn fs_stat(&self, file: &Handle) -> Result<FsStat> {
        self.run(self.inner.fs_stat(file))
    }

    /// As [`crate::Session::probe`].
    #[must_use]
    pub fn probe(&self) -> LaneReport {
        self.run(self.inner.probe())
    }
}
