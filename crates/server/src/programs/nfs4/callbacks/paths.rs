//! Which ways lead to which client: the connections that are bound to its sessions' back channels, with their
//! slots, or in 4.0 the address that it gave. A table, without I/O.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use fairness::Peer;
use proto::nfs4::MinorVersion;
use rpc::message::Credential;
use rpc::server::BackChannel;
use state::{ClientId, SessionId};
use tokio::sync::OnceCell;

/// The most slots of a back channel that are used.
pub(crate) const MOST_SLOTS: u32 = 16;
/// The most connections that are remembered of a session.
const MOST_CONNECTIONS: usize = 16;

/// What a client says of its callback program.
#[derive(Debug, Clone)]
pub(crate) struct CallbackProgram {
    pub number: u32,
    /// As whom callbacks are made.
    pub credential: Credential,
}

/// A session's back channel.
#[derive(Debug)]
struct Session {
    minor: MinorVersion,
    program: CallbackProgram,
    /// The newest last: that is taken first.
    connections: Vec<BackChannel>,
    slots: Vec<Slot>,
    /// Where its slots are isn't known any more: only another session helps.
    lost: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Of the last call that was answered.
    sequence: u32,
    busy: bool,
}

/// The callback program of a client of 4.0, at an address.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub address: SocketAddr,
    pub program: u32,
    pub ident: u32,
}

/// The connection to a client of 4.0, made by who needs it first: the others wait for what comes of that.
/// None if it couldn't be made.
pub(crate) type Line = Arc<OnceCell<Option<rpc::client::Client>>>;

/// How the way to a client of 4.0 is.
#[derive(Debug)]
struct Way40 {
    to: Address,
    /// It has answered, lately.
    up: bool,
    line: Line,
}

/// All ways to one client.
#[derive(Debug, Default)]
struct Ways {
    sessions: HashMap<SessionId, Session>,
    address: Option<Way40>,
    /// An address that isn't confirmed yet, by what will confirm it.
    unconfirmed: Option<(u64, Address)>,
    /// There was a way.
    had: bool,
}

impl Ways {
    fn is_up(&self) -> bool {
        let up = |way: &Way40| way.up;
        self.sessions.values().any(|session| !session.lost && !session.connections.is_empty())
            || self.address.as_ref().is_some_and(up)
    }

    fn is_down(&self) -> bool {
        self.had && !self.is_up()
    }

    fn is_in_trouble(&self) -> bool {
        self.is_down() || self.sessions.values().any(|session| session.lost)
    }
}

/// What keeps a client from being called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Trouble {
    /// It could be called once, and can't any more.
    pub down: bool,
    /// A session's back channel is of no use any more.
    pub lost: bool,
}

impl Session {
    fn unbind(&mut self, connection: u64) {
        self.connections.retain(|other| other.connection() != connection);
    }
}

/// How a client is called next.
pub(crate) enum Way {
    /// Through a session's slot, which is taken.
    Session(Taken),
    /// At its address.
    Address(Address, Line),
}

/// A slot, taken for one call.
pub(crate) struct Taken {
    pub session: SessionId,
    pub minor: MinorVersion,
    pub program: CallbackProgram,
    pub channel: BackChannel,
    pub slot: u32,
    pub sequence: u32,
    pub highest: u32,
}

/// Why a client can't be called now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoWay {
    /// There is no way to it.
    Down,
    /// All slots are taken.
    Busy,
}

/// The ways to all clients.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    clients: HashMap<ClientId, Ways>,
    /// How many clients are in any [`Trouble`].
    in_trouble: usize,
    lines: Lines,
}

/// The clients of 4.0 to which there is a connection, or is about to be: each costs a descriptor.
#[derive(Debug)]
struct Lines {
    /// The one that was used last is last.
    clients: VecDeque<ClientId>,
    limit: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self { clients: VecDeque::new(), limit: usize::MAX }
    }
}

impl Lines {
    /// A client is called. Returns the one whose connection has to go for it, if there is no room for
    /// another.
    fn called(&mut self, client: ClientId) -> Option<ClientId> {
        self.forget(client);
        let oldest = if self.clients.len() >= self.limit { self.clients.pop_front() } else { None };
        self.clients.push_back(client);
        oldest
    }

    fn forget(&mut self, client: ClientId) {
        self.clients.retain(|other| *other != client);
    }
}

impl Paths {
    /// Changes the ways to one client, if it is there.
    fn change<T>(&mut self, client: ClientId, change: impl FnOnce(&mut Ways) -> T) -> Option<T> {
        let ways = self.clients.get_mut(&client)?;
        let before = ways.is_in_trouble();
        let result = change(ways);
        self.in_trouble = self.in_trouble + usize::from(ways.is_in_trouble()) - usize::from(before);
        Some(result)
    }

    /// Changes a session's back channel, if it is there.
    fn change_session(&mut self, client: ClientId, session: SessionId, change: impl FnOnce(&mut Session)) {
        self.change(client, |ways| ways.sessions.get_mut(&session).map(change));
    }

    /// A client has made a session; its callbacks go through `slots` slots.
    pub fn add_session(
        &mut self,
        client: ClientId,
        session: SessionId,
        minor: MinorVersion,
        program: CallbackProgram,
        slots: u32,
    ) {
        let slots = vec![Slot::default(); slots.clamp(1, MOST_SLOTS) as usize];
        self.clients.entry(client).or_default();
        // A retry of CREATE_SESSION finds it there.
        let made = Session { minor, program, connections: Vec::new(), slots, lost: false };
        self.change(client, |ways| {
            ways.sessions.entry(session).or_insert(made);
        });
    }

    /// The session has gone.
    pub fn remove_session(&mut self, client: ClientId, session: SessionId) {
        self.change(client, |ways| ways.sessions.remove(&session));
    }

    /// The client has gone, and all that was its.
    pub fn remove_client(&mut self, client: ClientId) {
        self.lines.forget(client);
        let gone = self.clients.remove(&client);
        self.in_trouble -= usize::from(gone.is_some_and(|ways| ways.is_in_trouble()));
    }

    /// A connection is bound to a session's back channel.
    pub fn bind(&mut self, client: ClientId, session: SessionId, channel: BackChannel) {
        self.change(client, |ways| {
            let Some(found) = ways.sessions.get_mut(&session) else { return };
            ways.had = true;
            found.connections.retain(|other| other.connection() != channel.connection());
            if found.connections.len() >= MOST_CONNECTIONS {
                found.connections.remove(0);
            }
            found.connections.push(channel);
        });
    }

    /// A connection isn't bound to the session's back channel any more.
    pub fn unbind(&mut self, client: ClientId, session: SessionId, connection: u64) {
        self.change_session(client, session, |session| session.unbind(connection));
    }

    /// The client and we don't agree where a slot is.
    pub fn lose(&mut self, client: ClientId, session: SessionId) {
        self.change_session(client, session, |session| session.lost = true);
    }

    /// BACKCHANNEL_CTL.
    pub fn set_program(&mut self, client: ClientId, session: SessionId, program: CallbackProgram) {
        self.change_session(client, session, |session| session.program = program);
    }

    /// A connection has gone.
    pub fn lost(&mut self, connection: u64) {
        for ways in self.clients.values_mut() {
            let before = ways.is_in_trouble();
            ways.sessions.values_mut().for_each(|session| session.unbind(connection));
            self.in_trouble = self.in_trouble + usize::from(ways.is_in_trouble()) - usize::from(before);
        }
    }

    /// SETCLIENTID: an address, to be confirmed.
    pub fn propose(&mut self, client: ClientId, confirm: u64, address: Option<Address>) {
        let Some(address) = address else { return };
        self.clients.entry(client).or_default().unconfirmed = Some((confirm, address));
    }

    /// SETCLIENTID_CONFIRM. Whether there is a new address, to be tried.
    pub fn confirm(&mut self, client: ClientId, confirm: u64) -> bool {
        let confirmed = self.change(client, |ways| {
            let Some((_, to)) = ways.unconfirmed.take_if(|(expected, _)| *expected == confirm) else {
                return false;
            };
            ways.address = Some(Way40 { to, up: false, line: Line::default() });
            ways.had = false;
            true
        });
        confirmed == Some(true)
    }

    /// What came of a call over a line: where there was no answer the next call has another.
    pub fn answered(&mut self, client: ClientId, line: &Line, up: bool) {
        self.change(client, |ways| {
            // Whoever is late says nothing about the line that there is by now.
            let way = ways.address.as_mut().filter(|way| Arc::ptr_eq(&way.line, line));
            let Some(way) = way else { return };
            way.up = up;
            if !up {
                way.line = Line::default();
            }
            ways.had |= up;
        });
    }

    /// Whether the client can be called, as far as is known.
    pub fn is_up(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(Ways::is_up)
    }

    /// What keeps the client from being called, through that session.
    pub fn trouble(&self, client: ClientId, session: Option<SessionId>) -> Trouble {
        let Some(ways) = self.clients.get(&client) else { return Trouble::default() };
        let session = session.and_then(|session| ways.sessions.get(&session));
        Trouble { down: ways.is_down(), lost: session.is_some_and(|session| session.lost) }
    }

    /// How many clients are in any trouble.
    pub const fn in_trouble(&self) -> usize {
        self.in_trouble
    }

    /// How many connections to clients of 4.0 are kept. That which was used longest ago is closed for another
    /// one, when the last call over it has ended, and made again when it is needed.
    pub fn limit_lines(&mut self, limit: usize) {
        self.lines.limit = limit.max(1);
    }

    /// Where a client of 4.0 is called.
    pub fn peer(&self, client: ClientId) -> Option<Peer> {
        let way = self.clients.get(&client)?.address.as_ref()?;
        Some(Peer::remote(way.to.address.ip()))
    }

    /// A way to the client, with a slot.
    pub fn take(&mut self, client: ClientId) -> Result<Way, NoWay> {
        let ways = self.clients.get(&client).ok_or(NoWay::Down)?;
        if let Some(way) = &ways.address {
            let way = Way::Address(way.to.clone(), Arc::clone(&way.line));
            if let Some(oldest) = self.lines.called(client) {
                self.hang_up(oldest);
            }
            return Ok(way);
        }
        let ways = self.clients.get_mut(&client).ok_or(NoWay::Down)?;
        let mut refused = NoWay::Down;
        for (id, session) in &mut ways.sessions {
            let Some(channel) = session.connections.last().filter(|_| !session.lost) else { continue };
            refused = NoWay::Busy;
            let highest = session.slots.len() as u32 - 1;
            let free = session.slots.iter_mut().zip(0_u32..).find(|(slot, _)| !slot.busy);
            if let Some((slot, number)) = free {
                slot.busy = true;
                return Ok(Way::Session(Taken {
                    session: *id,
                    minor: session.minor,
                    program: session.program.clone(),
                    channel: channel.clone(),
                    slot: number,
                    sequence: slot.sequence.wrapping_add(1),
                    highest,
                }));
            }
        }
        Err(refused)
    }

    /// The next call to the client makes a connection.
    fn hang_up(&mut self, client: ClientId) {
        if let Some(way) = self.clients.get_mut(&client).and_then(|ways| ways.address.as_mut()) {
            way.line = Line::default();
        }
    }

    /// A call has ended; `used` says that its sequence number is, whatever came of it.
    pub fn give_back(&mut self, client: ClientId, taken: &Taken, used: bool) {
        self.change_session(client, taken.session, |session| {
            let Some(slot) = session.slots.get_mut(taken.slot as usize) else { return };
            slot.busy = false;
            if used {
                slot.sequence = taken.sequence;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_was_used_longest_ago_goes_first() {
        let client = |number: u32| ClientId(u64::from(number));
        let mut paths = Paths::default();
        paths.limit_lines(2);
        for number in 1..=3 {
            let address =
                Address { address: SocketAddr::from(([192, 0, 2, 1], 700)), program: 1, ident: number };
            paths.propose(client(number), 1, Some(address));
            assert!(paths.confirm(client(number), 1));
        }
        let mut line = |number| match paths.take(client(number)) {
            Ok(Way::Address(_, line)) => line,
            _ => panic!("there is an address"),
        };
        let (first, second) = (line(1), line(2));
        assert!(Arc::ptr_eq(&first, &line(1)), "used again: now the second is the oldest");
        line(3);
        assert!(Arc::ptr_eq(&first, &line(1)));
        assert!(!Arc::ptr_eq(&second, &line(2)), "it made room for the third");
    }
}
