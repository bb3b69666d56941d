//! The sessions, and exactly-once semantics by their slots (RFC 8881 sections 2.10.6 and 18.46).
//!
//! Invariant: a slot runs one request at a time. The request with the next sequence id is new; the one with
//! the same sequence id is a retry, and gets the same reply if that was cached. The session's channel bounds
//! what is cached.

use std::sync::Arc;

use ahash::HashMap;
use fairness::Peer;

use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::sessions::{ChannelAttrs, CreatedSession, Sequence};

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    client: ClientId,
    charged: (Peer, usize),
    channel: ChannelAttrs,
    /// Up to the highest one that was used: most clients never use many.
    slots: Vec<SessionSlot>,
}

/// A slot of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionSlot {
    /// The sequence id of the last request.
    sequence: u32,
    /// A hash of the last request.
    fingerprint: u64,
    running: bool,
    /// The last request's reply, if it was cached.
    reply: Option<Arc<[u8]>>,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    sessions: HashMap<SessionId, Session>,
}

/// CREATE_SESSION's reply cache of one slot (RFC 8881 section 18.36.4).
#[derive(Debug)]
pub(crate) struct CreateSessionCache {
    /// The sequence id of the last CREATE_SESSION; the first one has 1.
    sequence: u32,
    reply: Result<CreatedSession, Error>,
}

impl Default for CreateSessionCache {
    fn default() -> Self {
        Self { sequence: 0, reply: Err(Error::SeqMisordered) }
    }
}

impl CreateSessionCache {
    /// The sequence id of the next CREATE_SESSION.
    pub const fn next(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }

    /// The cached result for a retry; `None` for the next CREATE_SESSION.
    ///
    /// # Errors
    /// `SeqMisordered`.
    pub fn check(&self, sequence: u32) -> Result<Option<Result<CreatedSession, Error>>, Error> {
        if sequence == self.sequence {
            Ok(Some(self.reply))
        } else if sequence == self.next() {
            Ok(None)
        } else {
            Err(Error::SeqMisordered)
        }
    }

    /// Caches the result of the next CREATE_SESSION.
    pub const fn store(&mut self, created: CreatedSession) {
        self.sequence = self.next();
        self.reply = Ok(created);
    }
}

impl Session {
    /// A session that `charged` pays for: the peer, and the bytes.
    pub const fn new(client: ClientId, charged: (Peer, usize), channel: ChannelAttrs) -> Self {
        Self { client, charged, channel, slots: Vec::new() }
    }

    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// The peer that is charged for the session, and the bytes.
    pub const fn charged(&self) -> (Peer, usize) {
        self.charged
    }

    pub const fn channel(&self) -> ChannelAttrs {
        self.channel
    }

    /// Whether a request runs in another slot than `own`.
    pub fn is_running(&self, own: Option<u32>) -> bool {
        self.slots.iter().zip(0_u32..).any(|(slot, at)| slot.running && Some(at) != own)
    }

    /// Begins a request. Returns the cached reply of a retry, and none for a new request, which then runs.
    ///
    /// # Errors
    /// Those of SEQUENCE; `Delay` while the slot's last request is running.
    pub fn begin(&mut self, request: &Sequence) -> Result<Option<Arc<[u8]>>, Error> {
        if request.length > self.channel.request as usize {
            return Err(Error::ReqTooBig);
        }
        if request.operations > self.channel.operations {
            return Err(Error::TooManyOps);
        }
        if request.slot >= self.channel.slots {
            return Err(Error::BadSlot);
        }
        if request.slot > request.highest_slot {
            return Err(Error::BadHighSlot);
        }
        let at = request.slot as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, SessionSlot::default);
        }
        let slot = &mut self.slots[at];
        let (is_retry, next) = (request.sequence == slot.sequence, slot.sequence.wrapping_add(1));
        if slot.running && (is_retry || request.sequence == next) {
            return Err(Error::Delay);
        }
        if is_retry && slot.sequence != 0 {
            if request.fingerprint != slot.fingerprint {
                return Err(Error::SeqFalseRetry);
            }
            return slot.reply.clone().map(Some).ok_or(Error::RetryUncachedRep);
        }
        if request.sequence != next {
            return Err(Error::SeqMisordered);
        }
        let (sequence, fingerprint) = (request.sequence, request.fingerprint);
        *slot = SessionSlot { sequence, fingerprint, running: true, reply: None };
        Ok(None)
    }

    /// Ends a slot's request, and caches the reply.
    pub fn end(&mut self, slot: u32, reply: Option<&[u8]>) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.running = false;
            slot.reply = reply.map(Arc::from);
        }
    }
}

impl SessionTable {
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn contains(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// A session.
    ///
    /// # Errors
    /// `BadSession`.
    pub fn get(&self, id: SessionId) -> Result<&Session, Error> {
        self.sessions.get(&id).ok_or(Error::BadSession)
    }

    /// As [`SessionTable::get`].
    pub fn get_mut(&mut self, id: SessionId) -> Result<&mut Session, Error> {
        self.sessions.get_mut(&id).ok_or(Error::BadSession)
    }

    pub fn insert(&mut self, id: SessionId, session: Session) {
        self.sessions.insert(id, session);
    }

    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.sessions.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelAttrs =
        ChannelAttrs { request: 100, response: 100, cached: 100, operations: 2, slots: 2 };

    fn request(slot: u32, sequence: u32) -> Sequence {
        let session = SessionId([0; 16]);
        Sequence { session, sequence, slot, highest_slot: 1, fingerprint: 1, length: 100, operations: 2 }
    }

    #[test]
    fn a_slot_runs_one_request_at_a_time() {
        let mut session = Session::new(ClientId(1), (Peer::Local(0), 0), CHANNEL);
        assert_eq!(session.begin(&request(0, 1)), Ok(None));
        for sequence in [1, 2] {
            assert_eq!(session.begin(&request(0, sequence)), Err(Error::Delay));
        }
        assert_eq!(session.begin(&request(1, 1)), Ok(None), "the other slot");
        assert!(session.is_running(None) && session.is_running(Some(0)));
        session.end(1, None);
        assert!(!session.is_running(Some(0)));
        session.end(0, Some(b"reply"));
        assert_eq!(session.begin(&request(0, 1)), Ok(Some(Arc::from(&b"reply"[..]))));
        let other = Sequence { fingerprint: 2, ..request(0, 1) };
        assert_eq!(session.begin(&other), Err(Error::SeqFalseRetry));
        assert_eq!(session.begin(&request(1, 1)), Err(Error::RetryUncachedRep));
        assert_eq!(session.begin(&request(0, 3)), Err(Error::SeqMisordered));
        assert_eq!(session.begin(&request(0, 2)), Ok(None));
    }
}
