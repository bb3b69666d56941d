//! POSIX access control lists, by the NFSACL program beside NFSv3.
//!
//! nfs-ganesha 4.3 answers GARBAGE_ARGS to a SETACL in which one of the two lists is empty, as that of
//! a file must be. Such servers' lists can only be read.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use acl::nfsacl::{entries, list};
use bytes::Bytes;
use proto::nfs3::PostOpAttr;
use proto::nfsacl::{
    self, DEFAULT, Getacl3Args, Getacl3Res, Getacl3ResOk, MAX_ENTRIES, NFS_ACL, NFS_DFACL, Procedure,
    Secattr, Setacl3Args, Setacl3Res,
};
use rpc::client::{Reply, Request};
use xdr::{Array, Decode, Decoder, Encode, Opaque};

use super::{Nfs3, convert};
use crate::attribute_sink::AttributeUpdate;
use crate::connection::send;
use crate::error::{Error, Result, RpcError, Status};
use crate::types::{FileKind, Handle, Operation, PosixAcl, PosixAcls, ReplyAcls, SetAcl};
use crate::user::User;

const fn operation(procedure: Procedure) -> Operation {
    match procedure {
        Procedure::Null => Operation::Null,
        Procedure::Getacl => Operation::Getacl,
        Procedure::Setacl => Operation::Setacl,
    }
}

fn refused(procedure: Procedure, status: Status) -> Error {
    Error::Status { object: procedure.name().to_owned(), status }
}

fn malformed(procedure: Procedure, what: &'static str) -> Error {
    Error::Protocol { object: procedure.name().to_owned(), what }
}

fn decoded<'a, T: Decode<'a>>(procedure: Procedure, reply: &'a Reply) -> Result<T> {
    Decoder::new(&reply.results).get().map_err(|_| malformed(procedure, "its results can't be decoded"))
}

impl Nfs3 {
    async fn call_nfsacl(&self, user: &User, procedure: Procedure, args: &impl Encode) -> Result<Reply> {
        user.session.counters.call(operation(procedure));
        let request = Request {
            program: nfsacl::PROGRAM,
            version: nfsacl::VERSION,
            procedure: procedure.number(),
            credential: &user.wire,
            payload: Bytes::new(),
            trailer: Bytes::new(),
            receive: None,
        };
        match send(&self.rpc, &user.session, request, true, |to| to.put(args)).await {
            Ok(reply) => Ok(reply),
            Err(
                rpc::client::Error::ProgramUnavailable { .. }
                | rpc::client::Error::ProgramMismatch { .. }
                | rpc::client::Error::ProcedureUnavailable { .. },
            ) => Err(refused(procedure, Status::NotSupported)),
            Err(source) => Err(Error::Rpc { object: procedure.name().to_owned(), source: RpcError(source) }),
        }
    }

    /// The attributes of `file` in the reply to a call that was sent at `asked`.
    fn report_attributes(&self, file: &Handle, attributes: &PostOpAttr, asked: Instant) {
        if let (Some(sink), Some(attributes)) = (&self.attribute_sink, attributes) {
            let attributes = Some(convert::attributes(attributes));
            sink.attributes(file, &AttributeUpdate { before: None, attributes, asked });
        }
    }

    /// GETACL. The lists, and whether the file may be a directory.
    pub(super) async fn get_acls(&self, user: &User, file: &Handle) -> Result<(PosixAcls, bool)> {
        let (procedure, asked) = (Procedure::Getacl, Instant::now());
        let args = Getacl3Args { fh: Opaque(file.as_bytes()), mask: NFS_ACL | NFS_DFACL };
        let reply = self.call_nfsacl(user, procedure, &args).await?;
        let outcome: Getacl3Res = decoded(procedure, &reply)?;
        let Getacl3ResOk { attributes, lists } = outcome.into_result().map_err(|(status, attributes)| {
            self.report_attributes(file, &attributes, asked);
            refused(procedure, status.into())
        })?;
        self.report_attributes(file, &attributes, asked);
        let attributes = attributes.as_ref().map(convert::attributes);
        let list = |entries| list(entries).map_err(|_| malformed(procedure, "its list isn't one"));
        // A server may leave out a list that says no more than the mode.
        let of_mode = || attributes.map(|attributes| PosixAcl::of_mode(attributes.mode));
        let access = list(&lists.acl.0)?.or_else(of_mode);
        let access = access.ok_or_else(|| malformed(procedure, "it has neither a list nor a mode"))?;
        let may_be_directory = attributes.is_none_or(|attributes| attributes.kind == FileKind::Directory);
        let acls = PosixAcls { access, default: list(&lists.default.0)? };
        if let (Some(sink), Some(attributes)) = (&self.attribute_sink, &attributes) {
            sink.acls(file, attributes, &ReplyAcls::Posix(acls.clone()), asked);
        }
        Ok((acls, may_be_directory))
    }

    /// SETACL. It sets both lists of a directory, because servers remove one that is left out.
    pub(super) async fn change_acl(&self, user: &User, file: &Handle, change: &SetAcl) -> Result<()> {
        let procedure = Procedure::Setacl;
        let (mut acls, may_be_directory) = self.get_acls(user, file).await?;
        change.apply(&mut acls);
        let access = entries(&acls.access, 0);
        let default = acls.default.as_ref().map_or_else(Vec::new, |list| entries(list, DEFAULT));
        if access.len().max(default.len()) > MAX_ENTRIES {
            return Err(refused(procedure, Status::AttributeTooBig));
        }
        let with_default = may_be_directory || !default.is_empty();
        let lists = Secattr {
            mask: NFS_ACL | if with_default { NFS_DFACL } else { 0 },
            acl_count: access.len() as u32,
            acl: Array(access),
            default_count: default.len() as u32,
            default: Array(default),
        };
        let asked = Instant::now();
        let args = Setacl3Args { fh: Opaque(file.as_bytes()), lists };
        let reply = match self.call_nfsacl(user, procedure, &args).await {
            Err(Error::Rpc {
                source: RpcError(source @ rpc::client::Error::GarbageArguments { .. }),
                ..
            }) => {
                if !self.has_logged_setacl.swap(true, Relaxed) {
                    tracing::warn!("access control lists can't be set: {source} (nfs-ganesha before 5.0)");
                }
                // setfacl(1) takes ENOTSUP for success when it removes a default list.
                let removes = matches!(change, SetAcl::Default(None));
                let status = if removes { Status::NotPermitted } else { Status::NotSupported };
                return Err(refused(procedure, status));
            }
            reply => reply?,
        };
        let outcome: Setacl3Res = decoded(procedure, &reply)?;
        let (attributes, refusal) = match outcome.into_result() {
            Ok(attributes) => (attributes, None),
            Err((status, attributes)) => (attributes, Some(status)),
        };
        self.report_attributes(file, &attributes, asked);
        refusal.map_or(Ok(()), |status| Err(refused(procedure, status.into())))
    }
}
