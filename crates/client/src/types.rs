//! Values that operations take and return, the same for every version of NFS.

pub use sys::{Access, Attributes, FileKind, PosixAcl, PosixAcls, SetAttributes, SetTime, Timestamp};

pub use crate::handle::Handle;

/// A change of one of a file's access control lists (acl(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetAcl {
    /// The access list, which changes the file's mode as well. With one that has neither names nor a mask the
    /// mode is all that the file has.
    Access(PosixAcl),
    /// A directory's default list. `None` removes it.
    Default(Option<PosixAcl>),
}

impl SetAcl {
    /// The new list.
    pub(crate) const fn list(&self) -> Option<&PosixAcl> {
        match self {
            Self::Access(list) => Some(list),
            Self::Default(list) => list.as_ref(),
        }
    }

    /// Makes the change to the lists of a file.
    pub(crate) fn apply(&self, to: &mut PosixAcls) {
        match self {
            Self::Access(list) => to.access = list.clone(),
            Self::Default(list) => to.default = list.clone(),
        }
    }
}

/// A file's access control lists (acl(5)), as a reply has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyAcls {
    /// The lists.
    Posix(PosixAcls),
    /// The file has an NFSv4 list that no POSIX one equals ([`Error::NoPosixAcl`](crate::Error::NoPosixAcl)).
    NoPosix,
    /// The server or the file's filesystem has no lists.
    NotSupported,
}

/// A file with the attributes that the same reply carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub handle: Handle,
    /// Its attributes, if the server sent them.
    pub attributes: Option<Attributes>,
}

/// A directory that was made, and what the same reply said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeDirectory {
    /// The directory.
    pub found: Found,
    /// Those of the rights asked for that the user has.
    pub access: Option<Access>,
    /// Its access control list, if the server sent one that has a POSIX counterpart.
    pub acl: Option<PosixAcl>,
}

impl From<Found> for MadeDirectory {
    fn from(found: Found) -> Self {
        Self { found, access: None, acl: None }
    }
}

/// What CREATE does if the name exists (RFC 1813 section 3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// The existing file is the result.
    Unchecked(SetAttributes),
    /// It fails.
    Guarded(SetAttributes),
    /// It fails, unless a call with the same verifier made the file: the server recognises a retry.
    Exclusive {
        /// Names the call.
        verifier: [u8; 8],
        /// The file's mode where the server applies the umask
        /// ([`Session::server_applies_umask`](crate::Session::server_applies_umask)). Otherwise the caller
        /// sets the mode afterwards.
        mode: u32,
    },
}

/// A change of a file's space (fallocate(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Space is reserved for a range, and the file extended if it ends before.
    Allocate,
    /// A range becomes a hole (`FALLOC_FL_PUNCH_HOLE`). The file keeps its size.
    PunchHole,
    /// A range reads as zeros and has space reserved (`FALLOC_FL_ZERO_RANGE`). The file is extended if it
    /// ends before.
    ZeroRange,
}

/// How a range of a file will be used (posix_fadvise(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// No advice.
    Normal,
    /// From lower offsets to higher ones.
    Sequential,
    /// In random order.
    Random,
    /// Soon.
    WillNeed,
    /// Not soon.
    DontNeed,
    /// Once.
    NoReuse,
}

/// What a position in a file is searched for (lseek(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// Data.
    Data,
    /// A hole; the end of the file counts as one.
    Hole,
}

/// How an extended attribute is set (setxattr(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// It is created or replaced.
    Either,
    /// It is created; it must not exist ([`Status::Exists`](crate::Status::Exists)).
    Create,
    /// It is replaced; it must exist ([`Status::NoAttribute`](crate::Status::NoAttribute)).
    Replace,
}

/// A part of the list of a file's extended attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct XattrPage {
    /// Names without the namespace `user.`.
    pub(crate) names: Vec<Vec<u8>>,
    /// The cookie of the next part; `None` at the end.
    pub(crate) next: Option<u64>,
}

/// Which file a name belongs to, as far as the caller knows. It saves the search for the file in a tree. If
/// it isn't true any more, a removed file may stay open, and keep its space, for up to a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameHint<'a> {
    /// The caller doesn't know.
    Unknown,
    /// To none.
    Nothing,
    /// To the file of this handle.
    File(&'a Handle),
}

/// A file that MKNOD makes (RFC 1813 section 3.3.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A block device with its major and minor number.
    Block(u32, u32),
    /// A character device with its major and minor number.
    Character(u32, u32),
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: bytes, not necessarily UTF-8, never with a '/' or a NUL.
    pub name: Vec<u8>,
    /// The file's number within its filesystem.
    pub fileid: u64,
    /// The position behind this entry, in the server's terms.
    pub cookie: u64,
    /// The file's type, if the reply has it.
    pub kind: Option<FileKind>,
    /// The file's handle, if the listing asked for it (READDIRPLUS) and the server sent it.
    pub handle: Option<Handle>,
    /// The file's attributes, likewise.
    pub attributes: Option<Attributes>,
    /// The file's access control lists, if the listing asked for them ([`Plus::Acls`]) and the reply says
    /// which it has.
    pub acls: Option<ReplyAcls>,
}

/// The entries of a listing that come with handles and attributes.
#[derive(Clone, Copy)]
pub enum Plus<'a> {
    /// None (READDIR).
    None,
    /// All (READDIRPLUS).
    All,
    /// All, and by NFSv4 with access control lists (RFC 8881 section 6.2.1), which make the reply longer by a
    /// third or more. Other listings can't have them.
    Acls,
    /// None, but all entries have their kinds. Only a directory tree of the server's host saves work by that;
    /// a server sends all.
    Kinds,
    /// At least the directories, and all entries have attributes. Only a directory tree of the server's host
    /// saves work by that; a server sends all.
    Attributes,
    /// Those for which the function returns false: the caller knows the others by name and file id. Only a
    /// directory tree of the server's host saves work by that; a server sends all.
    Unless(&'a (dyn Fn(&[u8], u64) -> bool + Sync)),
}

impl Plus<'_> {
    /// Whether a server is asked for handles and attributes.
    #[must_use]
    pub const fn is_wanted(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether an entry comes with handle and attributes.
    pub(crate) fn includes(self, name: &[u8], fileid: u64, kind: Option<FileKind>) -> bool {
        match self {
            Self::None => false,
            Self::All | Self::Acls => true,
            Self::Kinds => kind.is_none(),
            Self::Attributes => kind.is_none_or(|kind| kind == FileKind::Directory),
            Self::Unless(is_known) => !is_known(name, fileid),
        }
    }
}

impl std::fmt::Debug for Plus<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::All => "All",
            Self::Acls => "Acls",
            Self::Kinds => "Kinds",
            Self::Attributes => "Attributes",
            Self::Unless(_) => "Unless",
        })
    }
}

/// One READDIR's or READDIRPLUS's entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Page {
    /// The entries as the server sent them, `.` and `..` included.
    pub entries: Vec<DirEntry>,
    /// Goes with the entries' cookies.
    pub verifier: [u8; 8],
    /// The directory ends with the last entry.
    pub eof: bool,
}

/// The first page of a directory, and what the reply says about the directory itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DirectoryPage {
    /// The page. NFSv4's has no entries `.` and `..`.
    pub page: Page,
    /// The directory's attributes, if it didn't change while it was listed.
    pub attributes: Option<Attributes>,
    /// Its access control lists.
    pub acls: Option<ReplyAcls>,
}

/// The space of a filesystem (RFC 1813 section 3.3.18, FSSTAT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FsStat {
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes that the user may use.
    pub available_bytes: u64,
    /// The number of its files (inodes), used and free.
    pub total_files: u64,
    /// Free files.
    pub free_files: u64,
    /// Free files that the user may use.
    pub available_files: u64,
    /// For how many seconds these numbers are not expected to change.
    pub invariant_seconds: u32,
}

/// The server's limits and preferences (RFC 1813 section 3.3.19, FSINFO); sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FsInfo {
    /// Largest READ.
    pub read_max: u32,
    /// Preferred READ.
    pub read_preferred: u32,
    /// READ sizes should be a multiple of this.
    pub read_multiple: u32,
    /// Largest WRITE.
    pub write_max: u32,
    /// Preferred WRITE.
    pub write_preferred: u32,
    /// WRITE sizes should be a multiple of this.
    pub write_multiple: u32,
    /// Preferred READDIR.
    pub dir_preferred: u32,
    /// Largest file.
    pub file_size_max: u64,
    /// The resolution of its clock.
    pub time_delta: Timestamp,
    /// FSF3_* bits: hard links (1), symbolic links (2), homogeneous (8), can set times (16).
    pub properties: u32,
}

/// The limits of names (RFC 1813 section 3.3.20, PATHCONF).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathConf {
    /// The largest number of hard links to a file.
    pub link_max: u32,
    /// The longest name in bytes.
    pub name_max: u32,
    /// Longer names are an error instead of being truncated.
    pub no_truncation: bool,
    /// Only the superuser may change a file's owner.
    pub chown_restricted: bool,
    /// `A` and `a` are the same name.
    pub case_insensitive: bool,
    /// Names keep their case.
    pub case_preserving: bool,
}

/// An entry of a server's export list (RFC 1813 section 5.2.5, MOUNTPROC3_EXPORT).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportEntry {
    /// The exported directory.
    pub path: Vec<u8>,
    /// The hosts that may mount it; empty means every host, and by NFSv4 at least this one.
    pub groups: Vec<Vec<u8>>,
}

/// Whether a session has a lane, and why if it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LaneReport {
    /// Whether there is a lane now.
    pub local: bool,
    /// The server's instance, 32 hexadecimal digits, while there is a lane.
    pub instance: Option<String>,
    /// The rendezvous through which the lane was established, in words.
    pub through: Option<String>,
    /// Why there is none: one sentence for each candidate or cause, with what an administrator can do about
    /// it.
    pub reasons: Vec<String>,
    /// Whether the server has granted the directory tree of the session's root, so that names and attributes
    /// need no calls to the server.
    pub tree: bool,
    /// Why there is a lane and no tree.
    pub tree_refusal: Option<String>,
}

macro_rules! counted_operations {
    ($($operation:ident),+ $(,)?) => {
        /// A kind of call over the wire, by NFSv3's name of the procedure (RFC 1813 section 3.3), and by
        /// NFSv4's name of the operation where NFSv3 has none. Getacl and Setacl are GETATTR and SETATTR of
        /// NFSv4's `acl`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Operation {
            $(
                #[doc = concat!(stringify!($operation), ".")]
                $operation,
            )+
        }

        impl Operation {
            /// Every kind of call.
            pub const ALL: &[Self] = &[$(Self::$operation),+];
        }
    };
}

counted_operations!(
    Null,
    Getattr,
    Setattr,
    Lookup,
    Access,
    Readlink,
    Read,
    Write,
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Remove,
    Rmdir,
    Rename,
    Link,
    Readdir,
    Readdirplus,
    Fsstat,
    Fsinfo,
    Pathconf,
    Commit,
    Getacl,
    Setacl,
    Allocate,
    Deallocate,
    Seek,
    Ioadvise,
    Copy,
    Offloadstatus,
    Offloadcancel,
    Clone,
    Getxattr,
    Setxattr,
    Listxattrs,
    Removexattr,
    Open,
    Close,
    Lock,
    Unlock,
);
