//! Sessions: CREATE_SESSION, SEQUENCE and DESTROY_SESSION (RFC 8881 sections 18.36, 18.37 and 18.46).

use std::hash::Hash;
use std::sync::Arc;

use fairness::{Peer, Standing};

use crate::accounts::Resource;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::principal::{Principal, Requester};
use crate::session_table::{Session, SessionSlot};

/// The attributes of a session's fore channel (`channel_attrs4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelAttrs {
    /// `ca_maxrequestsize`: the largest request in bytes.
    pub request: u32,
    /// `ca_maxresponsesize`: the largest reply in bytes.
    pub response: u32,
    /// `ca_maxresponsesize_cached`: the largest cached reply in bytes.
    pub cached: u32,
    /// `ca_maxoperations`: operations in a COMPOUND.
    pub operations: u32,
    /// `ca_maxrequests`: slots.
    pub slots: u32,
}

/// The smallest fore channel that works: for SEQUENCE alone, with the RPC headers.
pub const MIN_FORE_CHANNEL: ChannelAttrs =
    ChannelAttrs { request: 128, response: 128, cached: 0, operations: 1, slots: 1 };

/// The arguments of CREATE_SESSION.
#[derive(Debug, Clone, Copy)]
pub struct CreateSession<'a> {
    /// The client.
    pub client: ClientId,
    /// `csa_sequence`.
    pub sequence: u32,
    /// The request's principal.
    pub principal: &'a Principal,
    /// `csa_fore_chan_attrs`.
    pub channel: ChannelAttrs,
}

/// The result of CREATE_SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedSession {
    /// The session.
    pub session: SessionId,
    /// The attributes that its fore channel has.
    pub channel: ChannelAttrs,
}

/// The arguments of SEQUENCE, and the request that it begins.
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
    /// A hash of the whole request and of its sender.
    pub fingerprint: u64,
    /// The request's length in bytes.
    pub length: usize,
    /// The number of the request's operations.
    pub operations: u32,
}

/// The result of SEQUENCE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceResult {
    /// A new request: the caller runs it, and then calls [`Engine::finish`].
    New(SlotRequest),
    /// A retry, with the cached reply.
    Replay(Arc<[u8]>),
}

/// A request that runs in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRequest {
    /// The session.
    pub session: SessionId,
    /// The slot.
    pub slot: u32,
    /// The session's highest slot.
    pub highest_slot: u32,
    /// The client.
    pub client: ClientId,
    /// The session's fore channel.
    pub channel: ChannelAttrs,
    /// The client may have something to reclaim, and hasn't sent RECLAIM_COMPLETE.
    pub reclaim_needed: bool,
    /// Delegations were revoked, and the client hasn't freed them.
    pub revoked: bool,
}

/// The cost of a session in bytes, without its slots.
const SESSION_COST: u64 = 1024;
/// One session gets at most this fraction of the bytes that are left.
const SESSION_FRACTION: u64 = 512;

impl ChannelAttrs {
    /// The most bytes that one slot costs.
    const fn slot_cost(&self) -> u64 {
        self.cached as u64 + size_of::<SessionSlot>() as u64
    }

    /// The most bytes that the session costs.
    const fn cost(&self) -> usize {
        (SESSION_COST + self.slots as u64 * self.slot_cost()) as usize
    }

    /// Whether a session can work with this channel.
    const fn is_sufficient(&self) -> bool {
        self.request >= MIN_FORE_CHANNEL.request
            && self.response >= MIN_FORE_CHANNEL.response
            && self.operations >= MIN_FORE_CHANNEL.operations
            && self.slots >= MIN_FORE_CHANNEL.slots
    }

    fn min(self, other: Self) -> Self {
        Self {
            request: self.request.min(other.request),
            response: self.response.min(other.response),
            cached: self.cached.min(other.cached),
            operations: self.operations.min(other.operations),
            slots: self.slots.min(other.slots),
        }
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// CREATE_SESSION. Confirms the client.
    ///
    /// # Errors
    /// `StaleClientid`, `ClidInuse`, `SeqMisordered`, `Toosmall`, `Delay` when the client has too many
    /// sessions, `Nospc` when the sessions of all clients may cache too much already.
    pub fn create_session(&mut self, now: Time, args: &CreateSession<'_>) -> Result<CreatedSession, Error> {
        let client = self.clients.get(args.client).filter(|client| client.v40.is_none());
        let client = client.ok_or(Error::StaleClientid)?;
        // A retry is checked, too: its reply names the session.
        if client.principal() != args.principal {
            return Err(Error::ClidInuse);
        }
        if let Some(cached) = client.create_session.check(args.sequence)? {
            return cached;
        }
        if !args.channel.is_sufficient() {
            return Err(Error::Toosmall);
        }
        if client.sessions.len() >= self.config.limits.sessions {
            return Err(Error::Delay);
        }
        let (peer, is_confirmed) = (client.peer(), client.is_confirmed());
        let mut channel = args.channel.min(self.config.limits.channel);
        channel.slots = self.slots_for(now, (peer, args.client), channel)?;
        let session = self.new_session_id();
        let created = CreatedSession { session, channel };
        let client = self.clients.get_mut(args.client).ok_or(Error::StaleClientid)?;
        client.create_session.store(created);
        client.renewed = now;
        client.sessions.push(session);
        let charged = (peer, channel.cost());
        self.accounts.charge(Resource::Sessions, &peer, charged.1);
        self.sessions.insert(session, Session::new(args.client, charged, channel));
        if !is_confirmed {
            self.confirm_client(now, args.client);
        }
        Ok(created)
    }

    /// The number of slots of a new session. The bytes of all sessions are bounded: the fewer are left, the
    /// fewer slots a session gets, and one slot is kept back for each client that may yet come.
    fn slots_for(
        &mut self,
        now: Time,
        (peer, client): (Peer, ClientId),
        channel: ChannelAttrs,
    ) -> Result<u32, Error> {
        let least = ChannelAttrs { slots: 1, ..channel }.cost();
        if !self.has_room(now, (peer, Some(client)), Resource::Sessions, least) {
            return Err(Error::Nospc);
        }
        let limits = &self.config.limits;
        let shares = self.accounts.of(Resource::Sessions);
        let left = shares.free(Standing::of_admitted(&peer)) as u64;
        let to_come = limits.clients.saturating_sub(self.sessions.len() + 1) as u64;
        let fraction = left.saturating_sub(to_come * limits.channel.slot_cost()) / SESSION_FRACTION;
        let slots = (fraction / channel.slot_cost()).clamp(1, u64::from(channel.slots)) as u32;
        let cost = ChannelAttrs { slots, ..channel }.cost();
        Ok(if shares.may_take(&peer, Standing::of_admitted(&peer), cost) { slots } else { 1 })
    }

    /// SEQUENCE. Renews the client's lease.
    ///
    /// # Errors
    /// `BadSession`, `BadSlot`, `BadHighSlot`, `SeqMisordered`, `SeqFalseRetry`, `RetryUncachedRep`,
    /// `ReqTooBig`, `TooManyOps`; `Delay` while the slot's last request is running.
    pub fn sequence(&mut self, now: Time, args: &Sequence) -> Result<SequenceResult, Error> {
        let session = self.sessions.get_mut(args.session)?;
        if let Some(reply) = session.begin(args)? {
            return Ok(SequenceResult::Replay(reply));
        }
        let (client, channel) = (session.client(), session.channel());
        let renewed = self.renew_lease(now, client);
        Ok(SequenceResult::New(SlotRequest {
            session: args.session,
            slot: args.slot,
            highest_slot: channel.slots - 1,
            client,
            channel,
            reclaim_needed: renewed.reclaim_needed,
            revoked: renewed.revoked,
        }))
    }

    /// The end of a request; `reply` is cached for a retry. The session may be gone.
    pub fn finish(&mut self, request: &SlotRequest, reply: Option<&[u8]>) {
        if let Ok(session) = self.sessions.get_mut(request.session) {
            session.end(request.slot, reply);
        }
    }

    pub(crate) fn remove_session(&mut self, session: SessionId) {
        if let Some(removed) = self.sessions.remove(session) {
            let (peer, cost) = removed.charged();
            self.accounts.give_back(Resource::Sessions, &peer, cost);
        }
    }

    /// DESTROY_SESSION. `own` is the slot of the request, if it came by this session.
    ///
    /// # Errors
    /// `BadSession`, `WrongCred`; `Delay` while another request of the session is running.
    pub fn destroy_session(
        &mut self,
        session: SessionId,
        principal: &Principal,
        own: Option<u32>,
    ) -> Result<(), Error> {
        let client = self.session_of(session, principal)?;
        if self.sessions.get(session)?.is_running(own) {
            return Err(Error::Delay);
        }
        self.remove_session(session);
        if let Some(client) = self.clients.get_mut(client) {
            client.sessions.retain(|other| *other != session);
        }
        Ok(())
    }

    /// The client of a session that `principal` may bind connections to and destroy.
    ///
    /// # Errors
    /// `BadSession`, `WrongCred`.
    pub fn session_of(&self, session: SessionId, principal: &Principal) -> Result<ClientId, Error> {
        let client = self.sessions.get(session)?.client();
        self.check_client_principal(&Requester { client, principal: principal.clone() })?;
        Ok(client)
    }
}
