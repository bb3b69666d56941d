//! One NFS call: counted, sent, waited for, and its results decoded.
//!
//! Calls with small replies are made on the lane's call socket while there is one, all others over TCP.

use std::time::Instant;

use bytes::Bytes;
use proto::nfs3::{self, Nfsstat3, Outcome, Procedure};
use rpc::client::{Receive, Reply, Request};
use xdr::{Decode, Decoder, Encode};

use super::reply_attributes::{AttributeReport, ReplyAttributes};
use super::{Nfs3, convert};
use crate::connection::send;
use crate::error::{Error, Result, RpcError};
use crate::types::Handle;
use crate::user::User;

/// A reply whose results are not decoded yet.
pub(super) struct NfsReply {
    pub(super) reply: Reply,
    /// When the call was sent, if the session has an attribute sink.
    sent: Option<Instant>,
}

impl Nfs3 {
    pub(super) async fn call(
        &self,
        user: &User,
        procedure: Procedure,
        args: &impl Encode,
    ) -> Result<NfsReply> {
        self.call_with_payload(user, procedure, args, Bytes::new(), None).await
    }

    /// As [`Nfs3::call`], with bulk data behind the arguments or the results.
    pub(super) async fn call_with_payload(
        &self,
        user: &User,
        procedure: Procedure,
        args: &impl Encode,
        payload: Bytes,
        receive: Option<Receive>,
    ) -> Result<NfsReply> {
        let sent = self.attribute_sink.as_ref().map(|_| Instant::now());
        user.session.counters.call(convert::operation(procedure));
        let small = is_small(procedure);
        let request = Request {
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: procedure.number(),
            credential: &user.wire,
            payload,
            trailer: Bytes::new(),
            receive,
        };
        let reply = send(&self.rpc, &user.session, request, small, |to| to.put(args)).await;
        let reply = reply
            .map_err(|source| Error::Rpc { object: procedure.name().to_owned(), source: RpcError(source) })?;
        Ok(NfsReply { reply, sent })
    }

    /// Decodes the results of `procedure`. The attributes in them go to the attribute sink; `files` are the
    /// files in the call's arguments, in that order.
    pub(super) fn decode<'a, O, F>(
        &self,
        procedure: Procedure,
        replied: &'a NfsReply,
        files: &[&Handle],
    ) -> Result<O>
    where
        O: Decode<'a> + ReplyAttributes,
        F: Decode<'a> + ReplyAttributes,
    {
        let object = || procedure.name().to_owned();
        let outcome: Outcome<O, F> = Decoder::new(&replied.reply.results)
            .get()
            .map_err(|_| Error::Protocol { object: object(), what: "its results can't be decoded" })?;
        let report_to = self.attribute_sink.as_deref().zip(replied.sent);
        let report_to = report_to.map(|(sink, sent)| AttributeReport { sink, files, sent });
        match outcome {
            Outcome::Ok(body) => {
                report_to.iter().for_each(|report_to| body.report(report_to));
                Ok(body)
            }
            Outcome::Fail(status, body) => {
                // A delayed call has changed nothing, and it is made again.
                if status != Nfsstat3::Jukebox {
                    report_to.iter().for_each(|report_to| body.report(report_to));
                }
                Err(Error::Status { object: object(), status: status.into() })
            }
        }
    }
}

/// Whether the arguments and results of a procedure are small and a call of it seldom takes long. NULL isn't
/// among them, because it shows whether the server replies over TCP.
const fn is_small(procedure: Procedure) -> bool {
    use Procedure as P;
    match procedure {
        P::Null | P::Read | P::Write | P::Commit | P::Readdir | P::Readdirplus => false,
        P::Getattr | P::Setattr | P::Lookup | P::Access | P::Readlink => true,
        P::Create | P::Mkdir | P::Symlink | P::Mknod => true,
        P::Remove | P::Rmdir | P::Rename | P::Link => true,
        P::Fsstat | P::Fsinfo | P::Pathconf => true,
    }
}
