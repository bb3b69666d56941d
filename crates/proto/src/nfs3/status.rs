//! `nfsstat3` (RFC 1813 section 2.6): how an operation ended.

use xdr::{Decode, Encode};

/// `nfsstat3`, with the names of the RFC less their prefix `NFS3ERR_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Nfsstat3 {
    /// `NFS3_OK`: the call completed.
    Ok = 0,
    /// Not owner: the caller is neither privileged nor the owner.
    Perm = 1,
    /// No such file or directory.
    Noent = 2,
    /// A hard error, such as a disk's, while the operation ran.
    Io = 5,
    /// No such device or address.
    Nxio = 6,
    /// Permission denied.
    Acces = 13,
    /// File exists.
    Exist = 17,
    /// A hard link across file systems.
    Xdev = 18,
    /// No such device.
    Nodev = 19,
    /// Not a directory.
    Notdir = 20,
    /// Is a directory.
    Isdir = 21,
    /// Invalid or unsupported argument.
    Inval = 22,
    /// File too large.
    Fbig = 27,
    /// No space left on device.
    Nospc = 28,
    /// Read-only file system.
    Rofs = 30,
    /// Too many hard links.
    Mlink = 31,
    /// A name is too long.
    Nametoolong = 63,
    /// Directory not empty.
    Notempty = 66,
    /// The user's quota is exceeded.
    Dquot = 69,
    /// The handle's file no longer exists or is no longer reachable.
    Stale = 70,
    /// Too many levels of remote in path.
    Remote = 71,
    /// The handle isn't one: its consistency check failed.
    Badhandle = 10_001,
    /// SETATTR's guard didn't match.
    NotSync = 10_002,
    /// A READDIR or READDIRPLUS cookie is stale.
    BadCookie = 10_003,
    /// Operation not supported.
    Notsupp = 10_004,
    /// A buffer or request is too small.
    Toosmall = 10_005,
    /// An error on the server that no other value describes.
    Serverfault = 10_006,
    /// An object of a type that the server can't create.
    Badtype = 10_007,
    /// The server has begun the request but can't finish it soon: try again later.
    Jukebox = 10_008,
}
