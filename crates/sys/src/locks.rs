//! Byte-range locks of open file descriptions (fcntl_locking(2), `F_OFD_*`). They belong to the description,
//! exclude local processes, too, and are released when its last descriptor is closed.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

/// A lock on bytes `first` to `last`, both included. A `last` of [`u64::MAX`] means to the end of the file,
/// however far that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
    /// Exclusive, or shared.
    pub exclusive: bool,
}

/// The largest offset: the kernel's offsets are signed.
const LAST: u64 = i64::MAX as u64;

impl FileLock {
    /// In the kernel's form. A lock that begins beyond the largest offset locks its last byte.
    fn raw(&self, kind: libc::c_int) -> libc::flock {
        let first = self.first.min(LAST);
        let length = if self.last >= LAST { 0 } else { self.last - first + 1 };
        // SAFETY: `flock` consists of integers, for which zeros are valid.
        let mut raw: libc::flock = unsafe { std::mem::zeroed() };
        raw.l_type = kind as libc::c_short;
        raw.l_whence = libc::SEEK_SET as libc::c_short;
        raw.l_start = first as libc::off_t;
        raw.l_len = length as libc::off_t;
        raw
    }

    fn kind(&self) -> libc::c_int {
        if self.exclusive { libc::F_WRLCK } else { libc::F_RDLCK }
    }
}

/// Takes a lock without waiting; `false` if it conflicts with another.
///
/// # Errors
/// The kernel's, `BADF` when the file isn't open for that kind of lock.
pub fn lock(file: impl AsFd, lock: &FileLock) -> rustix::io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, lock.raw(lock.kind())) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Releases the locks on a range.
///
/// # Errors
/// The kernel's.
pub fn unlock(file: impl AsFd, first: u64, last: u64) -> rustix::io::Result<()> {
    let range = FileLock { first, last, exclusive: false };
    control(file, libc::F_OFD_SETLK, range.raw(libc::F_UNLCK)).map(drop)
}

/// A lock that conflicts with `lock`, if there is one.
///
/// # Errors
/// The kernel's.
pub fn test(file: impl AsFd, lock: &FileLock) -> rustix::io::Result<Option<FileLock>> {
    let found = control(file, libc::F_OFD_GETLK, lock.raw(lock.kind()))?;
    if libc::c_int::from(found.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let first = found.l_start as u64;
    let last = if found.l_len == 0 { u64::MAX } else { first + (found.l_len as u64 - 1) };
    Ok(Some(FileLock { first, last, exclusive: libc::c_int::from(found.l_type) == libc::F_WRLCK }))
}

fn control(file: impl AsFd, command: libc::c_int, mut raw: libc::flock) -> rustix::io::Result<libc::flock> {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and `raw` outlives the call.
    let done = unsafe { libc::fcntl(descriptor, command, &raw mut raw) };
    crate::check(done.into()).map(|_| raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_exclude_each_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [one, other] =
            [(); 2].map(|()| std::fs::File::options().read(true).write(true).open(file.path()).unwrap());
        let range = |first, last, exclusive| FileLock { first, last, exclusive };
        assert!(lock(&one, &range(10, 19, true)).unwrap());
        assert!(lock(&one, &range(15, u64::MAX, true)).unwrap(), "its own lock");
        assert!(!lock(&other, &range(0, 10, false)).unwrap());
        assert_eq!(test(&other, &range(0, 10, false)).unwrap(), Some(range(10, u64::MAX, true)));
        assert_eq!(test(&other, &range(0, 9, true)).unwrap(), None);
        unlock(&one, 0, 14).unwrap();
        assert!(lock(&other, &range(0, 14, true)).unwrap());
        assert!(!lock(&one, &range(14, 14, false)).unwrap());
        drop(other);
        assert!(lock(&one, &range(14, 14, false)).unwrap(), "closed is unlocked");
        assert!(lock(&one, &range(u64::MAX - 1, u64::MAX, true)).unwrap());
    }
}
