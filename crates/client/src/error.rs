//! What can go wrong, with the object, the reason and, where there is one, the next step.

use std::io;

use crate::url::UrlError;

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A server's refusal (RFC 1813 section 2.6, nfsstat3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
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
    #[error("the file was changed by somebody else in between")]
    NotSync,
    /// NFS3ERR_BAD_COOKIE.
    #[error("the directory changed and the listing must start over")]
    BadCookie,
    /// NFS3ERR_NOTSUPP.
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
    /// NFS3ERR_JUKEBOX: the server is still at it.
    #[error("the server needs more time: try again later")]
    TryLater,
}

impl Status {
    /// The nearest errno, for faces that speak errno.
    #[must_use]
    pub const fn errno(self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Self::NotPermitted => Errno::PERM,
            Self::NoEntry => Errno::NOENT,
            Self::Io | Self::ServerFault => Errno::IO,
            Self::NoDevice => Errno::NXIO,
            Self::Access => Errno::ACCESS,
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
            Self::Remote => Errno::REMOTE,
            Self::NotSync | Self::TryLater => Errno::AGAIN,
            Self::NotSupported => Errno::NOTSUP,
        }
    }
}

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not one.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The host's name has no address.
    #[error("host {host:?} cannot be resolved: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// The call itself failed: no connection, no answer, or an answer that is none.
    #[error("{object}: {source}")]
    Rpc {
        /// What was being done to what.
        object: String,
        /// Why.
        source: rpc::client::Error,
    },
    /// The session did not come up in time (`retry`).
    #[error("{object}: no answer that makes sense within {after:?}")]
    NoAnswer {
        /// The URL.
        object: String,
        /// How long it was tried.
        after: std::time::Duration,
    },
    /// MOUNT was refused for the path and everything above it.
    #[error("{path:?} cannot be mounted from {server}: {reason}")]
    Mount {
        /// The path that was asked for.
        path: String,
        /// The server.
        server: String,
        /// The server's reason, and what to do about it.
        reason: String,
    },
    /// The server refused.
    #[error("{object}: {status}")]
    Status {
        /// Which file, and what was tried.
        object: String,
        /// The refusal.
        status: Status,
    },
    /// A system call on a granted file, or one of the caller's own, failed.
    #[error("{object}: {source}")]
    Local {
        /// Which file, and what was tried.
        object: String,
        /// Why.
        source: io::Error,
    },
    /// There must be a lane and there is none.
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
    /// More symbolic links than a path may have, probably a circle.
    #[error("{path:?}: more than {max} symbolic links on the way")]
    Loop {
        /// The path.
        path: String,
        /// How many are allowed.
        max: usize,
    },
    /// The answer breaks the protocol.
    #[error("{object}: the server's answer makes no sense: {what}")]
    Protocol {
        /// What was being done to what.
        object: String,
        /// What is wrong with the answer.
        what: &'static str,
    },
    /// A write failed after a part of it had been written, from its start on.
    #[error("{source} (after {done} bytes)")]
    Partly {
        /// So many bytes were written before; at least 1, and fewer than were to be written.
        done: usize,
        /// Why the rest was not.
        source: Box<Error>,
    },
    /// The file was not opened for this.
    #[error("{object}: not open for {wanted}")]
    NotOpenFor {
        /// The file.
        object: String,
        /// `reading` or `writing`.
        wanted: &'static str,
    },
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

impl Error {
    /// The server's refusal, if that is what it is.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Partly { source, .. } => source.status(),
            _ => None,
        }
    }

    /// Whether the server did not answer as long as a soft session waits. Its errno is ETIMEDOUT, as with
    /// nfs(5)'s softerr; a face for `soft` says EIO instead.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Rpc { source, .. } => source.is_timeout(),
            Self::NoAnswer { .. } => true,
            Self::Partly { source, .. } => source.is_timeout(),
            _ => false,
        }
    }

    /// Whether the server couldn't be reached, which may change by itself: it may be starting.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Rpc { source, .. } => source.is_unreachable(),
            Self::NoAnswer { .. } | Self::Resolve { .. } => true,
            Self::Partly { source, .. } => source.is_unreachable(),
            _ => false,
        }
    }

    /// The same error of a write of which `before` bytes had been written when the part that failed began.
    #[must_use]
    pub fn after(self, before: usize) -> Self {
        match self {
            Self::Partly { done, source } => Self::Partly { done: done + before, source },
            error if before == 0 => error,
            error => Self::Partly { done: before, source: Box::new(error) },
        }
    }

    /// The same error, about something the caller has a better name for.
    #[must_use]
    pub fn about(mut self, name: impl FnOnce() -> String) -> Self {
        if let Self::Partly { done, source } = self {
            return source.about(name).after(done);
        }
        match &mut self {
            Self::Rpc { object, .. }
            | Self::Status { object, .. }
            | Self::Local { object, .. }
            | Self::NoLane { object, .. }
            | Self::NoGrant { object, .. }
            | Self::Protocol { object, .. }
            | Self::NotOpenFor { object, .. } => *object = name(),
            _ => {}
        }
        self
    }

    /// The nearest errno.
    #[must_use]
    pub fn errno(&self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Self::Url(_) => Errno::INVAL,
            Self::Resolve { .. } => Errno::HOSTUNREACH,
            Self::NoAnswer { .. } => Errno::TIMEDOUT,
            Self::Rpc { source, .. } if source.is_timeout() => Errno::TIMEDOUT,
            Self::Rpc { source: rpc::client::Error::Auth { .. }, .. } => Errno::ACCESS,
            Self::Rpc { .. } | Self::Protocol { .. } => Errno::IO,
            Self::Mount { .. } => Errno::ACCESS,
            Self::Status { status, .. } => status.errno(),
            Self::Local { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            Self::NoLane { .. } => Errno::NXIO,
            Self::NoGrant { .. } => Errno::NFILE,
            Self::Loop { .. } => Errno::LOOP,
            Self::NotOpenFor { .. } => Errno::BADF,
            Self::Partly { source, .. } => source.errno(),
        }
    }
}
