//! Conversion between NFSv3's wire types and the client's types.

use proto::nfs3;

use crate::attribute_sink::PreOpAttributes;
use crate::error::Status;
use crate::types::{
    Attributes, FileKind, FsInfo, FsStat, Operation, PathConf, SetAttributes, SetTime, Timestamp,
};

impl From<nfs3::Nfsstat3> for Status {
    /// `NFS3_OK` is no error; it would become [`Status::ServerFault`].
    fn from(status: nfs3::Nfsstat3) -> Self {
        use nfs3::Nfsstat3 as N;
        match status {
            N::Perm => Self::NotPermitted,
            N::Noent => Self::NoEntry,
            N::Io => Self::Io,
            N::Nxio => Self::NoDevice,
            N::Acces => Self::Access,
            N::Exist => Self::Exists,
            N::Xdev => Self::CrossDevice,
            N::Nodev => Self::NotByDevice,
            N::Notdir => Self::NotDirectory,
            N::Isdir => Self::IsDirectory,
            N::Inval => Self::Invalid,
            N::Fbig => Self::TooBig,
            N::Nospc => Self::NoSpace,
            N::Rofs => Self::ReadOnly,
            N::Mlink => Self::TooManyLinks,
            N::Nametoolong => Self::NameTooLong,
            N::Notempty => Self::NotEmpty,
            N::Dquot => Self::Quota,
            N::Stale => Self::Stale,
            N::Remote => Self::Remote,
            N::Badhandle => Self::BadHandle,
            N::NotSync => Self::NotSync,
            N::BadCookie => Self::BadCookie,
            N::Notsupp => Self::NotSupported,
            N::Toosmall => Self::TooSmall,
            N::Ok | N::Serverfault => Self::ServerFault,
            N::Badtype => Self::BadType,
            N::Jukebox => Self::TryLater,
        }
    }
}

pub(super) fn timestamp(time: nfs3::Nfstime3) -> Timestamp {
    // A server may send any 32 bits, and calculations with a fraction of more than a second would panic.
    Timestamp { seconds: time.seconds.into(), nanoseconds: time.nseconds.min(999_999_999) }
}

/// Whether NFSv3 can express the times to set: 32 bits of seconds since 1970, up to 2106.
pub(super) fn times_fit(set: &SetAttributes) -> bool {
    [set.atime, set.mtime].into_iter().flatten().all(|time| match time {
        SetTime::Now => true,
        SetTime::To(time) => u32::try_from(time.seconds).is_ok(),
    })
}

/// The nearest time that NFSv3 can express, from 1970 to 2106.
pub(super) fn nfs_time(time: Timestamp) -> nfs3::Nfstime3 {
    nfs3::Nfstime3 {
        seconds: u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX),
        nseconds: time.nanoseconds.min(999_999_999),
    }
}

const fn kind(kind: nfs3::Ftype3) -> FileKind {
    match kind {
        nfs3::Ftype3::Reg => FileKind::Regular,
        nfs3::Ftype3::Dir => FileKind::Directory,
        nfs3::Ftype3::Blk => FileKind::Block,
        nfs3::Ftype3::Chr => FileKind::Character,
        nfs3::Ftype3::Lnk => FileKind::Symlink,
        nfs3::Ftype3::Sock => FileKind::Socket,
        nfs3::Ftype3::Fifo => FileKind::Fifo,
    }
}

/// NFSv3 has no change attribute. It is made of the ctime, as by our server and by clients on its host.
pub(super) fn attributes(from: &nfs3::Fattr3) -> Attributes {
    let ctime = timestamp(from.ctime);
    Attributes {
        kind: kind(from.kind),
        mode: from.mode & 0o7777,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        used: from.used,
        rdev: (from.rdev.specdata1, from.rdev.specdata2),
        fsid: from.fsid,
        fileid: from.fileid,
        atime: timestamp(from.atime),
        mtime: timestamp(from.mtime),
        ctime,
        change: ctime.settled_change(),
    }
}

impl From<&nfs3::WccAttr> for PreOpAttributes {
    fn from(from: &nfs3::WccAttr) -> Self {
        let (mtime, ctime) = (timestamp(from.mtime), timestamp(from.ctime));
        Self::Times { size: from.size, mtime, ctime }
    }
}

fn set_time(time: Option<SetTime>) -> nfs3::SetTime {
    match time {
        None => nfs3::SetTime::DontChange,
        Some(SetTime::Now) => nfs3::SetTime::SetToServerTime,
        Some(SetTime::To(time)) => nfs3::SetTime::SetToClientTime(nfs_time(time)),
    }
}

pub(super) fn sattr3(from: &SetAttributes) -> nfs3::Sattr3 {
    nfs3::Sattr3 {
        mode: from.mode.map(|mode| mode & 0o7777),
        uid: from.uid,
        gid: from.gid,
        size: from.size,
        atime: set_time(from.atime),
        mtime: set_time(from.mtime),
    }
}

impl From<&nfs3::Fsstat3ResOk> for FsStat {
    fn from(from: &nfs3::Fsstat3ResOk) -> Self {
        Self {
            total_bytes: from.tbytes,
            free_bytes: from.fbytes,
            available_bytes: from.abytes,
            total_files: from.tfiles,
            free_files: from.ffiles,
            available_files: from.afiles,
            invariant_seconds: from.invarsec,
        }
    }
}

impl From<&nfs3::Fsinfo3ResOk> for FsInfo {
    fn from(from: &nfs3::Fsinfo3ResOk) -> Self {
        Self {
            read_max: from.rtmax,
            read_preferred: from.rtpref,
            read_multiple: from.rtmult,
            write_max: from.wtmax,
            write_preferred: from.wtpref,
            write_multiple: from.wtmult,
            dir_preferred: from.dtpref,
            file_size_max: from.maxfilesize,
            time_delta: timestamp(from.time_delta),
            properties: from.properties,
        }
    }
}

impl From<&nfs3::Pathconf3ResOk> for PathConf {
    fn from(from: &nfs3::Pathconf3ResOk) -> Self {
        Self {
            link_max: from.linkmax,
            name_max: from.name_max,
            no_truncation: from.no_trunc,
            chown_restricted: from.chown_restricted,
            case_insensitive: from.case_insensitive,
            case_preserving: from.case_preserving,
        }
    }
}

/// The counted operation of a procedure.
pub(super) const fn operation(procedure: nfs3::Procedure) -> Operation {
    use nfs3::Procedure as P;
    match procedure {
        P::Null => Operation::Null,
        P::Getattr => Operation::Getattr,
        P::Setattr => Operation::Setattr,
        P::Lookup => Operation::Lookup,
        P::Access => Operation::Access,
        P::Readlink => Operation::Readlink,
        P::Read => Operation::Read,
        P::Write => Operation::Write,
        P::Create => Operation::Create,
        P::Mkdir => Operation::Mkdir,
        P::Symlink => Operation::Symlink,
        P::Mknod => Operation::Mknod,
        P::Remove => Operation::Remove,
        P::Rmdir => Operation::Rmdir,
        P::Rename => Operation::Rename,
        P::Link => Operation::Link,
        P::Readdir => Operation::Readdir,
        P::Readdirplus => Operation::Readdirplus,
        P::Fsstat => Operation::Fsstat,
        P::Fsinfo => Operation::Fsinfo,
        P::Pathconf => Operation::Pathconf,
        P::Commit => Operation::Commit,
    }
}
