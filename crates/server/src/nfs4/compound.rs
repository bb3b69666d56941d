//! A COMPOUND: its operations one after the other, until one fails (RFC 8881 sections 2.10.6.1, 15.2, 16.2).
//!
//! Operations are decoded as they come, so that what is wrong with the third one doesn't keep the first two from being done. A
//! request of a session is bounded by it: a reply that would become too long is cut to the operation that made it so.

use std::hash::Hasher as _;
use std::sync::Arc;

use proto::nfs4::{self, MAX_TAG, MinorVersion, Nfsstat4, Operation, Stateid4};
use rpc::message::Credential;
use rpc::server::{CallContext, CallError, Reply};
use state::{Asker, ClientId, Ticket};
use xdr::{Decoder, Opaque};

use super::object::{File, Object};
use super::{Result, dispatch, status, v40};
use crate::access::Admission;
use crate::drc::{Key, Seen};
use crate::nfs3::{MAX_TRANSFER, asking};
use crate::service::Service;

/// The largest request of a session: a WRITE of the largest size, and what is around it.
pub(super) const MAX_REQUEST: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply of a session: a READ of the largest size, and what is around it.
pub(super) const MAX_REPLY: u32 = MAX_TRANSFER + (6 << 10);
/// The largest reply that is kept for a retry.
pub(super) const MAX_CACHED_REPLY: u32 = 8 << 10;
/// The most operations in a COMPOUND.
pub(super) const MAX_OPERATIONS: u32 = 128;
/// What RPC puts before a result: counted in a session's bounds.
const RPC_HEADER: usize = 24;
/// Room that a reply must have left before something is changed: what it has to say about that.
const ROOM_TO_CHANGE: usize = 320;
/// How much of a request tells it from another in the same slot.
const FINGERPRINT: usize = 1024;

/// A COMPOUND in execution.
pub(super) struct Compound<'a> {
    pub service: &'a Arc<Service>,
    pub cx: &'a CallContext<'a>,
    pub minor: MinorVersion,
    /// How many operations there are, and which one this is.
    pub operations: u32,
    pub index: u32,
    pub current: Option<Object>,
    pub saved: Option<Object>,
    pub current_stateid: Option<Stateid4>,
    pub saved_stateid: Option<Stateid4>,
    /// The request's place in its session, from SEQUENCE on.
    pub ticket: Option<Ticket>,
    /// The client wants the reply kept.
    pub cache_this: bool,
    pub reply: &'a mut Reply,
    /// Where the results begin in the reply.
    pub start: usize,
    /// Bytes of payload that the operation has moved.
    pub moved: u64,
    /// What follows the status of an operation that failed.
    pub failure: Vec<u8>,
    /// The request, for those that have no session to tell retries by, and its place in their memory.
    pub request: &'a [u8],
    pub once: Option<crate::drc::Ticket<'a>>,
    /// A hash of the request, and its length.
    pub fingerprint: u64,
    pub length: usize,
}

/// How an operation was got through.
pub(super) enum Step {
    /// It was done, or not.
    Done(Result<()>),
    /// The whole request is a retry: this is its reply.
    Again(Arc<[u8]>),
    /// The whole request is a retry of one that is running: its answer serves both.
    Drop,
}

/// Runs a COMPOUND.
pub(super) fn run(
    service: &Arc<Service>,
    cx: &CallContext<'_>,
    args: &mut Decoder<'_>,
    reply: &mut Reply,
) -> std::result::Result<(), CallError> {
    let whole = args.rest();
    let tag: Opaque<'_, MAX_TAG> = args.get()?;
    let minor = args.u32()?;
    let operations = args.u32()?;
    let to = reply.encoder();
    let start = to.position();
    to.put(&Nfsstat4::Ok);
    to.put(&tag);
    let count_at = to.position();
    to.u32(0);
    let Some(minor) = MinorVersion::from_number(minor) else {
        to.patch_u32(start, Nfsstat4::MinorVersMismatch as u32);
        return Ok(());
    };
    // A session says so itself.
    if minor == MinorVersion::V0 && operations > MAX_OPERATIONS {
        to.patch_u32(start, Nfsstat4::Resource as u32);
        return Ok(());
    }
    let mut compound = Compound {
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
        reply,
        start,
        moved: 0,
        failure: Vec::new(),
        request: whole,
        once: None,
        fingerprint: fingerprint(whole, cx.credential),
        length: whole.len(),
    };
    let ended = compound.operations(args);
    let Compound { ticket, cache_this, index, once, reply, .. } = compound;
    match ended? {
        Ended::Again(kept) => {
            reply.encoder().truncate(start);
            reply.encoder().raw(&kept);
        }
        Ended::With(status) => {
            reply.encoder().patch_u32(start, status as u32);
            reply.encoder().patch_u32(count_at, index);
            if let Some(once) = once {
                once.finish(reply.results());
            }
            if let Some(ticket) = ticket {
                let results = reply.results();
                service.nfs4.run(|engine, _| engine.finish(&ticket, cache_this.then_some(results)));
            }
        }
    }
    Ok(())
}

/// How a COMPOUND ended.
enum Ended {
    With(Nfsstat4),
    Again(Arc<[u8]>),
}

impl Compound<'_> {
    fn operations(&mut self, args: &mut Decoder<'_>) -> std::result::Result<Ended, CallError> {
        while self.index < self.operations {
            let number = args.u32()?;
            self.index += 1;
            let begin = self.reply.encoder().position();
            let operation = Operation::from_number(number, self.minor);
            let to = self.reply.encoder();
            to.u32(operation.map_or(nfs4::ILLEGAL, Operation::number));
            let status_at = to.position();
            to.put(&Nfsstat4::Ok);
            let done = match operation {
                None => Err(Nfsstat4::OpIllegal),
                Some(operation) => match self.step(operation, args) {
                    Step::Done(done) => done.and_then(|()| self.check_length()),
                    Step::Again(reply) => return Ok(Ended::Again(reply)),
                    Step::Drop => return Err(CallError::Drop),
                },
            };
            if let Some(operation) = operation {
                self.service.counters.nfs4(operation).count(done.is_err(), std::mem::take(&mut self.moved));
            }
            let Err(status) = done else { continue };
            let to = self.reply.encoder();
            to.truncate(status_at);
            to.put(&status);
            to.raw(&std::mem::take(&mut self.failure));
            debug_assert!(to.position() > begin);
            return Ok(Ended::With(status));
        }
        Ok(Ended::With(Nfsstat4::Ok))
    }

    fn step(&mut self, operation: Operation, args: &mut Decoder<'_>) -> Step {
        if let Err(status) = self.check_place(operation) {
            return Step::Done(Err(status));
        }
        if changes(operation)
            && let Err(status) = self.check_room(ROOM_TO_CHANGE)
        {
            return Step::Done(Err(status));
        }
        if self.minor == MinorVersion::V0 && self.once.is_none() && changes_names(operation) {
            // What came before it in the request can be done twice.
            let key = Key::new(self.cx, nfs4::PROGRAM, nfs4::COMPOUND, self.request);
            match self.service.drc.begin(key) {
                Seen::Before(reply) => return Step::Again(reply),
                Seen::InProgress => return Step::Drop,
                Seen::New(ticket) => self.once = Some(ticket),
            }
        }
        if operation == Operation::Sequence {
            return match args.get() {
                Ok(args) => super::ops::session::sequence(self, &args),
                Err(_) => Step::Done(Err(Nfsstat4::Badxdr)),
            };
        }
        if self.minor == MinorVersion::V0 && v40::is_numbered(operation) {
            return v40::run(self, operation, args);
        }
        Step::Done(dispatch::run(self, operation, args))
    }

    /// Which operations need a session before them, and which stand alone (RFC 8881 sections 2.10.2.1, 18.x.3).
    fn check_place(&self, operation: Operation) -> Result<()> {
        if self.minor == MinorVersion::V0 {
            return Ok(());
        }
        let first = self.index == 1;
        match operation {
            Operation::Sequence if first => Ok(()),
            Operation::Sequence => Err(Nfsstat4::SequencePos),
            _ if self.ticket.is_some() => Ok(()),
            Operation::ExchangeId
            | Operation::CreateSession
            | Operation::BindConnToSession
            | Operation::DestroySession
            | Operation::DestroyClientid
                if first =>
            {
                if self.operations == 1 {
                    Ok(())
                } else {
                    Err(Nfsstat4::NotOnlyOp)
                }
            }
            _ => Err(Nfsstat4::OpNotInSession),
        }
    }

    /// Whether the reply has become longer than the session allows.
    fn check_length(&mut self) -> Result<()> {
        self.check_room(0)
    }

    /// Whether the reply has room for `more` bytes.
    fn check_room(&mut self, more: usize) -> Result<()> {
        let Some(ticket) = &self.ticket else { return Ok(()) };
        let channel = ticket.channel;
        let attached = self.reply.attachment().map_or(0, rpc::server::Attachment::len);
        let length = self.reply.encoder().position() - self.start + RPC_HEADER + attached + more;
        if length > channel.response as usize {
            Err(Nfsstat4::RepTooBig)
        } else if self.cache_this && length > channel.cached as usize {
            Err(Nfsstat4::RepTooBigToCache)
        } else {
            Ok(())
        }
    }

    /// How many bytes the reply may still become longer.
    pub fn room(&mut self) -> usize {
        let Some(ticket) = &self.ticket else { return MAX_REPLY as usize };
        let bound = if self.cache_this {
            ticket.channel.cached.min(ticket.channel.response)
        } else {
            ticket.channel.response
        };
        (bound as usize).saturating_sub(self.reply.encoder().position() - self.start + RPC_HEADER)
    }

    /// The one check for the export that a handle belongs to.
    pub fn admit(&self, handle: &[u8]) -> Result<Admission> {
        self.service.gate.admit(handle, asking(self.cx)).map_err(status::of_refusal)
    }

    /// The current handle's object.
    pub fn object(&self) -> Result<&Object> {
        self.current.as_ref().ok_or(Nfsstat4::Nofilehandle)
    }

    /// The current handle's file; `pseudo` is what is said of a directory that is made up.
    pub fn file(&self, pseudo: Nfsstat4) -> Result<File> {
        match self.object()? {
            Object::File(file) => Ok(file.clone()),
            Object::Pseudo(_) => Err(pseudo),
            Object::Gone(_) => Err(Nfsstat4::Stale),
        }
    }

    /// The saved handle's file.
    pub fn saved_file(&self, pseudo: Nfsstat4) -> Result<File> {
        match self.saved.as_ref().ok_or(Nfsstat4::Nofilehandle)? {
            Object::File(file) => Ok(file.clone()),
            Object::Pseudo(_) => Err(pseudo),
            Object::Gone(_) => Err(Nfsstat4::Stale),
        }
    }

    /// Another current handle. The current state id was for the old one.
    pub fn set_current(&mut self, object: Object) {
        self.current = Some(object);
        self.current_stateid = None;
    }

    /// Who asks: the session's client, or in 4.0 the one that is named.
    pub fn client(&self, named: u64) -> Result<ClientId> {
        match &self.ticket {
            Some(ticket) => Ok(ticket.client),
            None => {
                let client = ClientId(named);
                let known = self.service.nfs4.run(|engine, now| engine.renew40(now, client));
                known.map(|()| client).map_err(status::of_state)
            }
        }
    }

    /// The session's client.
    pub fn session_client(&self) -> Result<ClientId> {
        self.ticket.as_ref().map(|ticket| ticket.client).ok_or(Nfsstat4::OpNotInSession)
    }

    /// Who asks with a state id: in 4.0 nothing else says it.
    pub fn asker(&self, id: &state::StateId) -> Result<Asker> {
        let special = *id == state::StateId::ANONYMOUS || *id == state::StateId::READ_BYPASS;
        match &self.ticket {
            Some(ticket) => Ok(Asker::Client(ticket.client)),
            None if special || self.minor >= MinorVersion::V1 => Ok(Asker::Stateless),
            None => self.owner(id).map(Asker::Client),
        }
    }

    /// The client that a state id, no special one, comes from.
    pub fn owner(&self, id: &state::StateId) -> Result<ClientId> {
        match &self.ticket {
            Some(ticket) => Ok(ticket.client),
            None => self.service.nfs4.run(|engine, now| engine.client_of(now, id)).map_err(status::of_state),
        }
    }

    /// A state id from the client, the current one put in its place (RFC 8881 section 16.2.3.1.2).
    pub fn stateid(&self, from: Stateid4) -> Result<state::StateId> {
        let id = state::StateId { seqid: from.seqid, other: from.other };
        if self.minor >= MinorVersion::V1 && id == state::StateId::CURRENT {
            let current = self.current_stateid.ok_or(Nfsstat4::BadStateid)?;
            return Ok(state::StateId { seqid: current.seqid, other: current.other });
        }
        Ok(id)
    }

    /// A state id for the client, and from now on the current one.
    pub fn give_stateid(&mut self, id: state::StateId) -> Stateid4 {
        let id = Stateid4 { seqid: id.seqid, other: id.other };
        self.current_stateid = Some(id);
        id
    }

    /// Says that a change is coming: where it must be on stable storage before the reply, the call will wait for the disk.
    pub fn before_change(&self, file: &File) {
        if file.admitted.sync {
            self.cx.will_block();
        }
    }

    /// Makes the metadata of `changed` durable where the export is `sync`.
    pub fn commit(&self, file: &File, acting: &store::Acting<'_>, changed: &[&store::Node]) -> Result<()> {
        if file.admitted.sync {
            for node in changed {
                acting.sync_metadata(node).map_err(status::of_store)?;
            }
        }
        Ok(())
    }
}

/// Whether an operation changes something, so that it must be known before it is done that there is room to say so.
const fn changes(operation: Operation) -> bool {
    use Operation as Op;
    matches!(
        operation,
        Op::Open
            | Op::Close
            | Op::Create
            | Op::Remove
            | Op::Rename
            | Op::Link
            | Op::Lock
            | Op::Locku
            | Op::Write
            | Op::Setattr
            | Op::OpenDowngrade
    )
}

/// What can't be done twice, and has no owner's number (4.0).
const fn changes_names(operation: Operation) -> bool {
    use Operation as Op;
    matches!(operation, Op::Create | Op::Remove | Op::Rename | Op::Link | Op::Setattr)
}

/// Tells a request from another in the same slot.
fn fingerprint(request: &[u8], credential: &Credential) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(&request[..request.len().min(FINGERPRINT)]);
    hasher.write_usize(request.len());
    hasher.write(&principal(credential));
    hasher.finish()
}

/// Whose request it is: what a client's and a session's owner is told by.
pub(super) fn principal(credential: &Credential) -> Vec<u8> {
    match credential {
        Credential::None => Vec::new(),
        Credential::Sys(sys) => sys.uid.to_be_bytes().to_vec(),
    }
}
