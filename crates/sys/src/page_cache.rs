//! Whether the kernel caches a file's pages.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Whether an open file can be mapped, shared. The kernel maps no file of FUSE that its process has opened
/// past the page cache (`FOPEN_DIRECT_IO`), unless that asks for it (`FUSE_DIRECT_IO_ALLOW_MMAP`, Linux 6.6).
///
/// # Errors
/// Those of mmap(2) but `ENODEV`.
pub fn is_mappable(file: impl AsFd) -> rustix::io::Result<bool> {
    // SAFETY: a new mapping at an address that the kernel chooses replaces no existing one.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 1, ProtFlags::READ, MapFlags::SHARED, file, 0) };
    match mapped {
        // SAFETY: this is the mapping from above, to which there are no references.
        Ok(start) => unsafe { rustix::mm::munmap(start, 1) }.map(|()| true),
        Err(Errno::NODEV) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_with_pages_are_mappable() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(super::is_mappable(&file), Ok(true));
    }
}
