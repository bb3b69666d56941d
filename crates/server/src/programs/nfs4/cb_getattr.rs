//! CB_GETATTR: before another client gets a file's size, of whatever version of NFS, the server requests it
//! from the holder of a write delegation (RFC 8881 section 10.4.3, RFC 7530 section 10.4.3).

use std::net::IpAddr;
use std::time::Duration;

use proto::nfs4::attributes as number;
use proto::nfs4::{Bitmap4, CB_GETATTR, CbGetattr4Args, CbGetattr4ResOk};
use rpc::server::CallContext;
use state::{AccessKind, ClientId, Error};
use store::{Node, UserContext};
use xdr::{Decoder, Opaque};

use super::context::Context;
use super::status;
use crate::service::nfs4_state::GrantedAttributes;
use crate::service::nfs4_state::StateManager;
use crate::service::nfs4_state::callbacks::CallbackOperation;

/// How long a worker waits for the holder's answer.
const CB_GETATTR_TIMEOUT: Duration = Duration::from_secs(2);

/// The attributes that can be requested from a holder.
const REQUESTED: Bitmap4 = Bitmap4::of(&[number::CHANGE, number::SIZE]);

/// The attributes that the holder's writes change.
const CHANGED_BY_DATA: Bitmap4 = Bitmap4::of(&[
    number::CHANGE,
    number::SIZE,
    number::SPACE_USED,
    number::TIME_MODIFY,
    number::TIME_METADATA,
]);

/// The client that wants a file's attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AttributeReader {
    /// A client with a session.
    Session(ClientId),
    /// A client of 4.0 at this address. GETATTR doesn't say which one: it may be the holder, which must not
    /// be called back while it returns its delegation.
    V40(IpAddr),
    /// A client without delegations (NFSv3).
    Stateless,
}

impl StateManager {
    /// Requests the file's size from the holder of another client's write delegation; `None` if there is no
    /// such delegation or its holder hasn't written. The file's own attributes, which the caller reads then,
    /// have changed if it has. A holder that doesn't answer loses the delegation. Waits for at most 2 s.
    ///
    /// # Errors
    /// `Delay` while the delegation isn't back.
    pub(crate) fn size_at_holder(
        &self,
        reader: AttributeReader,
        cx: &CallContext<'_>,
        user_context: &UserContext<'_>,
        node: &Node,
    ) -> Result<Option<u64>, Error> {
        let by = match reader {
            AttributeReader::Session(client) => Some(client),
            AttributeReader::V40(_) | AttributeReader::Stateless => None,
        };
        let key = node.handle();
        let Some((holder, granted)) = self.write_delegation(by, node) else { return Ok(None) };
        if let AttributeReader::V40(address) = reader
            && granted.holder_v40 == Some(address)
        {
            return Ok(None);
        }
        cx.will_block();
        let args = CbGetattr4Args { fh: Opaque(key.as_bytes()), attr_request: REQUESTED };
        let answer =
            self.callbacks.call(holder, CallbackOperation::new(CB_GETATTR, &args), CB_GETATTR_TIMEOUT);
        // With the change attribute from then, a holder that has told the server everything may answer the
        // size that the file has now.
        let is_size_known =
            |size| size == granted.size || user_context.attributes(node).is_ok_and(|now| now.size == size);
        match answer.ok().and_then(|body| change_and_size(&body)) {
            Some((change, size)) if change == granted.change && is_size_known(size) => Ok(None),
            Some((_, size)) => {
                // A file that can't be touched can't have been written to either.
                let _ = user_context.touch(node);
                Ok(Some(size))
            }
            None => self.check_conflicts(by, key, AccessKind::Read).map(|()| None),
        }
    }

    /// Whether any client has a write delegation of this file: its size and times may be outdated then.
    pub(crate) fn is_write_delegated(&self, node: &Node) -> bool {
        self.write_delegation(None, node).is_some()
    }

    fn write_delegation(&self, by: Option<ClientId>, node: &Node) -> Option<(ClientId, GrantedAttributes)> {
        if !self.has_write_delegations() {
            return None;
        }
        let writer = self.run(|engine, _| engine.write_delegation(by, node.handle()))?;
        let granted = writer.resources.granted.get()?;
        Some((writer.client, *granted))
    }
}

impl Context<'_> {
    /// As [`StateManager::size_at_holder`], if the answer matters for the `requested` attributes.
    pub fn size_at_holder(
        &self,
        user_context: &UserContext<'_>,
        node: &Node,
        requested: &Bitmap4,
    ) -> status::Result<Option<u64>> {
        if requested.and(&CHANGED_BY_DATA).is_empty() {
            return Ok(None);
        }
        let v40 = || AttributeReader::V40(self.cx.peer.address.ip());
        let reader = self.own_client().map_or_else(v40, AttributeReader::Session);
        self.service.state.size_at_holder(reader, self.cx, user_context, node).map_err(status::of_state)
    }
}

/// The change attribute and the size in a CB_GETATTR answer.
fn change_and_size(body: &[u8]) -> Option<(u64, u64)> {
    let CbGetattr4ResOk { obj_attributes } = Decoder::new(body).get().ok()?;
    if !REQUESTED.without(&obj_attributes.attrmask).is_empty() {
        return None;
    }
    // They come first, unless the client adds an attribute before them that wasn't requested.
    let first = obj_attributes.attrmask.iter().next();
    let mut values = Decoder::new(obj_attributes.attr_vals.0);
    let found = (values.u64().ok()?, values.u64().ok()?);
    (first == Some(number::CHANGE)).then_some(found)
}
