//! Bodies of replies: what follows `struct fuse_out_header`, in the machine's byte order.

use std::time::Duration;

use client::{Attributes, ByteRange, FileKind, FsStat, LockKind, Timestamp};
use rustix::fs::StatxFlags;

use super::abi::{self, init};

/// The file type bits of a mode, `S_IFMT`.
const fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::Character => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::Block => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// Encodes a device number as the kernel's `new_encode_dev` does.
pub(crate) const fn encode_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Major and minor number of an encoded device number.
pub(crate) const fn decode_device(rdev: u32) -> (u32, u32) {
    ((rdev & 0xfff00) >> 8, (rdev & 0xff) | (rdev >> 12) & 0xfff00)
}

/// For how long the kernel may cache a name and the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CacheTimes {
    pub(crate) entry: Duration,
    pub(crate) attributes: Duration,
}

/// The body of a reply.
#[derive(Debug, Default)]
pub(crate) struct FuseReply(pub(crate) Vec<u8>);

impl FuseReply {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    fn u16(&mut self, value: u16) {
        self.0.extend(value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }

    /// `struct fuse_attr`.
    fn attributes(&mut self, from: &Attributes) {
        let seconds = |time: Timestamp| time.seconds.cast_unsigned();
        self.u64(from.fileid);
        self.u64(from.size);
        self.u64(from.used.div_ceil(512));
        for time in [from.atime, from.mtime, from.ctime] {
            self.u64(seconds(time));
        }
        for time in [from.atime, from.mtime, from.ctime] {
            self.u32(time.nanoseconds);
        }
        self.u32(type_bits(from.kind) | from.mode & 0o7777);
        self.u32(from.nlink);
        self.u32(from.uid);
        self.u32(from.gid);
        self.u32(encode_device(from.rdev.0, from.rdev.1));
        // st_blksize.
        self.u32(BLOCK);
        self.u32(0);
    }

    /// `struct fuse_entry_out`.
    pub(crate) fn entry(mut self, node: u64, attributes: &Attributes, valid: CacheTimes) -> Self {
        self.put_entry(node, Some(attributes), valid);
        self
    }

    /// An entry without a node: the name doesn't exist. The kernel caches that for `valid`.
    pub(crate) fn no_entry(mut self, valid: Duration) -> Self {
        self.put_entry(0, None, CacheTimes { entry: valid, attributes: Duration::ZERO });
        self
    }

    fn put_entry(&mut self, node: u64, attributes: Option<&Attributes>, valid: CacheTimes) {
        self.u64(node);
        // Node IDs are never reused: they need no generation.
        self.u64(0);
        self.u64(valid.entry.as_secs());
        self.u64(valid.attributes.as_secs());
        self.u32(valid.entry.subsec_nanos());
        self.u32(valid.attributes.subsec_nanos());
        match attributes {
            Some(attributes) => self.attributes(attributes),
            None => self.0.extend([0; 88]),
        }
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attr(mut self, attributes: &Attributes, valid: Duration) -> Self {
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.attributes(attributes);
        self
    }

    /// `struct fuse_statx_out`, with the birth time if it is known.
    pub(crate) fn statx(
        mut self,
        attributes: &Attributes,
        birth: Option<Timestamp>,
        valid: Duration,
    ) -> Self {
        let Attributes { kind, mode, nlink, uid, gid, size, used, rdev, fileid, .. } = *attributes;
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.0.extend([0; 20]);
        let birth_flag = if birth.is_some() { StatxFlags::BTIME } else { StatxFlags::empty() };
        self.u32((StatxFlags::BASIC_STATS | birth_flag).bits());
        self.u32(BLOCK);
        self.u64(0);
        for value in [nlink, uid, gid] {
            self.u32(value);
        }
        self.u16((type_bits(kind) | mode & 0o7777) as u16);
        self.u16(0);
        for value in [fileid, size, used.div_ceil(512), 0] {
            self.u64(value);
        }
        for time in [attributes.atime, birth.unwrap_or_default(), attributes.ctime, attributes.mtime] {
            self.u64(time.seconds.cast_unsigned());
            self.u32(time.nanoseconds);
            self.u32(0);
        }
        self.u32(rdev.0);
        self.u32(rdev.1);
        self.0.extend([0; 120]);
        self
    }

    /// `struct fuse_open_out`; `flags` are of [`abi::fopen`], `backing` 0 for none.
    pub(crate) fn open(mut self, fh: u64, flags: u32, backing: u32) -> Self {
        self.u64(fh);
        self.u32(flags);
        self.u32(backing);
        self
    }

    /// `struct fuse_write_out`.
    pub(crate) fn written(mut self, count: u32) -> Self {
        self.u32(count);
        self.u32(0);
        self
    }

    /// `struct fuse_getxattr_out`: the size of a value or list.
    pub(crate) fn xattr_size(mut self, size: u32) -> Self {
        self.u32(size);
        self.u32(0);
        self
    }

    /// `struct fuse_lseek_out`.
    pub(crate) fn offset(mut self, offset: u64) -> Self {
        self.u64(offset);
        self
    }

    /// `struct fuse_lk_out`; `None`: no lock conflicts. The process that has the lock may be of another host.
    pub(crate) fn lock(mut self, found: Option<(ByteRange, LockKind)>) -> Self {
        let (range, kind) = match found {
            Some((range, LockKind::Read)) => (range, abi::F_RDLCK),
            Some((range, LockKind::Write)) => (range, abi::F_WRLCK),
            None => (ByteRange::ALL, abi::F_UNLCK),
        };
        self.u64(range.first.min(abi::OFFSET_MAX));
        self.u64(range.last.min(abi::OFFSET_MAX));
        self.u32(kind);
        self.u32(0);
        self
    }

    /// `struct fuse_statfs_out`.
    pub(crate) fn statfs(mut self, stat: &FsStat, name_max: u32) -> Self {
        let block = u64::from(STATFS_BLOCK);
        for bytes in [stat.total_bytes, stat.free_bytes, stat.available_bytes] {
            self.u64(bytes / block);
        }
        self.u64(stat.total_files);
        self.u64(stat.free_files);
        self.u32(BLOCK);
        self.u32(name_max);
        self.u32(STATFS_BLOCK);
        self.0.extend([0; 28]);
        self
    }

    /// `struct fuse_init_out`.
    pub(crate) fn init(mut self, agreed: &Negotiated) -> Self {
        self.u32(abi::MAJOR);
        self.u32(abi::MINOR);
        self.u32(agreed.max_readahead);
        self.u32(agreed.flags as u32);
        self.u16(agreed.max_background);
        self.u16(agreed.congestion_threshold);
        self.u32(agreed.max_write);
        // The granularity of time stamps, in nanoseconds.
        self.u32(1);
        self.u16((agreed.max_write / 4096) as u16);
        self.u16(0);
        self.u32((agreed.flags >> 32) as u32);
        self.u32(if agreed.flags & init::PASSTHROUGH == 0 { 0 } else { 1 });
        self.0.extend([0; 24]);
        self
    }

    /// The nodes of which this reply gives the kernel a reference.
    pub(crate) fn nodes(&self, entries: ReplyEntries) -> Vec<u64> {
        let number = |at: usize| {
            let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_ne_bytes)
        };
        let mut nodes = Vec::new();
        match entries {
            ReplyEntries::None => {}
            ReplyEntries::One => nodes.extend(number(0)),
            ReplyEntries::Listing => {
                let mut at = 0;
                while let (Some(node), Some(lengths)) = (number(at), number(at + ENTRY + 16)) {
                    nodes.push(node);
                    // `namelen`, and behind it the type.
                    let [a, b, c, d, ..] = lengths.to_ne_bytes();
                    at += plus_len(u32::from_ne_bytes([a, b, c, d]) as usize);
                }
            }
        }
        nodes.retain(|node| *node != 0);
        nodes
    }

    /// Appends a `struct fuse_dirent`, or with `plus` a `fuse_direntplus`. Appends nothing and returns false
    /// if it doesn't fit into `limit` bytes.
    pub(crate) fn add_dirent(
        &mut self,
        limit: usize,
        dirent: &Dirent<'_>,
        plus: Option<&dyn Fn() -> Option<(u64, Attributes, CacheTimes)>>,
    ) -> bool {
        let name = dirent.name.len();
        let len = if plus.is_some() { plus_len(name) } else { (DIRENT + name).next_multiple_of(8) };
        if self.0.len() + len > limit {
            return false;
        }
        let end = self.0.len() + len;
        if let Some(look_up) = plus {
            match look_up() {
                Some((node, attributes, valid)) => self.put_entry(node, Some(&attributes), valid),
                None => self.put_entry(0, None, CacheTimes::default()),
            }
        }
        self.u64(dirent.ino);
        self.u64(dirent.offset);
        self.u32(dirent.name.len() as u32);
        self.u32(dirent.kind.map_or(0, |kind| type_bits(kind) >> 12));
        self.0.extend(dirent.name);
        self.0.resize(end, 0);
        true
    }
}

/// The size of `struct fuse_entry_out` in bytes.
const ENTRY: usize = 128;

/// The size of `struct fuse_dirent` in bytes, without the name.
const DIRENT: usize = 24;

/// The size of a `struct fuse_direntplus` in bytes, with a name of this length.
const fn plus_len(name: usize) -> usize {
    (ENTRY + DIRENT + name).next_multiple_of(8)
}

/// What a reply has of nodes, of which the kernel then has a reference each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyEntries {
    None,
    /// It begins with a `struct fuse_entry_out`.
    One,
    /// It consists of `struct fuse_direntplus`.
    Listing,
}

/// The preferred size of a transfer in bytes, `st_blksize`.
const BLOCK: u32 = 1 << 20;

/// The unit of statfs(2)'s block counts, in bytes.
const STATFS_BLOCK: u32 = 4096;

/// An entry of a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dirent<'a> {
    pub(crate) ino: u64,
    /// The offset from which the listing continues behind it.
    pub(crate) offset: u64,
    pub(crate) kind: Option<FileKind>,
    pub(crate) name: &'a [u8],
}

/// The result of INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Negotiated {
    /// Bits of [`init`].
    pub(crate) flags: u64,
    pub(crate) max_readahead: u32,
    /// Bytes of the largest WRITE and the largest READ; a multiple of 4096.
    pub(crate) max_write: u32,
    /// Background requests that the kernel sends at once.
    pub(crate) max_background: u16,
    /// Background requests with which it reads no further ahead.
    pub(crate) congestion_threshold: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_names_its_nodes() {
        let attributes = Attributes::default();
        let found = |node| FuseReply::default().entry(node, &attributes, CacheTimes::default());
        assert_eq!(found(7).nodes(ReplyEntries::One), [7]);
        assert!(found(7).nodes(ReplyEntries::None).is_empty());
        assert!(FuseReply::default().no_entry(Duration::ZERO).nodes(ReplyEntries::One).is_empty());
        assert!(FuseReply::default().nodes(ReplyEntries::Listing).is_empty());
        let mut listing = FuseReply::default();
        for (node, name) in [(0, &b"."[..]), (1, b"a"), (2, b"12345678"), (0, b"x"), (3, b"a longer name")] {
            let dirent = Dirent { ino: 1, offset: 1, kind: Some(FileKind::Regular), name };
            let look_up = || (node != 0).then_some((node, attributes, CacheTimes::default()));
            assert!(listing.add_dirent(4096, &dirent, Some(&look_up)));
        }
        assert_eq!(listing.nodes(ReplyEntries::Listing), [1, 2, 3]);
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        let attributes = Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 5,
            used: 4096,
            rdev: (0, 0),
            fsid: 1,
            fileid: 12,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            change: 0,
        };
        let len = |reply: FuseReply| reply.0.len();
        let new = FuseReply::default;
        assert_eq!(len(new().entry(2, &attributes, CacheTimes::default())), 128);
        assert_eq!(len(new().no_entry(Duration::ZERO)), 128);
        assert_eq!(len(new().attr(&attributes, Duration::ZERO)), 104);
        assert_eq!(len(new().statx(&attributes, None, Duration::ZERO)), 288);
        assert_eq!(len(new().open(1, 0, 0)), 16);
        assert_eq!(len(new().lock(None)), 24);
        assert_eq!(len(new().statfs(&FsStat::default(), 255)), 80);
        let agreed = Negotiated {
            flags: 0,
            max_readahead: 0,
            max_write: 4096,
            max_background: 1,
            congestion_threshold: 1,
        };
        assert_eq!(len(new().init(&agreed)), 64);
    }

    #[test]
    fn device_numbers_survive_encoding() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (0xfff, 0xf_ffff)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
    }

    #[test]
    fn an_entry_beyond_the_limit_is_not_appended() {
        let mut reply = FuseReply::default();
        let dirent = Dirent { ino: 1, offset: 1, kind: Some(FileKind::Directory), name: b"abc" };
        assert!(reply.add_dirent(32, &dirent, None));
        assert_eq!(reply.0.len(), 32);
        assert!(!reply.add_dirent(63, &dirent, None));
        assert_eq!(reply.0.len(), 32);
    }
}
