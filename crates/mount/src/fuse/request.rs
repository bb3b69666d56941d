//! A request of the kernel, decoded: `struct fuse_in_header` and what follows it, in the machine's byte
//! order.

use rustix::io::Errno;

use super::abi::{self, opcode};

/// Bytes of `struct fuse_in_header`.
pub(crate) const HEADER: usize = 40;

/// Who asks what about which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    /// The request's number, for the answer.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The calling thread, as the mount's PID namespace numbers it; 0: it isn't there.
    pub(crate) pid: u32,
}

/// SETATTR's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetAttr {
    /// Bits of [`abi::fattr`].
    pub(crate) valid: u32,
    pub(crate) fh: u64,
    pub(crate) size: u64,
    pub(crate) atime: (i64, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// READ's, WRITE's, READDIR's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    /// READ_ and WRITE_ bits.
    pub(crate) how: u32,
    /// The open file's flags as open(2) and fcntl(2) have them.
    pub(crate) flags: u32,
}

/// COPY_FILE_RANGE's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyRange {
    pub(crate) from: u64,
    pub(crate) from_offset: u64,
    pub(crate) to_node: u64,
    pub(crate) to: u64,
    pub(crate) to_offset: u64,
    pub(crate) len: u64,
    pub(crate) flags: u64,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup { name: &'a [u8] },
    Forget { count: u64 },
    BatchForget { nodes: Vec<(u64, u64)> },
    GetAttr { fh: Option<u64> },
    SetAttr(SetAttr),
    ReadLink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    MkNod { name: &'a [u8], mode: u32, rdev: u32 },
    MkDir { name: &'a [u8], mode: u32 },
    Unlink { name: &'a [u8] },
    RmDir { name: &'a [u8] },
    Rename { name: &'a [u8], to: u64, to_name: &'a [u8], flags: u32 },
    Link { from: u64, name: &'a [u8] },
    Open { flags: u32, how: u32 },
    Create { name: &'a [u8], flags: u32, mode: u32, how: u32 },
    Read(Io),
    Write(Io, &'a [u8]),
    Flush { fh: u64 },
    Release { fh: u64 },
    FSync { fh: u64, data_only: bool },
    OpenDir,
    ReadDir(Io, bool),
    ReleaseDir { fh: u64 },
    FSyncDir,
    StatFs,
    Access { mask: u32 },
    FAllocate { fh: u64, offset: u64, len: u64, mode: u32 },
    LSeek { fh: u64, offset: u64, whence: u32 },
    CopyFileRange(CopyRange),
    Interrupt { unique: u64 },
    Init { major: u32, minor: u32, max_readahead: u32, flags: u64 },
    Destroy,
    Unknown,
}

/// What is left of a request.
struct From<'a>(&'a [u8]);

impl<'a> From<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, Errno> {
        self.bytes(2).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, Errno> {
        let mut value = [0; 4];
        value.copy_from_slice(self.bytes(4)?);
        Ok(u32::from_ne_bytes(value))
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        let mut value = [0; 8];
        value.copy_from_slice(self.bytes(8)?);
        Ok(u64::from_ne_bytes(value))
    }

    fn skip(&mut self, count: usize) -> Result<(), Errno> {
        self.bytes(count).map(drop)
    }

    /// A name that ends with NUL.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let name = self.bytes(end)?;
        self.skip(1)?;
        Ok(name)
    }
}

impl Header {
    /// The header of a request; `EINVAL` if it is too short or its length isn't the request's.
    pub(crate) fn of(request: &[u8]) -> Result<Self, Errno> {
        let mut from = From(request);
        let len = from.u32()?;
        let header = Self {
            opcode: from.u32()?,
            unique: from.u64()?,
            node: from.u64()?,
            uid: from.u32()?,
            gid: from.u32()?,
            pid: from.u32()?,
        };
        let _extensions = from.u16()?;
        from.skip(2)?;
        if len as usize == request.len() { Ok(header) } else { Err(Errno::INVAL) }
    }
}

impl<'a> Operation<'a> {
    /// Decodes what follows the header; `EINVAL` if it isn't what the operation has.
    pub(crate) fn of(header: &Header, request: &'a [u8]) -> Result<Self, Errno> {
        let mut from = From(request.get(HEADER..).ok_or(Errno::INVAL)?);
        let from = &mut from;
        Ok(match header.opcode {
            opcode::LOOKUP => Self::Lookup { name: from.name()? },
            opcode::FORGET => Self::Forget { count: from.u64()? },
            opcode::BATCH_FORGET => {
                let count = from.u32()?;
                from.skip(4)?;
                let nodes = (0..count).map(|_| Ok((from.u64()?, from.u64()?)));
                Self::BatchForget { nodes: nodes.collect::<Result<_, Errno>>()? }
            }
            opcode::GETATTR => {
                let flags = from.u32()?;
                from.skip(4)?;
                let fh = from.u64()?;
                Self::GetAttr { fh: (flags & abi::GETATTR_FH != 0).then_some(fh) }
            }
            opcode::SETATTR => Self::SetAttr(set_attr(from)?),
            opcode::READLINK => Self::ReadLink,
            opcode::SYMLINK => Self::Symlink { name: from.name()?, target: from.name()? },
            opcode::MKNOD => {
                let (mode, rdev) = (from.u32()?, from.u32()?);
                from.skip(8)?;
                Self::MkNod { name: from.name()?, mode, rdev }
            }
            opcode::MKDIR => {
                let mode = from.u32()?;
                from.skip(4)?;
                Self::MkDir { name: from.name()?, mode }
            }
            opcode::UNLINK => Self::Unlink { name: from.name()? },
            opcode::RMDIR => Self::RmDir { name: from.name()? },
            opcode::RENAME => {
                let to = from.u64()?;
                Self::Rename { name: from.name()?, to, to_name: from.name()?, flags: 0 }
            }
            opcode::RENAME2 => {
                let (to, flags) = (from.u64()?, from.u32()?);
                from.skip(4)?;
                Self::Rename { name: from.name()?, to, to_name: from.name()?, flags }
            }
            opcode::LINK => Self::Link { from: from.u64()?, name: from.name()? },
            opcode::OPEN => Self::Open { flags: from.u32()?, how: from.u32()? },
            opcode::CREATE => {
                let (flags, mode) = (from.u32()?, from.u32()?);
                from.skip(4)?;
                let how = from.u32()?;
                Self::Create { name: from.name()?, flags, mode, how }
            }
            opcode::READ => Self::Read(io(from)?),
            opcode::WRITE => {
                let io = io(from)?;
                Self::Write(io, from.bytes(io.size as usize)?)
            }
            opcode::FLUSH => Self::Flush { fh: from.u64()? },
            opcode::RELEASE => Self::Release { fh: from.u64()? },
            opcode::RELEASEDIR => Self::ReleaseDir { fh: from.u64()? },
            opcode::FSYNC => {
                let (fh, flags) = (from.u64()?, from.u32()?);
                Self::FSync { fh, data_only: flags & abi::FSYNC_FDATASYNC != 0 }
            }
            opcode::OPENDIR => Self::OpenDir,
            opcode::READDIR => Self::ReadDir(io(from)?, false),
            opcode::READDIRPLUS => Self::ReadDir(io(from)?, true),
            opcode::FSYNCDIR => Self::FSyncDir,
            opcode::STATFS => Self::StatFs,
            opcode::ACCESS => Self::Access { mask: from.u32()? },
            opcode::FALLOCATE => {
                Self::FAllocate { fh: from.u64()?, offset: from.u64()?, len: from.u64()?, mode: from.u32()? }
            }
            opcode::LSEEK => Self::LSeek { fh: from.u64()?, offset: from.u64()?, whence: from.u32()? },
            opcode::COPY_FILE_RANGE => Self::CopyFileRange(CopyRange {
                from: from.u64()?,
                from_offset: from.u64()?,
                to_node: from.u64()?,
                to: from.u64()?,
                to_offset: from.u64()?,
                len: from.u64()?,
                flags: from.u64()?,
            }),
            opcode::INTERRUPT => Self::Interrupt { unique: from.u64()? },
            opcode::INIT => {
                let (major, minor, max_readahead) = (from.u32()?, from.u32()?, from.u32()?);
                let low = from.u32()?;
                let high = if u64::from(low) & abi::init::INIT_EXT != 0 { from.u32()? } else { 0 };
                let flags = u64::from(high) << 32 | u64::from(low);
                Self::Init { major, minor, max_readahead, flags }
            }
            opcode::DESTROY => Self::Destroy,
            _ => Self::Unknown,
        })
    }
}

fn io(from: &mut From<'_>) -> Result<Io, Errno> {
    let (fh, offset, size, how) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
    let _lock_owner = from.u64()?;
    let flags = from.u32()?;
    from.skip(4)?;
    Ok(Io { fh, offset, size, how, flags })
}

fn set_attr(from: &mut From<'_>) -> Result<SetAttr, Errno> {
    let valid = from.u32()?;
    from.skip(4)?;
    let (fh, size) = (from.u64()?, from.u64()?);
    let _lock_owner = from.u64()?;
    let (atime, mtime, _ctime) = (from.u64()?.cast_signed(), from.u64()?.cast_signed(), from.u64()?);
    let (atime_nsec, mtime_nsec, _ctime_nsec) = (from.u32()?, from.u32()?, from.u32()?);
    let mode = from.u32()?;
    from.skip(4)?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    Ok(SetAttr { valid, fh, size, atime: (atime, atime_nsec), mtime: (mtime, mtime_nsec), mode, uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut request = Vec::new();
        request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(opcode.to_ne_bytes());
        request.extend(77u64.to_ne_bytes());
        request.extend(5u64.to_ne_bytes());
        for value in [1000u32, 100, 4242, 0] {
            request.extend(value.to_ne_bytes());
        }
        request.extend(body);
        request
    }

    #[test]
    fn a_header_says_who_and_what() {
        let bytes = request(opcode::LOOKUP, b"name\0");
        let header = Header::of(&bytes).unwrap();
        assert_eq!(
            header,
            Header { opcode: opcode::LOOKUP, unique: 77, node: 5, uid: 1000, gid: 100, pid: 4242 }
        );
        assert_eq!(Operation::of(&header, &bytes).unwrap(), Operation::Lookup { name: b"name" });
        assert_eq!(Header::of(&bytes[..bytes.len() - 1]), Err(Errno::INVAL));
    }

    #[test]
    fn a_request_cut_off_anywhere_is_refused_or_shorter() {
        let mut body = Vec::new();
        body.extend(9u64.to_ne_bytes());
        body.extend(0u64.to_ne_bytes());
        body.extend(b"from\0to\0");
        let bytes = request(opcode::RENAME2, &body);
        let header = Header::of(&bytes).unwrap();
        let whole = Operation::of(&header, &bytes).unwrap();
        assert_eq!(whole, Operation::Rename { name: b"from", to: 9, to_name: b"to", flags: 0 });
        for end in 0..bytes.len() {
            assert_eq!(Operation::of(&header, &bytes[..end]), Err(Errno::INVAL), "{end}");
        }
    }

    #[test]
    fn a_write_has_as_many_bytes_as_it_says() {
        let mut body = Vec::new();
        for value in [3u64, 4096] {
            body.extend(value.to_ne_bytes());
        }
        body.extend(5u32.to_ne_bytes());
        body.extend([0; 4 + 8 + 4 + 4]);
        body.extend(b"hello");
        let bytes = request(opcode::WRITE, &body);
        let header = Header::of(&bytes).unwrap();
        let Operation::Write(io, data) = Operation::of(&header, &bytes).unwrap() else { panic!("a write") };
        assert_eq!((io.fh, io.offset, data), (3, 4096, &b"hello"[..]));
        assert_eq!(Operation::of(&header, &bytes[..bytes.len() - 1]), Err(Errno::INVAL));
    }

    #[test]
    fn an_operation_that_nobody_knows_is_unknown() {
        let bytes = request(9999, b"whatever");
        let header = Header::of(&bytes).unwrap();
        assert_eq!(Operation::of(&header, &bytes), Ok(Operation::Unknown));
    }
}
