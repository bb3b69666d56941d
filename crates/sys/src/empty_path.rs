//! System calls on `O_PATH` descriptors with `AT_EMPTY_PATH`, which need neither a path nor /proc.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Access, Mode};

use crate::check;

/// Whether this thread, with its filesystem ids and effective capabilities, has `access` to the file.
///
/// faccessat2(2) with `AT_EACCESS | AT_EMPTY_PATH`, Linux 5.8.
///
/// # Errors
/// `EACCES` when not; `EROFS` for writing to a read-only filesystem.
pub fn access(file: impl AsFd, access: Access) -> rustix::io::Result<()> {
    // SAFETY: the path is a NUL-terminated literal, and the call accesses no other memory.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            access.bits(),
            libc::AT_EACCESS | libc::AT_EMPTY_PATH,
        )
    };
    check(returned).map(|_| ())
}

/// Changes the permission bits. fchmodat2(2) with `AT_EMPTY_PATH`, Linux 6.6.
///
/// # Errors
/// `ENOSYS` on an older kernel, `EOPNOTSUPP` for a symbolic link, and those of chmod(2).
pub fn chmod(file: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
    /// The same number on every architecture but alpha.
    const SYS_FCHMODAT2: libc::c_long = 452;
    // SAFETY: the path is a NUL-terminated literal, and the call accesses no other memory.
    let returned = unsafe {
        libc::syscall(SYS_FCHMODAT2, file.as_fd().as_raw_fd(), c"".as_ptr(), mode.bits(), libc::AT_EMPTY_PATH)
    };
    check(returned).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, OFlags, open};

    #[test]
    fn access_and_chmod_work_on_path_descriptors() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let fd = open(file.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("opens");
        match chmod(&fd, Mode::from_raw_mode(0o640)) {
            Ok(()) => assert_eq!(
                rustix::fs::statat(CWD, file.path(), rustix::fs::AtFlags::empty()).expect("stat").st_mode
                    & 0o7777,
                0o640
            ),
            Err(error) => assert_eq!(error, rustix::io::Errno::NOSYS),
        }
        access(&fd, Access::READ_OK).expect("it is ours");
        assert_eq!(access(&fd, Access::EXEC_OK), Err(rustix::io::Errno::ACCESS));
    }
}
