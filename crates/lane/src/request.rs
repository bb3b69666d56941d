//! What a client asks for and what it gets: the words of Open and Opened.

use io::{Mode, Modes};
use xdr::{Decode, Decoder, Encode, Encoder, Error};

/// The largest file handle that the lane carries (NFSv4's bound; NFSv3's is 64).
pub const MAX_HANDLE: usize = 128;
/// The longest file name that the lane carries. A longer one is answered on the wire (with NAMETOOLONG).
pub const MAX_NAME: usize = 255;
/// How many files can be asked for ahead in one message.
pub const MAX_SOON: usize = 32;
/// How many bytes their names or handles may have together, 8 more counted for each.
pub const MAX_SOON_BYTES: usize = 5120;
/// How many supplementary groups a credential has room for, as in AUTH_SYS (RFC 5531 appendix A).
pub const MAX_GIDS: usize = 16;

/// Which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// The file with this NFS file handle (at most [`MAX_HANDLE`] bytes).
    Handle(&'a [u8]),
    /// The file of this name in a directory: lookup, access check, attributes and grant in one round trip.
    Entry {
        /// The directory's NFS file handle (at most [`MAX_HANDLE`] bytes).
        directory: &'a [u8],
        /// One name (at most [`MAX_NAME`] bytes), as in LOOKUP.
        name: &'a [u8],
    },
}

/// What the client will do with the file. The grant can do this and no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading.
    Read = 1,
    /// Writing.
    Write = 2,
    /// Both.
    ReadWrite = 3,
}

impl Access {
    /// Whether the grant may be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        self as u32 & 1 != 0
    }

    /// Whether the grant may be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        self as u32 & 2 != 0
    }
}

/// Who asks: what the AUTH_SYS credential of the same call on the wire would say (RFC 5531 appendix A).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credential {
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
    /// Further groups, at most [`MAX_GIDS`].
    pub gids: Vec<u32>,
}

/// One Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRequest<'a> {
    /// Which file.
    pub target: Target<'a>,
    /// What for.
    pub access: Access,
    /// On whose behalf.
    pub credential: &'a Credential,
}

/// Files that the client will most likely open next, to read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Soon<'a> {
    /// Those with these NFS file handles, at most [`MAX_SOON`].
    Handles(Vec<&'a [u8]>),
    /// Those of these names, at most [`MAX_SOON`], in one directory.
    Entries {
        /// The directory's NFS file handle (at most [`MAX_HANDLE`] bytes).
        directory: &'a [u8],
        /// The names, in the order in which they will be opened.
        names: Vec<&'a [u8]>,
    },
}

impl<'a> Soon<'a> {
    /// One after the other, as an Open would name them.
    pub fn targets(&self) -> impl Iterator<Item = Target<'a>> + '_ {
        let (directory, all) = match self {
            Self::Handles(handles) => (None, handles),
            Self::Entries { directory, names } => (Some(*directory), names),
        };
        all.iter().map(move |one| match directory {
            None => Target::Handle(one),
            Some(directory) => Target::Entry { directory, name: one },
        })
    }

    /// Whether these lengths are within the protocol's bounds, so that the message can be sent.
    #[must_use]
    pub fn fits(&self) -> bool {
        let (most, all) = match self {
            Self::Handles(handles) => (MAX_HANDLE, handles),
            Self::Entries { directory, names } if directory.len() <= MAX_HANDLE => (MAX_NAME, names),
            Self::Entries { .. } => return false,
        };
        all.len() <= MAX_SOON
            && all.iter().all(|one| one.len() <= most)
            && all.iter().map(|one| one.len() + 8).sum::<usize>() <= MAX_SOON_BYTES
    }
}

/// Why the server gave no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Status {
    /// The process at the other end of the lane may not act as this user: the wire decides.
    #[error("the lane gives this process no files of that user")]
    Denied = 1,
    /// The export is switched off for the lane (`no_lane`).
    #[error("the export forbids the lane")]
    NoLane = 2,
    /// The one check says that the user may not (NFS3ERR_ACCES).
    #[error("permission denied")]
    Access = 3,
    /// Writing was asked for on a read-only export or filesystem (NFS3ERR_ROFS).
    #[error("read-only")]
    ReadOnly = 4,
    /// The handle's file is gone (NFS3ERR_STALE).
    #[error("stale file handle")]
    Stale = 5,
    /// The handle is none of this server's (NFS3ERR_BADHANDLE).
    #[error("bad file handle")]
    BadHandle = 6,
    /// The directory has no such name (NFS3ERR_NOENT).
    #[error("no such file")]
    NotFound = 7,
    /// A name was looked up in something that is no directory (NFS3ERR_NOTDIR).
    #[error("not a directory")]
    NotDirectory = 8,
    /// The name is a directory: those are never granted.
    #[error("is a directory")]
    IsDirectory = 9,
    /// The name is a symbolic link: the client follows it.
    #[error("is a symbolic link")]
    Symlink = 10,
    /// A device, a FIFO or a socket: those are never granted.
    #[error("not a regular file")]
    NotRegular = 11,
    /// The client holds or has asked for as many grants as it may.
    #[error("too many grants")]
    TooMany = 12,
    /// An open or a lock of somebody else is in the way: the wire knows what to do.
    #[error("ask over the wire")]
    TryWire = 13,
    /// The server is draining: no new grants.
    #[error("the server is draining")]
    Draining = 14,
    /// The filesystem failed.
    #[error("input/output error")]
    Io = 15,
}

impl Status {
    /// The status with this number on the lane.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Denied,
            2 => Self::NoLane,
            3 => Self::Access,
            4 => Self::ReadOnly,
            5 => Self::Stale,
            6 => Self::BadHandle,
            7 => Self::NotFound,
            8 => Self::NotDirectory,
            9 => Self::IsDirectory,
            10 => Self::Symlink,
            11 => Self::NotRegular,
            12 => Self::TooMany,
            13 => Self::TryWire,
            14 => Self::Draining,
            15 => Self::Io,
            _ => return None,
        })
    }
}

/// The kind of a file; the numbers are NFSv3's ftype3 (RFC 1813 section 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// A regular file; the only kind that is ever granted.
    #[default]
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A block device.
    Block = 3,
    /// A character device.
    Character = 4,
    /// A symbolic link.
    Symlink = 5,
    /// A socket.
    Socket = 6,
    /// A FIFO.
    Fifo = 7,
}

/// A point in time, since 1970-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// A file's attributes at the moment of the grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The kind of file.
    pub kind: Kind,
    /// The permission bits (12 of them).
    pub mode: u32,
    /// The number of hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes of disk.
    pub used: u64,
    /// Major and minor number of a device.
    pub rdev: (u32, u32),
    /// The filesystem, as the wire shows it.
    pub fsid: u64,
    /// The file's number in it.
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the file or its attributes.
    pub ctime: Timestamp,
    /// The change attribute: never equal for two states of one file.
    pub change: u64,
    /// How the server reads and writes the file; the client does as the server does.
    pub io: Modes,
}

impl Encode for Timestamp {
    fn encode(&self, to: &mut Encoder) {
        to.put(&self.seconds);
        to.u32(self.nanoseconds);
    }
}

impl<'a> Decode<'a> for Timestamp {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let seconds = from.get()?;
        let nanoseconds = from.u32()?;
        if nanoseconds > 999_999_999 {
            return Err(Error::Discriminant { of: "nanosecond", value: nanoseconds });
        }
        Ok(Self { seconds, nanoseconds })
    }
}

impl Encode for Attributes {
    fn encode(&self, to: &mut Encoder) {
        for word in [self.kind as u32, self.mode, self.nlink, self.uid, self.gid, self.rdev.0, self.rdev.1] {
            to.u32(word);
        }
        for hyper in [self.size, self.used, self.fsid, self.fileid, self.change] {
            to.u64(hyper);
        }
        for time in [&self.atime, &self.mtime, &self.ctime] {
            to.put(time);
        }
        to.u32(number(self.io.read) | number(self.io.write) << 8);
    }
}

/// A mode's number on the lane.
const fn number(mode: Mode) -> u32 {
    match mode {
        Mode::Buffered => 0,
        Mode::DontCache => 1,
        Mode::Direct => 2,
    }
}

/// The modes for reads and for writes that are in one word.
fn modes(word: u32) -> Result<Modes, Error> {
    let mode = |number| match number {
        0 => Ok(Mode::Buffered),
        1 => Ok(Mode::DontCache),
        2 => Ok(Mode::Direct),
        _ => Err(Error::Discriminant { of: "I/O modes", value: word }),
    };
    Ok(Modes { read: mode(word & 0xff)?, write: mode(word >> 8)? })
}

impl<'a> Decode<'a> for Attributes {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let kind = from.u32()?;
        let kind = Kind::from_number(kind).ok_or(Error::Discriminant { of: "file kind", value: kind })?;
        Ok(Self {
            kind,
            mode: from.u32()?,
            nlink: from.u32()?,
            uid: from.u32()?,
            gid: from.u32()?,
            rdev: (from.u32()?, from.u32()?),
            size: from.u64()?,
            used: from.u64()?,
            fsid: from.u64()?,
            fileid: from.u64()?,
            change: from.u64()?,
            atime: from.get()?,
            mtime: from.get()?,
            ctime: from.get()?,
            io: modes(from.u32()?)?,
        })
    }
}

impl Kind {
    /// The kind with this number in ftype3.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Block,
            4 => Self::Character,
            5 => Self::Symlink,
            6 => Self::Socket,
            7 => Self::Fifo,
            _ => return None,
        })
    }
}

impl Access {
    /// The access with this number on the lane.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Read),
            2 => Some(Self::Write),
            3 => Some(Self::ReadWrite),
            _ => None,
        }
    }
}

impl Encode for Credential {
    fn encode(&self, to: &mut Encoder) {
        to.u32(self.uid);
        to.u32(self.gid);
        to.length(self.gids.len());
        self.gids.iter().for_each(|gid| to.u32(*gid));
    }
}

impl<'a> Decode<'a> for Credential {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let (uid, gid) = (from.u32()?, from.u32()?);
        let gids = from.get::<xdr::Array<u32, MAX_GIDS>>()?.0;
        Ok(Self { uid, gid, gids })
    }
}

const HANDLE: u32 = 1;
const ENTRY: u32 = 2;

impl Encode for Target<'_> {
    fn encode(&self, to: &mut Encoder) {
        match self {
            Self::Handle(handle) => {
                to.u32(HANDLE);
                to.opaque(handle);
            }
            Self::Entry { directory, name } => {
                to.u32(ENTRY);
                to.opaque(directory);
                to.opaque(name);
            }
        }
    }
}

impl Encode for Soon<'_> {
    fn encode(&self, to: &mut Encoder) {
        let all = match self {
            Self::Handles(handles) => {
                to.u32(HANDLE);
                handles
            }
            Self::Entries { directory, names } => {
                to.u32(ENTRY);
                to.opaque(directory);
                names
            }
        };
        to.length(all.len());
        all.iter().for_each(|one| to.opaque(one));
    }
}

impl<'a> Decode<'a> for Soon<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let all = |from: &mut Decoder<'a>, most| -> Result<Vec<&'a [u8]>, Error> {
            (0..from.length(MAX_SOON)?).map(|_| from.opaque(most)).collect()
        };
        match from.u32()? {
            HANDLE => Ok(Self::Handles(all(from, MAX_HANDLE)?)),
            ENTRY => {
                let directory = from.opaque(MAX_HANDLE)?;
                Ok(Self::Entries { directory, names: all(from, MAX_NAME)? })
            }
            value => Err(Error::Discriminant { of: "soon", value }),
        }
    }
}

impl<'a> Decode<'a> for Target<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, Error> {
        match from.u32()? {
            HANDLE => Ok(Self::Handle(from.opaque(MAX_HANDLE)?)),
            ENTRY => Ok(Self::Entry { directory: from.opaque(MAX_HANDLE)?, name: from.opaque(MAX_NAME)? }),
            value => Err(Error::Discriminant { of: "target", value }),
        }
    }
}
