//! What a client asks for, and why it doesn't get it: the words of Open and Ahead.

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
    /// The same, made if it isn't there: what would be CREATE, SETATTR and an Open. From version 3 on.
    New(New<'a>),
}

/// A file to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct New<'a> {
    /// The directory's NFS file handle (at most [`MAX_HANDLE`] bytes).
    pub directory: &'a [u8],
    /// One name (at most [`MAX_NAME`] bytes), as in CREATE.
    pub name: &'a [u8],
    /// The new file's mode, the low twelve bits. Its owner is who asks.
    pub mode: u32,
    /// What becomes of a file that is there.
    pub how: How,
}

/// What making a file does where there is one (RFC 1813 section 3.3.8, `createmode3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Opens it as it is.
    Unchecked,
    /// Refuses, unless the file was made with this verifier, which until then stands in the times of a file
    /// so made: whoever makes it sets them when he has the file.
    Exclusive([u8; 8]),
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

impl OpenRequest<'_> {
    /// Whether these lengths are within the protocol's bounds, so that the message can be sent.
    #[must_use]
    pub fn fits(&self) -> bool {
        let target = match self.target {
            Target::Handle(handle) => handle.len() <= MAX_HANDLE,
            Target::Entry { directory, name } | Target::New(New { directory, name, .. }) => {
                directory.len() <= MAX_HANDLE && name.len() <= MAX_NAME
            }
        };
        target && self.credential.gids.len() <= MAX_GIDS
    }
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
