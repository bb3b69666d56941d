//! One NFS call: counted, sent, waited for, sent again while the server asks for patience, and its results
//! taken apart.

use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::nfs3::{self, Nfsstat3, Outcome, Procedure};
use rpc::client::{Receive, Reply, Request};
use xdr::{Decode, Decoder, Encode};

use super::Session;
use super::reply_attributes::{AttributeReport, ReplyAttributes};
use crate::error::{Error, Result};
use crate::types::Handle;

/// The first pause after NFS3ERR_JUKEBOX; it doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause after NFS3ERR_JUKEBOX: the kernel client's.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A reply, whatever it says.
pub(crate) struct Replied {
    pub(crate) reply: Reply,
    /// When the call was sent, if the session has an attribute sink.
    asked: Option<Instant>,
}

impl Session {
    /// Calls `procedure`. The reply is not looked into, except that a server which says "try again later" is
    /// asked again: for ever by a hard session, `retrans` times by a soft one.
    pub(crate) async fn nfs(&self, procedure: Procedure, args: &impl Encode) -> Result<Replied> {
        self.nfs_with(procedure, args, Bytes::new(), None).await
    }

    /// As [`Session::nfs`], with bulk data behind the arguments or the results.
    pub(crate) async fn nfs_with(
        &self,
        procedure: Procedure,
        args: &impl Encode,
        payload: Bytes,
        mut receive: Option<Receive>,
    ) -> Result<Replied> {
        let inner = &*self.inner;
        let asked = inner.options.attribute_sink.as_ref().map(|_| Instant::now());
        let into = receive.as_ref().map(|receive| (receive.limit, receive.split));
        let mut pause = MIN_PAUSE;
        let mut tries = 0;
        loop {
            inner.counters.call(procedure);
            let request = Request {
                program: nfs3::PROGRAM,
                version: nfs3::VERSION,
                procedure: procedure.number(),
                credential: &self.user.wire,
                payload: payload.clone(),
                receive: receive.take(),
            };
            let reply = inner
                .rpc
                .call(request, |to| to.put(args))
                .await
                .map_err(|source| Error::Rpc { object: procedure.name().to_owned(), source })?;
            let later = Decoder::new(&reply.results).u32() == Ok(Nfsstat3::Jukebox as u32);
            if !later
                || procedure == Procedure::Null
                || (!inner.options.hard && tries >= inner.options.retrans)
            {
                return Ok(Replied { reply, asked });
            }
            tries += 1;
            receive = into.map(|(limit, split)| Receive { into: reply.payload, limit, split });
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Decodes the results of `procedure`. The attributes in them go to the attribute sink; `files` are the
    /// files in the call's arguments, in that order.
    pub(crate) fn body<'a, O, F>(
        &self,
        procedure: Procedure,
        replied: &'a Replied,
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
        let report_to = self.inner.options.attribute_sink.as_deref().zip(replied.asked);
        let report_to = report_to.map(|(sink, asked)| AttributeReport { sink, files, asked });
        match outcome {
            Outcome::Ok(body) => {
                report_to.iter().for_each(|report_to| body.report(report_to));
                Ok(body)
            }
            Outcome::Fail(status, rest) => {
                report_to.iter().for_each(|report_to| rest.report(report_to));
                Err(Error::Status { object: object(), status: status.into() })
            }
        }
    }
}

/// What was said about a name, for an error.
pub(crate) fn named(what: &str, name: &[u8]) -> String {
    format!("{what} {:?}", String::from_utf8_lossy(name))
}
