//! The open /dev/fuse: reading requests, writing answers and notices.
//!
//! A request is answered on the device it was read from, and a write(2) of an answer never waits, so anybody
//! may answer from any thread.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::abi::{EXPIRE_ONLY, notify};

/// An open /dev/fuse that belongs to a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl Device {
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Reads one request. `EAGAIN`: there is none; `ENODEV`: unmounted; `ENOENT`, `EINTR`: again.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        rustix::io::read(&self.0, buffer)
    }

    /// Answers a request with success; what follows the header is put together from `parts`.
    ///
    /// # Errors
    /// `ENOENT`: the kernel doesn't want the answer any more (unmounted, aborted).
    pub(crate) fn answer(&self, unique: u64, body: &[u8]) -> rustix::io::Result<()> {
        self.send(0, unique, &[body])
    }

    /// Answers a request with an error.
    pub(crate) fn refuse(&self, unique: u64, errno: Errno) -> rustix::io::Result<()> {
        self.send(-errno.raw_os_error(), unique, &[])
    }

    /// Tells the kernel to forget a node's attributes, and with `pages` the data it has cached of it. With
    /// pages this waits for reads of them that are under way: never to be called where that would keep them
    /// from being answered.
    pub(crate) fn forget_attributes(&self, node: u64, pages: bool) -> rustix::io::Result<()> {
        // Without an offset no pages, without a length all behind the offset.
        self.invalidate(node, if pages { 0 } else { -1 }, 0)
    }

    /// Tells the kernel to forget a node's attributes, and the pages with `len` bytes from `offset` on. This
    /// waits as [`Device::forget_attributes`] does.
    pub(crate) fn forget_pages(&self, node: u64, offset: u64, len: u64) -> rustix::io::Result<()> {
        self.invalidate(node, i64::try_from(offset).unwrap_or(0), i64::try_from(len).unwrap_or(0))
    }

    fn invalidate(&self, node: u64, offset: i64, len: i64) -> rustix::io::Result<()> {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&node.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..].copy_from_slice(&len.to_ne_bytes());
        self.send(notify::INVAL_INODE, 0, &[&body])
    }

    /// Tells the kernel to look a name up again before it walks over it. This waits for operations on the
    /// directory that are under way: never to be called where that would keep them from being answered.
    pub(crate) fn expire_name(&self, directory: u64, name: &[u8]) -> rustix::io::Result<()> {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&directory.to_ne_bytes());
        body[8..12].copy_from_slice(&(name.len() as u32).to_ne_bytes());
        body[12..].copy_from_slice(&EXPIRE_ONLY.to_ne_bytes());
        self.send(notify::INVAL_ENTRY, 0, &[&body, name, &[0]])
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
