//! Errors of store operations, each with one counterpart in the protocols.
//!
//! An errno says which system call failed, an NFS status which part of the request. The translation happens
//! here once, so that neither the protocol code nor the lane sees an errno.

use rustix::io::Errno;

/// Why an operation on a store failed. Each variant corresponds to one status code of RFC 1813 section 2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name leads to the directory of the nested export with this number in its handles. `NFS3ERR_ACCES`
    /// for clients that may not enter it.
    #[error("the directory of another export")]
    NestedExport(u32),
    /// The handle's file no longer exists (`NFS3ERR_STALE`).
    #[error("the file is gone")]
    Stale,
    /// The bytes aren't a handle that this store made (`NFS3ERR_BADHANDLE`).
    #[error("not a handle of this export")]
    BadHandle,
    /// No such name (`NFS3ERR_NOENT`).
    #[error("no such file or directory")]
    NotFound,
    /// The name already exists (`NFS3ERR_EXIST`).
    #[error("the name exists already")]
    Exists,
    /// The object isn't a directory (`NFS3ERR_NOTDIR`).
    #[error("not a directory")]
    NotDirectory,
    /// The object is a directory (`NFS3ERR_ISDIR`).
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries (`NFS3ERR_NOTEMPTY`).
    #[error("the directory isn't empty")]
    NotEmpty,
    /// The user's permissions don't allow it (`NFS3ERR_ACCES`).
    #[error("permission denied")]
    Access,
    /// Only the owner or a privileged user may do it (`NFS3ERR_PERM`).
    #[error("operation not permitted")]
    Permission,
    /// The name is empty or contains '/' or NUL (`NFS3ERR_INVAL`; Linux's knfsd says `NFS3ERR_ACCES`).
    #[error("not a file name")]
    InvalidName,
    /// The name, or the target of a symbolic link, is longer than the filesystem allows
    /// (`NFS3ERR_NAMETOOLONG`).
    #[error("the name is too long")]
    NameTooLong,
    /// The arguments are invalid for this object (`NFS3ERR_INVAL`).
    #[error("invalid argument")]
    Invalid,
    /// The filesystem or the export is read-only (`NFS3ERR_ROFS`).
    #[error("read-only")]
    ReadOnly,
    /// No space left (`NFS3ERR_NOSPC`).
    #[error("no space left")]
    NoSpace,
    /// Over quota (`NFS3ERR_DQUOT`).
    #[error("quota exceeded")]
    Quota,
    /// The file would become larger than the filesystem allows (`NFS3ERR_FBIG`).
    #[error("the file would be too large")]
    FileTooLarge,
    /// The two names are on different filesystems (`NFS3ERR_XDEV`).
    #[error("not on the same filesystem")]
    CrossDevice,
    /// The file has the maximum number of links (`NFS3ERR_MLINK`).
    #[error("too many links")]
    TooManyLinks,
    /// SETATTR's guard didn't match the file's ctime (`NFS3ERR_NOT_SYNC`).
    #[error("the file changed since the client looked")]
    NotSync,
    /// READDIR's cookie or verifier is invalid (`NFS3ERR_BAD_COOKIE`).
    #[error("the directory cookie is no longer valid")]
    BadCookie,
    /// The filesystem or the store doesn't support it (`NFS3ERR_NOTSUPP`).
    #[error("not supported")]
    NotSupported,
    /// MKNOD can't make this type (`NFS3ERR_BADTYPE`).
    #[error("not a type that can be made")]
    BadType,
    /// The device isn't there (`NFS3ERR_NXIO` or `NFS3ERR_NODEV`).
    #[error("no such device")]
    NoDevice,
    /// A temporary shortage of descriptors or memory, or a file with a lease (`NFS3ERR_JUKEBOX`).
    #[error("busy, try again")]
    TryLater,
    /// The object is in use: a mount point, a swap file, the directory of another export. A change of its
    /// name fails for as long, so it isn't to be tried again (`NFS3ERR_ACCES`, `NFS4ERR_FILE_OPEN`); anything
    /// else may be (`NFS3ERR_JUKEBOX`).
    #[error("in use")]
    InUse,
    /// There is no such extended attribute (`NFS4ERR_NOXATTR`).
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attribute is too large (`NFS4ERR_XATTR2BIG`).
    #[error("the attribute is too large")]
    TooBig,
    /// The device failed (`NFS3ERR_IO`). Also the translation of every errno without a better one.
    #[error("I/O error: {0}")]
    Io(Errno),
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        match errno {
            Errno::STALE => Error::Stale,
            Errno::NOENT => Error::NotFound,
            Errno::EXIST => Error::Exists,
            // openat2(2) with RESOLVE_NO_SYMLINKS, and O_NOFOLLOW: a symbolic link where a directory was
            // expected.
            Errno::NOTDIR | Errno::LOOP => Error::NotDirectory,
            Errno::ISDIR => Error::IsDirectory,
            Errno::NOTEMPTY => Error::NotEmpty,
            Errno::ACCESS => Error::Access,
            Errno::PERM => Error::Permission,
            Errno::NAMETOOLONG => Error::NameTooLong,
            Errno::INVAL => Error::Invalid,
            Errno::ROFS => Error::ReadOnly,
            Errno::NOSPC => Error::NoSpace,
            Errno::DQUOT => Error::Quota,
            Errno::FBIG | Errno::OVERFLOW => Error::FileTooLarge,
            Errno::XDEV => Error::CrossDevice,
            Errno::MLINK => Error::TooManyLinks,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => Error::NotSupported,
            Errno::NXIO | Errno::NODEV => Error::NoDevice,
            Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => Error::TryLater,
            Errno::BUSY => Error::InUse,
            // This includes TXTBSY, as in the Linux server: a program may run for years, and a client told to
            // try later would retry for as long.
            other => Error::Io(other),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

impl From<user_ids::Error> for Error {
    /// The thread doesn't have the user's rights.
    fn from(_: user_ids::Error) -> Error {
        Error::Access
    }
}

/// The result of an operation on a store.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_program_is_not_a_temporary_error() {
        assert_eq!(Error::from(Errno::TXTBSY), Error::Io(Errno::TXTBSY));
        assert_eq!(Error::from(Errno::AGAIN), Error::TryLater);
    }

    #[test]
    fn a_shortage_of_descriptors_is_temporary_and_a_mount_point_is_in_use() {
        assert_eq!(Error::from(Errno::MFILE), Error::TryLater);
        assert_eq!(Error::from(Errno::NFILE), Error::TryLater);
        assert_eq!(Error::from(Errno::BUSY), Error::InUse);
    }
}
