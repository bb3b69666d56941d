//! `nfsstat3` (RFC 1813 section 2.6): how an operation ended.

use crate::status::nfsstat;

nfsstat!(
    "`nfsstat3`, with the names of the RFC less their prefix `NFS3ERR_`.",
    Nfsstat3 {
        /// Permission denied.
        Acces = 13,
        /// No such device.
        Nodev = 19,
        /// Too many levels of remote in path.
        Remote = 71,
        /// SETATTR's guard didn't match.
        NotSync = 10_002,
        /// The server has begun the request but can't finish it soon: try again later.
        Jukebox = 10_008,
    }
);
