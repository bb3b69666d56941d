//! What the holder of a delegation for writing makes of its file: asked before anybody else is told the
//! file's size and times (RFC 8881 section 10.4.3, RFC 7530 section 10.4.3), by whatever version of NFS he
//! comes.

use std::net::IpAddr;
use std::time::Duration;

use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, CB_GETATTR, CbGetattr4Args, CbGetattr4ResOk};
use rpc::server::CallContext;
use state::{AccessKind, ClientId, Error};
use store::{Acting, Node};
use xdr::{Decoder, Opaque};

use super::callbacks::CallbackOperation;
use super::state_manager::StateManager;

/// How long a worker waits for what a delegation's holder says.
const CB_GETATTR_TIMEOUT: Duration = Duration::from_secs(2);

/// What may be asked of a holder.
const WRITTEN: Bitmap4 = Bitmap4::of(&[number::CHANGE, number::SIZE]);

/// What is known of a delegation for writing from when it was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    /// The file's change attribute and size.
    pub change: u64,
    pub size: u64,
    /// Where its holder is, if it doesn't say who it is when it asks for attributes (4.0).
    pub nameless_at: Option<IpAddr>,
}

/// Who wants to know.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    /// A client with a session.
    Client(ClientId),
    /// One of 4.0 at some address: no request but those with state says whose it is. It may be the holder
    /// itself, which must not be asked while it returns what it holds, if that comes from there.
    Nameless(IpAddr),
    /// Who can't hold any: NFSv3.
    Other,
}

impl StateManager {
    /// Asks somebody else's delegation for writing what it makes of the file: the size, if it has written.
    /// Then the file's own attributes say by now that it has changed. A holder that doesn't answer loses the
    /// delegation.
    ///
    /// # Errors
    /// `Delay` as long as it isn't back then.
    pub(crate) fn ask_writer(
        &self,
        asker: Asker,
        cx: &CallContext<'_>,
        acting: &Acting<'_>,
        node: &Node,
    ) -> Result<Option<u64>, Error> {
        let by = match asker {
            Asker::Client(client) => Some(client),
            Asker::Nameless(_) | Asker::Other => None,
        };
        let key = node.handle();
        let Some((holder, given)) = self.writer(by, node) else { return Ok(None) };
        if let Asker::Nameless(address) = asker
            && given.nameless_at == Some(address)
        {
            return Ok(None);
        }
        cx.will_block();
        let args = CbGetattr4Args { fh: Opaque(key.as_bytes()), attr_request: WRITTEN };
        let answer =
            self.callbacks.call(holder, CallbackOperation::new(CB_GETATTR, &args), CB_GETATTR_TIMEOUT);
        match answer.ok().and_then(|body| written(&body)) {
            Some(unchanged) if unchanged == (given.change, given.size) => Ok(None),
            Some((_, size)) => {
                // What can't be touched isn't written to either.
                let _ = acting.touch(node);
                Ok(Some(size))
            }
            None => self.check_conflicts(by, key, AccessKind::Read).map(|()| None),
        }
    }

    /// Whether anybody has a delegation for writing this file: then what the file says of its size and times
    /// may be old.
    pub(crate) fn is_written_elsewhere(&self, node: &Node) -> bool {
        self.writer(None, node).is_some()
    }

    fn writer(&self, by: Option<ClientId>, node: &Node) -> Option<(ClientId, Given)> {
        if !self.has_writers() {
            return None;
        }
        let writer = self.run(|engine, _| engine.writer(by, node.handle()))?;
        let given = writer.kept.given.get()?;
        Some((writer.client, *given))
    }
}

/// The change attribute and the size out of an answer.
fn written(body: &[u8]) -> Option<(u64, u64)> {
    let CbGetattr4ResOk { obj_attributes } = Decoder::new(body).get().ok()?;
    if !WRITTEN.without(&obj_attributes.attrmask).is_empty() {
        return None;
    }
    // They are the first; what else the client tells wasn't asked.
    let before = obj_attributes.attrmask.iter().next();
    let mut values = Decoder::new(obj_attributes.attr_vals.0);
    let found = (values.u64().ok()?, values.u64().ok()?);
    (before == Some(number::CHANGE)).then_some(found)
}
