//! The operations as NFSv3's procedures (RFC 1813 section 3.3).

use bytes::Bytes;
use client_state::{ByteRange, LockKind};
use io::Stability;
use proto::nfs3::{self, Procedure, StableHow};
use rpc::client::Receive;
use xdr::{Decoder, Encode, Opaque};

use super::Nfs3;
use super::convert::{self, nfs_time};
use crate::error::{Error, Result, Status, not_supported};
use crate::operations::{
    CopyReply, FileTarget, LockConflict, LockOwner, LockRequest, OpenPlan, OpenReply, Operations, ReadReply,
    WireOpen, WriteReply, lookup_first, open_without_state,
};
use crate::types::{
    Access, Advice, Attributes, Create, DirEntry, ExportEntry, Fallocate, Found, FsInfo, FsStat, Handle,
    MadeDirectory, Node, Page, PathConf, Plus, PosixAcls, SeekTo, SetAcl, SetAttributes, SetXattr, Timestamp,
    XattrPage,
};
use crate::user::User;

fn fh(handle: &Handle) -> nfs3::NfsFh3<'_> {
    Opaque(handle.as_bytes())
}

fn entry<'a>(directory: &'a Handle, name: &'a [u8]) -> nfs3::Diropargs3<'a> {
    nfs3::Diropargs3 { dir: fh(directory), name: Opaque(name) }
}

fn found(
    procedure: Procedure,
    (directory, name): (&Handle, &[u8]),
    handle: &[u8],
    attributes: nfs3::PostOpAttr,
) -> Result<Found> {
    let handle = Handle::new(handle).ok_or_else(|| Error::Protocol {
        object: procedure.name().to_owned(),
        what: "its file handle is longer than a handle can be",
    })?;
    let handle = handle.found_at(directory, name);
    Ok(Found { handle, attributes: attributes.as_ref().map(convert::attributes) })
}

/// Where the payload of READ's results begins, and its length.
fn read_payload(results: &[u8]) -> Option<(usize, usize)> {
    let mut from = Decoder::new(results);
    match from.get::<nfs3::Read3ResHead>() {
        Ok(nfs3::Outcome::Ok(head)) => Some((results.len() - from.rest().len(), head.length as usize)),
        _ => None,
    }
}

const fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}

const fn stability(stable: StableHow) -> Stability {
    match stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

impl Nfs3 {
    /// CREATE, MKDIR, SYMLINK or MKNOD in `directory`.
    async fn make(
        &self,
        user: &User,
        procedure: Procedure,
        (directory, name): (&Handle, &[u8]),
        args: &impl Encode,
    ) -> Result<Option<Found>> {
        let reply = self.call(user, procedure, args).await?;
        let new = self.decode::<nfs3::NewObject3<'_>, nfs3::WccData>(procedure, &reply, &[directory])?;
        new.obj.map(|handle| found(procedure, (directory, name), handle.0, new.obj_attributes)).transpose()
    }
}

impl Operations for Nfs3 {
    async fn null(&self, user: &User) -> Result<()> {
        self.call(user, Procedure::Null, &()).await.map(drop)
    }

    async fn attributes(&self, user: &User, file: &Handle) -> Result<Attributes> {
        let procedure = Procedure::Getattr;
        let reply = self.call(user, procedure, &nfs3::Getattr3Args { object: fh(file) }).await?;
        let attributes = self.decode::<nfs3::Fattr3, ()>(procedure, &reply, &[file])?;
        Ok(convert::attributes(&attributes))
    }

    async fn birth_time(&self, _: &User, _: &Handle) -> Result<Option<Timestamp>> {
        Err(not_supported("reading the birth time"))
    }

    async fn set_attributes(
        &self,
        user: &User,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Option<Attributes>> {
        if !convert::times_fit(set) {
            let object = "a time before 1970 or after 2106 (NFSv3)".to_owned();
            return Err(Error::Status { object, status: Status::Invalid });
        }
        let procedure = Procedure::Setattr;
        let args = nfs3::Setattr3Args {
            object: fh(file),
            new_attributes: convert::sattr3(set),
            guard: guard.map(nfs_time),
        };
        let reply = self.call(user, procedure, &args).await?;
        let wcc = self.decode::<nfs3::WccData, nfs3::WccData>(procedure, &reply, &[file])?;
        Ok(wcc.after.as_ref().map(convert::attributes))
    }

    async fn lookup(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<Found> {
        let procedure = Procedure::Lookup;
        let args = nfs3::Lookup3Args { what: entry(directory, name) };
        let reply = self.call(user, procedure, &args).await?;
        let ok = self.decode::<nfs3::Lookup3ResOk<'_>, nfs3::PostOpAttr>(procedure, &reply, &[directory])?;
        found(procedure, (directory, name), ok.object.0, ok.obj_attributes)
    }

    async fn lookup_path(&self, user: &User, directory: &Handle, names: &[&[u8]]) -> Result<Vec<Found>> {
        lookup_first(self, user, directory, names).await
    }

    async fn open(&self, user: &User, target: FileTarget<'_>, _: OpenPlan) -> Result<OpenReply> {
        open_without_state(self, user, target).await
    }

    async fn lock(&self, _: &User, _: &Handle, _: &WireOpen, _: LockRequest) -> Result<()> {
        Err(not_supported("LOCK"))
    }

    async fn unlock(&self, _: &User, _: &Handle, _: LockOwner, _: Option<ByteRange>) -> Result<()> {
        Err(not_supported("LOCKU"))
    }

    async fn test_lock(
        &self,
        _: &User,
        _: &Handle,
        _: LockOwner,
        _: (ByteRange, LockKind),
    ) -> Result<Option<LockConflict>> {
        Err(not_supported("LOCKT"))
    }

    async fn access(&self, user: &User, file: &Handle, wanted: Access) -> Result<Access> {
        let procedure = Procedure::Access;
        let args = nfs3::Access3Args { object: fh(file), access: wanted.0 };
        let reply = self.call(user, procedure, &args).await?;
        let ok = self.decode::<nfs3::Access3ResOk, nfs3::PostOpAttr>(procedure, &reply, &[file])?;
        Ok(Access(ok.access & wanted.0))
    }

    async fn read_link(&self, user: &User, link: &Handle) -> Result<Vec<u8>> {
        let procedure = Procedure::Readlink;
        let reply = self.call(user, procedure, &nfs3::Readlink3Args { symlink: fh(link) }).await?;
        let ok = self.decode::<nfs3::Readlink3ResOk<'_>, nfs3::PostOpAttr>(procedure, &reply, &[link])?;
        Ok(ok.data.0.to_vec())
    }

    async fn read(
        &self,
        user: &User,
        file: &Handle,
        (offset, len): (u64, usize),
        _: bool,
        buffer: Vec<u8>,
    ) -> Result<ReadReply> {
        let procedure = Procedure::Read;
        let args = nfs3::Read3Args { file: fh(file), offset, count: len as u32 };
        let receive = Receive { into: buffer, limit: len, split: read_payload };
        let reply = self.call_with_payload(user, procedure, &args, Bytes::new(), Some(receive)).await?;
        let head = self.decode::<nfs3::Read3Head, nfs3::PostOpAttr>(procedure, &reply, &[file])?;
        let data = reply.reply.payload;
        if head.count as usize != data.len() || data.len() > len {
            return Err(Error::Protocol {
                object: procedure.name().to_owned(),
                what: "it says one length and sends another",
            });
        }
        Ok(ReadReply { data, eof: head.eof })
    }

    async fn write(
        &self,
        user: &User,
        file: &Handle,
        offset: u64,
        data: Bytes,
        stable: Stability,
        _set: Option<&SetAttributes>,
    ) -> Result<WriteReply> {
        let procedure = Procedure::Write;
        let args = nfs3::Write3Head {
            file: fh(file),
            offset,
            count: data.len() as u32,
            stable: stable_how(stable),
            length: data.len() as u32,
        };
        let reply = self.call_with_payload(user, procedure, &args, data, None).await?;
        let ok = self.decode::<nfs3::Write3ResOk, nfs3::WccData>(procedure, &reply, &[file])?;
        Ok(WriteReply {
            count: ok.count as usize,
            stability: stability(ok.committed),
            verifier: ok.verf,
            set: None,
        })
    }

    async fn commit(&self, user: &User, file: &Handle) -> Result<[u8; 8]> {
        let procedure = Procedure::Commit;
        let args = nfs3::Commit3Args { file: fh(file), offset: 0, count: 0 };
        let reply = self.call(user, procedure, &args).await?;
        let ok = self.decode::<nfs3::Commit3ResOk, nfs3::WccData>(procedure, &reply, &[file])?;
        Ok(ok.verf)
    }

    async fn create(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        mode: &Create,
    ) -> Result<Option<Found>> {
        let how = match mode {
            Create::Unchecked(set) => nfs3::Createhow3::Unchecked(convert::sattr3(&user.masked_set(set))),
            Create::Guarded(set) => nfs3::Createhow3::Guarded(convert::sattr3(&user.masked_set(set))),
            Create::Exclusive { verifier, .. } => nfs3::Createhow3::Exclusive(*verifier),
        };
        let args = nfs3::Create3Args { where_: entry(directory, name), how };
        self.make(user, Procedure::Create, (directory, name), &args).await
    }

    async fn make_dir(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let attributes = convert::sattr3(&user.masked_set(set));
        let args = nfs3::Mkdir3Args { where_: entry(directory, name), attributes };
        self.make(user, Procedure::Mkdir, (directory, name), &args).await
    }

    async fn make_dir_asking(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        _wanted: Access,
    ) -> Result<Option<MadeDirectory>> {
        Ok(self.make_dir(user, directory, name, set).await?.map(MadeDirectory::from))
    }

    async fn symlink(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let symlink = nfs3::Symlinkdata3 { attributes: convert::sattr3(set), data: Opaque(target) };
        let args = nfs3::Symlink3Args { where_: entry(directory, name), symlink };
        self.make(user, Procedure::Symlink, (directory, name), &args).await
    }

    async fn make_node(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let set = &user.masked_set(set);
        let device = |major, minor| nfs3::Devicedata3 {
            attributes: convert::sattr3(set),
            spec: nfs3::Specdata3 { specdata1: major, specdata2: minor },
        };
        let what = match node {
            Node::Fifo => nfs3::Mknoddata3::Fifo(convert::sattr3(set)),
            Node::Socket => nfs3::Mknoddata3::Sock(convert::sattr3(set)),
            Node::Block(major, minor) => nfs3::Mknoddata3::Blk(device(major, minor)),
            Node::Character(major, minor) => nfs3::Mknoddata3::Chr(device(major, minor)),
        };
        let args = nfs3::Mknod3Args { where_: entry(directory, name), what };
        self.make(user, Procedure::Mknod, (directory, name), &args).await
    }

    async fn remove(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<()> {
        let procedure = Procedure::Remove;
        let args = nfs3::Remove3Args { object: entry(directory, name) };
        let reply = self.call(user, procedure, &args).await?;
        self.decode::<nfs3::WccData, nfs3::WccData>(procedure, &reply, &[directory]).map(drop)
    }

    async fn remove_dir(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<()> {
        let procedure = Procedure::Rmdir;
        let args = nfs3::Rmdir3Args { object: entry(directory, name) };
        let reply = self.call(user, procedure, &args).await?;
        self.decode::<nfs3::WccData, nfs3::WccData>(procedure, &reply, &[directory]).map(drop)
    }

    async fn rename(&self, user: &User, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<()> {
        let procedure = Procedure::Rename;
        let args = nfs3::Rename3Args { from: entry(from.0, from.1), to: entry(to.0, to.1) };
        let reply = self.call(user, procedure, &args).await?;
        let directories = [from.0, to.0];
        self.decode::<nfs3::Rename3Body, nfs3::Rename3Body>(procedure, &reply, &directories).map(drop)
    }

    async fn link(&self, user: &User, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        let procedure = Procedure::Link;
        let args = nfs3::Link3Args { file: fh(file), link: entry(directory, name) };
        let reply = self.call(user, procedure, &args).await?;
        self.decode::<nfs3::Link3Body, nfs3::Link3Body>(procedure, &reply, &[file, directory]).map(drop)
    }

    async fn read_dir_page(
        &self,
        user: &User,
        directory: &Handle,
        (cookie, cookieverf): (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        let dir = fh(directory);
        if !plus.is_wanted() {
            let procedure = Procedure::Readdir;
            let args = nfs3::Readdir3Args { dir, cookie, cookieverf, count };
            let reply = self.call(user, procedure, &args).await?;
            let page =
                self.decode::<nfs3::Readdir3ResOk<'_>, nfs3::PostOpAttr>(procedure, &reply, &[directory])?;
            let entries = page.reply.entries.0.into_iter().map(|entry| DirEntry {
                name: entry.name.0.to_vec(),
                fileid: entry.fileid,
                cookie: entry.cookie,
                kind: None,
                handle: None,
                attributes: None,
                acls: None,
            });
            let verifier = page.head.cookieverf;
            return Ok(Page { entries: entries.collect(), verifier, eof: page.reply.eof });
        }
        let procedure = Procedure::Readdirplus;
        let args = nfs3::Readdirplus3Args { dir, cookie, cookieverf, dircount: count, maxcount: count };
        let reply = self.call(user, procedure, &args).await?;
        let page =
            self.decode::<nfs3::Readdirplus3ResOk<'_>, nfs3::PostOpAttr>(procedure, &reply, &[directory])?;
        let entries = page.reply.entries.0.into_iter().map(|entry| {
            let attributes = entry.name_attributes.as_ref().map(convert::attributes);
            DirEntry {
                name: entry.name.0.to_vec(),
                fileid: entry.fileid,
                cookie: entry.cookie,
                kind: attributes.map(|attributes| attributes.kind),
                handle: entry
                    .name_handle
                    .and_then(|handle| Handle::new(handle.0))
                    .map(|handle| handle.found_at(directory, entry.name.0)),
                attributes,
                acls: None,
            }
        });
        Ok(Page { entries: entries.collect(), verifier: page.head.cookieverf, eof: page.reply.eof })
    }

    async fn fs_stat(&self, user: &User, file: &Handle) -> Result<FsStat> {
        let procedure = Procedure::Fsstat;
        let reply = self.call(user, procedure, &nfs3::Fsstat3Args { fsroot: fh(file) }).await?;
        let ok = self.decode::<nfs3::Fsstat3ResOk, nfs3::PostOpAttr>(procedure, &reply, &[file])?;
        Ok((&ok).into())
    }

    async fn fs_info(&self, user: &User, file: &Handle) -> Result<FsInfo> {
        let procedure = Procedure::Fsinfo;
        let reply = self.call(user, procedure, &nfs3::Fsinfo3Args { fsroot: fh(file) }).await?;
        let ok = self.decode::<nfs3::Fsinfo3ResOk, nfs3::PostOpAttr>(procedure, &reply, &[file])?;
        Ok((&ok).into())
    }

    async fn path_conf(&self, user: &User, file: &Handle) -> Result<PathConf> {
        let procedure = Procedure::Pathconf;
        let reply = self.call(user, procedure, &nfs3::Pathconf3Args { object: fh(file) }).await?;
        let ok = self.decode::<nfs3::Pathconf3ResOk, nfs3::PostOpAttr>(procedure, &reply, &[file])?;
        Ok((&ok).into())
    }

    async fn acls(&self, user: &User, file: &Handle) -> Result<PosixAcls> {
        self.get_acls(user, file).await.map(|(acls, _)| acls)
    }

    async fn set_acl(&self, user: &User, file: &Handle, change: &SetAcl) -> Result<()> {
        self.change_acl(user, file, change).await
    }

    async fn fallocate(&self, _: &User, _: &Handle, _: Fallocate, _: u64, _: u64) -> Result<()> {
        Err(not_supported("fallocate"))
    }

    async fn seek(&self, _: &User, _: &Handle, _: SeekTo, _: u64) -> Result<Option<u64>> {
        Err(not_supported("SEEK"))
    }

    async fn advise(&self, _: &User, _: &Handle, _: Advice, _: u64, _: u64) -> Result<()> {
        Err(not_supported("IO_ADVISE"))
    }

    async fn copy(&self, _: &User, _: (&Handle, u64), _: (&Handle, u64), _: u64) -> Result<CopyReply> {
        Err(not_supported("COPY"))
    }

    async fn clone_range(&self, _: &User, _: (&Handle, u64), _: (&Handle, u64), _: u64) -> Result<()> {
        Err(not_supported("CLONE"))
    }

    async fn nfs4_acl(&self, _: &User, _: &Handle) -> Result<Vec<u8>> {
        Err(not_supported("reading an NFSv4 ACL"))
    }

    async fn set_nfs4_acl(&self, _: &User, _: &Handle, _: &[u8]) -> Result<()> {
        Err(not_supported("setting an NFSv4 ACL"))
    }

    async fn get_xattr(&self, _: &User, _: &Handle, _: &[u8]) -> Result<Vec<u8>> {
        Err(not_supported("GETXATTR"))
    }

    async fn set_xattr(&self, _: &User, _: &Handle, _: &[u8], _: &[u8], _: SetXattr) -> Result<()> {
        Err(not_supported("SETXATTR"))
    }

    async fn list_xattrs(&self, _: &User, _: &Handle, _: u64) -> Result<XattrPage> {
        Err(not_supported("LISTXATTRS"))
    }

    async fn remove_xattr(&self, _: &User, _: &Handle, _: &[u8]) -> Result<()> {
        Err(not_supported("REMOVEXATTR"))
    }

    async fn exports(&self, user: &User) -> Result<Vec<ExportEntry>> {
        self.export_list(user).await
    }

    async fn end(&self, user: &User) {
        self.unmount(user).await;
    }
}
