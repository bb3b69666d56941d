//! Parameters and results of operations.

use std::sync::Arc;

use ::io::Stability;

use crate::attributes::{Attributes, SetAttributes, TimedStatus};
use crate::node::Node;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// How CREATE treats a name that exists (RFC 1813 section 3.3.8, `createhow3`).
#[derive(Clone, Copy, Debug)]
pub enum CreateHow {
    /// Use the existing file, and apply a size among the attributes to it, as the Linux server does.
    Unchecked(SetAttributes),
    /// Fail with `Exists`.
    Guarded(SetAttributes),
    /// Fail, unless the file was created with this verifier, which makes the call a retry. A new file gets
    /// this mode.
    Exclusive([u8; 8], u32),
}

/// The type of file that MKNOD creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFile {
    /// A block device with this major and minor number.
    BlockDevice(u32, u32),
    /// A character device with this major and minor number.
    CharacterDevice(u32, u32),
    /// A Unix domain socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// The result of [`UserContext::find`](crate::UserContext::find).
#[derive(Clone, Debug)]
pub struct LookupResult {
    /// The file.
    pub node: Arc<Node>,
    /// The file's status, if the kernel was asked.
    pub(crate) status: Option<TimedStatus>,
}

impl From<Arc<Node>> for LookupResult {
    fn from(node: Arc<Node>) -> LookupResult {
        LookupResult { node, status: None }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadResult {
    /// Bytes read.
    pub count: usize,
    /// The read reached the end of the file.
    pub eof: bool,
    /// The attributes.
    pub attributes: Attributes,
}

/// The result of a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteResult {
    /// Bytes written; fewer than requested only when the filesystem took no more.
    pub count: usize,
    /// How durable they are.
    pub committed: Stability,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name, as stored in the filesystem.
    pub name: &'a [u8],
    /// The inode number.
    pub fileid: u64,
    /// The position after this entry.
    pub cookie: u64,
}

/// The result of reading a part of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirPage {
    /// To be passed with the next cookie.
    pub verifier: [u8; 8],
    /// The directory has no more entries.
    pub eof: bool,
}

/// Space on the filesystem (RFC 1813 section 3.3.18), in bytes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStat {
    /// Size of the filesystem in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes for ordinary users.
    pub available_bytes: u64,
    /// Number of file slots.
    pub total_files: u64,
    /// Free file slots.
    pub free_files: u64,
    /// Free file slots for ordinary users.
    pub available_files: u64,
}

/// The filesystem's abilities (RFC 1813 section 3.3.19; transfer sizes are determined by the server).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInfo {
    /// The largest size of a file in bytes.
    pub max_file_size: u64,
    /// Granularity of time stamps in nanoseconds.
    pub time_delta: u32,
    /// Hard links work.
    pub links: bool,
    /// Symbolic links work.
    pub symlinks: bool,
    /// PATHCONF is the same for every file.
    pub homogeneous: bool,
    /// SETATTR can set times.
    pub can_set_time: bool,
}

/// POSIX pathconf (RFC 1813 section 3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConf {
    /// Maximum number of links to a file.
    pub link_max: u32,
    /// Maximum length of a name in bytes.
    pub name_max: u32,
    /// Longer names are rejected, not truncated.
    pub no_trunc: bool,
    /// Only a privileged user may change an owner.
    pub chown_restricted: bool,
    /// Names that differ only in case are the same.
    pub case_insensitive: bool,
    /// Case is preserved.
    pub case_preserving: bool,
}
