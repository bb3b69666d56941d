//! Inode numbers, `st_ino`: the server's file ids, made distinct across filesystems.
//!
//! A mount has one device number, and a server may show several filesystems below the mounted directory
//! (`crossmnt`, NFSv4's exports in one tree). Their file ids repeat, and a program that compares `st_dev` and
//! `st_ino` would take different files for hard links, and the root of a filesystem for a directory above it.
//!
//! Invariant: files of one filesystem have equal numbers exactly if they have equal file ids. The mounted
//! directory's filesystem keeps its file ids. No other filesystem has a number below 2^63, which file ids of
//! Linux's filesystems don't reach.

use client::Attributes;

/// The top bit, which no number of the mounted directory's filesystem has.
const CROSSED: u64 = 1 << 63;

/// The inode numbers of a mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InodeNumbers {
    /// The filesystem of the mounted directory.
    mounted: u64,
}

impl InodeNumbers {
    /// Those of a mount of the directory with these attributes.
    pub(crate) const fn new(root: &Attributes) -> Self {
        Self { mounted: root.fsid }
    }

    /// The number of the file with id `fileid` in the filesystem `fsid`. It is the same in every mount of the
    /// same directory.
    pub(crate) const fn of(self, fsid: u64, fileid: u64) -> u64 {
        if fsid == self.mounted { fileid } else { fileid ^ (mix(fsid) | CROSSED) }
    }

    /// The attributes with the inode number in place of the file id.
    pub(crate) const fn renumber(self, attributes: Attributes) -> Attributes {
        Attributes { fileid: self.of(attributes.fsid, attributes.fileid), ..attributes }
    }
}

/// A permutation of 64 bits in which every bit of the result depends on every bit of `value` (the finalizer
/// of SplitMix64): filesystem ids often differ in few bits.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn small_file_ids_of_many_filesystems_have_distinct_numbers() {
        let numbers = InodeNumbers { mounted: 7 };
        let ids = || 1..100;
        assert!(ids().all(|fileid| numbers.of(7, fileid) == fileid));
        let all: HashSet<_> = (0..100).flat_map(|fsid| ids().map(move |id| numbers.of(fsid, id))).collect();
        assert_eq!(all.len(), 100 * 99);
    }
}
