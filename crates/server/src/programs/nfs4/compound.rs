//! A COMPOUND: its operations one after the other, until one fails (RFC 8881 sections 2.10.6.1, 15.2, 16.2).
//!
//! Operations are decoded as they come, so that what is wrong with the third one doesn't keep the first two
//! from being done. A request of a session is bounded by it: a reply that would become too long is cut to the
//! operation that made it so.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use proto::nfs4::{self, Bitmap4, MAX_TAG, MinorVersion, Nfsstat4, Operation, Stateid4};
use rpc::message::Credential;
use rpc::server::{CallContext, CallError, Reply};
use state::{Principal, SlotRequest};
use xdr::{Decoder, Encode, Encoder, Opaque};

use super::effect::{self, Effect};
use super::object::Object;
use super::room::MAX_OPERATIONS;
use super::{Result, dispatch, v40};
use crate::programs::drc::{Key, Seen};
use crate::service::Service;

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
    pub ticket: Option<SlotRequest>,
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
    pub once: Option<crate::programs::drc::Ticket<'a>>,
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
                service.state.run(|engine, _| engine.finish(&ticket, cache_this.then_some(results)));
            }
        }
    }
    Ok(())
}

/// Answers a COMPOUND with "later", at its first operation.
pub(super) fn postpone(args: &mut Decoder<'_>, reply: &mut Reply) -> std::result::Result<(), CallError> {
    let tag: Opaque<'_, MAX_TAG> = args.get()?;
    let (_minor, operations) = (args.u32()?, args.u32()?);
    let to = reply.encoder();
    to.put(&Nfsstat4::Delay);
    to.put(&tag);
    to.u32(operations.min(1));
    if operations > 0 {
        to.u32(args.u32()?);
        to.put(&Nfsstat4::Delay);
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
            let operation = Operation::of(number, self.minor);
            let to = self.reply.encoder();
            to.u32(operation.map_or(nfs4::ILLEGAL, Operation::number));
            let status_at = to.position();
            to.put(&Nfsstat4::Ok);
            let done = match operation {
                None => Err(Nfsstat4::OpIllegal),
                Some(operation) => match self.step(operation, args) {
                    Step::Done(done) => done.and_then(|()| self.check_answer(operation, status_at)),
                    Step::Again(reply) => return Ok(Ended::Again(reply)),
                    Step::Drop => return Err(CallError::Drop),
                },
            };
            if let Some(operation) = operation {
                self.service.counters.nfs4(operation).count(done.is_err(), std::mem::take(&mut self.moved));
            }
            let Err(status) = done else { continue };
            let status = self.fail(operation, status, status_at);
            return Ok(Ended::With(status));
        }
        Ok(Ended::With(Nfsstat4::Ok))
    }

    /// Whether the answer that an operation has put after its status, at `status_at`, fits. Of one that has
    /// changed something that was checked before: now it must be answered.
    fn check_answer(&mut self, operation: Operation, status_at: usize) -> Result<()> {
        let Effect::Changes { answer, .. } = effect::of(operation) else { return self.check_room(0) };
        let length = self.reply.encoder().position() - status_at - xdr::UNIT;
        debug_assert!(length <= answer, "{operation:?} answers {length} bytes");
        Ok(())
    }

    /// Puts a failure in the place of the result at `status_at`; the status that it has got.
    fn fail(&mut self, operation: Option<Operation>, status: Nfsstat4, status_at: usize) -> Nfsstat4 {
        let mut body = std::mem::take(&mut self.failure);
        if operation == Some(Operation::Setattr) {
            // A failure says, too, which attributes were set: none.
            body = encoded(&Bitmap4::EMPTY);
        }
        self.reply.encoder().truncate(status_at + xdr::UNIT);
        // Nothing follows it.
        self.operations = self.index;
        let status = match self.check_room(body.len()) {
            Ok(()) => status,
            Err(too_long) => {
                body.clear();
                too_long
            }
        };
        let to = self.reply.encoder();
        to.patch_u32(status_at, status as u32);
        to.raw(&body);
        status
    }

    fn step(&mut self, operation: Operation, args: &mut Decoder<'_>) -> Step {
        if let Err(status) = self.check_place(operation) {
            return Step::Done(Err(status));
        }
        let (answer, once) = match effect::of(operation) {
            Effect::Changes { answer, once } => (answer, once),
            Effect::None | Effect::Refused => (0, false),
        };
        if let Err(status) = self.check_room(answer) {
            return Step::Done(Err(status));
        }
        if self.minor == MinorVersion::V0 && self.once.is_none() && once {
            // What came before it in the request can be done twice.
            let key = Key::new(self.cx, nfs4::PROGRAM, nfs4::COMPOUND, self.request);
            match self.service.drc.begin(key) {
                Seen::Before(reply) => return Step::Again(reply),
                Seen::InProgress => return Step::Drop,
                Seen::New(ticket) => self.once = Some(ticket),
            }
            // From here on the reply is one to be remembered.
            if let Err(status) = self.check_room(answer) {
                return Step::Done(Err(status));
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

    /// Which operations need a session before them, and which stand alone (RFC 8881 sections 2.10.2.1,
    /// 18.x.3).
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
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    value.encode(&mut to);
    to.into_vec()
}

/// Tells a request from another in the same slot.
fn fingerprint(request: &[u8], credential: &Credential) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(&request[..request.len().min(FINGERPRINT)]);
    hasher.write_usize(request.len());
    principal(credential).hash(&mut hasher);
    hasher.finish()
}

/// Whose request it is: what clients, sessions and states are told by whose they are.
pub(super) fn principal(credential: &Credential) -> Principal {
    match credential {
        Credential::None => Principal::Anonymous,
        Credential::Sys(sys) => Principal::Sys(sys.uid),
    }
}
