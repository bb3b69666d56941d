//! Errors: each names its object, the reason and, where there is one, what to do about it.

use std::fmt::{self, Write as _};
use std::io;

use proto::nfs4::Nfsstat4;

use crate::types::FileKind;
use crate::url::UrlError;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The status of an operation that the server refused, in NFSv3's terms (RFC 1813 section 2.6, nfsstat3), and
/// in NFSv4's where NFSv3 has none (RFC 8881 section 15.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Status {
    /// NFS3ERR_PERM.
    #[error("not the owner, or the server forbids it to this user")]
    NotPermitted,
    /// NFS3ERR_NOENT.
    #[error("no such file or directory")]
    NoEntry,
    /// NFS3ERR_IO.
    #[error("the server had an I/O error")]
    Io,
    /// NFS3ERR_NXIO.
    #[error("no such device on the server")]
    NoDevice,
    /// NFS3ERR_ACCES.
    #[error("permission denied")]
    Access,
    /// NFS3ERR_EXIST.
    #[error("it exists already")]
    Exists,
    /// NFS3ERR_XDEV.
    #[error("the two names are on different filesystems")]
    CrossDevice,
    /// NFS3ERR_NODEV.
    #[error("operation not supported by the device")]
    NotByDevice,
    /// NFS3ERR_NOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// NFS3ERR_ISDIR.
    #[error("it is a directory")]
    IsDirectory,
    /// NFS3ERR_INVAL.
    #[error("invalid argument")]
    Invalid,
    /// NFS3ERR_FBIG.
    #[error("the file would become too large")]
    TooBig,
    /// NFS3ERR_NOSPC.
    #[error("no space left on the server")]
    NoSpace,
    /// NFS3ERR_ROFS.
    #[error("the export or its filesystem is read-only")]
    ReadOnly,
    /// NFS3ERR_MLINK.
    #[error("too many hard links")]
    TooManyLinks,
    /// NFS3ERR_NAMETOOLONG.
    #[error("the name is too long")]
    NameTooLong,
    /// NFS3ERR_NOTEMPTY.
    #[error("the directory is not empty")]
    NotEmpty,
    /// NFS3ERR_DQUOT.
    #[error("the user's quota is used up")]
    Quota,
    /// NFS3ERR_STALE.
    #[error("the file is gone, or no longer exported (stale handle)")]
    Stale,
    /// NFS3ERR_REMOTE.
    #[error("too many levels of remote")]
    Remote,
    /// NFS3ERR_BADHANDLE.
    #[error("the server does not know this file handle")]
    BadHandle,
    /// NFS3ERR_NOT_SYNC.
    #[error("the file has been changed meanwhile")]
    NotSync,
    /// NFS3ERR_BAD_COOKIE.
    #[error("the directory changed and the listing must start over")]
    BadCookie,
    /// NFS3ERR_NOTSUPP, and any operation that the session's NFS version doesn't have.
    #[error("the server does not support this")]
    NotSupported,
    /// NFS3ERR_TOOSMALL.
    #[error("the buffer is too small")]
    TooSmall,
    /// NFS3ERR_SERVERFAULT.
    #[error("the server failed (see its log)")]
    ServerFault,
    /// NFS3ERR_BADTYPE.
    #[error("the server does not support this type of file")]
    BadType,
    /// NFS4ERR_MOVED: the filesystem is on another server, and this one doesn't say where
    /// ([`Error::Moved`] says it).
    #[error("its filesystem is on another server")]
    Moved,
    /// NFS4ERR_SYMLINK.
    #[error("it is a symbolic link")]
    Symlink,
    /// NFS4ERR_LOCKED.
    #[error("another process has locked this part of the file")]
    Locked,
    /// NFS4ERR_SHARE_DENIED.
    #[error("another client has opened it and denies this access")]
    ShareDenied,
    /// NFS4ERR_FILE_OPEN.
    #[error("it is in use")]
    Busy,
    /// NFS4ERR_NOXATTR.
    #[error("no such extended attribute")]
    NoAttribute,
    /// NFS4ERR_XATTR2BIG.
    #[error("the extended attribute is too large")]
    AttributeTooBig,
    /// NFS3ERR_JUKEBOX and NFS4ERR_DELAY: the server needs longer than a call may take. A session repeats the
    /// operation, and returns this only if it is soft and gives up.
    #[error("the server needs more time: try again later")]
    TryLater,
    /// An NFSv4 status that the operation must not have (RFC 8881 section 15.2), or that is about the
    /// session.
    #[error("the server refused it with {0}")]
    Unexpected(UnexpectedStatus),
}

/// An NFSv4 status that has no meaning for the caller, displayed by its name in RFC 8881 section 15.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnexpectedStatus(pub(crate) Nfsstat4);

impl fmt::Display for UnexpectedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NFS4ERR")?;
        for letter in format!("{:?}", self.0).chars() {
            if letter.is_ascii_uppercase() {
                f.write_char('_')?;
            }
            f.write_char(letter.to_ascii_uppercase())?;
        }
        Ok(())
    }
}

impl Status {
    /// The errno that Linux's NFS client returns for the status, or the nearest.
    #[must_use]
    pub const fn errno(self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Self::NotPermitted => Errno::PERM,
            Self::NoEntry => Errno::NOENT,
            Self::Io | Self::ServerFault | Self::Unexpected(_) => Errno::IO,
            Self::NoDevice => Errno::NXIO,
            Self::Access | Self::ShareDenied => Errno::ACCESS,
            Self::Exists => Errno::EXIST,
            Self::CrossDevice => Errno::XDEV,
            Self::NotByDevice => Errno::NODEV,
            Self::NotDirectory => Errno::NOTDIR,
            Self::IsDirectory => Errno::ISDIR,
            Self::Invalid | Self::BadType | Self::TooSmall | Self::BadCookie => Errno::INVAL,
            Self::TooBig => Errno::FBIG,
            Self::NoSpace => Errno::NOSPC,
            Self::ReadOnly => Errno::ROFS,
            Self::TooManyLinks => Errno::MLINK,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::Quota => Errno::DQUOT,
            Self::Stale | Self::BadHandle => Errno::STALE,
            Self::Remote | Self::Moved => Errno::REMOTE,
            Self::NotSync | Self::TryLater | Self::Locked => Errno::AGAIN,
            Self::Symlink => Errno::LOOP,
            Self::Busy => Errno::BUSY,
            Self::NoAttribute => Errno::NODATA,
            Self::AttributeTooBig => Errno::TOOBIG,
            Self::NotSupported => Errno::NOTSUP,
        };
        errno.raw_os_error()
    }
}

/// Why an RPC call has no results: there is no connection, no reply in time, or the server rejected the call.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RpcError(pub(crate) rpc::client::Error);

impl RpcError {
    /// Whether the server didn't answer as long as a soft session waits.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        self.0.is_timeout()
    }

    /// Whether the server couldn't be reached, which may be temporary.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        self.0.is_unreachable()
    }
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no NFS URL, or one of its options is wrong.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The host's name can't be resolved.
    #[error("host {host:?} cannot be resolved: {source}")]
    Resolve {
        /// The host's name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// A call has no results: there is no connection, no reply, or no valid one.
    #[error("{object}: {source}")]
    Rpc {
        /// The operation and its file.
        object: String,
        /// Why.
        source: RpcError,
    },
    /// The session did not connect in time ([`Options::retry`](crate::Options::retry)).
    #[error("{object}: no answer that makes sense within {after:?}")]
    NoAnswer {
        /// The URL.
        object: String,
        /// The limit.
        after: std::time::Duration,
    },
    /// The server refused to mount the path and every directory above it.
    #[error("{path:?} cannot be mounted from {server}: {reason}")]
    Mount {
        /// The path.
        path: String,
        /// The server.
        server: String,
        /// The server's reason, and what to do about it.
        reason: String,
    },
    /// The server refused the operation.
    #[error("{object}: {status}")]
    Status {
        /// The operation and its file.
        object: String,
        /// The server's reason.
        status: Status,
    },
    /// The file's filesystem has moved to other servers, or the server refers to them (NFS4ERR_MOVED, RFC
    /// 8881 section 11). The client doesn't follow; the status is [`Status::Moved`], and the errno EREMOTE.
    #[error("{object}: its filesystem is on another server: mount it from {}", locations.join(" or "))]
    Moved {
        /// The operation and its file.
        object: String,
        /// Where the filesystem is: servers with paths, in the form of mount(8), `server:/path`.
        locations: Vec<String>,
    },
    /// A system call on a granted file, or on a local file of the caller, failed.
    #[error("{object}: {source}")]
    Local {
        /// The operation and its file.
        object: String,
        /// Why.
        source: io::Error,
    },
    /// A lane is required, and there is none.
    #[error("{object}: a lane is required and there is none: {}", reasons.join("; "))]
    NoLane {
        /// The server or file.
        object: String,
        /// Why there is none.
        reasons: Vec<String>,
    },
    /// A lane is required and there is one, but a limit of open files is reached.
    #[error("{object}: {}", OpenFileLimit::text(*limit))]
    NoGrant {
        /// The file.
        object: String,
        /// The limit.
        limit: OpenFileLimit,
    },
    /// Only regular files are opened, and this is another one. The status is what an NFSv4 server answers to
    /// its OPEN (RFC 8881 section 18.16.3): [`Status::IsDirectory`], [`Status::Symlink`] or
    /// [`Status::Invalid`].
    #[error("{object}: it is a {}, and only regular files can be opened", kind.name())]
    NotRegular {
        /// The file.
        object: String,
        /// What it is.
        kind: FileKind,
    },
    /// The path has more symbolic links than are allowed; most likely they form a loop.
    #[error("{path:?}: more than {max} symbolic links on the way")]
    Loop {
        /// The path.
        path: String,
        /// How many are allowed.
        max: usize,
    },
    /// The reply violates the protocol.
    #[error("{object}: the server's answer makes no sense: {what}")]
    Protocol {
        /// The operation and its file.
        object: String,
        /// What is wrong with the reply.
        what: &'static str,
    },
    /// The server's NFSv4 access control list means something that no POSIX one does
    /// ([`Session::acls`](crate::Session::acls)).
    #[error("the NFSv4 access control list has no POSIX counterpart")]
    NoPosixAcl,
    /// A write failed after a first part of the data had been written.
    #[error("{source} (after {done} bytes)")]
    Partly {
        /// The length of that part in bytes: at least 1, and less than the data's.
        done: usize,
        /// Why the rest was not written.
        source: Box<Error>,
    },
    /// A write that its caller didn't wait for ([`File::write_behind`](crate::File::write_behind)) has
    /// failed. Each open that has written to the file is told once.
    #[error("an earlier write has failed: {source}")]
    EarlierWrite {
        /// Why.
        source: std::sync::Arc<Error>,
    },
    /// The file was not opened for reading, or not for writing.
    #[error("{object}: not open for {wanted}")]
    NotOpenFor {
        /// The file.
        object: String,
        /// `reading` or `writing`.
        wanted: &'static str,
    },
    /// The session's tree can't perform the operation, and has changed nothing: the session performs it over
    /// the wire. Callers of the library never get this.
    #[doc(hidden)]
    #[error("not possible in the tree")]
    NotLocal,
}

/// A limit of the files that are open over the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpenFileLimit {
    /// The server: the user's share of open files over the lane is used up (`samehost serve --lane-grants`).
    Server,
    /// This process: nearly all descriptors that it may have are in use (`RLIMIT_NOFILE`).
    Client,
}

impl OpenFileLimit {
    /// In words, with the next step.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Server => {
                "too many files are open over the lane; close some, or give the server a larger --lane-grants"
            }
            Self::Client => {
                "this process has too many files open; close some, or raise its limit (RLIMIT_NOFILE, ulimit \
                 -n)"
            }
        }
    }
}

/// An NFSv4 server's answer to an OPEN of a file that isn't regular.
const fn open_status(kind: FileKind) -> Status {
    match kind {
        FileKind::Directory => Status::IsDirectory,
        FileKind::Symlink => Status::Symlink,
        _ => Status::Invalid,
    }
}

/// The error of an operation that the session's NFS version doesn't have.
pub(crate) fn not_supported(operation: &str) -> Error {
    Error::Status { object: operation.to_owned(), status: Status::NotSupported }
}

impl Error {
    /// The server's status, if the server refused the operation.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Moved { .. } => Some(Status::Moved),
            Self::NotRegular { kind, .. } => Some(open_status(*kind)),
            Self::Partly { source, .. } => source.status(),
            Self::EarlierWrite { source } => source.status(),
            _ => None,
        }
    }

    /// Whether the server did not answer as long as a soft session waits. The errno is ETIMEDOUT, as with
    /// nfs(5)'s softerr. A mount with `soft` returns EIO instead.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Rpc { source, .. } => source.is_timeout(),
            Self::NoAnswer { .. } => true,
            Self::Partly { source, .. } => source.is_timeout(),
            Self::EarlierWrite { source } => source.is_timeout(),
            _ => false,
        }
    }

    /// Whether the server couldn't be reached, which may be temporary: it may be starting.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Rpc { source, .. } => source.is_unreachable(),
            Self::NoAnswer { .. } | Self::Resolve { .. } => true,
            Self::Partly { source, .. } => source.is_unreachable(),
            Self::EarlierWrite { source } => source.is_unreachable(),
            _ => false,
        }
    }

    /// The error of a write whose first `before` bytes had been written before the part that failed.
    #[doc(hidden)]
    #[must_use]
    pub fn after(self, before: usize) -> Self {
        match self {
            Self::Partly { done, source } => Self::Partly { done: done + before, source },
            error if before == 0 => error,
            error => Self::Partly { done: before, source: Box::new(error) },
        }
    }

    /// Whether the operation has to go over the wire.
    pub(crate) const fn is_not_local(&self) -> bool {
        matches!(self, Self::NotLocal)
    }

    /// The same error with another name for its object.
    #[must_use]
    pub(crate) fn about(mut self, name: impl FnOnce() -> String) -> Self {
        if let Self::Partly { done, source } = self {
            return source.about(name).after(done);
        }
        match &mut self {
            Self::Rpc { object, .. }
            | Self::Status { object, .. }
            | Self::Moved { object, .. }
            | Self::Local { object, .. }
            | Self::NoLane { object, .. }
            | Self::NoGrant { object, .. }
            | Self::Protocol { object, .. }
            | Self::NotRegular { object, .. }
            | Self::NotOpenFor { object, .. } => *object = name(),
            _ => {}
        }
        self
    }

    /// The nearest errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Self::Url(_) => Errno::INVAL,
            Self::Resolve { .. } => Errno::HOSTUNREACH,
            Self::NoAnswer { .. } => Errno::TIMEDOUT,
            Self::Rpc { source, .. } if source.is_timeout() => Errno::TIMEDOUT,
            Self::Rpc { source: RpcError(rpc::client::Error::Auth { .. }), .. } => Errno::ACCESS,
            Self::Rpc { .. } | Self::Protocol { .. } | Self::NotLocal => Errno::IO,
            Self::Mount { .. } => Errno::ACCESS,
            Self::Status { status, .. } => return status.errno(),
            Self::Moved { .. } => return Status::Moved.errno(),
            Self::NotRegular { kind, .. } => return open_status(*kind).errno(),
            Self::Local { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            Self::NoLane { .. } => Errno::NXIO,
            Self::NoGrant { .. } => Errno::NFILE,
            Self::Loop { .. } => Errno::LOOP,
            Self::NotOpenFor { .. } => Errno::BADF,
            Self::NoPosixAcl => Errno::OPNOTSUPP,
            Self::Partly { source, .. } => return source.errno(),
            Self::EarlierWrite { source } => return source.errno(),
        };
        errno.raw_os_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexpected_status_is_named_as_in_the_rfc() {
        let shown = |status| Status::Unexpected(UnexpectedStatus(status)).to_string();
        assert_eq!(shown(Nfsstat4::Badsession), "the server refused it with NFS4ERR_BADSESSION");
        assert!(shown(Nfsstat4::ConnNotBoundToSession).ends_with("NFS4ERR_CONN_NOT_BOUND_TO_SESSION"));
    }
}
