//! What a file is, in the client's own words: the same for every version of NFS and for both data paths.

use std::fmt;

pub use sys::{Access, Attributes, FileKind, SetAttributes, SetTime, Timestamp};

/// The longest file handle of NFSv3 (RFC 1813 section 2.3.3, NFS3_FHSIZE).
pub const HANDLE_MAX: usize = 64;

/// A file's persistent name as the server gave it: opaque, at most 64 bytes, valid across restarts of either
/// side.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    len: u8,
    bytes: [u8; HANDLE_MAX],
}

impl Handle {
    /// Takes a server's handle; `None` if it is longer than 64 bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut whole = [0; HANDLE_MAX];
        whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len: bytes.len() as u8, bytes: whole })
    }

    /// The bytes as the server gave them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// An entry of an access control list (acl(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is about, as NFSACL has it: 1 the owner, 2 a user, 4 the file's group, 8 a group, 16 the mask,
    /// 32 everybody else.
    pub tag: u32,
    /// The user or group of a tag of 2 or 8.
    pub id: u32,
    /// 4 to read, 2 to write, 1 to execute or search.
    pub permissions: u32,
}

/// A handle with what the server said about the file in the same breath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub handle: Handle,
    /// Its attributes, if the server sent them.
    pub attributes: Option<Attributes>,
}

/// How CREATE treats a name that exists (RFC 1813 section 3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// Take the existing file.
    Unchecked(SetAttributes),
    /// Fail if the name exists.
    Guarded(SetAttributes),
    /// Fail if the name exists, unless it was made by a call with this very verifier: a retry is recognised.
    Exclusive([u8; 8]),
}

/// A file that is neither regular nor a directory nor a link (RFC 1813 section 3.3.11, MKNOD).
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

/// A directory's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: bytes, not necessarily UTF-8, never with a '/' or a NUL.
    pub name: Vec<u8>,
    /// The file's number within its filesystem.
    pub fileid: u64,
    /// Where the directory goes on behind this entry; means something to the server only.
    pub cookie: u64,
    /// The file's handle, if the listing was to have it (READDIRPLUS) and the server sent it.
    pub handle: Option<Handle>,
    /// The file's attributes, likewise.
    pub attributes: Option<Attributes>,
}

/// How full a filesystem is (RFC 1813 section 3.3.18, FSSTAT); bytes and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsStat {
    /// Bytes altogether.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes this user may still write.
    pub available_bytes: u64,
    /// Files (inodes) altogether.
    pub total_files: u64,
    /// Files free.
    pub free_files: u64,
    /// Files this user may still make.
    pub available_files: u64,
    /// For how many seconds this is not expected to change.
    pub invariant_seconds: u32,
}

/// What the server likes and can do (RFC 1813 section 3.3.19, FSINFO); sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    /// How fine its clock is.
    pub time_delta: Timestamp,
    /// FSF3_* bits: hard links (1), symbolic links (2), homogeneous (8), can set times (16).
    pub properties: u32,
}

/// Limits of names (RFC 1813 section 3.3.20, PATHCONF).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathConf {
    /// Most hard links a file can have.
    pub link_max: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Longer names are an error (and not cut off).
    pub no_truncation: bool,
    /// Only the superuser may give a file away.
    pub chown_restricted: bool,
    /// `A` and `a` are the same name.
    pub case_insensitive: bool,
    /// The case of names is kept.
    pub case_preserving: bool,
}

/// One line of a server's export list (RFC 1813 section 5.2.5, MOUNTPROC3_EXPORT).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportEntry {
    /// The exported directory.
    pub path: Vec<u8>,
    /// Whom it is for; empty means everybody.
    pub groups: Vec<Vec<u8>>,
}
