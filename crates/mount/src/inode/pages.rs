//! Whether the kernel may have cached data of a file, so that direct writes invalidate pages only where there
//! are any.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

/// Whether anything went through the kernel's page cache since it was last known to have no pages of the
/// file.
#[derive(Debug, Default)]
pub(crate) struct CachedPages(AtomicBool);

impl CachedPages {
    /// The kernel is about to receive data that it may cache, or has written through its cache. Called before
    /// the data is read or written, so that a direct write that completes later sees it.
    pub(crate) fn note_cached(&self) {
        if !self.0.load(Relaxed) {
            self.0.store(true, SeqCst);
            fence(SeqCst);
        }
    }

    /// The file isn't open, and the open that is being replied to makes the kernel drop all pages.
    pub(crate) fn note_dropped(&self) {
        self.0.store(false, SeqCst);
    }

    /// Whether there may be pages. Called after a direct write is done.
    pub(crate) fn may_exist(&self) -> bool {
        fence(SeqCst);
        self.0.load(SeqCst)
    }
}
