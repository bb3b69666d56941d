//! NFSv4.0's own: the operations that number an owner's requests are run once for each number, and a retry
//! gets the same answer (RFC 7530 section 9.1.7). The operations themselves are those of every minor version.

use std::sync::Arc;

use proto::nfs4::{
    Close4Args, Lock4Args, Locker4, Locku4Args, Nfsstat4, Open4Args, OpenConfirm4Args, OpenDowngrade4Args,
    Operation, Stateid4,
};
use state::{ClientId, OwnerRequest, Requester, StateId, StateOwner};
use xdr::Decoder;

use super::compound::{Compound, Step};
use super::object::Object;
use super::ops::handles;
use super::{Result, dispatch, status};

/// Whether an operation carries an owner's number.
pub(super) const fn is_numbered(operation: Operation) -> bool {
    use Operation as Op;
    matches!(operation, Op::Open | Op::OpenConfirm | Op::OpenDowngrade | Op::Close | Op::Lock | Op::Locku)
}

/// An owner's request.
struct Request {
    by: Requester,
    owner: StateOwner,
    seqid: u32,
    /// The open that CLOSE closes.
    closes: Option<StateId>,
}

/// Runs an operation that carries an owner's number.
pub(super) fn run(c: &mut Compound<'_>, operation: Operation, args: &mut Decoder<'_>) -> Step {
    let mut behind = *args;
    let request = match who(c, operation, &mut behind) {
        Ok(request) => request,
        Err(status) => return Step::Done(Err(status)),
    };
    let Request { by, owner, seqid, closes } = &request;
    let opens = operation == Operation::Open;
    let begun = c.service.state.run(|engine, now| engine.owner_begin(now, by, owner, *seqid, opens));
    match begun {
        Err(error) => return Step::Done(Err(status::of_state(error))),
        Ok(OwnerRequest::Replay(kept)) => {
            *args = behind;
            return again(c, &kept);
        }
        Ok(OwnerRequest::New) => {}
    }
    let start = c.reply.encoder().position();
    let done = dispatch::run(c, operation, args);
    let kept = done.as_ref().err().is_none_or(|status| counts(*status)).then(|| {
        let handle = match (&c.current, opens && done.is_ok()) {
            (Some(Object::File(file)), true) => file.node.handle().as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let status = done.as_ref().err().copied().unwrap_or(Nfsstat4::Ok) as u32;
        let body = if done.is_ok() { &c.reply.encoder().as_slice()[start..] } else { &c.failure };
        let parts = [&[handle.len() as u8][..], &handle, &status.to_be_bytes(), body];
        Arc::from(parts.concat())
    });
    c.service.state.run(|engine, _| {
        engine.owner_end(by, owner, *seqid, kept);
        if let (Some(id), true) = (closes, done.is_ok()) {
            engine.remember_closed_open(by.client, id, owner);
        }
    });
    Step::Done(done)
}

/// What was answered before: the handle that became the current one, the status, and what followed it.
fn again(c: &mut Compound<'_>, kept: &[u8]) -> Step {
    let Some((length, rest)) = kept.split_first() else { return Step::Done(Err(Nfsstat4::Serverfault)) };
    let (handle, answer) = rest.split_at(usize::from(*length));
    if !handle.is_empty()
        && let Err(status) = handles::set_handle(c, handle)
    {
        return Step::Done(Err(status));
    }
    let (status, body) = answer.split_at(xdr::UNIT);
    match Decoder::new(status).get() {
        Ok(Nfsstat4::Ok) => {
            c.reply.encoder().raw(body);
            Step::Done(Ok(()))
        }
        Ok(status) => {
            c.failure = body.to_vec();
            Step::Done(Err(status))
        }
        Err(_) => Step::Done(Err(Nfsstat4::Serverfault)),
    }
}

/// Whose request it is, and its number.
fn who(c: &Compound<'_>, operation: Operation, args: &mut Decoder<'_>) -> Result<Request> {
    let by_state = |id: Stateid4, seqid, closes: bool| {
        let id = StateId { seqid: id.seqid, other: id.other };
        let principal = c.principal();
        let found = c.service.state.run(|engine, now| engine.owner_of(now, &id, &principal));
        let (client, owner) = found.map_err(status::of_state)?;
        Ok(Request { by: Requester { client, principal }, owner, seqid, closes: closes.then_some(id) })
    };
    c.object()?;
    let bad = |_: xdr::Error| Nfsstat4::Badxdr;
    match operation {
        Operation::Open => {
            let args: Open4Args<'_> = args.get().map_err(bad)?;
            let owner = StateOwner::Open(args.owner.owner.0.to_vec());
            Ok(Request {
                by: c.requester(ClientId(args.owner.clientid)),
                owner,
                seqid: args.seqid,
                closes: None,
            })
        }
        Operation::OpenConfirm => {
            let args: OpenConfirm4Args = args.get().map_err(bad)?;
            by_state(args.open_stateid, args.seqid, false)
        }
        Operation::OpenDowngrade => {
            let args: OpenDowngrade4Args = args.get().map_err(bad)?;
            by_state(args.open_stateid, args.seqid, false)
        }
        Operation::Close => {
            let args: Close4Args = args.get().map_err(bad)?;
            by_state(args.open_stateid, args.seqid, true)
        }
        Operation::Lock => {
            let args: Lock4Args<'_> = args.get().map_err(bad)?;
            match args.locker {
                Locker4::New(new) => by_state(new.open_stateid, new.open_seqid, false),
                Locker4::Existing(existing) => by_state(existing.lock_stateid, existing.lock_seqid, false),
            }
        }
        _ => {
            let args: Locku4Args = args.get().map_err(bad)?;
            by_state(args.lock_stateid, args.seqid, false)
        }
    }
}

/// Whether a failure with this status uses its number up (RFC 7530 section 9.1.7).
const fn counts(status: Nfsstat4) -> bool {
    !matches!(
        status,
        Nfsstat4::StaleClientid
            | Nfsstat4::StaleStateid
            | Nfsstat4::BadStateid
            | Nfsstat4::BadSeqid
            | Nfsstat4::Badxdr
            | Nfsstat4::Resource
            | Nfsstat4::Nofilehandle
            | Nfsstat4::Moved
    )
}
