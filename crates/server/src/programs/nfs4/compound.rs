//! The execution of a COMPOUND: its operations one after the other, until one fails (RFC 8881 sections
//! 2.10.6.1, 15.2, 16.2).
//!
//! An operation is decoded when its turn comes: an error in the third one doesn't keep the first two from
//! being executed. [`operations`] says what holds for each.

use std::fmt::Debug;
use std::sync::Arc;

use proto::nfs4::{self, Bitmap4, MAX_TAG, MinorVersion, Nfsstat4, Operation};
use rpc::server::{CallContext, CallError, Reply};
use xdr::{Decoder, Encode, Encoder, Opaque};

use super::context::{Context, Fingerprint};
use super::object::Object;
use super::operations::{self, MaxResult, OperationSpec, Standing};
use super::owner_seqid;
use super::status::Result;
use crate::programs::request::data_path;
use crate::service::Service;
use crate::service::cluster_gate::{CallEntry, ClusterGate};
use crate::service::drc::{self, Key, Seen};
use crate::service::limits::MAX_OPERATIONS;
use crate::status::counters::{BegunCall, CallEnd, CountedOperation};

/// A COMPOUND in execution.
struct Compound<'a> {
    context: Context<'a>,
    /// The request, by which the duplicate-request cache knows a retransmission.
    request: &'a [u8],
    /// The request's entry in that cache, which keeps the reply if [`Context::drc_keeps`] says so.
    drc_entry: Option<drc::Ticket<'a>>,
}

/// Why a COMPOUND ends before the end of its operations.
enum Stop {
    /// An operation has failed.
    Failed(Nfsstat4),
    /// The request is a retransmission: this is its reply.
    Replay(Arc<[u8]>),
    /// The request of 4.0 is a retransmission of one in execution. Silence isn't allowed: the client doesn't
    /// repeat a call while the connection lasts (RFC 7530 section 3.1.1). An error would be wrong: the
    /// operation is executed, and its answer is what uses up the owner's sequence number, if it has one.
    Running,
}

impl From<Nfsstat4> for Stop {
    fn from(status: Nfsstat4) -> Self {
        Self::Failed(status)
    }
}

/// How a COMPOUND ended.
enum End {
    With(Nfsstat4),
    Replay(Arc<[u8]>),
}

/// Executes a COMPOUND.
pub(super) fn run(
    service: &Arc<Service>,
    cx: &CallContext<'_>,
    args: &mut Decoder<'_>,
    reply: &mut Reply,
) -> std::result::Result<(), CallError> {
    let entry = service.cluster.as_ref().map(|gate| gate.enter());
    match &entry {
        Some(CallEntry::Refused) => return Err(CallError::Disconnect),
        Some(CallEntry::Postponed) => return postpone(args, reply),
        Some(CallEntry::Executed { .. }) | None => {}
    }
    let request = args.rest();
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
    if minor == MinorVersion::V0 && service.cluster.as_ref().is_some_and(|gate| !gate.has_v40) {
        // Its clients never say that they have reclaimed everything: grace would take its whole time.
        to.patch_u32(start, Nfsstat4::MinorVersMismatch as u32);
        return Ok(());
    }
    // The engine checks that of a session.
    if minor == MinorVersion::V0 && operations > MAX_OPERATIONS {
        to.patch_u32(start, Nfsstat4::Resource as u32);
        return Ok(());
    }
    let fingerprint = Fingerprint::of(request.len(), minor, (operations, args.rest()), cx.credential);
    let context = Context::new(service, cx, minor, operations, fingerprint, reply, start);
    let mut compound = Compound { context, request, drc_entry: None };
    let end = compound.run(args)?;
    let Compound { context: Context { ticket, cache_this, drc_keeps, index, reply, .. }, drc_entry, .. } =
        compound;
    let is_answered = service.cluster.as_ref().is_none_or(ClusterGate::is_open);
    match end {
        End::Replay(kept) => {
            reply.encoder().truncate(start);
            reply.encoder().raw(&kept);
        }
        End::With(status) => {
            reply.encoder().patch_u32(start, status as u32);
            reply.encoder().patch_u32(count_at, index);
            if let Some(entry) = drc_entry.filter(|_| drc_keeps) {
                entry.finish(reply.results());
            }
            if let Some(ticket) = ticket {
                let results = reply.results();
                service.state.run(|engine, _| engine.finish(&ticket, cache_this.then_some(results)));
            }
        }
    }
    if is_answered { Ok(()) } else { Err(CallError::Disconnect) }
}

/// Answers a COMPOUND with NFS4ERR_DELAY, at its first operation.
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

impl Compound<'_> {
    fn run(&mut self, args: &mut Decoder<'_>) -> std::result::Result<End, CallError> {
        let mut begun = BegunCall::now();
        while self.context.index < self.context.operations {
            if self.context.index > 0 {
                begun = begun.next_operation();
            }
            let number = args.u32()?;
            self.context.index += 1;
            let spec = operations::find(number, self.context.minor);
            let to = self.context.reply.encoder();
            to.u32(spec.map_or(nfs4::ILLEGAL, |spec| spec.operation.number()));
            let status_at = to.position();
            to.put(&Nfsstat4::Ok);
            let done = match spec {
                None => Err(Nfsstat4::OpIllegal),
                Some(spec) => match self.step(spec, args) {
                    Ok(()) => self.check_result(spec, status_at),
                    Err(Stop::Failed(status)) => Err(status),
                    Err(Stop::Replay(reply)) => return Ok(End::Replay(reply)),
                    Err(Stop::Running) => return Err(CallError::Disconnect),
                },
            };
            if let Some(spec) = spec {
                let end = CallEnd {
                    operation: CountedOperation::Nfs4(spec.operation),
                    data_path: data_path(self.context.cx),
                    failure: done.as_ref().err().map(|status| (*status as u32, status as &dyn Debug)),
                    bytes: std::mem::take(&mut self.context.moved),
                };
                self.context.service.counters.record_reply(begun, &end, self.context.reply);
            }
            let name = spec.map_or("ILLEGAL", |spec| spec.operation.name());
            tracing::debug!(operation = name, status = ?done.err().unwrap_or(Nfsstat4::Ok), "operation");
            let Err(status) = done else { continue };
            let status = self.fail(spec, status, status_at);
            return Ok(End::With(status));
        }
        Ok(End::With(Nfsstat4::Ok))
    }

    /// Executes one operation.
    fn step(&mut self, spec: &OperationSpec, args: &mut Decoder<'_>) -> std::result::Result<(), Stop> {
        let c = &mut self.context;
        let is_first = c.index == 1;
        spec.check_position(Standing {
            minor: c.minor,
            is_first,
            is_only: is_first && c.operations == 1,
            in_session: c.ticket.is_some(),
        })?;
        if spec.needs_handle && !spec.reads_attributes() && c.current.as_ref().is_some_and(Object::is_absent)
        {
            return Err(Nfsstat4::Moved.into());
        }
        let needs = match spec.max_result {
            MaxResult::Bytes(length) if spec.changes => length,
            _ => 0,
        };
        c.check_room(needs)?;
        let handler = spec.handler(c.minor)?;
        let find_owner = spec.seqid(c.minor);
        let is_v40 = c.minor == MinorVersion::V0;
        if is_v40 && (spec.cached || find_owner.is_some()) && self.drc_entry.is_none() {
            // The operations before it may be executed twice.
            let is_write = spec.operation == Operation::Write;
            let drc = if is_write { &c.service.write_drc } else { &c.service.drc };
            match drc.begin(Key::new(c.cx, nfs4::PROGRAM, nfs4::COMPOUND, self.request)) {
                Seen::Before(reply) => return Err(Stop::Replay(reply)),
                Seen::InProgress => return Err(Stop::Running),
                Seen::New(entry) => self.drc_entry = Some(entry),
            }
        }
        if is_v40 && spec.cached && !c.drc_keeps {
            // From here on the bound of a reply that is kept applies, too.
            c.drc_keeps = true;
            c.check_room(needs)?;
        }
        match find_owner {
            Some(find_owner) => owner_seqid::run(c, find_owner, handler, args)?,
            None => handler(c, args)?,
        }
        c.replay.take().map_or(Ok(()), |reply| Err(Stop::Replay(reply)))
    }

    /// Whether the result behind the status at `status_at` fits. That of an operation that changes something
    /// was checked before.
    fn check_result(&mut self, spec: &OperationSpec, status_at: usize) -> Result<()> {
        let length = self.context.reply.encoder().position() - status_at - xdr::UNIT;
        if let MaxResult::Bytes(most) = spec.max_result {
            debug_assert!(length <= most, "{}: a result of {length} bytes", spec.operation);
        }
        if spec.changes { Ok(()) } else { self.context.check_room(0) }
    }

    /// Replaces the result at `status_at` by a failure; the status that it got.
    fn fail(&mut self, spec: Option<&OperationSpec>, status: Nfsstat4, status_at: usize) -> Nfsstat4 {
        let c = &mut self.context;
        let mut body = std::mem::take(&mut c.failure);
        if spec.is_some_and(|spec| spec.operation == Operation::Setattr) {
            // SETATTR's failure says which attributes were set: none.
            body = encoded(&Bitmap4::EMPTY);
        }
        c.reply.encoder().truncate(status_at + xdr::UNIT);
        // Nothing follows it.
        c.operations = c.index;
        let status = match c.check_room(body.len()) {
            Ok(()) => status,
            Err(too_long) => {
                body.clear();
                too_long
            }
        };
        let to = c.reply.encoder();
        to.patch_u32(status_at, status as u32);
        to.raw(&body);
        status
    }
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    value.encode(&mut to);
    to.into_vec()
}
