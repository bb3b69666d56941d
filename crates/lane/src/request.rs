//! The arguments of Open and Prefetch, and the status of a refused Open.

/// The largest file handle on the lane, in bytes (NFSv4's bound; NFSv3's is 64).
pub const MAX_HANDLE: usize = 128;
/// The longest file name on the lane, in bytes. A longer one is left to the wire (which answers NAMETOOLONG).
pub const MAX_NAME: usize = 255;
/// The most files in one Prefetch.
pub const MAX_PREFETCH: usize = 32;
/// The most bytes of their names or handles together, 8 more counted for each.
pub const MAX_PREFETCH_BYTES: usize = 5120;
/// The most supplementary groups in a credential, as in AUTH_SYS (RFC 5531 appendix A).
pub const MAX_GIDS: usize = 16;

/// The file to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// The file with this NFS file handle (at most [`MAX_HANDLE`] bytes).
    Handle(&'a [u8]),
    /// The file with this name in a directory: lookup, access check, attributes and grant in one round trip.
    Entry {
        /// The directory's NFS file handle (at most [`MAX_HANDLE`] bytes).
        directory: &'a [u8],
        /// One name (at most [`MAX_NAME`] bytes), as in LOOKUP.
        name: &'a [u8],
    },
    /// The same, created if missing: what would be CREATE, SETATTR and an Open. Since version 3.
    New(NewFile<'a>),
    /// The directory with this NFS file handle (at most [`MAX_HANDLE`] bytes), with everything below: the
    /// client makes the system calls itself. [`Access::Read`] asks for a tree in which nothing can be
    /// changed. Since version 4.
    Tree(&'a [u8]),
    /// The mount that the directory with this NFS file handle (at most [`MAX_HANDLE`] bytes) is on, with the
    /// directory as its root, to be attached by the client: for root of the initial user namespace only.
    /// Since version 4.
    Mount(&'a [u8]),
}

impl Target<'_> {
    /// The first protocol version in which this may be requested.
    #[must_use]
    pub const fn since(&self) -> u32 {
        match self {
            Self::Handle(_) | Self::Entry { .. } => 2,
            Self::New(_) => 3,
            Self::Tree(_) | Self::Mount(_) => 4,
        }
    }
}

/// A file to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// The directory's NFS file handle (at most [`MAX_HANDLE`] bytes).
    pub directory: &'a [u8],
    /// One name (at most [`MAX_NAME`] bytes), as in CREATE.
    pub name: &'a [u8],
    /// The new file's mode, the low twelve bits. Its owner is the user of the credential.
    pub mode: u32,
    /// The treatment of an existing file.
    pub how: CreateMode,
}

/// The treatment of an existing file (RFC 1813 section 3.3.8, `createmode3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// The existing file is opened unchanged.
    Unchecked,
    /// The Open is refused, unless the file was created with this verifier. The server stores the verifier in
    /// the times of a new file; the client sets the times once it has the file.
    Exclusive([u8; 8]),
}

/// The access that the grant allows.
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

    /// Decodes the number on the lane.
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

/// The user: the ids that the AUTH_SYS credential of the same call on the wire would have (RFC 5531 appendix
/// A).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneCredential {
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
    /// Further groups, at most [`MAX_GIDS`].
    pub gids: Vec<u32>,
}

/// The arguments of an Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRequest<'a> {
    /// Which file.
    pub target: Target<'a>,
    /// The access requested.
    pub access: Access,
    /// The user.
    pub credential: &'a LaneCredential,
}

impl OpenRequest<'_> {
    /// Whether the lengths are within the protocol's bounds.
    #[must_use]
    pub fn fits(&self) -> bool {
        let target = match self.target {
            Target::Handle(handle) | Target::Tree(handle) | Target::Mount(handle) => {
                handle.len() <= MAX_HANDLE
            }
            Target::Entry { directory, name } | Target::New(NewFile { directory, name, .. }) => {
                directory.len() <= MAX_HANDLE && name.len() <= MAX_NAME
            }
        };
        target && self.credential.gids.len() <= MAX_GIDS
    }
}

/// Files that the client will probably open next, for reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrefetchTargets<'a> {
    /// The files with these NFS file handles, at most [`MAX_PREFETCH`].
    Handles(Vec<&'a [u8]>),
    /// The files with these names, at most [`MAX_PREFETCH`], in one directory.
    Entries {
        /// The directory's NFS file handle (at most [`MAX_HANDLE`] bytes).
        directory: &'a [u8],
        /// The names, in the expected order of the opens.
        names: Vec<&'a [u8]>,
    },
}

impl<'a> PrefetchTargets<'a> {
    /// The files as targets of an Open, in order.
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
        all.len() <= MAX_PREFETCH
            && all.iter().all(|one| one.len() <= most)
            && all.iter().map(|one| one.len() + 8).sum::<usize>() <= MAX_PREFETCH_BYTES
    }
}

/// Why an Open was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OpenStatus {
    /// The process at the other end of the lane may not act as this user. The wire decides.
    #[error("the lane gives this process no files of that user")]
    Denied = 1,
    /// The export forbids the lane (`no_lane`).
    #[error("the export forbids the lane")]
    NoLane = 2,
    /// The user lacks permission (NFS3ERR_ACCES).
    #[error("permission denied")]
    Access = 3,
    /// Write access on a read-only export or filesystem (NFS3ERR_ROFS).
    #[error("read-only")]
    ReadOnly = 4,
    /// The handle's file doesn't exist any more (NFS3ERR_STALE).
    #[error("stale file handle")]
    Stale = 5,
    /// The handle isn't this server's (NFS3ERR_BADHANDLE).
    #[error("bad file handle")]
    BadHandle = 6,
    /// The directory has no such name (NFS3ERR_NOENT).
    #[error("no such file")]
    NotFound = 7,
    /// The parent isn't a directory (NFS3ERR_NOTDIR).
    #[error("not a directory")]
    NotDirectory = 8,
    /// The name is a directory. Directories are granted as trees only.
    #[error("is a directory")]
    IsDirectory = 9,
    /// The name is a symbolic link, which the client follows.
    #[error("is a symbolic link")]
    Symlink = 10,
    /// A device, a FIFO or a socket. These are never granted.
    #[error("not a regular file")]
    NotRegular = 11,
    /// The client holds or has requested as many grants as it may.
    #[error("too many grants")]
    TooMany = 12,
    /// Another client's open or lock conflicts, which only the wire can handle.
    #[error("ask over the wire")]
    TryWire = 13,
    /// The server is draining and grants nothing.
    #[error("the server is draining")]
    Draining = 14,
    /// The filesystem failed.
    #[error("input/output error")]
    Io = 15,
    /// The export or the server gives no trees (`no_tree`, `--lane files`), or the export no mounts. Since
    /// version 4, as the next two.
    #[error("no trees are given here: the export has no_tree, or the server runs with --lane files")]
    NoTree = 16,
    /// The export squashes this user, or another one who could use the client's descriptor.
    #[error("the export squashes this user, or root of the client's container")]
    TreeSquashed = 17,
    /// The directory isn't all that NFS clients see below it, or the server can't make a tree of it.
    #[error("other exports or mounts lie in it, it has subtree_check, or the server lacks the privilege")]
    TreeIncomplete = 18,
}

impl OpenStatus {
    /// Decodes the number on the lane.
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
            16 => Self::NoTree,
            17 => Self::TreeSquashed,
            18 => Self::TreeIncomplete,
            _ => return None,
        })
    }
}
