//! Extended attributes of files that are named by an `O_PATH` descriptor.
//!
//! getxattr(2) takes a path and fgetxattr(2) no `O_PATH` descriptor, so such a file has to be named by its
//! entry in /proc/self/fd. That path costs several times as much as the attribute. getxattrat(2) needs only a
//! name in a directory.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::getxattr;
use rustix::io::Errno;

use crate::check;

/// Reads an extended attribute of the file `name` in `directory`, without following a symbolic link. Returns
/// its length in bytes, also if `value` is empty. getxattrat(2), Linux 6.13.
///
/// # Errors
/// `ENOSYS` on an older kernel, `ENODATA` without the attribute, `ERANGE` if `value` isn't empty and too
/// short, and those of a look-up of `name`.
pub fn get_at(
    directory: impl AsFd,
    name: &CStr,
    attribute: &CStr,
    value: &mut [u8],
) -> rustix::io::Result<usize> {
    /// The same number on every architecture but alpha.
    const SYS_GETXATTRAT: libc::c_long = 464;
    /// `struct xattr_args`.
    #[repr(C, align(8))]
    struct Args {
        value: u64,
        size: u32,
        flags: u32,
    }
    let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let mut args = Args { value: value.as_mut_ptr() as u64, size, flags: 0 };
    // SAFETY: both strings are NUL-terminated. The kernel reads `args` and writes at most `size` bytes to
    // `value`; all outlive the call.
    let returned = unsafe {
        libc::syscall(
            SYS_GETXATTRAT,
            directory.as_fd().as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            attribute.as_ptr(),
            &raw mut args,
            size_of::<Args>(),
        )
    };
    check(returned).map(|length| length as usize)
}

/// As [`get_at`], of the file of an `O_PATH` descriptor. Needs /proc.
///
/// # Errors
/// `ENODATA` without the attribute, `ERANGE` if `value` isn't empty and too short, `ENOENT` without /proc.
pub fn get(file: impl AsFd, attribute: &CStr, value: &mut [u8]) -> rustix::io::Result<usize> {
    getxattr(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), attribute, value)
}

/// As [`get`], of a directory: by its entry `.` where the kernel and the permissions allow.
///
/// # Errors
/// As [`get`].
pub fn get_of_directory(
    directory: impl AsFd,
    attribute: &CStr,
    value: &mut [u8],
) -> rustix::io::Result<usize> {
    match get_at(&directory, c".", attribute, value) {
        // Before Linux 6.13, a filter of system calls, or a directory that the caller may not search.
        Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => get(directory, attribute, value),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags, XattrFlags, openat, setxattr};

    use super::*;

    const NAME: &CStr = c"user.name";

    #[test]
    fn attributes_are_read_by_path_descriptors() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("file"), b"").expect("a file");
        std::os::unix::fs::symlink("file", directory.path().join("link")).expect("a link");
        let open = |name| openat(CWD, directory.path().join(name), OFlags::PATH, Mode::empty());
        let (at, file) = (open("").expect("opens"), open("file").expect("opens"));
        let mut value = [0; 8];
        for path in ["", "file"].map(|name| directory.path().join(name)) {
            match setxattr(&path, NAME, b"value", XattrFlags::empty()) {
                Err(Errno::OPNOTSUPP) => return,
                other => other.expect("is set"),
            }
        }
        assert_eq!(get(&file, NAME, &mut value), Ok(5));
        assert_eq!(get_of_directory(&at, NAME, &mut value), Ok(5));
        assert_eq!(get_of_directory(&at, NAME, &mut []), Ok(5), "the length");
        assert_eq!(get_of_directory(&at, NAME, &mut [0; 2]), Err(Errno::RANGE));
        assert_eq!(get_of_directory(&at, c"user.none", &mut value), Err(Errno::NODATA));
        match get_at(&at, c"file", NAME, &mut value) {
            Err(errno) => assert_eq!(errno, Errno::NOSYS),
            Ok(length) => {
                assert_eq!(&value[..length], b"value");
                assert!(get_at(&at, c"link", NAME, &mut value).is_err(), "links aren't followed");
                assert_eq!(get_at(&at, c"none", NAME, &mut value), Err(Errno::NOENT));
            }
        }
    }
}
