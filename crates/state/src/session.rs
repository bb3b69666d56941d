//! Sessions: CREATE_SESSION with its own reply cache, BIND_CONN_TO_SESSION, DESTROY_SESSION (RFC 8881 sections 18.34 to
//! 18.37).

use std::hash::Hash;

use crate::engine::{Engine, Time};
use crate::error::Error;
use crate::ids::{ClientId, SessionId};
use crate::principal::{Principal, Requester};
use crate::sequence::Slot;

/// The bounds of a session's fore channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
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
pub const FORE_SMALLEST: Channel =
    Channel { request: 128, response: 128, cached: 0, operations: 1, slots: 1 };

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub client: ClientId,
    pub channel: Channel,
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
    pub channel: Channel,
}

/// What CREATE_SESSION answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// The session.
    pub session: SessionId,
    /// The bounds that it has.
    pub channel: Channel,
}

/// CREATE_SESSION's reply cache of one slot.
#[derive(Debug)]
pub(crate) struct Creation {
    /// Of the last one; the first is expected to be 1.
    sequence: u32,
    reply: Result<Created, Error>,
}

impl Default for Creation {
    fn default() -> Self {
        Self { sequence: 0, reply: Err(Error::SeqMisordered) }
    }
}

/// Which part of what is left one session gets at most.
const SHARE: u64 = 1024;

impl Channel {
    /// What the server keeps of replies in one slot at most, in bytes.
    const fn slot(&self) -> u64 {
        self.cached as u64 + size_of::<Slot>() as u64
    }

    /// In all slots.
    const fn replies(&self) -> u64 {
        self.slots as u64 * self.slot()
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
    /// `StaleClientid`, `ClidInuse`, `SeqMisordered`, `Toosmall`, `Delay` when the client has too many sessions, `Nospc` when the sessions of
    /// all clients may keep too much already.
    pub fn create_session(&mut self, now: Time, asked: &CreateSession<'_>) -> Result<Created, Error> {
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
        let (wanted, least) = (asked.channel, FORE_SMALLEST);
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
        let mut channel = Channel {
            request: wanted.request.min(most.request),
            response: wanted.response.min(most.response),
            cached: wanted.cached.min(most.cached),
            operations: wanted.operations.min(most.operations),
            slots: wanted.slots.min(most.slots),
        };
        channel.slots = self.slots_for(now, asked.client, channel)?;
        let session = self.new_session_id();
        let client = self.clients.get_mut(&asked.client).ok_or(Error::StaleClientid)?;
        let created = Created { session, channel };
        client.creation.sequence = asked.sequence;
        client.creation.reply = Ok(created);
        client.renewed = now;
        client.sessions.push(session);
        let confirmed = client.confirmed;
        self.promised += channel.replies();
        self.sessions.insert(session, Session { client: asked.client, channel, slots: Vec::new() });
        if !confirmed {
            self.confirm(now, asked.client);
        }
        Ok(created)
    }

    /// How many slots a session of `client` gets. What the replies of all sessions may come to is bounded: the less is left of that the fewer
    /// they are, and one is there for each client that may yet come.
    fn slots_for(&mut self, now: Time, client: ClientId, channel: Channel) -> Result<u32, Error> {
        let most = &self.config.limits;
        let (all, clients, least) = (most.replies, most.clients, most.channel.slot());
        loop {
            let left = all.saturating_sub(self.promised);
            let to_come = clients.saturating_sub(self.sessions.len() + 1) as u64 * least;
            let share = left.saturating_sub(to_come) / SHARE;
            let slots = (share / channel.slot()).clamp(1, u64::from(channel.slots)) as u32;
            if (Channel { slots, ..channel }).replies() <= left {
                return Ok(slots);
            }
            if !self.make_room(now, Some(client)) {
                return Err(Error::Nospc);
            }
        }
    }

    /// A session has gone.
    pub(crate) fn remove_session(&mut self, session: SessionId) {
        if let Some(gone) = self.sessions.remove(&session) {
            self.promised -= gone.channel.replies();
        }
    }

    /// DESTROY_SESSION.
    ///
    /// # Errors
    /// `BadSession`, `WrongCred`; `Delay` while one of its other requests is running (`own` is the one that asks, if it came by
    /// this session).
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
