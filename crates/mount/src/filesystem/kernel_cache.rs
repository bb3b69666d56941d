//! What the kernel caches of this filesystem, and its invalidation by notifications.
//!
//! *Attributes* are invalidated at once: without pages the notification doesn't block.
//!
//! *Pages* need invalidation after direct writes. Before an O_DIRECT write the kernel drops its pages of that
//! range. A synchronous write drops them once more when it is done, because a read may have filled them
//! meanwhile. An asynchronous one (Linux AIO, io_uring) doesn't: fs/fuse/file.c, `fuse_direct_IO`, returns
//! before the write is done, and `fuse_aio_complete` leaves the page cache alone. Pages that were read
//! meanwhile would then stay in the cache, older than the file. So the mount makes the kernel drop them after
//! the write and before its reply, if [`Inode::pages`] says that there may be any.
//!
//! *Names* in directories that not everybody may search any more are revoked ([`SearchRevocation`]).

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::search_revocation::SearchRevocation;
use crate::fuse::device::Device;
use crate::inode::Inode;

/// Threads at once that wait for the kernel to drop pages. The kernel waits for reads under way, which may
/// need threads, too.
const MAX_PAGE_THREADS: usize = 64;

/// The kernel's caches.
#[derive(Debug)]
pub(crate) struct KernelCache {
    device: Arc<Device>,
    page_threads: Arc<Semaphore>,
    pub(super) revocation: SearchRevocation,
}

impl KernelCache {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            revocation: SearchRevocation::new(device.clone()),
            device,
            page_threads: Arc::new(Semaphore::new(MAX_PAGE_THREADS)),
        }
    }

    pub(crate) const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Invalidates a file's attributes. An error means that the kernel doesn't know the file any more.
    pub(super) fn invalidate_attributes(&self, inode: &Inode) {
        let _ = self.device.invalidate_attributes(inode.number, false);
    }

    /// Makes the kernel look all names up again.
    ///
    /// # Errors
    /// `EINVAL`: it can't (before Linux 6.16).
    pub(super) fn expire_all_names(&self) -> rustix::io::Result<()> {
        self.device.expire_all_names()
    }

    /// Invalidates the attributes of a file whose set-id bits a change has cleared, if the kernel was told
    /// those. The reply to the change doesn't tell it, and the kernel would run the file as its owner.
    pub(super) fn invalidate_set_id(&self, inode: &Inode) {
        if inode.take_reported_set_id() {
            self.invalidate_attributes(inode);
        }
    }

    /// Invalidates a file's attributes and pages on a thread of its own: the kernel may wait for a read whose
    /// reply comes later.
    pub(super) fn invalidate_data(&self, inode: &Inode) {
        let (device, number) = (self.device.clone(), inode.number);
        tokio::task::spawn_blocking(move || device.invalidate_attributes(number, true));
    }

    /// Drops the pages of a range after a direct write, complete or not, and before its reply.
    pub(super) async fn drop_pages(&self, inode: &Inode, offset: u64, len: u64) {
        if len > 0 && inode.pages.may_exist() {
            self.invalidate_pages(inode, offset, len).await;
        }
    }

    /// Drops all pages from that of `offset` on after data was written there.
    pub(super) async fn drop_pages_behind(&self, inode: &Inode, offset: u64) {
        if inode.pages.may_exist() {
            self.invalidate_pages(inode, offset, 0).await;
        }
    }

    /// Makes the kernel write back and drop all pages of a file whose times are about to be set, if the file
    /// may have been written through a mapping. Otherwise the server would see that write at the last close
    /// and take it for a present change; on a local disk it has the time of the first store. Not for a call
    /// that truncates the file: the kernel writes nothing back during that.
    pub(super) async fn write_back_mappings(&self, inode: &Inode) {
        let is_mappable = inode.lock().opens.is_mappable();
        if is_mappable && inode.pages.may_exist() {
            self.invalidate_pages(inode, 0, 0).await;
        }
    }

    /// Makes the kernel forget the attributes of a file, and write back and drop all of its pages.
    pub(super) async fn drop_data(&self, inode: &Inode) {
        if inode.pages.may_exist() {
            self.invalidate_pages(inode, 0, 0).await;
        } else {
            self.invalidate_attributes(inode);
        }
    }

    /// Writes back and drops pages; a `len` of 0 means all behind `offset`. Runs on a thread that may block:
    /// reads and writes that hold the pages are served by threads that may not.
    async fn invalidate_pages(&self, inode: &Inode, offset: u64, len: u64) {
        let Ok(permit) = self.page_threads.clone().acquire_owned().await else { return };
        let (device, number) = (self.device.clone(), inode.number);
        let dropped = tokio::task::spawn_blocking(move || {
            // ENOENT: the kernel doesn't know the file any more.
            let _ = device.invalidate_pages(number, offset, len);
            drop(permit);
        });
        let _ = dropped.await;
    }
}
