//! POSIX access control lists, by the NFSACL program beside NFSv3.

use std::time::Instant;

use bytes::Bytes;
use proto::nfs3::PostOpAttr;
use proto::nfsacl::{self, Getacl3Args, Getacl3ResOk, NFS_ACL, Procedure};
use rpc::client::Request;
use xdr::{Decoder, Opaque};

use super::{Nfs3, convert};
use crate::attribute_sink::AttributeUpdate;
use crate::connection::send;
use crate::error::{Error, Result, RpcError, Status};
use crate::types::{AclEntry, Handle};
use crate::user::User;

impl Nfs3 {
    /// GETACL.
    pub(super) async fn get_acl(&self, user: &User, file: &Handle) -> Result<Vec<AclEntry>> {
        let object = || Procedure::Getacl.name().to_owned();
        let refused = |status| Error::Status { object: object(), status };
        let args = Getacl3Args { fh: Opaque(file.as_bytes()), mask: NFS_ACL };
        let request = Request {
            program: nfsacl::PROGRAM,
            version: nfsacl::VERSION,
            procedure: Procedure::Getacl.number(),
            credential: &user.wire,
            payload: Bytes::new(),
            trailer: Bytes::new(),
            receive: None,
        };
        let sent = Instant::now();
        let reply = match send(&self.rpc, &self.counters, request, true, |to| to.put(&args)).await {
            Ok(reply) => reply,
            Err(
                rpc::client::Error::ProgramUnavailable { .. }
                | rpc::client::Error::ProgramMismatch { .. }
                | rpc::client::Error::ProcedureUnavailable { .. },
            ) => return Err(refused(Status::NotSupported)),
            Err(source) => return Err(Error::Rpc { object: object(), source: RpcError(source) }),
        };
        let outcome: nfsacl::Getacl3Res = Decoder::new(&reply.results)
            .get()
            .map_err(|_| Error::Protocol { object: object(), what: "its results can't be decoded" })?;
        let report = |attributes: PostOpAttr| {
            if let (Some(sink), Some(attributes)) = (&self.attribute_sink, &attributes) {
                let attributes = Some(convert::attributes(attributes));
                sink.attributes(file, &AttributeUpdate { before: None, attributes, asked: sent });
            }
        };
        let Getacl3ResOk { attributes, lists } = outcome.into_result().map_err(|(status, attributes)| {
            report(attributes);
            refused(status.into())
        })?;
        report(attributes);
        let entries = lists.acl.0.into_iter();
        Ok(entries.map(|entry| AclEntry { tag: entry.tag, id: entry.id, permissions: entry.perm }).collect())
    }
}
