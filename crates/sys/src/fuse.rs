//! Backing files for FUSE passthrough (ioctl(2) on the FUSE device).

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// `_IOW(FUSE_DEV_IOC_MAGIC, 1, struct fuse_backing_map)`.
const FUSE_DEV_IOC_BACKING_OPEN: libc::c_ulong = ioc(1, 0xe501, size_of::<BackingMap>());

/// `_IOW(FUSE_DEV_IOC_MAGIC, 2, uint32_t)`.
const FUSE_DEV_IOC_BACKING_CLOSE: libc::c_ulong = ioc(1, 0xe502, size_of::<u32>());

/// An ioctl number as in asm-generic/ioctl.h; `direction` 1 is to the kernel.
const fn ioc(direction: libc::c_ulong, number: libc::c_ulong, size: usize) -> libc::c_ulong {
    direction << 30 | (size as libc::c_ulong) << 16 | number
}

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Registers an open file as a backing file of the FUSE connection; Linux 6.9. Returns its id, greater than
/// 0, which is valid until [`backing_close`] or the end of the connection. For every open that is answered
/// with the id, the kernel opens the file again with this process's credentials.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN` in the initial user namespace or where passthrough wasn't negotiated,
/// `ELOOP` when the file is on a stacked filesystem deeper than was negotiated, `ENOTTY` on a kernel without
/// it.
pub fn backing_open(device: impl AsFd, file: impl AsFd) -> rustix::io::Result<u32> {
    let map = BackingMap { fd: file.as_fd().as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the kernel only reads the struct, whose size is in the ioctl number.
    let returned = unsafe {
        libc::ioctl(device.as_fd().as_raw_fd(), FUSE_DEV_IOC_BACKING_OPEN as _, std::ptr::from_ref(&map))
    };
    let number = crate::check(returned.into())?;
    u32::try_from(number).map_err(|_| Errno::IO)
}

/// Unregisters a backing file. Opens that use it keep it until they are closed.
///
/// # Errors
/// `ENOENT` if the id isn't registered.
pub fn backing_close(device: impl AsFd, number: u32) -> rustix::io::Result<()> {
    // SAFETY: the kernel only reads four bytes.
    let returned = unsafe {
        libc::ioctl(device.as_fd().as_raw_fd(), FUSE_DEV_IOC_BACKING_CLOSE as _, std::ptr::from_ref(&number))
    };
    crate::check(returned.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_fuse_device_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(backing_open(&file, &file), Err(Errno::NOTTY));
        assert_eq!(backing_close(&file, 1), Err(Errno::NOTTY));
    }
}
