//! Whole files in and out, with many requests in flight.

use std::fs;
use std::sync::Arc;

use crate::error::Result;
use crate::file::File;

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes copied so far.
    pub bytes: u64,
    /// Bytes altogether, as the source's size said at the beginning.
    pub total: u64,
}

/// How to copy.
#[derive(Clone)]
pub struct CopyOptions {
    /// Bytes a request; the session's rsize or wsize if `None`.
    pub chunk: Option<usize>,
    /// Requests in flight; 8.
    pub window: usize,
    /// Make the copy durable before it is reported done.
    pub commit: bool,
    /// Is told about every request that is done.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self { chunk: None, window: 8, commit: true, progress: None }
    }
}

/// Copies the whole of `from` to the beginning of `to`; both on servers, not necessarily the same. Returns bytes copied.
///
/// # Errors
/// The first error of either side.
pub async fn copy(from: &File, to: &File, options: &CopyOptions) -> Result<u64> {
    let _ = (from, to, options);
    unimplemented!()
}

/// Copies the whole of `from` to the local file `to`. Returns bytes copied.
///
/// # Errors
/// The first error of either side.
pub async fn read_from(from: &File, to: &Arc<fs::File>, options: &CopyOptions) -> Result<u64> {
    let _ = (from, to, options);
    unimplemented!()
}

/// Copies the whole of the local file `from` to `to`. Returns bytes copied.
///
/// # Errors
/// The first error of either side.
pub async fn write_to(from: &Arc<fs::File>, to: &File, options: &CopyOptions) -> Result<u64> {
    let _ = (from, to, options);
    unimplemented!()
}
