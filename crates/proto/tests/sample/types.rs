//! Samples of the wire types themselves: a structure field by field, an enumeration and a union variant by
//! variant.

use super::{Sample, Source};
use proto::localio::*;
use proto::mount3::*;
use proto::nfs3::*;
use proto::rpcbind::*;

structures! {
    Diropargs3<'a> { dir, name }
    Specdata3 { specdata1, specdata2 }
    Nfstime3 { seconds, nseconds }
    Fattr3 { kind, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
    WccAttr { size, mtime, ctime }
    WccData { before, after }
    Sattr3 { mode, uid, gid, size, atime, mtime }
    Getattr3Args<'a> { object }
    Setattr3Args<'a> { object, new_attributes, guard }
    Lookup3Args<'a> { what }
    Lookup3ResOk<'a> { object, obj_attributes, dir_attributes }
    Access3Args<'a> { object, access }
    Access3ResOk { obj_attributes, access }
    Readlink3Args<'a> { symlink }
    Readlink3ResOk<'a> { symlink_attributes, data }
    Read3Args<'a> { file, offset, count }
    Read3ResOk<'a> { attributes, count, eof, data }
    Read3Head { attributes, count, eof, length }
    Write3Args<'a> { file, offset, count, stable, data }
    Write3Head<'a> { file, offset, count, stable, length }
    Write3ResOk { file_wcc, count, committed, verf }
    Commit3Args<'a> { file, offset, count }
    Commit3ResOk { file_wcc, verf }
    NewObject3<'a> { obj, obj_attributes, dir_wcc }
    Create3Args<'a> { where_, how }
    Mkdir3Args<'a> { where_, attributes }
    Symlinkdata3<'a> { attributes, data }
    Symlink3Args<'a> { where_, symlink }
    Devicedata3 { attributes, spec }
    Mknod3Args<'a> { where_, what }
    Remove3Args<'a> { object }
    Rmdir3Args<'a> { object }
    Rename3Args<'a> { from, to }
    Rename3Body { fromdir_wcc, todir_wcc }
    Link3Args<'a> { file, link }
    Link3Body { file_attributes, linkdir_wcc }
    Readdir3Args<'a> { dir, cookie, cookieverf, count }
    Readdirplus3Args<'a> { dir, cookie, cookieverf, dircount, maxcount }
    Entry3<'a> { fileid, name, cookie }
    Entryplus3<'a> { fileid, name, cookie, name_attributes, name_handle }
    ReaddirHead { dir_attributes, cookieverf }
    Readdir3ResOk<'a> { head, reply }
    Readdirplus3ResOk<'a> { head, reply }
    DirlistTail { eof }
    Fsstat3Args<'a> { fsroot }
    Fsstat3ResOk { obj_attributes, tbytes, fbytes, abytes, tfiles, ffiles, afiles, invarsec }
    Fsinfo3Args<'a> { fsroot }
    Fsinfo3ResOk {
        obj_attributes, rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, maxfilesize, time_delta,
        properties
    }
    Pathconf3Args<'a> { object }
    Pathconf3ResOk {
        obj_attributes, linkmax, name_max, no_trunc, chown_restricted, case_insensitive, case_preserving
    }

    Mountres3Ok<'a> { fhandle, auth_flavors }
    Mountbody<'a> { hostname, directory }
    Exportnode<'a> { dir, groups }

    UuidIsLocalArgs { uuid }

    Mapping { prog, vers, prot, port }
    Rpcb<'a> { prog, vers, netid, addr, owner }
}

choices! {
    Nfsstat3 {
        Ok, Ok, Ok, Ok, Ok, Ok, Ok, Ok, Perm, Noent, Io, Nxio, Acces, Exist, Xdev, Nodev, Notdir, Isdir,
        Inval, Fbig,
        Nospc, Rofs, Mlink, Nametoolong, Notempty, Dquot, Stale, Remote, Badhandle, NotSync, BadCookie,
        Notsupp,
        Toosmall, Serverfault, Badtype, Jukebox,
    }
    Ftype3 { Reg, Dir, Blk, Chr, Lnk, Sock, Fifo }
    StableHow { Unstable, DataSync, FileSync }
    SetTime { DontChange, SetToServerTime, SetToClientTime(Nfstime3) }
    Createhow3 { Unchecked(Sattr3), Guarded(Sattr3), Exclusive(Createverf3) }
    Mountstat3 { Ok, Perm, Noent, Io, Acces, Notdir, Inval, Nametoolong, Notsupp, Serverfault }
}

impl<'a, T: Sample<'a>> Sample<'a> for Dirlist3<T> {
    fn sample(from: &mut Source<'a>) -> Self {
        Self { entries: from.any(), eof: from.any() }
    }
}

impl<'a> Sample<'a> for Mknoddata3 {
    fn sample(from: &mut Source<'a>) -> Self {
        match from.any::<u32>() {
            3 => Self::Blk(from.any()),
            4 => Self::Chr(from.any()),
            6 => Self::Sock(from.any()),
            7 => Self::Fifo(from.any()),
            // Random words rarely hit an arm: let most values choose one.
            other if other % 5 == 0 => Self::Other(other),
            other if other % 5 == 1 => Self::Blk(from.any()),
            other if other % 5 == 2 => Self::Chr(from.any()),
            other if other % 5 == 3 => Self::Sock(from.any()),
            _ => Self::Fifo(from.any()),
        }
    }
}

impl<'a> Sample<'a> for Mountres3<'a> {
    fn sample(from: &mut Source<'a>) -> Self {
        match from.any() {
            Mountstat3::Ok => Self::Ok(from.any()),
            status => Self::Fail(status),
        }
    }
}
