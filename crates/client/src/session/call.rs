//! One NFS call: counted, sent, waited for, and sent again while the server asks for patience.

use std::time::Duration;

use bytes::Bytes;
use proto::nfs3::{self, Nfsstat3, Outcome, Procedure};
use rpc::client::{Receive, Reply, Request};
use xdr::{Decode, Decoder, Encode};

use super::Session;
use crate::error::{Error, Result};

/// The first pause after NFS3ERR_JUKEBOX; it doubles up to [`LONGEST_NAP`].
const FIRST_NAP: Duration = Duration::from_millis(50);

/// The longest pause after NFS3ERR_JUKEBOX: the kernel client's.
const LONGEST_NAP: Duration = Duration::from_secs(5);

impl Session {
    /// Calls `procedure`. The reply is not looked into, except that a server which says "try again later" is asked
    /// again: for ever by a hard session, `retrans` times by a soft one.
    pub(crate) async fn nfs(&self, procedure: Procedure, args: &impl Encode) -> Result<Reply> {
        self.nfs_with(procedure, args, Bytes::new(), None).await
    }

    /// As [`Session::nfs`], with bulk data behind the arguments or the results.
    pub(crate) async fn nfs_with(
        &self,
        procedure: Procedure,
        args: &impl Encode,
        payload: Bytes,
        mut receive: Option<Receive>,
    ) -> Result<Reply> {
        let inner = &*self.inner;
        let into = receive.as_ref().map(|receive| (receive.limit, receive.split));
        let mut nap = FIRST_NAP;
        let mut tries = 0;
        loop {
            inner.live.call(procedure);
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
                return Ok(reply);
            }
            tries += 1;
            receive = into.map(|(limit, split)| Receive { into: reply.payload, limit, split });
            tokio::time::sleep(nap).await;
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }
}

/// The results of `procedure`: the successful body, or what is wrong.
pub(crate) fn body<'a, O: Decode<'a>, F: Decode<'a>>(procedure: Procedure, reply: &'a Reply) -> Result<O> {
    let object = || procedure.name().to_owned();
    let mut from = Decoder::new(&reply.results);
    match from.get::<Outcome<O, F>>() {
        Ok(Outcome::Ok(body)) => Ok(body),
        Ok(Outcome::Fail(status, _)) => Err(Error::Status { object: object(), status: status.into() }),
        Err(_) => Err(Error::Protocol { object: object(), what: "its results can't be decoded" }),
    }
}

/// What was said about a name, for an error.
pub(crate) fn named(what: &str, name: &[u8]) -> String {
    format!("{what} {:?}", String::from_utf8_lossy(name))
}
