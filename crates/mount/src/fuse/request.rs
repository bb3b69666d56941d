//! Decoding of the kernel's requests: `struct fuse_in_header` and the arguments behind it, in the machine's
//! byte order.
//!
//! [`FuseRequest::decode`] is the only reader of a request's bytes. It separates the flags that the kernel
//! packs into words, so handlers get typed arguments, and a request that is unknown or malformed never
//! reaches one.

use bytes::{Buf as _, Bytes};
use client::{ByteRange, LockKind, LockOwner, SeekTo, SetAttributes, SetTime, SetXattr, Timestamp};
use rustix::fs::{FallocateFlags, FileType, OFlags, XattrFlags};
use rustix::io::Errno;

use super::abi::{self, fattr, opcode};

/// The flag of OPEN and CREATE for a file that is opened to be executed (include/linux/fs.h, `__FMODE_EXEC`).
const FMODE_EXEC: u32 = 0x20;

/// The caller and the file of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The request's number, which its reply carries.
    pub(crate) unique: u64,
    /// The file, by its node ID.
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The calling thread in the mount's PID namespace; 0 if it isn't in that namespace.
    pub(crate) pid: u32,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuseRequest {
    pub(crate) header: Header,
    pub(crate) operation: Operation,
}

/// Why a message is no request that can be handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// Without a header there is no request number to reply to.
    #[error("{0} bytes without a request header")]
    NoHeader(usize),
    /// The arguments are malformed (`EINVAL`), not supported (`EOPNOTSUPP`), or the operation is unknown
    /// (`ENOSYS`, upon which the kernel doesn't send it again).
    #[error("operation {opcode}: {errno}")]
    Refused { unique: u64, opcode: u32, errno: Errno },
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It takes effect when it is received, in the order of the kernel's requests.
    Control(ControlOperation),
    /// It may wait.
    File(FileOperation),
}

/// Operations that are handled in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControlOperation {
    Init(Init),
    Forget {
        count: u64,
    },
    /// Node IDs, each with a count.
    BatchForget(Vec<(u64, u64)>),
    Release {
        fh: u64,
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
}

/// The mode of a new file, and those of its bits that are in its maker's umask. There are none if the kernel
/// has cleared them already: INIT hasn't agreed on `DONT_MASK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewMode {
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl NewMode {
    const fn new(mode: u32, umask: u32) -> Self {
        Self { mode: mode & 0o7777, umask: mode & umask & 0o777 }
    }
}

/// Operations on files, which run concurrently. `Statx` is `GetAttr` with the birth time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileOperation {
    Lookup { name: Bytes },
    GetAttr { fh: Option<u64> },
    Statx { fh: Option<u64> },
    SetAttr(SetAttrArgs),
    ReadLink,
    Symlink { name: Bytes, target: Bytes },
    MkNod { name: Bytes, kind: FileType, mode: NewMode, rdev: u32 },
    MkDir { name: Bytes, mode: NewMode },
    Unlink { name: Bytes },
    RmDir { name: Bytes },
    Rename(RenameArgs),
    Link { from: u64, name: Bytes },
    Open(OpenArgs),
    Create { name: Bytes, mode: NewMode, open: OpenArgs },
    Read(ReadArgs),
    Write(WriteArgs),
    Flush { fh: u64, owner: LockOwner },
    GetLock(LockArgs),
    SetLock { lock: LockArgs, waits: bool },
    FSync { fh: u64 },
    OpenDir,
    ReadDir(ReadDirArgs),
    ReleaseDir { fh: u64 },
    FSyncDir,
    StatFs,
    Access { mask: u32 },
    SetXattr { name: Bytes, value: Bytes, how: SetXattr },
    GetXattr { name: Bytes, room: u32 },
    ListXattr { room: u32 },
    RemoveXattr { name: Bytes },
    FAllocate(FallocateArgs),
    LSeek { fh: u64, offset: u64, to: SeekTo },
    CopyFileRange(CopyRangeArgs),
}

/// INIT's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// Bytes.
    pub(crate) max_readahead: u32,
    /// Bits of [`abi::init`].
    pub(crate) flags: u64,
}

/// SETATTR's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetAttrArgs {
    /// The open file, for ftruncate(2) and the like.
    pub(crate) fh: Option<u64>,
    pub(crate) set: SetAttributes,
    /// The caller has no right to keep the file's set-id bits.
    pub(crate) kill_set_id: bool,
}

/// RENAME's and RENAME2's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RenameArgs {
    pub(crate) name: Bytes,
    /// The new directory's node ID.
    pub(crate) to: u64,
    pub(crate) to_name: Bytes,
    /// renameat2(2)'s; 0 for RENAME.
    pub(crate) flags: u32,
}

/// The flags of OPEN and CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenArgs {
    /// open(2)'s.
    pub(crate) flags: OFlags,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The file is opened to be executed.
    pub(crate) execute: bool,
    /// Truncation by this open clears the file's set-id bits.
    pub(crate) kill_set_id: bool,
}

/// READ's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadArgs {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    /// The open file's flags, as open(2) and fcntl(2) have set them.
    pub(crate) flags: OFlags,
}

/// WRITE's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WriteArgs {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// The open file's flags, as open(2) and fcntl(2) have set them.
    pub(crate) flags: OFlags,
    /// The kernel writes back its page cache; the caller isn't necessarily the process that wrote.
    pub(crate) from_page_cache: bool,
    /// The writer has no right to keep the file's set-id bits.
    pub(crate) kill_set_id: bool,
}

/// READDIR's and READDIRPLUS's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadDirArgs {
    pub(crate) fh: u64,
    /// The cookie of the last entry that was read; 0 at the beginning.
    pub(crate) offset: u64,
    pub(crate) size: u32,
    /// READDIRPLUS: with node IDs and attributes.
    pub(crate) plus: bool,
}

/// FALLOCATE's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FallocateArgs {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) mode: FallocateFlags,
}

/// The arguments of GETLK, SETLK and SETLKW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockArgs {
    pub(crate) fh: u64,
    pub(crate) owner: LockOwner,
    pub(crate) range: ByteRange,
    /// `None` unlocks.
    pub(crate) kind: Option<LockKind>,
}

/// COPY_FILE_RANGE's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyRangeArgs {
    pub(crate) from: u64,
    pub(crate) from_offset: u64,
    pub(crate) to: u64,
    pub(crate) to_offset: u64,
    pub(crate) len: u64,
    pub(crate) flags: u64,
}

/// The part of a message that isn't decoded yet.
struct Arguments(Bytes);

impl Arguments {
    fn bytes(&mut self, count: usize) -> Result<Bytes, Errno> {
        if count > self.0.len() {
            return Err(Errno::INVAL);
        }
        Ok(self.0.split_to(count))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let array = *self.0.first_chunk().ok_or(Errno::INVAL)?;
        self.0.advance(N);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_ne_bytes)
    }

    fn skip<const N: usize>(&mut self) -> Result<(), Errno> {
        self.array::<N>().map(drop)
    }

    /// A name that ends with NUL.
    fn name(&mut self) -> Result<Bytes, Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let name = self.bytes(end)?;
        self.skip::<1>()?;
        Ok(name)
    }
}

impl FuseRequest {
    /// Decodes a whole message.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(crate) fn decode(message: Bytes) -> Result<Self, DecodeError> {
        let len = message.len();
        let mut arguments = Arguments(message);
        let (opcode, header) = header(&mut arguments, len).map_err(|_| DecodeError::NoHeader(len))?;
        let refused = |errno| DecodeError::Refused { unique: header.unique, opcode, errno };
        let operation = match control(opcode, &mut arguments).map_err(refused)? {
            Some(control) => Operation::Control(control),
            None => Operation::File(file(opcode, &mut arguments).map_err(refused)?),
        };
        Ok(Self { header, operation })
    }
}

fn header(from: &mut Arguments, len: usize) -> Result<(u32, Header), Errno> {
    let (stated_len, opcode) = (from.u32()?, from.u32()?);
    let (unique, node) = (from.u64()?, from.u64()?);
    let header = Header { unique, node, uid: from.u32()?, gid: from.u32()?, pid: from.u32()? };
    // The length of extensions, and padding.
    from.skip::<4>()?;
    if stated_len as usize == len { Ok((opcode, header)) } else { Err(Errno::INVAL) }
}

fn control(opcode: u32, from: &mut Arguments) -> Result<Option<ControlOperation>, Errno> {
    Ok(Some(match opcode {
        opcode::FORGET => ControlOperation::Forget { count: from.u64()? },
        opcode::BATCH_FORGET => {
            let count = from.u32()?;
            from.skip::<4>()?;
            let nodes = (0..count).map(|_| Ok((from.u64()?, from.u64()?)));
            ControlOperation::BatchForget(nodes.collect::<Result<_, Errno>>()?)
        }
        opcode::RELEASE => ControlOperation::Release { fh: from.u64()? },
        opcode::INTERRUPT => ControlOperation::Interrupt { unique: from.u64()? },
        opcode::INIT => {
            let (major, minor, max_readahead) = (from.u32()?, from.u32()?, from.u32()?);
            let low = from.u32()?;
            let high = if u64::from(low) & abi::init::INIT_EXT != 0 { from.u32()? } else { 0 };
            let flags = u64::from(high) << 32 | u64::from(low);
            ControlOperation::Init(Init { major, minor, max_readahead, flags })
        }
        opcode::DESTROY => ControlOperation::Destroy,
        _ => return Ok(None),
    }))
}

fn file(opcode: u32, from: &mut Arguments) -> Result<FileOperation, Errno> {
    Ok(match opcode {
        opcode::LOOKUP => FileOperation::Lookup { name: from.name()? },
        opcode::GETATTR => FileOperation::GetAttr { fh: getattr_fh(from)? },
        opcode::STATX => FileOperation::Statx { fh: getattr_fh(from)? },
        opcode::SETATTR => FileOperation::SetAttr(set_attr(from)?),
        opcode::READLINK => FileOperation::ReadLink,
        opcode::SYMLINK => FileOperation::Symlink { name: from.name()?, target: from.name()? },
        opcode::MKNOD => {
            let (mode, rdev) = (from.u32()?, from.u32()?);
            let umask = from.u32()?;
            from.skip::<4>()?;
            let kind = match FileType::from_raw_mode(mode) {
                FileType::Unknown if mode & abi::S_IFMT == 0 => FileType::RegularFile,
                FileType::Unknown | FileType::Directory | FileType::Symlink => return Err(Errno::INVAL),
                kind => kind,
            };
            FileOperation::MkNod { name: from.name()?, kind, mode: NewMode::new(mode, umask), rdev }
        }
        opcode::MKDIR => {
            let (mode, umask) = (from.u32()?, from.u32()?);
            FileOperation::MkDir { name: from.name()?, mode: NewMode::new(mode, umask) }
        }
        opcode::UNLINK => FileOperation::Unlink { name: from.name()? },
        opcode::RMDIR => FileOperation::RmDir { name: from.name()? },
        opcode::RENAME => {
            let to = from.u64()?;
            FileOperation::Rename(RenameArgs { name: from.name()?, to, to_name: from.name()?, flags: 0 })
        }
        opcode::RENAME2 => {
            let (to, flags) = (from.u64()?, from.u32()?);
            from.skip::<4>()?;
            FileOperation::Rename(RenameArgs { name: from.name()?, to, to_name: from.name()?, flags })
        }
        opcode::LINK => FileOperation::Link { from: from.u64()?, name: from.name()? },
        opcode::OPEN => {
            let (flags, open_flags) = (from.u32()?, from.u32()?);
            FileOperation::Open(open(flags, open_flags)?)
        }
        opcode::CREATE => {
            let (flags, mode) = (from.u32()?, from.u32()?);
            let (umask, open_flags) = (from.u32()?, from.u32()?);
            let open = open(flags, open_flags)?;
            FileOperation::Create { name: from.name()?, mode: NewMode::new(mode, umask), open }
        }
        opcode::READ => {
            let io = io(from)?;
            FileOperation::Read(ReadArgs { fh: io.fh, offset: io.offset, size: io.size, flags: io.flags })
        }
        opcode::WRITE => {
            let io = io(from)?;
            FileOperation::Write(WriteArgs {
                fh: io.fh,
                offset: io.offset,
                data: from.bytes(io.size as usize)?,
                flags: io.flags,
                from_page_cache: io.io_flags & abi::WRITE_CACHE != 0,
                kill_set_id: io.io_flags & abi::WRITE_KILL_SUIDGID != 0,
            })
        }
        opcode::FLUSH => {
            let fh = from.u64()?;
            from.skip::<8>()?;
            FileOperation::Flush { fh, owner: LockOwner(from.u64()?) }
        }
        opcode::GETLK => FileOperation::GetLock(lock(from)?),
        opcode::SETLK | opcode::SETLKW => {
            FileOperation::SetLock { lock: lock(from)?, waits: opcode == opcode::SETLKW }
        }
        opcode::RELEASEDIR => FileOperation::ReleaseDir { fh: from.u64()? },
        opcode::FSYNC => FileOperation::FSync { fh: from.u64()? },
        opcode::OPENDIR => FileOperation::OpenDir,
        opcode::READDIR | opcode::READDIRPLUS => {
            let io = io(from)?;
            let plus = opcode == opcode::READDIRPLUS;
            FileOperation::ReadDir(ReadDirArgs { fh: io.fh, offset: io.offset, size: io.size, plus })
        }
        opcode::FSYNCDIR => FileOperation::FSyncDir,
        opcode::STATFS => FileOperation::StatFs,
        opcode::ACCESS => FileOperation::Access { mask: from.u32()? },
        opcode::SETXATTR => {
            let (size, flags) = (from.u32()?, XattrFlags::from_bits_retain(from.u32()?));
            let how = if flags.contains(XattrFlags::CREATE) {
                SetXattr::Create
            } else if flags.contains(XattrFlags::REPLACE) {
                SetXattr::Replace
            } else {
                SetXattr::Either
            };
            FileOperation::SetXattr { name: from.name()?, value: from.bytes(size as usize)?, how }
        }
        opcode::GETXATTR => {
            let room = from.u32()?;
            from.skip::<4>()?;
            FileOperation::GetXattr { name: from.name()?, room }
        }
        opcode::LISTXATTR => FileOperation::ListXattr { room: from.u32()? },
        opcode::REMOVEXATTR => FileOperation::RemoveXattr { name: from.name()? },
        opcode::FALLOCATE => {
            let (fh, offset, len, mode) = (from.u64()?, from.u64()?, from.u64()?, from.u32()?);
            let mode = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
            FileOperation::FAllocate(FallocateArgs { fh, offset, len, mode })
        }
        opcode::LSEEK => {
            let (fh, offset, whence) = (from.u64()?, from.u64()?, from.u32()?);
            // The kernel handles lseek(2)'s other values of `whence` itself.
            let to = match whence {
                abi::SEEK_DATA => SeekTo::Data,
                abi::SEEK_HOLE => SeekTo::Hole,
                _ => return Err(Errno::INVAL),
            };
            FileOperation::LSeek { fh, offset, to }
        }
        opcode::COPY_FILE_RANGE => {
            let (from_fh, from_offset) = (from.u64()?, from.u64()?);
            let _to_node = from.u64()?;
            FileOperation::CopyFileRange(CopyRangeArgs {
                from: from_fh,
                from_offset,
                to: from.u64()?,
                to_offset: from.u64()?,
                len: from.u64()?,
                flags: from.u64()?,
            })
        }
        _ => return Err(Errno::NOSYS),
    })
}

fn open(flags: u32, open_flags: u32) -> Result<OpenArgs, Errno> {
    let (read, write) = match flags & OFlags::ACCMODE.bits() {
        mode if mode == OFlags::RDONLY.bits() => (true, false),
        mode if mode == OFlags::WRONLY.bits() => (false, true),
        mode if mode == OFlags::RDWR.bits() => (true, true),
        _ => return Err(Errno::INVAL),
    };
    Ok(OpenArgs {
        flags: OFlags::from_bits_retain(flags),
        read,
        write,
        execute: flags & FMODE_EXEC != 0,
        kill_set_id: open_flags & abi::OPEN_KILL_SUIDGID != 0,
    })
}

/// `struct fuse_getattr_in`, and the beginning of `fuse_statx_in`. The rest of that tells which attributes
/// the application asks for; the reply has all.
fn getattr_fh(from: &mut Arguments) -> Result<Option<u64>, Errno> {
    let flags = from.u32()?;
    from.skip::<4>()?;
    let fh = from.u64()?;
    Ok((flags & abi::GETATTR_FH != 0).then_some(fh))
}

/// `struct fuse_read_in` and `fuse_write_in`, which have the same layout.
struct Io {
    fh: u64,
    offset: u64,
    size: u32,
    /// READ_ or WRITE_ bits.
    io_flags: u32,
    flags: OFlags,
}

fn io(from: &mut Arguments) -> Result<Io, Errno> {
    let (fh, offset, size, io_flags) = (from.u64()?, from.u64()?, from.u32()?, from.u32()?);
    let _lock_owner = from.u64()?;
    let flags = OFlags::from_bits_retain(from.u32()?);
    from.skip::<4>()?;
    Ok(Io { fh, offset, size, io_flags, flags })
}

/// `struct fuse_lk_in`.
fn lock(from: &mut Arguments) -> Result<LockArgs, Errno> {
    let (fh, owner) = (from.u64()?, LockOwner(from.u64()?));
    let (first, last, kind) = (from.u64()?, from.u64()?, from.u32()?);
    let _pid = from.u32()?;
    let last = if last >= abi::OFFSET_MAX { u64::MAX } else { last };
    let kind = match kind {
        abi::F_RDLCK => Some(LockKind::Read),
        abi::F_WRLCK => Some(LockKind::Write),
        abi::F_UNLCK => None,
        _ => return Err(Errno::INVAL),
    };
    if first > last {
        return Err(Errno::INVAL);
    }
    Ok(LockArgs { fh, owner, range: ByteRange { first, last }, kind })
}

/// `struct fuse_setattr_in`.
fn set_attr(from: &mut Arguments) -> Result<SetAttrArgs, Errno> {
    let valid = from.u32()?;
    from.skip::<4>()?;
    let (fh, size) = (from.u64()?, from.u64()?);
    let _lock_owner = from.u64()?;
    let (atime, mtime, _ctime) = (from.u64()?.cast_signed(), from.u64()?.cast_signed(), from.u64()?);
    let (atime_nsec, mtime_nsec, _ctime_nsec) = (from.u32()?, from.u32()?, from.u32()?);
    let mode = from.u32()?;
    from.skip::<4>()?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    let has = |bit| valid & bit != 0;
    let time = |set, now, seconds, nanoseconds| match (has(set), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(Timestamp { seconds, nanoseconds })),
        (false, false) => None,
    };
    let set = SetAttributes {
        mode: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, atime, atime_nsec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, mtime, mtime_nsec),
    };
    Ok(SetAttrArgs { fh: has(fattr::FH).then_some(fh), set, kill_set_id: has(fattr::KILL_SUIDGID) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of `struct fuse_in_header`.
    const HEADER: usize = 40;

    fn message(opcode: u32, body: &[u8]) -> Bytes {
        let mut message = Vec::new();
        message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(opcode.to_ne_bytes());
        message.extend(77u64.to_ne_bytes());
        message.extend(5u64.to_ne_bytes());
        for value in [1000u32, 100, 4242, 0] {
            message.extend(value.to_ne_bytes());
        }
        message.extend(body);
        message.into()
    }

    fn decode(opcode: u32, body: &[u8]) -> Result<FileOperation, Errno> {
        match FuseRequest::decode(message(opcode, body)) {
            Ok(FuseRequest { operation: Operation::File(operation), .. }) => Ok(operation),
            Err(DecodeError::Refused { errno, unique: 77, .. }) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_header_has_the_caller_and_the_file() {
        let bytes = message(opcode::LOOKUP, b"name\0");
        let header = Header { unique: 77, node: 5, uid: 1000, gid: 100, pid: 4242 };
        let operation = Operation::File(FileOperation::Lookup { name: Bytes::from_static(b"name") });
        assert_eq!(FuseRequest::decode(bytes.clone()), Ok(FuseRequest { header, operation }));
        let short = bytes.slice(..bytes.len() - 1);
        assert_eq!(FuseRequest::decode(short.clone()), Err(DecodeError::NoHeader(short.len())));
    }

    #[test]
    fn truncated_arguments_are_refused() {
        let mut body = Vec::new();
        body.extend(9u64.to_ne_bytes());
        body.extend(0u64.to_ne_bytes());
        body.extend(b"from\0to\0");
        let (name, to_name) = (Bytes::from_static(b"from"), Bytes::from_static(b"to"));
        let whole = FileOperation::Rename(RenameArgs { name, to: 9, to_name, flags: 0 });
        assert_eq!(decode(opcode::RENAME2, &body), Ok(whole));
        for end in 0..body.len() {
            assert_eq!(decode(opcode::RENAME2, &body[..end]), Err(Errno::INVAL), "{end}");
        }
    }

    #[test]
    fn a_write_has_as_many_bytes_as_its_size_says() {
        let mut body = Vec::new();
        for value in [3u64, 4096] {
            body.extend(value.to_ne_bytes());
        }
        body.extend(5u32.to_ne_bytes());
        body.extend([0; 4 + 8 + 4 + 4]);
        body.extend(b"hello");
        let Ok(FileOperation::Write(write)) = decode(opcode::WRITE, &body) else { panic!("no write") };
        assert_eq!((write.fh, write.offset, &write.data[..]), (3, 4096, &b"hello"[..]));
        assert_eq!(decode(opcode::WRITE, &body[..body.len() - 1]), Err(Errno::INVAL));
    }

    #[test]
    fn set_attr_sets_what_its_valid_bits_name() {
        let mut body = vec![0; 88];
        let valid = fattr::MODE | fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME | fattr::FH;
        body[..4].copy_from_slice(&valid.to_ne_bytes());
        body[8..16].copy_from_slice(&4u64.to_ne_bytes());
        body[40..48].copy_from_slice(&(-5i64).to_ne_bytes());
        body[60..64].copy_from_slice(&7u32.to_ne_bytes());
        body[68..72].copy_from_slice(&0o100_640u32.to_ne_bytes());
        let mtime = SetTime::To(Timestamp { seconds: -5, nanoseconds: 7 });
        let set = SetAttributes {
            mode: Some(0o640),
            atime: Some(SetTime::Now),
            mtime: Some(mtime),
            ..SetAttributes::default()
        };
        let expected = SetAttrArgs { fh: Some(4), set, kill_set_id: false };
        assert_eq!(decode(opcode::SETATTR, &body), Ok(FileOperation::SetAttr(expected)));
    }

    #[test]
    fn an_extended_attribute_has_a_name_and_as_many_bytes_as_its_size_says() {
        let body = [&5u32.to_ne_bytes()[..], &1u32.to_ne_bytes(), b"user.a\0value"].concat();
        let (name, value) = (Bytes::from_static(b"user.a"), Bytes::from_static(b"value"));
        let whole = FileOperation::SetXattr { name: name.clone(), value, how: SetXattr::Create };
        assert_eq!(decode(opcode::SETXATTR, &body), Ok(whole));
        for end in 0..body.len() {
            assert_eq!(decode(opcode::SETXATTR, &body[..end]), Err(Errno::INVAL), "{end}");
        }
        let body = [&100u32.to_ne_bytes()[..], &[0; 4], b"user.a\0"].concat();
        assert_eq!(decode(opcode::GETXATTR, &body), Ok(FileOperation::GetXattr { name, room: 100 }));
        assert_eq!(decode(opcode::LISTXATTR, &body[..8]), Ok(FileOperation::ListXattr { room: 100 }));
    }

    #[test]
    fn a_lock_to_the_end_of_the_file_has_no_end() {
        let mut body = [3u64, 77, 5, i64::MAX as u64].map(u64::to_ne_bytes).concat();
        body.extend([abi::F_WRLCK, 4242, 0, 0].map(u32::to_ne_bytes).concat());
        let range = ByteRange { first: 5, last: u64::MAX };
        let lock = LockArgs { fh: 3, owner: LockOwner(77), range, kind: Some(LockKind::Write) };
        assert_eq!(decode(opcode::SETLKW, &body), Ok(FileOperation::SetLock { lock, waits: true }));
        body[24..32].copy_from_slice(&4u64.to_ne_bytes());
        assert_eq!(decode(opcode::SETLK, &body), Err(Errno::INVAL));
    }

    #[test]
    fn flags_without_a_meaning_are_refused() {
        let access_mode_3 = [3u32, 0].map(u32::to_ne_bytes).concat();
        assert_eq!(decode(opcode::OPEN, &access_mode_3), Err(Errno::INVAL));
        let mut seek = vec![0; 24];
        seek[16..20].copy_from_slice(&9u32.to_ne_bytes());
        assert_eq!(decode(opcode::LSEEK, &seek), Err(Errno::INVAL));
    }

    #[test]
    fn unknown_operations_are_not_implemented() {
        assert_eq!(decode(9999, b"whatever"), Err(Errno::NOSYS));
    }
}
