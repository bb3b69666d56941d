//! SEQUENCE: exactly-once by slots (RFC 8881 sections 2.10.6 and 18.46).
//!
//! A slot runs one request at a time. The request with the next sequence number is new, the one with the same
//! number is a retry and gets the same reply, if that was kept. What is kept is bounded by the session's
//! channel.

use std::hash::Hash;
use std::sync::Arc;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::session::ChannelAttrs;

/// One slot.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// Of the last request.
    sequence: u32,
    /// A hash of the last request.
    fingerprint: u64,
    running: bool,
    /// The last request's reply, if it was to be kept.
    reply: Option<Arc<[u8]>>,
}

impl Slot {
    pub const fn is_running(&self) -> bool {
        self.running
    }
}

/// What SEQUENCE says, and of what request.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    /// `sa_sessionid`.
    pub session: SessionId,
    /// `sa_sequenceid`.
    pub sequence: u32,
    /// `sa_slotid`.
    pub slot: u32,
    /// `sa_highest_slotid`.
    pub highest_slot: u32,
    /// A hash of the whole request and of who sent it.
    pub fingerprint: u64,
    /// The request's bytes.
    pub length: usize,
    /// The request's operations.
    pub operations: u32,
}

/// What SEQUENCE decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceResult {
    /// A new request: it is to be run, and [`Engine::finish`] to be told.
    New(SlotRequest),
    /// A retry: this is the reply.
    Replay(Arc<[u8]>),
}

/// A request in execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRequest {
    /// The session.
    pub session: SessionId,
    /// The slot.
    pub slot: u32,
    /// The session's highest slot.
    pub highest_slot: u32,
    /// Who asks.
    pub client: ClientId,
    /// The session's bounds.
    pub channel: ChannelAttrs,
    /// The client hasn't said yet that it has reclaimed everything, and may have something to reclaim.
    pub reclaim_needed: bool,
    /// Delegations were taken away from the client, and it hasn't said yet that it knows.
    pub revoked: bool,
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// SEQUENCE. Renews the client's lease.
    ///
    /// # Errors
    /// `BadSession`, `BadSlot`, `BadHighSlot`, `SeqMisordered`, `SeqFalseRetry`, `RetryUncachedRep`,
    /// `ReqTooBig`, `TooManyOps`; `Delay` while the slot's last request is running.
    pub fn sequence(&mut self, now: Time, asked: &Sequence) -> Result<SequenceResult, Error> {
        let session = self.sessions.get_mut(&asked.session).ok_or(Error::BadSession)?;
        if asked.length > session.channel.request as usize {
            return Err(Error::ReqTooBig);
        }
        if asked.operations > session.channel.operations {
            return Err(Error::TooManyOps);
        }
        let (client, channel) = (session.client, session.channel);
        if asked.slot >= channel.slots {
            return Err(Error::BadSlot);
        }
        if asked.slot > asked.highest_slot {
            return Err(Error::BadHighSlot);
        }
        let at = asked.slot as usize;
        if session.slots.len() <= at {
            session.slots.resize_with(at + 1, Slot::default);
        }
        let slot = &mut session.slots[at];
        let again = asked.sequence == slot.sequence;
        if slot.running && (again || asked.sequence == slot.sequence.wrapping_add(1)) {
            return Err(Error::Delay);
        }
        if again && slot.sequence != 0 {
            if asked.fingerprint != slot.fingerprint {
                return Err(Error::SeqFalseRetry);
            }
            return slot.reply.clone().map(SequenceResult::Replay).ok_or(Error::RetryUncachedRep);
        }
        if asked.sequence != slot.sequence.wrapping_add(1) {
            return Err(Error::SeqMisordered);
        }
        *slot = Slot { sequence: asked.sequence, fingerprint: asked.fingerprint, running: true, reply: None };
        let renewed = self.renew(now, client);
        Ok(SequenceResult::New(SlotRequest {
            session: asked.session,
            slot: asked.slot,
            highest_slot: channel.slots - 1,
            client,
            channel,
            reclaim_needed: renewed.reclaim_needed,
            revoked: renewed.revoked,
        }))
    }

    /// A request has come to its end; `reply` is kept for a retry.
    pub fn finish(&mut self, ticket: &SlotRequest, reply: Option<&[u8]>) {
        // The session may have gone meanwhile.
        let slot = self.sessions.get_mut(&ticket.session);
        if let Some(slot) = slot.and_then(|session| session.slots.get_mut(ticket.slot as usize)) {
            slot.running = false;
            slot.reply = reply.map(Arc::from);
        }
    }
}
