//! Filesystems in memory, on which no system call waits for a disk.

use std::os::fd::AsFd;

/// The filesystem types of tmpfs and ramfs in statfs(2) (linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Whether an open file is on such a filesystem.
pub(crate) fn is_in_memory(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| IN_MEMORY.contains(&(stat.f_type as u64)))
}
