//! POSIX access control lists, by the NFSACL program beside NFSv3.

use std::time::Instant;

use bytes::Bytes;
use proto::nfs3::PostOpAttr;
use proto::nfsacl::{self, Getacl3Args, Getacl3ResOk, NFS_ACL, Procedure};
use rpc::client::Request;
use xdr::{Decoder, Opaque};

use super::Session;
use crate::attribute_sink::AttributeUpdate;
use crate::convert;
use crate::counters::bump;
use crate::error::{Error, Result, Status};
use crate::types::{AclEntry, Handle};

impl Session {
    /// GETACL: the list that decides who may do what with a file. Of a file without a list of its own it is
    /// what the mode says.
    ///
    /// # Errors
    /// [`Status::NotSupported`]: the server doesn't have the program, or its filesystem no such lists. Else
    /// the server's or the call's.
    pub async fn acl(&self, file: &Handle) -> Result<Vec<AclEntry>> {
        let object = || Procedure::Getacl.name().to_owned();
        let refused = |status| Error::Status { object: object(), status };
        let args = Getacl3Args { fh: Opaque(file.as_bytes()), mask: NFS_ACL };
        let request = Request {
            program: nfsacl::PROGRAM,
            version: nfsacl::VERSION,
            procedure: Procedure::Getacl.number(),
            credential: &self.user.wire,
            payload: Bytes::new(),
            receive: None,
        };
        bump(&self.inner.counters.wire.round_trips);
        let asked = Instant::now();
        let reply = match self.inner.rpc.call(request, |to| to.put(&args)).await {
            Ok(reply) => reply,
            Err(
                rpc::client::Error::ProgramUnavailable { .. }
                | rpc::client::Error::ProgramMismatch { .. }
                | rpc::client::Error::ProcedureUnavailable { .. },
            ) => return Err(refused(Status::NotSupported)),
            Err(source) => return Err(Error::Rpc { object: object(), source }),
        };
        let outcome: nfsacl::Getacl3Res = Decoder::new(&reply.results)
            .get()
            .map_err(|_| Error::Protocol { object: object(), what: "its results can't be decoded" })?;
        let tell = |attributes: PostOpAttr| {
            if let (Some(sink), Some(attributes)) = (&self.inner.options.attribute_sink, &attributes) {
                let attributes = Some(convert::attributes(attributes));
                sink.attributes(file, &AttributeUpdate { before: None, attributes, asked });
            }
        };
        let Getacl3ResOk { attributes, lists } = outcome.into_result().map_err(|(status, attributes)| {
            tell(attributes);
            refused(status.into())
        })?;
        tell(attributes);
        let entries = lists.acl.0.into_iter();
        Ok(entries.map(|entry| AclEntry { tag: entry.tag, id: entry.id, permissions: entry.perm }).collect())
    }
}
