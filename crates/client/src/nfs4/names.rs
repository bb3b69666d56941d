//! Names: LOOKUP, CREATE, REMOVE, RENAME and LINK (RFC 8881 sections 18.13, 18.4, 18.25, 18.26 and 18.9).
//!
//! A file that is created without being opened is opened for that, and closed by the same COMPOUND.

use std::sync::atomic::Ordering::Relaxed;

use proto::nfs4::attributes as number;
use proto::nfs4::{
    Access4Args, Access4ResOk, Bitmap4, ChangeInfo4, Close4Args, Create4Args, Createtype4, Fattr4, Name4Args,
    NfsFtype4, Nfsstat4, Open4Args, Open4ResOk, OpenClaim4, Openflag4, Operation as Op, Rename4Args,
    Rename4ResOk, SHARE_ACCESS_READ, SHARE_ACCESS_WANT_NO_DELEG, StateOwner4, Stateid4, Verify4Args,
};
use xdr::{Encoder, Opaque};

use super::compound::{Compound, refused};
use super::connect::OPERATIONS_PER_NAME;
use super::convert::{ACL, FILE, Settable};
use super::delegation::ReturnAlong;
use super::open::{before, create_how};
use super::state::CURRENT;
use super::{Nfs4, found, reply_attributes};
use crate::error::{Error, Result, Status};
use crate::operations::lookup_first;
use crate::types::{Access, Create, Found, Handle, MadeDirectory, Operation, ReplyAcls, SetAttributes};
use crate::user::User;

/// The operations of a request that makes a directory and asks for rights and the access control list,
/// SEQUENCE not counted. A session may permit fewer.
const OPERATIONS_THAT_ASK: usize = 10;

/// The operations of a request that returns a delegation and removes its file's name, SEQUENCE not counted.
const OPERATIONS_THAT_RETURN: usize = 8;

/// The type of a directory, as an attribute to compare with.
fn directory_type() -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(&NfsFtype4::Dir);
    to.into_vec()
}

impl Nfs4 {
    /// LOOKUP.
    pub(super) async fn lookup_name(&self, user: &User, directory: &Handle, name: &[u8]) -> Result<Found> {
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

    /// LOOKUPs of as many names as the session permits.
    pub(super) async fn lookup_names(
        &self,
        user: &User,
        directory: &Handle,
        names: &[&[u8]],
    ) -> Result<Vec<Found>> {
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

    /// OPEN and CLOSE: a file that is created without being opened.
    pub(super) async fn create_file(
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

    /// CREATE of anything but a regular file.
    pub(super) async fn make(
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
    pub(super) async fn make_and_ask(
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
    pub(super) async fn remove_name(
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

    /// RENAME.
    pub(super) async fn rename_name(
        &self,
        user: &User,
        from: (&Handle, &[u8]),
        to: (&Handle, &[u8]),
    ) -> Result<()> {
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

    /// LINK.
    pub(super) async fn link_name(
        &self,
        user: &User,
        file: &Handle,
        directory: &Handle,
        name: &[u8],
    ) -> Result<()> {
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
}
