//! The kernel's file handles, which identify files across paths, processes and reboots.
//!
//! name_to_handle_at(2) returns a file's handle, open_by_handle_at(2) opens it. They allow an NFS server to
//! be stateless.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::check;

/// The kernel's limit on a handle's length in bytes (`MAX_HANDLE_SZ`).
pub const MAX_LENGTH: usize = 128;

/// A file handle as made by the filesystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelHandle {
    kind: i32,
    length: usize,
    bytes: [u8; MAX_LENGTH],
}

/// `struct file_handle` with space for the longest handle.
#[repr(C)]
struct Raw {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; MAX_LENGTH],
}

impl KernelHandle {
    /// The inverse of [`KernelHandle::kind`] and [`KernelHandle::as_bytes`]; `None` when it is longer than
    /// [`MAX_LENGTH`].
    #[must_use]
    pub fn new(kind: i32, bytes: &[u8]) -> Option<KernelHandle> {
        let mut handle = KernelHandle { kind, length: bytes.len(), bytes: [0; MAX_LENGTH] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The filesystem's handle type.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The bytes, opaque except to the filesystem.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The handle of `name` in `dir`, without following a symbolic link. An empty name means `dir` itself (an
    /// `O_PATH` descriptor of any file).
    ///
    /// # Errors
    /// `EOPNOTSUPP` when the filesystem has no handles, `EOVERFLOW` for one longer than [`MAX_LENGTH`], and
    /// those of a look-up of `name`.
    pub fn of(dir: impl AsFd, name: &CStr) -> rustix::io::Result<KernelHandle> {
        let mut raw = Raw { handle_bytes: MAX_LENGTH as u32, handle_type: 0, f_handle: [0; MAX_LENGTH] };
        let mut mount_id: libc::c_int = 0;
        let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
        // SAFETY: `name` is NUL-terminated. `raw` begins with the two fields that the kernel reads, followed
        // by the space that `handle_bytes` announces. Both outlive the call.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                dir.as_fd().as_raw_fd(),
                name.as_ptr(),
                &raw mut raw,
                &raw mut mount_id,
                flags,
            )
        };
        check(returned)?;
        let length = raw.handle_bytes as usize;
        if length > MAX_LENGTH {
            return Err(Errno::OVERFLOW);
        }
        Ok(KernelHandle { kind: raw.handle_type, length, bytes: raw.f_handle })
    }

    /// Opens the file through the mount that `mount` is on: a descriptor that is open for reading, not an
    /// `O_PATH` one. Needs `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// `ESTALE` when the file is gone, `EPERM` without the capability, `EBADF` for an `O_PATH` descriptor.
    pub fn open(&self, mount: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut raw =
            Raw { handle_bytes: self.length as u32, handle_type: self.kind, f_handle: [0; MAX_LENGTH] };
        raw.f_handle[..self.length].copy_from_slice(self.as_bytes());
        // SAFETY: the kernel reads `handle_bytes` bytes of `f_handle`, which is that long; `raw` outlives the
        // call.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_fd().as_raw_fd(),
                &raw mut raw,
                (flags | OFlags::CLOEXEC).bits() as libc::c_int,
            )
        };
        let fd = check(returned)?;
        // SAFETY: the kernel has just created this descriptor, so nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_opens_its_file() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("f"), b"x").expect("writes");
        let opened = std::fs::File::open(dir.path()).expect("opens");
        let by_name = KernelHandle::of(&opened, c"f").expect("has handles");
        let file = std::fs::File::open(dir.path().join("f")).expect("opens");
        assert_eq!(by_name, KernelHandle::of(&file, c"").expect("has handles"));
        let again = KernelHandle::new(by_name.kind(), by_name.as_bytes()).expect("fits");
        match again.open(&opened, OFlags::PATH) {
            Ok(fd) => assert_eq!(
                rustix::fs::fstat(&fd).expect("stat").st_ino,
                rustix::fs::fstat(&file).expect("stat").st_ino
            ),
            Err(error) => assert_eq!(error, Errno::PERM),
        }
        assert_eq!(KernelHandle::of(&opened, c"none"), Err(Errno::NOENT));
        assert!(KernelHandle::new(1, &[0; MAX_LENGTH + 1]).is_none());
    }
}
