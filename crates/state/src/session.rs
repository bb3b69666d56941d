//! Sessions: CREATE_SESSION with its own reply cache, BIND_CONN_TO_SESSION, DESTROY_SESSION (RFC 8881
//! sections 18.34 to 18.37).

use std::hash::Hash;

use fairness::{Peer, Standing};

use crate::accounts::Resource;
use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::principal::{Principal, Requester};
use crate::sequence::Slot;

/// The bounds of a session's fore channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelAttrs {
    /// The largest request in bytes.
    pub request: u32,
    /// The largest reply in bytes.
    pub response: u32,
    /// The largest reply that is kept for a retry, in bytes.
    pub cached: u32,
    /// Operations in a COMPOUND.
    pub operations: u32,
    /// Slots.
    pub slots: u32,
}

/// The least that a session can work with: SEQUENCE alone, with the RPC headers.
pub const MIN_FORE_CHANNEL: ChannelAttrs =
    ChannelAttrs { request: 128, response: 128, cached: 0, operations: 1, slots: 1 };

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub client: ClientId,
    /// Whom it is charged to, and how many bytes.
    pub charged: (Peer, usize),
    pub channel: ChannelAttrs,
    /// Up to the highest one that was used: most clients never need many.
    pub slots: Vec<Slot>,
}

/// What CREATE_SESSION says.
#[derive(Debug, Clone, Copy)]
pub struct CreateSession<'a> {
    /// Whose.
    pub client: ClientId,
    /// `csa_sequence`.
    pub sequence: u32,
    /// Who asks.
    pub principal: &'a Principal,
    /// The bounds that the client wants.
    pub channel: ChannelAttrs,
}

/// What CREATE_SESSION answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedSession {
    /// The session.
    pub session: SessionId,
    /// The bounds that it has.
    pub channel: ChannelAttrs,
}

/// CREATE_SESSION's reply cache of one slot.
#[derive(Debug)]
pub(crate) struct Creation {
    /// Of the last one; the first is expected to be 1.
    sequence: u32,
    reply: Result<CreatedSession, Error>,
}

impl Default for Creation {
    fn default() -> Self {
        Self { sequence: 0, reply: Err(Error::SeqMisordered) }
    }
}

/// What a session costs in bytes beside its slots.
const SESSION: u64 = 1024;
/// Which part of what is left one session gets at most.
const SHARE: u64 = 1024;

impl ChannelAttrs {
    /// What the server keeps of replies in one slot at most, in bytes.
    const fn slot(&self) -> u64 {
        self.cached as u64 + size_of::<Slot>() as u64
    }

    /// What the session costs in bytes.
    const fn cost(&self) -> usize {
        (SESSION + self.slots as u64 * self.slot()) as usize
    }
}

impl Creation {
    /// The sequence number that the next CREATE_SESSION must have.
    pub const fn next(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }
}

impl<K: Clone + Eq + Hash, L: Default> Engine<K, L> {
    /// CREATE_SESSION.
    ///
    /// # Errors
    /// `StaleClientid`, `ClidInuse`, `SeqMisordered`, `Toosmall`, `Delay` when the client has too many
    /// sessions, `Nospc` when the sessions of all clients may keep too much already.
    pub fn create_session(&mut self, now: Time, asked: &CreateSession<'_>) -> Result<CreatedSession, Error> {
        let limits = &self.config.limits;
        let (most, bound) = (limits.channel, limits.sessions);
        let client = self.clients.get_mut(&asked.client).filter(|client| client.v40.is_none());
        let client = client.ok_or(Error::StaleClientid)?;
        // Also for a retry: what it is told names the session.
        if client.principal != *asked.principal {
            return Err(Error::ClidInuse);
        }
        if asked.sequence == client.creation.sequence {
            return client.creation.reply;
        }
        if asked.sequence != client.creation.next() {
            return Err(Error::SeqMisordered);
        }
        let (wanted, least) = (asked.channel, MIN_FORE_CHANNEL);
        if wanted.request < least.request
            || wanted.response < least.response
            || wanted.operations < least.operations
            || wanted.slots < least.slots
        {
            return Err(Error::Toosmall);
        }
        if client.sessions.len() >= bound {
            return Err(Error::Delay);
        }
        let mut channel = ChannelAttrs {
            request: wanted.request.min(most.request),
            response: wanted.response.min(most.response),
            cached: wanted.cached.min(most.cached),
            operations: wanted.operations.min(most.operations),
            slots: wanted.slots.min(most.slots),
        };
        let peer = client.name.peer;
        channel.slots = self.slots_for(now, (peer, asked.client), channel)?;
        let session = self.new_session_id();
        let client = self.clients.get_mut(&asked.client).ok_or(Error::StaleClientid)?;
        let created = CreatedSession { session, channel };
        client.creation.sequence = asked.sequence;
        client.creation.reply = Ok(created);
        client.renewed = now;
        client.sessions.push(session);
        let confirmed = client.confirmed;
        let charged = (peer, channel.cost());
        self.accounts.charge(Resource::Sessions, &charged.0, charged.1);
        self.sessions.insert(session, Session { client: asked.client, charged, channel, slots: Vec::new() });
        if !confirmed {
            self.confirm(now, asked.client);
        }
        Ok(created)
    }

    /// How many slots a session of `client` gets. What all sessions may come to is bounded: the less is left
    /// of that the fewer slots they have, and one is there for each client that may yet come.
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
        let most = &self.config.limits;
        let shares = self.accounts.of(Resource::Sessions);
        let left = shares.free(Standing::of_admitted(&peer)) as u64;
        let to_come = most.clients.saturating_sub(self.sessions.len() + 1) as u64 * most.channel.slot();
        let share = left.saturating_sub(to_come) / SHARE;
        let slots = (share / channel.slot()).clamp(1, u64::from(channel.slots)) as u32;
        let may_have =
            shares.may_take(&peer, Standing::of_admitted(&peer), ChannelAttrs { slots, ..channel }.cost());
        Ok(if may_have { slots } else { 1 })
    }

    /// A session has gone.
    pub(crate) fn remove_session(&mut self, session: SessionId) {
        if let Some(gone) = self.sessions.remove(&session) {
            self.accounts.give_back(Resource::Sessions, &gone.charged.0, gone.charged.1);
        }
    }

    /// DESTROY_SESSION.
    ///
    /// # Errors
    /// `BadSession`, `WrongCred`; `Delay` while one of its other requests is running (`own` is the one that
    /// asks, if it came by this session).
    pub fn destroy_session(
        &mut self,
        session: SessionId,
        principal: &Principal,
        own: Option<u32>,
    ) -> Result<(), Error> {
        self.session_of(session, principal)?;
        let found = self.sessions.get(&session).ok_or(Error::BadSession)?;
        let running = found.slots.iter().zip(0_u32..).any(|(slot, at)| slot.is_running() && Some(at) != own);
        if running {
            return Err(Error::Delay);
        }
        let client = found.client;
        self.remove_session(session);
        if let Some(client) = self.clients.get_mut(&client) {
            client.sessions.retain(|other| *other != session);
        }
        Ok(())
    }

    /// Whose session it is, if `principal` may bind connections to it and destroy it.
    ///
    /// # Errors
    /// `BadSession`, `WrongCred`.
    pub fn session_of(&self, session: SessionId, principal: &Principal) -> Result<ClientId, Error> {
        let client = self.sessions.get(&session).ok_or(Error::BadSession)?.client;
        self.check_own(&Requester { client, principal: principal.clone() })?;
        Ok(client)
    }
}
