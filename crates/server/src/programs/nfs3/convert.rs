//! Conversion between the store's types and RFC 1813's.

use proto::nfs3::{
    Fattr3, Ftype3, Nfsstat3, Nfstime3, PostOpAttr, Sattr3, SetTime, Specdata3, StableHow, WccAttr, WccData,
};
use store::{Attributes, FileKind, Node, SetAttributes, Timestamp, UserContext, Wcc};

use super::{Fault, Result};

/// The maximum of a time stamp's nanoseconds.
const MAX_NANOSECONDS: u32 = 999_999_999;

/// A store's error as a status.
pub(super) const fn status(error: store::Error) -> Nfsstat3 {
    use store::Error;
    match error {
        Error::Stale => Nfsstat3::Stale,
        Error::BadHandle => Nfsstat3::Badhandle,
        Error::NotFound => Nfsstat3::Noent,
        Error::Exists => Nfsstat3::Exist,
        Error::NotDirectory => Nfsstat3::Notdir,
        Error::IsDirectory => Nfsstat3::Isdir,
        Error::NotEmpty => Nfsstat3::Notempty,
        // Names that the server can't handle: RFC 1813 section 3.2, items 1 and 5.
        Error::Access | Error::InvalidName | Error::NestedExport(_) => Nfsstat3::Acces,
        Error::Permission => Nfsstat3::Perm,
        Error::NameTooLong => Nfsstat3::Nametoolong,
        Error::Invalid => Nfsstat3::Inval,
        Error::ReadOnly => Nfsstat3::Rofs,
        Error::NoSpace => Nfsstat3::Nospc,
        Error::Quota => Nfsstat3::Dquot,
        Error::FileTooLarge => Nfsstat3::Fbig,
        Error::CrossDevice => Nfsstat3::Xdev,
        Error::TooManyLinks => Nfsstat3::Mlink,
        Error::NotSync => Nfsstat3::NotSync,
        Error::BadCookie => Nfsstat3::BadCookie,
        Error::NotSupported => Nfsstat3::Notsupp,
        Error::BadType => Nfsstat3::Badtype,
        Error::NoDevice => Nfsstat3::Nxio,
        Error::TryLater | Error::InUse => Nfsstat3::Jukebox,
        // Extended attributes don't exist in NFSv3.
        Error::NoAttribute | Error::TooBig | Error::Io(_) => Nfsstat3::Io,
    }
}

/// The status of a change to a directory entry that is in use (a mount point, a swap file). JUKEBOX would
/// make the client retry forever, so it gets the same error as from knfsd. A shortage of descriptors passes.
pub(super) const fn entry_status(error: store::Error) -> Nfsstat3 {
    match error {
        store::Error::InUse => Nfsstat3::Acces,
        other => status(other),
    }
}

/// A time on the wire: 32 bits of seconds, which wrap as with every NFSv3 server.
const fn nfstime(time: Timestamp) -> Nfstime3 {
    Nfstime3 { seconds: time.seconds as u32, nseconds: time.nanoseconds }
}

/// A time from the wire.
pub(super) fn timestamp(time: Nfstime3) -> Result<Timestamp> {
    if time.nseconds > MAX_NANOSECONDS {
        return Err(Fault(Nfsstat3::Inval));
    }
    Ok(Timestamp { seconds: time.seconds.into(), nanoseconds: time.nseconds })
}

/// A kind of file on the wire.
const fn ftype(kind: FileKind) -> Ftype3 {
    match kind {
        FileKind::Regular => Ftype3::Reg,
        FileKind::Directory => Ftype3::Dir,
        FileKind::Block => Ftype3::Blk,
        FileKind::Character => Ftype3::Chr,
        FileKind::Symlink => Ftype3::Lnk,
        FileKind::Socket => Ftype3::Sock,
        FileKind::Fifo => Ftype3::Fifo,
    }
}

/// Attributes on the wire.
pub(super) const fn fattr(from: &Attributes) -> Fattr3 {
    Fattr3 {
        kind: ftype(from.kind),
        mode: from.mode,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        used: from.used,
        rdev: Specdata3 { specdata1: from.rdev.0, specdata2: from.rdev.1 },
        fsid: from.fsid,
        fileid: from.fileid,
        atime: nfstime(from.atime),
        mtime: nfstime(from.mtime),
        ctime: nfstime(from.ctime),
    }
}

/// A node's current attributes; `None` if they can't be read.
pub(super) fn post_op(user_context: &UserContext<'_>, node: &Node) -> PostOpAttr {
    user_context.attributes(node).ok().as_ref().map(fattr)
}

/// Weak cache consistency data on the wire.
pub(super) fn wcc_data(wcc: &Wcc) -> WccData {
    WccData {
        before: wcc.before.map(|before| WccAttr {
            size: before.size,
            mtime: nfstime(before.mtime),
            ctime: nfstime(before.ctime),
        }),
        after: wcc.after.as_ref().map(fattr),
    }
}

/// Attributes to set, from the wire.
pub(super) fn set_attributes(from: &Sattr3) -> Result<SetAttributes> {
    let time = |set: SetTime| -> Result<Option<store::SetTime>> {
        Ok(match set {
            SetTime::DontChange => None,
            SetTime::SetToServerTime => Some(store::SetTime::Now),
            SetTime::SetToClientTime(to) => Some(store::SetTime::To(timestamp(to)?)),
        })
    };
    Ok(SetAttributes {
        mode: from.mode,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        atime: time(from.atime)?,
        mtime: time(from.mtime)?,
    })
}

/// The durability that a WRITE requests.
pub(super) const fn stability(how: StableHow) -> io::Stability {
    match how {
        StableHow::Unstable => io::Stability::Unstable,
        StableHow::DataSync => io::Stability::DataSync,
        StableHow::FileSync => io::Stability::FileSync,
    }
}

/// The durability that a WRITE has reached.
pub(super) const fn stable_how(stability: io::Stability) -> StableHow {
    match stability {
        io::Stability::Unstable => StableHow::Unstable,
        io::Stability::DataSync => StableHow::DataSync,
        io::Stability::FileSync => StableHow::FileSync,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn only_an_entry_that_is_in_use_is_refused_for_good() {
        let of = |errno| entry_status(store::Error::from(errno));
        assert_eq!(of(Errno::BUSY), Nfsstat3::Acces);
        for shortage in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert_eq!(of(shortage), Nfsstat3::Jukebox, "{shortage}");
        }
    }
}
