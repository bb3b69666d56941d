//! The operations as COMPOUNDs (RFC 8881 section 18).

use bytes::Bytes;
use client_state::{ByteRange, LockKind};
use io::Stability;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    Access4Args, Access4ResOk, Bitmap4, Createtype4, Fattr4, Linktext4, NfsFtype4, Operation as Op,
    Setattr4Args, Specdata4, Verify4Args,
};
use xdr::{Encoder, Opaque};

use super::compound::{Compound, check, malformed};
use super::convert::{self, BIRTH, FILE, NAMES, SPACE, Settable};
use super::data::{IoAttempts, io_stateid};
use super::session::CompoundReply;
use super::state::WRITE_ACCESS;
use super::{Nfs4, reply_attributes};
use crate::error::Result;
use crate::operations::{
    CopyReply, FileTarget, LockConflict, LockOwner, LockRequest, OpenPlan, OpenReply, Operations, ReadReply,
    WireOpen, WriteReply,
};
use crate::types::{
    Access, Advice, Attributes, Create, DirectoryPage, ExportEntry, Fallocate, Found, FsInfo, FsStat, Handle,
    MadeDirectory, Node, Operation, Page, PathConf, Plus, PosixAcls, SeekTo, SetAcl, SetAttributes, SetXattr,
    Timestamp, XattrPage,
};
use crate::user::User;

/// The preferred size of a page of a directory, in bytes.
const PREFERRED_PAGE: u32 = 128 << 10;

impl Nfs4 {
    /// Sends a request that is counted as `operation`.
    pub(super) async fn call(
        &self,
        user: &User,
        operation: Operation,
        compound: &Compound,
    ) -> Result<CompoundReply> {
        user.session.counters.call(operation);
        self.client.call(user, compound, None).await
    }
}

impl Operations for Nfs4 {
    async fn null(&self, user: &User) -> Result<()> {
        user.session.counters.call(Operation::Null);
        self.client.null(user).await
    }

    async fn attributes(&self, user: &User, file: &Handle) -> Result<Attributes> {
        let report = self.report();
        let compound = Compound::new().put_fh(file).get_attributes(&FILE);
        let reply = self.call(user, Operation::Getattr, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let attributes = reply_attributes(&mut results)?.file();
        report.send(file, None, attributes);
        attributes.ok_or_else(|| malformed(Op::Getattr.name()))
    }

    async fn birth_time(&self, user: &User, file: &Handle) -> Result<Option<Timestamp>> {
        let compound = Compound::new().put_fh(file).get_attributes(&BIRTH);
        let reply = self.call(user, Operation::Getattr, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        Ok(reply_attributes(&mut results)?.birth)
    }

    async fn set_attributes(
        &self,
        user: &User,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Option<Attributes>> {
        let _change = self.client.change_attributes(file, Some(set));
        let report = self.report();
        let settable = Settable::new(set);
        let mut compound = Compound::once().put_fh(file);
        if let Some(ctime) = guard {
            let mut to = Encoder::new();
            to.put(&convert::nfstime(ctime));
            let values = to.into_vec();
            let ctime =
                Fattr4 { attrmask: Bitmap4::of(&[number::TIME_METADATA]), attr_vals: Opaque(&values) };
            compound = compound.then(Op::Verify, &Verify4Args { obj_attributes: ctime });
        }
        let mut attempts = IoAttempts::new(self, user, file);
        loop {
            let id = if set.size.is_some() { attempts.state_id(WRITE_ACCESS).await? } else { None };
            let args = Setattr4Args { stateid: io_stateid(id), obj_attributes: settable.fattr() };
            let compound = compound.clone().then(Op::Setattr, &args).get_attributes(&FILE);
            let reply = self.call(user, Operation::Setattr, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            if guard.is_some() {
                results.succeeded(Op::Verify)?;
            }
            let status = results.status(Op::Setattr)?;
            if attempts.must_repeat(id, status) {
                continue;
            }
            check(Op::Setattr, status)?;
            let _set: Bitmap4 = results.value(Op::Setattr)?;
            return Ok(report.file(&mut results, file, None));
        }
    }

    async fn lookup(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<Found> {
        self.lookup_name(user, directory, name).await
    }

    async fn lookup_path(&self, user: &User, directory: &Handle, names: &[&[u8]]) -> Result<Vec<Found>> {
        self.lookup_names(user, directory, names).await
    }

    async fn open(&self, user: &User, target: FileTarget<'_>, plan: OpenPlan) -> Result<OpenReply> {
        self.open_file(user, target, plan).await
    }

    async fn lock(&self, user: &User, file: &Handle, open: &WireOpen, request: LockRequest) -> Result<()> {
        self.lock_file(user, file, open, request).await
    }

    async fn unlock(
        &self,
        user: &User,
        file: &Handle,
        owner: LockOwner,
        range: Option<ByteRange>,
    ) -> Result<()> {
        self.unlock_file(user, file, owner, range).await;
        Ok(())
    }

    async fn test_lock(
        &self,
        user: &User,
        file: &Handle,
        owner: LockOwner,
        lock: (ByteRange, LockKind),
    ) -> Result<Option<LockConflict>> {
        self.test_lock_file(user, file, owner, lock).await
    }

    async fn access(&self, user: &User, file: &Handle, wanted: Access) -> Result<Access> {
        let report = self.report();
        let compound = Compound::new()
            .put_fh(file)
            .then(Op::Access, &Access4Args { access: wanted.0 })
            .get_attributes(&FILE);
        let reply = self.call(user, Operation::Access, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let ok: Access4ResOk = results.get(Op::Access)?;
        report.file(&mut results, file, None);
        Ok(Access(ok.access & wanted.0))
    }

    async fn read_link(&self, user: &User, link: &Handle) -> Result<Vec<u8>> {
        let report = self.report();
        let compound = Compound::new().put_fh(link).then(Op::Readlink, &()).get_attributes(&FILE);
        let reply = self.call(user, Operation::Readlink, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let target: Linktext4<'_> = results.get(Op::Readlink)?;
        report.file(&mut results, link, None);
        Ok(target.0.to_vec())
    }

    async fn read(
        &self,
        user: &User,
        file: &Handle,
        range: (u64, usize),
        is_sparse: bool,
        buffer: Vec<u8>,
    ) -> Result<ReadReply> {
        self.read_data(user, file, range, is_sparse, buffer).await
    }

    async fn write(
        &self,
        user: &User,
        file: &Handle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        set: Option<&SetAttributes>,
    ) -> Result<WriteReply> {
        self.write_data(user, file, offset, data, stability, set).await
    }

    async fn commit(&self, user: &User, file: &Handle) -> Result<[u8; 8]> {
        self.commit_data(user, file).await
    }

    async fn create(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        mode: &Create,
    ) -> Result<Option<Found>> {
        self.create_file(user, directory, name, mode).await
    }

    async fn make_dir(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let kind = Createtype4::Other(NfsFtype4::Dir as u32);
        self.make(user, Operation::Mkdir, (directory, name), kind, set).await
    }

    async fn make_dir_asking(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        wanted: Access,
    ) -> Result<Option<MadeDirectory>> {
        let kind = Createtype4::Other(NfsFtype4::Dir as u32);
        self.make_and_ask(user, Operation::Mkdir, (directory, name), kind, set, Some(wanted)).await
    }

    async fn symlink(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let kind = Createtype4::Lnk(Opaque(target));
        self.make(user, Operation::Symlink, (directory, name), kind, set).await
    }

    async fn make_node(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let kind = match node {
            Node::Fifo => Createtype4::Other(NfsFtype4::Fifo as u32),
            Node::Socket => Createtype4::Other(NfsFtype4::Sock as u32),
            Node::Block(specdata1, specdata2) => Createtype4::Blk(Specdata4 { specdata1, specdata2 }),
            Node::Character(specdata1, specdata2) => Createtype4::Chr(Specdata4 { specdata1, specdata2 }),
        };
        self.make(user, Operation::Mknod, (directory, name), kind, set).await
    }

    async fn remove(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<()> {
        self.remove_name(user, Operation::Remove, (directory, name), false).await
    }

    async fn remove_dir(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<()> {
        self.remove_name(user, Operation::Rmdir, (directory, name), true).await
    }

    async fn rename(&self, user: &User, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<()> {
        self.rename_name(user, from, to).await
    }

    async fn link(&self, user: &User, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        self.link_name(user, file, directory, name).await
    }

    async fn read_dir_page(
        &self,
        user: &User,
        directory: &Handle,
        from: (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        self.list_page(user, directory, from, count, plus).await
    }

    async fn first_pages(
        &self,
        user: &User,
        directories: &[&Handle],
        count: u32,
    ) -> Result<Vec<DirectoryPage>> {
        self.list_first_pages(user, directories, count).await
    }

    async fn fs_stat(&self, user: &User, file: &Handle) -> Result<FsStat> {
        let compound = Compound::new().put_fh(file).get_attributes(&SPACE);
        let reply = self.call(user, Operation::Fsstat, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        Ok(reply_attributes(&mut results)?.fs_stat())
    }

    async fn fs_info(&self, user: &User, file: &Handle) -> Result<FsInfo> {
        user.session.counters.call(Operation::Fsinfo);
        let info = self.limits(user, file).await?.info;
        let (read, write) = self.client.max_transfers();
        // A server that doesn't say a limit is limited by the session.
        let limit = |said: u32, session: u32| if said == 0 { session } else { said.min(session) };
        let (read_max, write_max) = (limit(info.read_max, read), limit(info.write_max, write));
        Ok(FsInfo {
            read_max,
            read_preferred: read_max,
            read_multiple: 4096,
            write_max,
            write_preferred: write_max,
            write_multiple: 4096,
            dir_preferred: PREFERRED_PAGE.min(read),
            ..info
        })
    }

    async fn path_conf(&self, user: &User, file: &Handle) -> Result<PathConf> {
        let compound = Compound::new().put_fh(file).get_attributes(&NAMES);
        let reply = self.call(user, Operation::Pathconf, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        Ok(reply_attributes(&mut results)?.path_conf())
    }

    async fn acls(&self, user: &User, file: &Handle) -> Result<PosixAcls> {
        let (_, acls) = self.get_posix_acls(user, file).await?;
        acls
    }

    async fn set_acl(&self, user: &User, file: &Handle, change: &SetAcl) -> Result<()> {
        let _change = self.client.change_attributes(file, None);
        self.change_posix_acl(user, file, change).await
    }

    async fn fallocate(
        &self,
        user: &User,
        file: &Handle,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.change_space(user, file, how, offset, len).await
    }

    async fn seek(&self, user: &User, file: &Handle, to: SeekTo, offset: u64) -> Result<Option<u64>> {
        self.find_content(user, file, to, offset).await
    }

    async fn advise(&self, user: &User, file: &Handle, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.send_advice(user, file, advice, offset, len).await
    }

    async fn copy(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        len: u64,
    ) -> Result<CopyReply> {
        self.copy_within(user, from, to, len).await
    }

    async fn clone_range(
        &self,
        user: &User,
        from: (&Handle, u64),
        to: (&Handle, u64),
        len: u64,
    ) -> Result<()> {
        self.clone_within(user, from, to, len).await
    }

    async fn nfs4_acl(&self, user: &User, file: &Handle) -> Result<Vec<u8>> {
        self.get_acl(user, file).await
    }

    async fn set_nfs4_acl(&self, user: &User, file: &Handle, acl: &[u8]) -> Result<()> {
        let _change = self.client.change_attributes(file, None);
        self.set_acl(user, file, acl).await
    }

    async fn get_xattr(&self, user: &User, file: &Handle, name: &[u8]) -> Result<Vec<u8>> {
        self.xattr(user, file, name).await
    }

    async fn set_xattr(
        &self,
        user: &User,
        file: &Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        let _change = self.client.change_attributes(file, None);
        self.store_xattr(user, file, name, value, how).await
    }

    async fn list_xattrs(&self, user: &User, file: &Handle, cookie: u64) -> Result<XattrPage> {
        self.xattr_page(user, file, cookie).await
    }

    async fn remove_xattr(&self, user: &User, file: &Handle, name: &[u8]) -> Result<()> {
        let _change = self.client.change_attributes(file, None);
        self.delete_xattr(user, file, name).await
    }

    async fn exports(&self, user: &User) -> Result<Vec<ExportEntry>> {
        self.find_exports(user).await
    }

    async fn end(&self, _: &User) {
        self.used.end().await;
    }
}
