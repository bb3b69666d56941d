//! The state that a COMPOUND's operations share: the current and the saved object, the state ids that belong
//! to them, the session, the caller and the reply.
//!
//! It lives as long as its COMPOUND. Operations depend on it and not on one another.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::{Arc, LazyLock};

use proto::nfs4::{MinorVersion, Nfsstat4, Stateid4};
use rpc::message::Credential;
use rpc::server::{CallContext, Reply, TcpOwner};
use state::{ClientId, Principal, Requester, SlotRequest};
use store::FileHandle;
use xdr::Decoder;

use super::object::{File, Object};
use super::status::{self, Result};
use crate::authorization::access::ExportAccess;
use crate::programs::nfs3::requester;
use crate::service::Service;

/// An operation: it decodes its arguments and appends the body of its result to the reply, unless it fails.
pub(super) type Handler = fn(&mut Context<'_>, &mut Decoder<'_>) -> Result<()>;

/// The state that a COMPOUND's operations share.
pub(super) struct Context<'a> {
    pub service: &'a Arc<Service>,
    pub cx: &'a CallContext<'a>,
    pub minor: MinorVersion,
    /// The number of operations, and that of the one that is executed, from 1.
    pub operations: u32,
    pub index: u32,
    pub current: Option<Object>,
    pub saved: Option<Object>,
    pub current_stateid: Option<Stateid4>,
    pub saved_stateid: Option<Stateid4>,
    /// The request's slot in its session, from SEQUENCE on.
    pub ticket: Option<SlotRequest>,
    /// `sa_cachethis`: the session keeps the reply.
    pub cache_this: bool,
    /// The duplicate-request cache keeps the reply (4.0).
    pub drc_keeps: bool,
    /// SEQUENCE has found that the request is a retransmission: the reply that its slot has kept.
    pub replay: Option<Arc<[u8]>>,
    pub reply: &'a mut Reply,
    /// Where COMPOUND's results begin in the reply.
    pub start: usize,
    /// Bytes of payload that the operation has read or written.
    pub moved: u64,
    /// What follows the status of an operation that fails.
    pub failure: Vec<u8>,
    pub fingerprint: Fingerprint,
}

/// The hasher of [`Fingerprint`], with keys of this process.
static HASHER: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);

/// Tells a request from another one in the same slot. SEQUENCE is left out: the session compares its session,
/// slot and sequence id, and `sa_highest_slotid` is the client's highest slot at the moment of sending, which
/// may be another one when the request is sent again (RFC 8881 section 18.46.3).
#[derive(Debug, Clone, Copy)]
pub(super) struct Fingerprint {
    pub hash: u64,
    /// In bytes.
    pub length: usize,
}

impl Fingerprint {
    /// How much of the operations is hashed, in bytes.
    const HASHED: usize = 1024;
    /// The length of SEQUENCE with its arguments, in bytes.
    const SEQUENCE: usize = 36;

    /// The fingerprint of a request of `length` bytes. `operations` are so many, undecoded; the first one is
    /// SEQUENCE.
    pub fn of(
        length: usize,
        minor: MinorVersion,
        (count, operations): (u32, &[u8]),
        credential: &Credential,
    ) -> Self {
        let behind = operations.get(Self::SEQUENCE..).unwrap_or_default();
        let mut hasher = HASHER.build_hasher();
        hasher.write(&behind[..behind.len().min(Self::HASHED)]);
        (length, minor as u32, count).hash(&mut hasher);
        claimed_principal(credential).hash(&mut hasher);
        Self { hash: hasher.finish(), length }
    }
}

/// The caller of an operation on a state id, and the file that the state is on.
pub(super) struct Operand {
    pub by: Requester,
    pub file: FileHandle,
}

impl<'a> Context<'a> {
    /// The context of a COMPOUND of so many `operations`, whose results begin at `start` in `reply`.
    pub fn new(
        service: &'a Arc<Service>,
        cx: &'a CallContext<'a>,
        minor: MinorVersion,
        operations: u32,
        fingerprint: Fingerprint,
        reply: &'a mut Reply,
        start: usize,
    ) -> Self {
        Self {
            service,
            cx,
            minor,
            operations,
            index: 0,
            current: None,
            saved: None,
            current_stateid: None,
            saved_stateid: None,
            ticket: None,
            cache_this: false,
            drc_keeps: false,
            replay: None,
            reply,
            start,
            moved: 0,
            failure: Vec::new(),
            fingerprint,
        }
    }
}

impl Context<'_> {
    /// The one check for the export that a handle belongs to.
    pub fn admit(&self, handle: &[u8]) -> Result<ExportAccess> {
        self.service.access.admit(handle, requester(self.cx)).map_err(status::of_refusal)
    }

    /// The current handle's object.
    pub fn object(&self) -> Result<&Object> {
        self.current.as_ref().ok_or(Nfsstat4::Nofilehandle)
    }

    /// The current handle, for trace events; none of an object that can't be read or written.
    pub fn data_handle(&self) -> Option<FileHandle> {
        match &self.current {
            Some(Object::File(file)) => Some(*file.node.handle()),
            _ => None,
        }
    }

    /// The current handle's file; `pseudo` is the error for a directory of the pseudo-filesystem.
    pub fn file(&self, pseudo: Nfsstat4) -> Result<File> {
        file_of(self.object()?, pseudo)
    }

    /// The saved handle's file; `pseudo` is the error for a directory of the pseudo-filesystem.
    pub fn saved_file(&self, pseudo: Nfsstat4) -> Result<File> {
        file_of(self.saved.as_ref().ok_or(Nfsstat4::Nofilehandle)?, pseudo)
    }

    /// Replaces the current handle. The current state id belonged to the old one.
    pub fn set_current(&mut self, object: Object) {
        self.current = Some(object);
        self.current_stateid = None;
    }

    /// The caller's client id: the session's, or in 4.0 the `named` one, whose lease is renewed.
    pub fn client(&self, named: u64) -> Result<ClientId> {
        match &self.ticket {
            Some(ticket) => Ok(ticket.client),
            None => {
                let client = ClientId(named);
                let known = self.service.state.run(|engine, now| engine.renew40(now, client));
                known.map(|()| client).map_err(status::of_state)
            }
        }
    }

    /// The session's client.
    pub fn session_client(&self) -> Result<ClientId> {
        self.own_client().ok_or(Nfsstat4::OpNotInSession)
    }

    /// The client whose own delegations don't conflict with its requests. A request of 4.0 doesn't say which
    /// client it comes from.
    pub fn own_client(&self) -> Option<ClientId> {
        self.ticket.as_ref().map(|ticket| ticket.client)
    }

    /// The principal of the request: the credential's user, or where the server doesn't believe the
    /// credential, the user whose process sent it.
    pub fn principal(&self) -> Principal {
        let owner = self.cx.peer.owner;
        match (claimed_principal(self.cx.credential), owner) {
            (Principal::Sys(claimed), _) if self.service.access.believes(owner, claimed) => {
                Principal::Sys(claimed)
            }
            (Principal::Sys(_), TcpOwner::User(user)) => Principal::Sys(user),
            (Principal::Anonymous | Principal::Sys(_), _) => Principal::Anonymous,
        }
    }

    /// A client, with the principal of the request.
    pub fn requester(&self, client: ClientId) -> Requester {
        Requester { client, principal: self.principal() }
    }

    /// The client of an operation that reads or writes by a state id. In 4.0 only the state id names it.
    pub fn io_client(&self, id: &state::StateId) -> Result<Option<ClientId>> {
        match &self.ticket {
            Some(ticket) => Ok(Some(ticket.client)),
            None if is_special(id) || self.minor >= MinorVersion::V1 => Ok(None),
            None => self.stateid_client(id).map(Some),
        }
    }

    /// The client that a state id, which isn't a special one, comes from.
    fn stateid_client(&self, id: &state::StateId) -> Result<ClientId> {
        match &self.ticket {
            Some(ticket) => Ok(ticket.client),
            None => self.service.state.run(|engine, now| engine.client_of(now, id)).map_err(status::of_state),
        }
    }

    /// The caller of an operation on a state id, and the current handle's file, which may have been removed.
    pub fn operand(&self, id: &state::StateId) -> Result<Operand> {
        let file = match self.object()? {
            Object::File(file) => *file.node.handle(),
            Object::Gone(handle) => *handle,
            Object::Pseudo(_) => return Err(Nfsstat4::BadStateid),
        };
        Ok(Operand { by: self.requester(self.stateid_client(id)?), file })
    }

    /// A state id of the arguments. The special one for "the current state id" is replaced by that (RFC 8881
    /// section 16.2.3.1.2).
    pub fn stateid(&self, from: Stateid4) -> Result<state::StateId> {
        let id = state::StateId { seqid: from.seqid, other: from.other };
        if self.minor >= MinorVersion::V1 && id == state::StateId::CURRENT {
            let current = self.current_stateid.ok_or(Nfsstat4::BadStateid)?;
            return Ok(state::StateId { seqid: current.seqid, other: current.other });
        }
        Ok(id)
    }

    /// Makes a state id the current one; as it goes into the result.
    pub fn set_stateid(&mut self, id: state::StateId) -> Stateid4 {
        let id = Stateid4 { seqid: id.seqid, other: id.other };
        self.current_stateid = Some(id);
        id
    }

    /// Tells the RPC server that the call is about to wait for the disk, if a change of this export must be
    /// on stable storage before the reply.
    pub fn expect_sync(&self, file: &File) {
        if file.admitted.sync {
            self.cx.will_block();
        }
    }

    /// Puts the metadata of `changed` on stable storage if the export is `sync`.
    pub fn sync_metadata(
        &self,
        file: &File,
        user_context: &store::UserContext<'_>,
        changed: &[&store::Node],
    ) -> Result<()> {
        if file.admitted.sync {
            for node in changed {
                user_context.sync_metadata(node).map_err(status::of_store)?;
            }
        }
        Ok(())
    }
}

/// Whether a state id stands for no state at all (RFC 8881 section 8.2.3).
pub(super) fn is_special(id: &state::StateId) -> bool {
    *id == state::StateId::ANONYMOUS || *id == state::StateId::READ_BYPASS
}

fn file_of(object: &Object, pseudo: Nfsstat4) -> Result<File> {
    match object {
        Object::File(file) => Ok(file.clone()),
        Object::Pseudo(_) => Err(pseudo),
        Object::Gone(_) => Err(Nfsstat4::Stale),
    }
}

/// The principal that a credential claims.
fn claimed_principal(credential: &Credential) -> Principal {
    match credential {
        Credential::None => Principal::Anonymous,
        Credential::Sys(sys) => Principal::Sys(sys.uid),
    }
}
