//! Whether the kernel may have cached data of a file, so that direct writes invalidate pages only where there
//! are any; and whether it has read any, so that an open needn't read what it has. Of what the kernel writes
//! it keeps whole pages only, so it reads small files that were written here.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

/// What is known of the kernel's pages of a file.
#[derive(Debug, Default)]
pub(crate) struct CachedPages {
    /// Something went through the page cache since the kernel was last known to have no pages of the file.
    may_exist: AtomicBool,
    /// The kernel has read the file since an open last made it drop its pages.
    was_read: AtomicBool,
}

impl CachedPages {
    /// The kernel is about to receive data that it may cache, or has written through its cache. Called before
    /// the data is read or written, so that a direct write that completes later sees it.
    pub(crate) fn note_cached(&self) {
        if !self.may_exist.load(Relaxed) {
            self.may_exist.store(true, SeqCst);
            fence(SeqCst);
        }
    }

    /// The kernel reads data that it may cache.
    pub(crate) fn note_read(&self) {
        self.was_read.store(true, Relaxed);
    }

    /// The open that is being replied to makes the kernel drop its pages.
    pub(crate) fn forget_reads(&self) {
        self.was_read.store(false, Relaxed);
    }

    /// Whether the kernel probably has data of the file that it has read.
    pub(crate) fn was_read(&self) -> bool {
        self.was_read.load(Relaxed)
    }

    /// The file isn't open, and the open that is being replied to makes the kernel drop all pages.
    pub(crate) fn note_dropped(&self) {
        self.may_exist.store(false, SeqCst);
    }

    /// Whether there may be pages. Called after a direct write is done.
    pub(crate) fn may_exist(&self) -> bool {
        fence(SeqCst);
        self.may_exist.load(SeqCst)
    }
}
