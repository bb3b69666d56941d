//! Why a file of /proc can't be opened.

use std::io;
use std::path::Path;

/// The error of opening a file below /proc, in other words where the reason is that /proc isn't mounted: the
/// kernel's "No such file or directory" would send the user to look for the wrong file.
pub fn proc_error(error: io::Error) -> io::Error {
    let missing = |path: &str| Path::new(path).symlink_metadata().is_err();
    if error.kind() == io::ErrorKind::NotFound && missing("/proc/self") {
        return io::Error::new(error.kind(), "/proc isn't mounted (mount -t proc proc /proc)");
    }
    error
}
