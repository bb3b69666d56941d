//! Why an operation in a tree has no result: [`Failure`].
//!
//! Invariant: an operation that fails with [`Failure::NotLocal`] or [`Failure::WouldWait`] has changed
//! nothing, so it may be performed elsewhere.

use rustix::io::Errno;

use crate::error::{Error, Status};

/// Why an operation in a tree has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The tree can't perform it; the wire can.
    NotLocal,
    /// It may wait for a disk, which the caller didn't permit.
    WouldWait,
    /// The kernel refused it as the server would have.
    Status(Status),
}

/// The result of an operation in a tree.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The error of an operation that names `object`.
    pub(super) fn into_error(self, object: &str) -> Error {
        match self {
            Self::Status(status) => Error::Status { object: object.to_owned(), status },
            Self::NotLocal | Self::WouldWait => Error::NotLocal,
        }
    }

    /// The failure of an operation in a tree that has ended meanwhile. The server makes the directory
    /// read-only after it has recalled the tree, though the export may not be.
    pub(super) const fn in_ended_tree(self) -> Self {
        match self {
            Self::Status(Status::ReadOnly) => Self::NotLocal,
            other => other,
        }
    }

    /// The failure of an operation that has changed something, and therefore mustn't be repeated.
    pub(super) const fn after_change(self) -> Self {
        match self {
            // The directory became read-only in the middle: the tree has ended.
            Self::NotLocal | Self::WouldWait | Self::Status(Status::ReadOnly) => Self::Status(Status::Io),
            Self::Status(_) => self,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Errno> for Failure {
    /// The server's translation of the same errno, except where its answer depends on what only it knows.
    fn from(errno: Errno) -> Self {
        Self::Status(match errno {
            // A lease that an NFSv4 client has to give back, a shortage of this process, a mount point, or a
            // kernel without the system call.
            Errno::AGAIN
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
            | Errno::BUSY
            | Errno::XDEV
            | Errno::INTR
            | Errno::NOSYS => return Self::NotLocal,
            Errno::STALE => Status::Stale,
            Errno::NOENT => Status::NoEntry,
            Errno::EXIST => Status::Exists,
            // A symbolic link where a directory was expected.
            Errno::NOTDIR | Errno::LOOP => Status::NotDirectory,
            Errno::ISDIR => Status::IsDirectory,
            Errno::NOTEMPTY => Status::NotEmpty,
            Errno::ACCESS => Status::Access,
            Errno::PERM => Status::NotPermitted,
            Errno::NAMETOOLONG => Status::NameTooLong,
            Errno::INVAL => Status::Invalid,
            Errno::ROFS => Status::ReadOnly,
            Errno::NOSPC => Status::NoSpace,
            Errno::DQUOT => Status::Quota,
            Errno::FBIG | Errno::OVERFLOW => Status::TooBig,
            Errno::MLINK => Status::TooManyLinks,
            Errno::OPNOTSUPP | Errno::NOTTY => Status::NotSupported,
            Errno::NXIO | Errno::NODEV => Status::NoDevice,
            _ => Status::Io,
        })
    }
}
