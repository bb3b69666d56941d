//! Owners' sequence numbers of NFSv4.0 (RFC 7530 section 9.1.7): an operation that carries one is executed
//! once for each number, and a retransmission gets the same answer.
//!
//! The operations themselves are those of every minor version.

use std::sync::Arc;

use proto::nfs4::{Nfsstat4, Stateid4};
use state::{OwnerRequest, Requester, StateId, StateOwner};
use xdr::Decoder;

use super::context::{Context, Handler};
use super::lookup;
use super::object::Object;
use super::status::{self, Result};

/// Finds an operation's owner and its sequence number in the arguments.
pub(super) type FindOwner = fn(&Context<'_>, &mut Decoder<'_>) -> Result<SeqidRequest>;

/// A request that an owner's sequence number orders.
pub(super) struct SeqidRequest {
    pub by: Requester,
    pub owner: StateOwner,
    pub seqid: u32,
    pub effect: OwnerEffect,
}

/// What an owner's request does to its opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnerEffect {
    /// OPEN: it may make a new owner, and the file becomes the current one.
    Opens,
    /// CLOSE of this open.
    Closes(StateId),
    Neither,
}

impl SeqidRequest {
    /// A request of the owner that a state id belongs to.
    ///
    /// # Errors
    /// Those of the state id.
    pub fn of_stateid(c: &Context<'_>, id: Stateid4, seqid: u32) -> Result<Self> {
        let id = StateId { seqid: id.seqid, other: id.other };
        let principal = c.principal();
        let found = c.service.state.run(|engine, now| engine.owner_of(now, &id, &principal));
        let (client, owner) = found.map_err(status::of_state)?;
        Ok(Self { by: Requester { client, principal }, owner, seqid, effect: OwnerEffect::Neither })
    }
}

/// Runs an operation that carries an owner's sequence number.
///
/// # Errors
/// The operation's, `BadSeqid`, and those of a state id or client that isn't known.
pub(super) fn run(
    c: &mut Context<'_>,
    find_owner: FindOwner,
    handler: Handler,
    args: &mut Decoder<'_>,
) -> Result<()> {
    c.object()?;
    let mut behind = *args;
    let SeqidRequest { by, owner, seqid, effect } = &find_owner(c, &mut behind)?;
    let opens = *effect == OwnerEffect::Opens;
    let begun = c.service.state.run(|engine, now| engine.owner_begin(now, by, owner, *seqid, opens));
    if let OwnerRequest::Replay(kept) = begun.map_err(status::of_state)? {
        *args = behind;
        return replay(c, &kept);
    }
    let start = c.reply.encoder().position();
    let done = handler(c, args);
    let kept = done.as_ref().err().is_none_or(|status| uses_seqid(*status)).then(|| {
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
        if let (OwnerEffect::Closes(id), true) = (effect, done.is_ok()) {
            engine.remember_closed_open(by.client, id, owner);
        }
    });
    done
}

/// Repeats an answer: the handle that became the current one, the status, and what followed it.
fn replay(c: &mut Context<'_>, kept: &[u8]) -> Result<()> {
    let (length, rest) = kept.split_first().ok_or_else(damaged)?;
    let (handle, answer) = rest.split_at(usize::from(*length));
    if !handle.is_empty() {
        let opened = lookup::object_of_handle(c, handle)?;
        c.set_current(opened);
    }
    let (status, body) = answer.split_at(xdr::UNIT);
    match Decoder::new(status).get() {
        Ok(Nfsstat4::Ok) => {
            c.reply.encoder().raw(body);
            Ok(())
        }
        Ok(status) => {
            c.failure = body.to_vec();
            Err(status)
        }
        Err(_) => Err(damaged()),
    }
}

/// The status for a kept answer that isn't as [`run`] has made it.
fn damaged() -> Nfsstat4 {
    tracing::error!("the answer that is kept for an open or lock owner can't be decoded");
    Nfsstat4::Serverfault
}

/// Whether a failure with this status uses its sequence number up (RFC 7530 section 9.1.7).
const fn uses_seqid(status: Nfsstat4) -> bool {
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
