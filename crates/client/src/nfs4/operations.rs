//! The operations as COMPOUNDs (RFC 8881 section 18).
//!
//! Data is read and written by the state id of the user's open, or by the special one for clients that hold
//! none (RFC 8881 section 8.2.3) if the user hasn't opened the file. A file that is created without being
//! opened is opened for that, and closed by the same COMPOUND.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use client_state::{ByteRange, LockKind, StateId};
use io::Stability;
use proto::nfs4::attributes as number;
use proto::nfs4::{
    Access4Args, Access4ResOk, Bitmap4, ChangeInfo4, Close4Args, Commit4Args, Create4Args, Createtype4,
    Fattr4, Linktext4, MAX_COMPONENT, Name4Args, NfsFtype4, Nfsstat4, Open4Args, Open4ResOk, OpenClaim4,
    Openflag4, Operation as Op, Read4Args, Readdir4Args, Rename4Args, Rename4ResOk, SHARE_ACCESS_READ,
    SHARE_ACCESS_WANT_NO_DELEG, Sequence4ResOk, Setattr4Args, Specdata4, StableHow4, StateOwner4, Stateid4,
    Verifier4, Verify4Args, Write4ResOk,
};
use rpc::client::Receive;
use xdr::{Decode, Decoder, Encode, Encoder, Opaque};

use super::compound::{Compound, Results, malformed, refused};
use super::connect::OPERATIONS_PER_NAME;
use super::convert::{
    self, ACL, BIRTH, ENTRY, ENTRY_AND_ACL, ENTRY_NUMBER, FILE, NAMES, ReplyAttributes, SPACE, Settable,
};
use super::delegation::ReturnAlong;
use super::open::{before, create_how};
use super::read_plus::ReadPlusAnswer;
use super::session::CompoundReply;
use super::state::{self, READ_ACCESS, WRITE_ACCESS};
use super::{Nfs4, file_handle, found, reply_attributes};
use crate::error::{Error, Result, Status};
use crate::operations::{
    CopyReply, FileTarget, LockConflict, LockOwner, LockRequest, OpenPlan, OpenReply, Operations, ReadReply,
    WireOpen, WriteReply, lookup_first,
};
use crate::types::{
    Access, Advice, Attributes, Create, DirEntry, ExportEntry, Fallocate, FileKind, Found, FsInfo, FsStat,
    Handle, MadeDirectory, Node, Operation, Page, PathConf, Plus, PosixAcls, ReplyAcls, SeekTo, SetAcl,
    SetAttributes, SetXattr, Timestamp, XattrPage,
};
use crate::user::User;

/// The state id of a client that holds no state (RFC 8881 section 8.2.3).
pub(super) const ANONYMOUS: Stateid4 = Stateid4 { seqid: 0, other: [0; 12] };

/// The state id that an earlier operation of the same COMPOUND has set (RFC 8881 section 16.2.3.1.2).
pub(super) const CURRENT: Stateid4 = Stateid4 { seqid: 1, other: [0; 12] };

/// The cookies of `.` and `..`, which NFSv4's servers don't list: they don't use these numbers (RFC 8881
/// section 18.23.3).
const OWN_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;

/// The number of an entry whose attributes the user may not see, as the kernel's client has it.
const UNKNOWN_FILEID: u64 = 1;

/// The preferred size of a page of a directory, in bytes.
const PREFERRED_PAGE: u32 = 128 << 10;

/// Where the payload of READ's results begins, and its length, behind SEQUENCE and PUTFH.
fn read_payload(results: &[u8]) -> Option<(usize, usize)> {
    let mut from = Results::new(results).ok()?;
    from.get::<Sequence4ResOk>(Op::Sequence).ok()?;
    from.succeeded(Op::Putfh).ok()?;
    from.get::<bool>(Op::Read).ok()?;
    let length: u32 = from.value(Op::Read).ok()?;
    Some((results.len() - from.rest().len(), length as usize))
}

/// The arguments of WRITE in front of the payload.
struct WriteHead {
    stateid: Stateid4,
    offset: u64,
    stable: StableHow4,
}

impl Encode for WriteHead {
    fn encode(&self, to: &mut Encoder) {
        to.put(&self.stateid);
        to.u64(self.offset);
        to.put(&self.stable);
    }
}

/// The operations of a request that makes a directory and asks for rights and the access control list,
/// SEQUENCE not counted. A session may permit fewer.
const OPERATIONS_THAT_ASK: usize = 10;

/// The operations of a request that returns a delegation and removes its file's name, SEQUENCE not counted.
const OPERATIONS_THAT_RETURN: usize = 8;

/// The operations of a request that writes data and sets attributes, SEQUENCE not counted.
const OPERATIONS_THAT_SET: usize = 4;

/// How often I/O is sent again because the server doesn't know its state id.
const MAX_ATTEMPTS: u32 = 8;

/// An I/O request's attempts, each with the state id that is current then.
pub(super) struct IoAttempts<'a> {
    nfs: &'a Nfs4,
    user: &'a User,
    file: &'a Handle,
    done: u32,
}

impl<'a> IoAttempts<'a> {
    pub(super) const fn new(nfs: &'a Nfs4, user: &'a User, file: &'a Handle) -> Self {
        Self { nfs, user, file, done: 0 }
    }

    /// The state id of the next attempt.
    pub(super) async fn state_id(&mut self, access: u8) -> Result<Option<StateId>> {
        self.done += 1;
        self.nfs.client.io_id(self.user, self.file, access).await
    }

    /// Whether the request must be sent again after this status, because the file has to be opened again.
    pub(super) fn must_repeat(&self, id: Option<StateId>, status: Nfsstat4) -> bool {
        let Some(id) = id.filter(|_| state::is_gone(status)) else { return false };
        self.nfs.client.free_if_revoked(Some(id), status);
        self.nfs.client.io_id_gone(self.user, self.file, id);
        self.done < MAX_ATTEMPTS
    }
}

pub(super) fn io_stateid(id: Option<StateId>) -> Stateid4 {
    id.map_or(ANONYMOUS, state::stateid)
}

pub(super) fn check(operation: Op, status: Nfsstat4) -> Result<()> {
    if status == Nfsstat4::Ok { Ok(()) } else { Err(refused(operation, status)) }
}

/// The type of a directory, as an attribute to compare with.
fn directory_type() -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(&NfsFtype4::Dir);
    to.into_vec()
}

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

    /// CREATE of anything but a regular file.
    async fn make(
        &self,
        user: &User,
        operation: Operation,
        (directory, name): (&Handle, &[u8]),
        kind: Createtype4<'_>,
        set: &SetAttributes,
    ) -> Result<Option<Found>> {
        let made = self.make_and_ask(user, operation, (directory, name), kind, set, None).await?;
        Ok(made.map(|made| made.found))
    }

    /// As [`Nfs4::make`]. Also asks which of the rights `wanted` the user has, and for the access control
    /// list. These are last: if they fail, what was made is known.
    async fn make_and_ask(
        &self,
        user: &User,
        operation: Operation,
        (directory, name): (&Handle, &[u8]),
        kind: Createtype4<'_>,
        set: &SetAttributes,
        wanted: Option<Access>,
    ) -> Result<Option<MadeDirectory>> {
        let wanted = wanted.filter(|_| self.client.max_operations() >= OPERATIONS_THAT_ASK);
        let report = self.report();
        let set = match kind {
            Createtype4::Lnk(_) => Settable::new(set),
            _ => self.settable_of_new(user, set),
        };
        let args = Create4Args { objtype: kind, objname: Opaque(name), createattrs: set.fattr() };
        let mut compound = Compound::once().put_fh(directory).then(Op::Create, &args).get_file();
        if wanted.is_some() {
            compound = compound.then(Op::Savefh, &());
        }
        compound = compound.put_fh(directory).get_attributes(&FILE);
        if let Some(wanted) = wanted {
            compound = compound
                .then(Op::Restorefh, &())
                .then(Op::Access, &Access4Args { access: wanted.0 })
                .get_attributes(&ACL);
        }
        let reply = self.call(user, operation, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let info: ChangeInfo4 = results.get(Op::Create)?;
        let _set: Bitmap4 = results.value(Op::Create)?;
        let made = found(&mut results);
        let made = made.map(|made| Found { handle: made.handle.found_at(directory, name), ..made });
        let Ok(made) = made else {
            report.send(directory, None, None);
            // It was made, even if its handle isn't known.
            return Ok(None);
        };
        report.send(&made.handle, None, made.attributes);
        if wanted.is_some() {
            results.succeeded(Op::Savefh)?;
        }
        results.succeeded(Op::Putfh)?;
        report.file(&mut results, directory, before(info));
        let mut made = MadeDirectory::from(made);
        if let Some(wanted) = wanted
            && results.succeeded(Op::Restorefh).is_ok()
            && let Ok(Access4ResOk { access, .. }) = results.get(Op::Access)
        {
            made.access = Some(Access(access & wanted.0));
            made.acl =
                reply_attributes(&mut results).ok().and_then(|attributes| match attributes.acls(true) {
                    ReplyAcls::Posix(acls) => Some(acls.access),
                    ReplyAcls::NoPosix | ReplyAcls::NotSupported => None,
                });
        }
        Ok(Some(made))
    }

    /// REMOVE of a directory, or of anything else. NFSv4 has one operation for both, so the type is checked
    /// in front of it.
    async fn remove_name(
        &self,
        user: &User,
        operation: Operation,
        (directory, name): (&Handle, &[u8]),
        is_directory: bool,
    ) -> Result<()> {
        self.client.close_before_removal(directory, name).await;
        let along = match self.client.max_operations() {
            max if max >= OPERATIONS_THAT_RETURN => self.client.give_up_delegation_at(directory, name).await,
            _ => {
                self.client.return_delegation_at(directory, name).await;
                None
            }
        };
        let report = self.report();
        let check = if is_directory { Op::Verify } else { Op::Nverify };
        let kind = directory_type();
        let kind = Fattr4 { attrmask: Bitmap4::of(&[number::TYPE]), attr_vals: Opaque(&kind) };
        let behind = |compound: Compound| {
            compound
                .put_fh(directory)
                .lookup(name)
                .then(check, &Verify4Args { obj_attributes: kind })
                .put_fh(directory)
                .then(Op::Remove, &Name4Args { name: Opaque(name) })
                .get_attributes(&FILE)
        };
        let first = along.as_ref().map_or_else(Compound::once, ReturnAlong::begin);
        let mut reply = self.call(user, operation, &behind(first)).await?;
        let mut results = reply.results()?;
        if let Some(along) = along {
            let file = along.file().clone();
            if !along.end(&mut results, reply.session) {
                self.client.return_delegation(&file).await;
                reply = self.call(user, operation, &behind(Compound::once())).await?;
                results = reply.results()?;
            }
        }
        results.succeeded(Op::Putfh)?;
        results.succeeded(Op::Lookup)?;
        match results.status(check)? {
            Nfsstat4::Ok => {}
            status @ (Nfsstat4::Same | Nfsstat4::NotSame) => {
                let status =
                    if status == Nfsstat4::Same { Status::IsDirectory } else { Status::NotDirectory };
                return Err(Error::Status { object: Op::Remove.name().to_owned(), status });
            }
            status => return Err(refused(check, status)),
        }
        results.succeeded(Op::Putfh)?;
        let info: ChangeInfo4 = results.get(Op::Remove)?;
        report.file(&mut results, directory, before(info));
        Ok(())
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
        let report = self.report();
        let compound = Compound::new().put_fh(directory).lookup(name).get_file();
        let reply = self.call(user, Operation::Lookup, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        match name {
            b"." => {}
            b".." => results.succeeded(Op::Lookupp)?,
            _ => match results.status(Op::Lookup)? {
                Nfsstat4::Ok => {}
                // The directory is a symbolic link: as for NFSv3, and for a path of system calls.
                Nfsstat4::Symlink => return Err(refused(Op::Lookup, Nfsstat4::Notdir)),
                status => return Err(refused(Op::Lookup, status)),
            },
        }
        let Found { handle, attributes } = found(&mut results)?;
        let handle = handle.found_at(directory, name);
        report.send(&handle, None, attributes);
        Ok(Found { handle, attributes })
    }

    async fn lookup_path(&self, user: &User, directory: &Handle, names: &[&[u8]]) -> Result<Vec<Found>> {
        let at_once = (self.client.max_operations() / OPERATIONS_PER_NAME).saturating_sub(1);
        let names = &names[..names.len().min(at_once)];
        if names.len() < 2 || names.iter().any(|name| matches!(*name, b"." | b"..")) {
            return lookup_first(self, user, directory, names).await;
        }
        let report = self.report();
        let first = Compound::new().put_fh(directory);
        let compound = names.iter().fold(first, |compound, name| compound.lookup(name).get_file());
        let reply = self.call(user, Operation::Lookup, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let mut files: Vec<Found> = Vec::with_capacity(names.len());
        for name in names {
            match results.status(Op::Lookup)? {
                Nfsstat4::Ok => {}
                // The next call has it first, and its error.
                _ if !files.is_empty() => break,
                Nfsstat4::Symlink => return Err(refused(Op::Lookup, Nfsstat4::Notdir)),
                status => return Err(refused(Op::Lookup, status)),
            }
            let directory = files.last().map_or(directory, |found| &found.handle);
            let Found { handle, attributes } = found(&mut results)?;
            let handle = handle.found_at(directory, name);
            report.send(&handle, None, attributes);
            files.push(Found { handle, attributes });
        }
        Ok(files)
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
        (offset, len): (u64, usize),
        is_sparse: bool,
        buffer: Vec<u8>,
    ) -> Result<ReadReply> {
        let mut buffer = buffer;
        if is_sparse && self.has_read_plus.load(Relaxed) {
            match self.read_plus(user, file, (offset, len), std::mem::take(&mut buffer)).await? {
                ReadPlusAnswer::Data(reply) => return Ok(reply),
                ReadPlusAnswer::NotSupported(unused) => buffer = unused,
            }
        }
        let mut attempts = IoAttempts::new(self, user, file);
        let (reply, eof, length) = loop {
            user.session.counters.call(Operation::Read);
            let id = attempts.state_id(READ_ACCESS).await?;
            let args = Read4Args { stateid: io_stateid(id), offset, count: len as u32 };
            let compound = Compound::new().put_fh(file).then(Op::Read, &args);
            let receive = Receive { into: buffer, limit: len, split: read_payload };
            let reply = self.client.call(user, &compound, Some(receive)).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            let status = results.status(Op::Read)?;
            if attempts.must_repeat(id, status) {
                buffer = reply.payload;
                continue;
            }
            check(Op::Read, status)?;
            let eof: bool = results.value(Op::Read)?;
            let length: u32 = results.value(Op::Read)?;
            break (reply, eof, length);
        };
        let data = reply.payload;
        if length as usize != data.len() || data.len() > len {
            return Err(Error::Protocol {
                object: Op::Read.name().to_owned(),
                what: "it says one length and sends another",
            });
        }
        Ok(ReadReply { data, eof })
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
        let set = set.filter(|_| self.client.max_operations() >= OPERATIONS_THAT_SET);
        let _change = set.map(|set| self.client.change_attributes(file, Some(set)));
        let report = self.report();
        let (first, trailer) = match set.map(Settable::new) {
            None => (Compound::new(), self.get_attributes.clone()),
            Some(set) => {
                let args = Setattr4Args { stateid: ANONYMOUS, obj_attributes: set.fattr() };
                (Compound::once(), self.get_attributes.behind(Op::Setattr, &args))
            }
        };
        let first = first.put_fh(file);
        let mut attempts = IoAttempts::new(self, user, file);
        loop {
            let id = attempts.state_id(WRITE_ACCESS).await?;
            let stable = convert::stable_how(stability);
            let head = WriteHead { stateid: io_stateid(id), offset, stable };
            let compound = first.clone().then_payload(Op::Write, &head, data.clone(), trailer.clone());
            let reply = self.call(user, Operation::Write, &compound).await?;
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            let status = results.status(Op::Write)?;
            if attempts.must_repeat(id, status) {
                continue;
            }
            check(Op::Write, status)?;
            let ok: Write4ResOk = results.value(Op::Write)?;
            let is_set = set.map(|_| results.get::<Bitmap4>(Op::Setattr));
            let attributes = report.file(&mut results, file, None);
            return Ok(WriteReply {
                count: ok.count as usize,
                stability: convert::stability(ok.committed),
                verifier: ok.writeverf,
                set: is_set.map(|is_set| is_set.map(|_| attributes)),
            });
        }
    }

    async fn commit(&self, user: &User, file: &Handle) -> Result<[u8; 8]> {
        let report = self.report();
        let args = Commit4Args { offset: 0, count: 0 };
        let compound = Compound::new().put_fh(file).then(Op::Commit, &args).get_attributes(&FILE);
        let reply = self.call(user, Operation::Commit, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let verifier: Verifier4 = results.get(Op::Commit)?;
        report.file(&mut results, file, None);
        Ok(verifier)
    }

    async fn create(
        &self,
        user: &User,
        directory: &Handle,
        name: &[u8],
        mode: &Create,
    ) -> Result<Option<Found>> {
        let report = self.report();
        let settable = self.settable_at_create(user, mode);
        let how = create_how(mode, &settable);
        // Each create has an owner of its own, so that two of the same file aren't one open.
        let owner = self.creates.fetch_add(1, Relaxed).to_be_bytes();
        let open = Open4Args {
            seqid: 0,
            share_access: SHARE_ACCESS_READ | SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: 0,
            owner: StateOwner4 { clientid: 0, owner: Opaque(&owner) },
            openhow: Openflag4::Create(how),
            claim: OpenClaim4::Null(Opaque(name)),
        };
        let compound = Compound::once()
            .put_fh(directory)
            .then(Op::Open, &open)
            .get_file()
            .then(Op::Close, &Close4Args { seqid: 0, open_stateid: CURRENT })
            .put_fh(directory)
            .get_attributes(&FILE);
        let reply = self.call(user, Operation::Create, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let opened: Open4ResOk<'_> = results.get(Op::Open)?;
        let Ok(made) = found(&mut results) else {
            report.send(directory, None, None);
            return Ok(None);
        };
        let made = Found { handle: made.handle.found_at(directory, name), ..made };
        report.send(&made.handle, None, made.attributes);
        let _closed: Stateid4 = results.get(Op::Close)?;
        results.succeeded(Op::Putfh)?;
        report.file(&mut results, directory, before(opened.cinfo));
        Ok(Some(made))
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
        self.client.return_delegation_at(from.0, from.1).await;
        self.client.return_delegation_at(to.0, to.1).await;
        self.client.close_before_removal(to.0, to.1).await;
        let report = self.report();
        let args = Rename4Args { oldname: Opaque(from.1), newname: Opaque(to.1) };
        let compound = Compound::once()
            .put_fh(from.0)
            .then(Op::Savefh, &())
            .put_fh(to.0)
            .then(Op::Rename, &args)
            .get_attributes(&FILE)
            .then(Op::Restorefh, &())
            .get_attributes(&FILE);
        let reply = self.call(user, Operation::Rename, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        results.succeeded(Op::Savefh)?;
        results.succeeded(Op::Putfh)?;
        let ok: Rename4ResOk = results.get(Op::Rename)?;
        report.file(&mut results, to.0, before(ok.target_cinfo));
        if results.succeeded(Op::Restorefh).is_ok() && from.0 != to.0 {
            report.file(&mut results, from.0, before(ok.source_cinfo));
        }
        Ok(())
    }

    async fn link(&self, user: &User, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        let _change = self.client.change_attributes(file, None);
        let report = self.report();
        let compound = Compound::once()
            .put_fh(file)
            .then(Op::Savefh, &())
            .put_fh(directory)
            .then(Op::Link, &Name4Args { name: Opaque(name) })
            .get_attributes(&FILE)
            .then(Op::Restorefh, &())
            .get_attributes(&FILE);
        let reply = self.call(user, Operation::Link, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        results.succeeded(Op::Savefh)?;
        results.succeeded(Op::Putfh)?;
        let info: ChangeInfo4 = results.get(Op::Link)?;
        report.file(&mut results, directory, before(info));
        if results.succeeded(Op::Restorefh).is_ok() {
            report.file(&mut results, file, None);
        }
        Ok(())
    }

    async fn read_dir_page(
        &self,
        user: &User,
        directory: &Handle,
        (cookie, cookieverf): (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        let report = self.report();
        let (operation, attr_request) = match plus {
            Plus::None => (Operation::Readdir, ENTRY_NUMBER),
            Plus::Acls => (Operation::Readdirplus, ENTRY_AND_ACL),
            _ => (Operation::Readdirplus, ENTRY),
        };
        let maxcount = count.min(self.client.max_transfers().0);
        // The client's own cookies are before the beginning of the server's.
        let (behind, cookieverf) = if cookie > PARENT_COOKIE { (cookie, cookieverf) } else { (0, [0; 8]) };
        let args = Readdir4Args { cookie: behind, cookieverf, dircount: maxcount, maxcount, attr_request };
        let mut compound = Compound::new().put_fh(directory).get_attributes(&FILE).then(Op::Readdir, &args);
        if cookie < PARENT_COOKIE {
            compound = compound.then(Op::Lookupp, &()).get_attributes(&ENTRY_NUMBER);
        }
        let reply = self.call(user, operation, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let attributes = report.file(&mut results, directory, None);
        let verifier: Verifier4 = results.get(Op::Readdir)?;
        let mut listed = Vec::new();
        while results.value::<bool>(Op::Readdir)? {
            let name = results.value::<Entry<'_>>(Op::Readdir)?;
            let entry = entry(&name, directory, matches!(plus, Plus::Acls));
            listed.push(entry.map_err(|_| malformed(Op::Readdir.name()))?);
        }
        let eof = results.value(Op::Readdir)?;
        let mut entries = Vec::new();
        if cookie < PARENT_COOKIE {
            let own = attributes.map_or(UNKNOWN_FILEID, |attributes| attributes.fileid);
            // The server's root has no parent, and users need search permission to find it.
            let parent = results.succeeded(Op::Lookupp).and_then(|()| reply_attributes(&mut results));
            let parent = parent.map_or(own, |parent| parent.fileid());
            entries.extend([(&b"."[..], own, OWN_COOKIE), (b"..", parent, PARENT_COOKIE)].map(
                |(name, fileid, cookie)| DirEntry {
                    name: name.to_vec(),
                    fileid,
                    cookie,
                    kind: Some(FileKind::Directory),
                    handle: None,
                    attributes: None,
                    acls: None,
                },
            ));
            entries.retain(|entry| entry.cookie > cookie);
        }
        entries.append(&mut listed);
        for entry in &entries {
            if let (Some(handle), Some(attributes)) = (&entry.handle, &entry.attributes) {
                report.send(handle, None, entry.attributes);
                if let Some(acls) = &entry.acls {
                    report.acls(handle, attributes, acls);
                }
            }
        }
        Ok(Page { entries, verifier, eof })
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

/// `entry4`, without the pointer to the next.
struct Entry<'a> {
    cookie: u64,
    name: &'a [u8],
    attributes: Fattr4<'a>,
}

impl<'a> Decode<'a> for Entry<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        Ok(Self { cookie: from.u64()?, name: from.opaque(MAX_COMPONENT)?, attributes: from.get()? })
    }
}

/// An entry of a directory.
fn entry(from: &Entry<'_>, directory: &Handle, with_acls: bool) -> Result<DirEntry, xdr::Error> {
    let Entry { cookie, name, attributes } = *from;
    let attributes = ReplyAttributes::decode(&attributes)?;
    let is_known = attributes.error.is_none_or(|error| error == Nfsstat4::Ok);
    let handle = attributes.handle.and_then(|handle| file_handle(handle).ok());
    let file = attributes.file().filter(|_| is_known);
    if let (Some(handle), Some(_)) = (&handle, &file) {
        handle.note_birth(attributes.birth);
    }
    Ok(DirEntry {
        name: name.to_vec(),
        // C libraries leave out entries without a number.
        fileid: if is_known { attributes.fileid() } else { UNKNOWN_FILEID },
        cookie,
        kind: file.map(|file| file.kind),
        handle: handle.filter(|_| is_known).map(|handle| handle.found_at(directory, name)),
        attributes: file,
        acls: file.filter(|_| with_acls).map(|file| attributes.acls(file.kind == FileKind::Directory)),
    })
}
