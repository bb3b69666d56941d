//! The blocking face: the same session and files for code without a runtime.
//!
//! It owns a current-thread runtime for the wire. Reads and writes over a lane never enter it.

use std::sync::Arc;

use crate::error::Result;
use crate::options::Options;
use crate::url::Url;

/// A session whose methods block.
#[derive(Debug, Clone)]
pub struct Session {
    runtime: Arc<tokio::runtime::Runtime>,
    inner: crate::Session,
}

impl Session {
    /// As [`crate::Session::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &Url, options: Options) -> Result<Self> {
        let _ = (url, options);
        unimplemented!()
    }

    /// The async session underneath; its futures must be run with [`Session::run`].
    #[must_use]
    pub fn session(&self) -> &crate::Session {
        &self.inner
    }

    /// Runs a future of the async session to its end.
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}
