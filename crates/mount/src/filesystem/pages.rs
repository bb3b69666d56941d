//! Pages that the kernel caches of a file which is also written past its page cache (O_DIRECT).
//!
//! Before a direct write the kernel drops the pages that it has of that range. A synchronous one drops them
//! once more when it is done, for somebody may have read meanwhile; an asynchronous one (Linux AIO, io_uring)
//! doesn't: fs/fuse/file.c, `fuse_direct_IO`, returns before the write is done, and `fuse_aio_complete`
//! leaves the page cache alone. What was read meanwhile would then stay in the cache, older than the file. So
//! the mount has the kernel drop it when the write is done and before it is answered.
//!
//! Only where there may be any: [`Pages`] remembers of each file whether something went through the page
//! cache since it was last known to be empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};

use tokio::sync::Semaphore;

use super::Filesystem;
use crate::inodes::Node;

/// Threads at once that wait for the kernel to drop pages. It waits for reads that are under way, which may
/// need threads, too.
const MOST: usize = 64;

/// Whether the kernel may have pages of a file.
#[derive(Debug, Default)]
pub(crate) struct Pages(AtomicBool);

impl Pages {
    /// The kernel is about to be given data that it may cache, or has written through its cache. Called
    /// before the data is read or written: a direct write that is done later finds it.
    pub(super) fn fill(&self) {
        if !self.0.load(Relaxed) {
            self.0.store(true, SeqCst);
            fence(SeqCst);
        }
    }

    /// Nobody has the file open, and the open that is answered now has the kernel drop all pages.
    pub(super) fn empty(&self) {
        self.0.store(false, SeqCst);
    }

    /// Whether there may be pages, asked after a direct write is done.
    fn may_be(&self) -> bool {
        fence(SeqCst);
        self.0.load(SeqCst)
    }
}

/// Room for threads that have the kernel drop pages.
#[derive(Debug)]
pub(super) struct Dropping(Arc<Semaphore>);

impl Default for Dropping {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Filesystem {
    /// A direct write to a range is done, as a whole or in part, and is about to be answered: has the kernel
    /// drop what it caches of it.
    pub(super) async fn drop_pages(&self, node: &Node, offset: u64, len: u32) {
        if len == 0 || !node.pages.may_be() {
            return;
        }
        self.forget_pages(node, offset, len.into()).await;
    }

    /// Times of a file are about to be set: has the kernel write back first what was written to the file by a
    /// mapping, and what the server would take for a change of the present when it comes with the last close.
    /// On a local disk the time of such a change is that of the first store. Not for a call that cuts the
    /// file: the kernel writes nothing back during that.
    pub(super) async fn write_mappings_back(&self, node: &Node) {
        if node.state.lock().mappable > 0 && node.pages.may_be() {
            self.forget_pages(node, 0, 0).await;
        }
    }

    /// Has the kernel drop pages, written back if need be; `len` 0: all behind `offset`. On a thread that may
    /// wait: reads and writes that hold the pages are answered by those that may not.
    async fn forget_pages(&self, node: &Node, offset: u64, len: u64) {
        let Ok(room) = self.dropping.0.clone().acquire_owned().await else { return };
        let (device, number) = (self.device.clone(), node.number);
        let dropped = tokio::task::spawn_blocking(move || {
            // ENOENT: the kernel doesn't know the file any more.
            let _ = device.get_ref().forget_pages(number, offset, len);
            drop(room);
        });
        let _ = dropped.await;
    }
}
