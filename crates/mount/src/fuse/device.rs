//! The open /dev/fuse: requests are read from it, replies and notifications are written to it.
//!
//! A reply goes to the device that its request was read from. write(2) of a reply never blocks, so any thread
//! may reply.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::abi::{EXPIRE_ONLY, notify};

/// A device whose requests wake the runtime.
pub(crate) type WatchedDevice = AsyncFd<Arc<Device>>;

/// The open /dev/fuse of a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl Device {
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Registers the device with the runtime, until the result is dropped.
    ///
    /// # Errors
    /// epoll_ctl(2)'s.
    #[expect(deprecated, reason = "its unsafe successor requires that a descriptor stays the same: it does")]
    pub(crate) fn watch(self: &Arc<Self>) -> std::io::Result<WatchedDevice> {
        AsyncFd::with_interest(Arc::clone(self), Interest::READABLE | Interest::ERROR)
    }

    /// Reads one request.
    ///
    /// # Errors
    /// `EAGAIN`: there is none. `ENODEV`: the filesystem is unmounted. `ENOENT`, `EINTR`: read again.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        rustix::io::read(&self.0, buffer)
    }

    /// Replies to a request that succeeded; `body` follows the header.
    ///
    /// # Errors
    /// `ENOENT`: the kernel doesn't wait for the reply any more (unmounted, aborted).
    pub(crate) fn reply(&self, unique: u64, body: &[u8]) -> rustix::io::Result<()> {
        self.send(0, unique, &[body])
    }

    /// Replies to a request with an error.
    ///
    /// # Errors
    /// As [`Device::reply`].
    pub(crate) fn reply_error(&self, unique: u64, errno: Errno) -> rustix::io::Result<()> {
        self.send(-errno.raw_os_error(), unique, &[])
    }

    /// Invalidates the kernel's attributes of a file, and with `pages` its cached data. With `pages` the call
    /// waits for reads of those pages, so it must not run on a thread that has to serve them.
    pub(crate) fn invalidate_attributes(&self, node: u64, pages: bool) -> rustix::io::Result<()> {
        // A negative offset means no pages, a length of zero all behind the offset.
        self.invalidate(node, if pages { 0 } else { -1 }, 0)
    }

    /// Invalidates the kernel's attributes of a file, and its cached data of `len` bytes from `offset` on; a
    /// `len` of 0 means all behind `offset`. Waits as [`Device::invalidate_attributes`] does.
    pub(crate) fn invalidate_pages(&self, node: u64, offset: u64, len: u64) -> rustix::io::Result<()> {
        self.invalidate(node, i64::try_from(offset).unwrap_or(0), i64::try_from(len).unwrap_or(0))
    }

    fn invalidate(&self, node: u64, offset: i64, len: i64) -> rustix::io::Result<()> {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&node.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..].copy_from_slice(&len.to_ne_bytes());
        self.send(notify::INVAL_INODE, 0, &[&body])
    }

    /// Makes the kernel look a name up again before its next use. The call waits for operations on the
    /// directory, so it must not run on a thread that has to serve them.
    pub(crate) fn expire_name(&self, directory: u64, name: &[u8]) -> rustix::io::Result<()> {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&directory.to_ne_bytes());
        body[8..12].copy_from_slice(&(name.len() as u32).to_ne_bytes());
        body[12..].copy_from_slice(&EXPIRE_ONLY.to_ne_bytes());
        self.send(notify::INVAL_ENTRY, 0, &[&body, name, &[0]])
    }

    /// Makes the kernel look all names up again before their next use (Linux 6.16).
    ///
    /// # Errors
    /// `EINVAL`: the kernel is older.
    pub(crate) fn expire_all_names(&self) -> rustix::io::Result<()> {
        self.send(notify::INC_EPOCH, 0, &[])
    }

    fn send(&self, error: i32, unique: u64, parts: &[&[u8]]) -> rustix::io::Result<()> {
        let len = 16 + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut head = [0; 16];
        head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        head[4..8].copy_from_slice(&error.to_ne_bytes());
        head[8..].copy_from_slice(&unique.to_ne_bytes());
        let mut all = [IoSlice::new(&head), IoSlice::new(&[]), IoSlice::new(&[]), IoSlice::new(&[])];
        for (slot, part) in all[1..].iter_mut().zip(parts) {
            *slot = IoSlice::new(part);
        }
        loop {
            match rustix::io::writev(&self.0, &all[..=parts.len()]) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Device {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
