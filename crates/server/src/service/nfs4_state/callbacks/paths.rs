//! The paths by which clients can be called: the connections that are bound to their sessions' back channels,
//! with the slots, and the callback addresses of NFSv4.0 clients. A table without I/O.
//!
//! Invariant: `faulty` counts the clients for which [`ClientPaths::is_faulty`] holds.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ahash::HashMap;
use fairness::Peer;
use parking_lot::Mutex;
use proto::nfs4::{MinorVersion, RequestSlot, SessionSlots};
use rpc::message::Credential;
use rpc::server::BackChannel;
use state::{ClientId, SessionId};
use tokio::sync::OnceCell;

/// The most slots of a back channel that the server uses.
pub(crate) const MAX_BACK_SLOTS: u32 = 16;
/// The most connections that are kept for one session's back channel.
const MAX_CONNECTIONS: usize = 16;

/// A client's callback program.
#[derive(Debug, Clone)]
pub(crate) struct CallbackProgram {
    /// The RPC program number.
    pub number: u32,
    /// The credential with which callbacks are sent.
    pub credential: Credential,
}

/// The back channel of a session.
#[derive(Debug)]
struct BackChannelSession {
    minor: MinorVersion,
    program: CallbackProgram,
    /// The newest is last, and is used first.
    connections: Vec<BackChannel>,
    slots: SessionSlots,
    /// The sequence ids of its slots are out of step with the client's. Only a new session helps.
    out_of_step: bool,
}

/// The address of an NFSv4.0 client's callback program.
#[derive(Debug, Clone)]
pub(crate) struct CallbackAddress {
    pub address: SocketAddr,
    /// `cb_program`.
    pub program: u32,
    /// `callback_ident`.
    pub ident: u32,
}

/// The connection to an NFSv4.0 client. The first call makes it, and concurrent calls wait for the result:
/// `None` if the connection couldn't be made.
pub(crate) type SharedConnection = Arc<OnceCell<Option<rpc::client::Client>>>;

/// The path to an NFSv4.0 client.
#[derive(Debug)]
struct AddressPath {
    to: CallbackAddress,
    /// The last call was answered.
    up: bool,
    connection: SharedConnection,
}

/// All paths to one client.
#[derive(Debug, Default)]
struct ClientPaths {
    sessions: HashMap<SessionId, BackChannelSession>,
    address: Option<AddressPath>,
    /// The address of a SETCLIENTID that isn't confirmed yet, with its `setclientid_confirm` verifier.
    unconfirmed: Option<(u64, CallbackAddress)>,
    /// The client could be called once.
    was_up: bool,
}

impl ClientPaths {
    fn is_up(&self) -> bool {
        self.sessions.values().any(|session| !session.out_of_step && !session.connections.is_empty())
            || self.address.as_ref().is_some_and(|path| path.up)
    }

    fn is_down(&self) -> bool {
        self.was_up && !self.is_up()
    }

    fn is_faulty(&self) -> bool {
        self.is_down() || self.sessions.values().any(|session| session.out_of_step)
    }
}

/// What SEQUENCE and RENEW report of a client's callback paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PathStatus {
    /// The client could be called once, and can't any more (`SEQ4_STATUS_CB_PATH_DOWN`).
    pub path_down: bool,
    /// The session's back channel is unusable (`SEQ4_STATUS_BACKCHANNEL_FAULT`).
    pub fault: bool,
}

impl BackChannelSession {
    fn unbind(&mut self, connection: u64) {
        self.connections.retain(|other| other.connection() != connection);
    }
}

/// The path that one call takes.
pub(crate) enum CallbackPath {
    /// A session's back channel, by a slot that is reserved for the call.
    Session(ReservedSlot),
    /// The address of an NFSv4.0 client.
    Address(CallbackAddress, SharedConnection),
}

/// A slot of a back channel, reserved for one call.
pub(crate) struct ReservedSlot {
    pub session: SessionId,
    pub minor: MinorVersion,
    pub program: CallbackProgram,
    pub channel: BackChannel,
    pub slot: RequestSlot,
}

/// Why a client can't be called now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// There is no path to it.
    Down,
    /// All slots are busy.
    Busy,
}

/// The paths to all clients.
#[derive(Debug, Default)]
pub(crate) struct CallbackPaths {
    clients: HashMap<ClientId, ClientPaths>,
    /// The number of clients with a faulty path.
    faulty: usize,
    connection_uses: ConnectionUses,
}

/// The NFSv4.0 clients to which a connection exists or is being made, in the order of their last use. Each
/// connection costs a descriptor.
#[derive(Debug)]
struct ConnectionUses {
    /// The most recently used is last.
    clients: VecDeque<ClientId>,
    limit: usize,
}

impl Default for ConnectionUses {
    fn default() -> Self {
        Self { clients: VecDeque::new(), limit: usize::MAX }
    }
}

impl ConnectionUses {
    /// Notes a use. Returns the client whose connection must be closed to stay within the limit, if any.
    fn touch(&mut self, client: ClientId) -> Option<ClientId> {
        self.remove(client);
        let oldest = if self.clients.len() >= self.limit { self.clients.pop_front() } else { None };
        self.clients.push_back(client);
        oldest
    }

    fn remove(&mut self, client: ClientId) {
        self.clients.retain(|other| *other != client);
    }
}

impl CallbackPaths {
    /// Changes the paths to a client, if it is known.
    fn change<T>(&mut self, client: ClientId, change: impl FnOnce(&mut ClientPaths) -> T) -> Option<T> {
        let paths = self.clients.get_mut(&client)?;
        let before = paths.is_faulty();
        let result = change(paths);
        self.faulty = self.faulty + usize::from(paths.is_faulty()) - usize::from(before);
        Some(result)
    }

    /// Changes a session's back channel, if it is known.
    fn change_session(
        &mut self,
        client: ClientId,
        session: SessionId,
        change: impl FnOnce(&mut BackChannelSession),
    ) {
        self.change(client, |paths| paths.sessions.get_mut(&session).map(change));
    }

    /// CREATE_SESSION with a back channel of `slots` slots.
    pub fn add_session(
        &mut self,
        client: ClientId,
        session: SessionId,
        minor: MinorVersion,
        program: CallbackProgram,
        slots: u32,
    ) {
        let slots = SessionSlots::new(slots.min(MAX_BACK_SLOTS));
        self.clients.entry(client).or_default();
        let made = BackChannelSession { minor, program, connections: Vec::new(), slots, out_of_step: false };
        self.change(client, |paths| {
            // A retried CREATE_SESSION finds the session there.
            paths.sessions.entry(session).or_insert(made);
        });
    }

    /// DESTROY_SESSION.
    pub fn remove_session(&mut self, client: ClientId, session: SessionId) {
        self.change(client, |paths| paths.sessions.remove(&session));
    }

    /// The client has ended.
    pub fn remove_client(&mut self, client: ClientId) {
        self.connection_uses.remove(client);
        let removed = self.clients.remove(&client);
        self.faulty -= usize::from(removed.is_some_and(|paths| paths.is_faulty()));
    }

    /// Binds a connection to a session's back channel.
    pub fn bind(&mut self, client: ClientId, session: SessionId, channel: BackChannel) {
        self.change(client, |paths| {
            let Some(found) = paths.sessions.get_mut(&session) else { return };
            paths.was_up = true;
            found.unbind(channel.connection());
            if found.connections.len() >= MAX_CONNECTIONS {
                found.connections.remove(0);
            }
            found.connections.push(channel);
        });
    }

    /// Removes a connection from a session's back channel.
    pub fn unbind(&mut self, client: ClientId, session: SessionId, connection: u64) {
        self.change_session(client, session, |session| session.unbind(connection));
    }

    /// Marks a session's slots as out of step with the client's.
    pub fn set_out_of_step(&mut self, client: ClientId, session: SessionId) {
        self.change_session(client, session, |session| session.out_of_step = true);
    }

    /// BACKCHANNEL_CTL.
    pub fn set_program(&mut self, client: ClientId, session: SessionId, program: CallbackProgram) {
        self.change_session(client, session, |session| session.program = program);
    }

    /// A connection was closed.
    pub fn connection_closed(&mut self, connection: u64) {
        for paths in self.clients.values_mut() {
            let before = paths.is_faulty();
            paths.sessions.values_mut().for_each(|session| session.unbind(connection));
            self.faulty = self.faulty + usize::from(paths.is_faulty()) - usize::from(before);
        }
    }

    /// SETCLIENTID: an address, unconfirmed.
    pub fn propose_address(&mut self, client: ClientId, confirm: u64, address: Option<CallbackAddress>) {
        let Some(address) = address else { return };
        self.clients.entry(client).or_default().unconfirmed = Some((confirm, address));
    }

    /// SETCLIENTID_CONFIRM. Returns whether there is a new address, which should be probed.
    pub fn confirm_address(&mut self, client: ClientId, confirm: u64) -> bool {
        let confirmed = self.change(client, |paths| {
            let Some((_, to)) = paths.unconfirmed.take_if(|(expected, _)| *expected == confirm) else {
                return false;
            };
            paths.address = Some(AddressPath { to, up: false, connection: SharedConnection::default() });
            paths.was_up = false;
            true
        });
        confirmed == Some(true)
    }

    /// Notes whether a call over a connection was answered. After an unanswered one the next call makes a new
    /// connection.
    pub fn answered(&mut self, client: ClientId, connection: &SharedConnection, up: bool) {
        self.change(client, |paths| {
            // A late result says nothing about a newer connection.
            let path = paths.address.as_mut().filter(|path| Arc::ptr_eq(&path.connection, connection));
            let Some(path) = path else { return };
            path.up = up;
            if !up {
                path.connection = SharedConnection::default();
            }
            paths.was_up |= up;
        });
    }

    /// Whether the client can be called, as far as is known.
    pub fn is_up(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(ClientPaths::is_up)
    }

    /// The status of the paths to a client, and of that session's back channel.
    pub fn path_status(&self, client: ClientId, session: Option<SessionId>) -> PathStatus {
        let Some(paths) = self.clients.get(&client) else { return PathStatus::default() };
        let session = session.and_then(|session| paths.sessions.get(&session));
        PathStatus { path_down: paths.is_down(), fault: session.is_some_and(|session| session.out_of_step) }
    }

    /// The number of clients with a faulty path.
    pub const fn faulty(&self) -> usize {
        self.faulty
    }

    /// Limits the connections to NFSv4.0 clients, to one at least. The least recently used one is closed for
    /// a new one, when the last call over it has ended, and made again when it is needed.
    pub fn limit_connections(&mut self, limit: usize) {
        self.connection_uses.limit = limit.max(1);
    }

    /// The peer at which an NFSv4.0 client is called.
    pub fn peer(&self, client: ClientId) -> Option<Peer> {
        let path = self.clients.get(&client)?.address.as_ref()?;
        Some(Peer::remote(path.to.address.ip()))
    }

    /// A path for one call. A reserved slot is given back by [`CallbackPaths::release`].
    ///
    /// # Errors
    /// Where there is no path, or no free slot.
    pub fn reserve(&mut self, client: ClientId) -> Result<CallbackPath, PathError> {
        let paths = self.clients.get(&client).ok_or(PathError::Down)?;
        if let Some(path) = &paths.address {
            let path = CallbackPath::Address(path.to.clone(), Arc::clone(&path.connection));
            if let Some(oldest) = self.connection_uses.touch(client) {
                self.disconnect(oldest);
            }
            return Ok(path);
        }
        let paths = self.clients.get_mut(&client).ok_or(PathError::Down)?;
        let mut refused = PathError::Down;
        for (id, session) in &mut paths.sessions {
            let Some(channel) = session.connections.last().filter(|_| !session.out_of_step) else { continue };
            refused = PathError::Busy;
            if let Some(slot) = session.slots.reserve() {
                return Ok(CallbackPath::Session(ReservedSlot {
                    session: *id,
                    minor: session.minor,
                    program: session.program.clone(),
                    channel: channel.clone(),
                    slot,
                }));
            }
        }
        Err(refused)
    }

    /// Drops the connection to a client; the next call makes another.
    fn disconnect(&mut self, client: ClientId) {
        if let Some(path) = self.clients.get_mut(&client).and_then(|paths| paths.address.as_mut()) {
            path.connection = SharedConnection::default();
        }
    }

    /// Gives a slot back after a call. `used` says that the client has consumed the sequence id.
    pub fn release(&mut self, client: ClientId, reserved: &ReservedSlot, used: bool) {
        self.change_session(client, reserved.session, |session| session.slots.release(reserved.slot, used));
    }
}

/// The paths to all clients behind their lock, with the one count that every SEQUENCE looks at beside it.
pub(crate) struct PathTable {
    paths: Mutex<CallbackPaths>,
    /// The time for a reply: a part of a lease, so that a client hears in time that its path is down.
    pub reply_timeout: Duration,
    /// [`CallbackPaths::faulty`].
    faulty: AtomicUsize,
}

impl PathTable {
    pub fn new(reply_timeout: Duration) -> Self {
        Self { paths: Mutex::default(), reply_timeout, faulty: AtomicUsize::new(0) }
    }

    /// Runs `with` on the paths, under the lock.
    pub fn with<T>(&self, with: impl FnOnce(&mut CallbackPaths) -> T) -> T {
        let mut paths = self.paths.lock();
        let result = with(&mut paths);
        self.faulty.store(paths.faulty(), Ordering::Release);
        result
    }

    /// As [`CallbackPaths::path_status`], without the lock while no client has a faulty path.
    pub fn path_status(&self, client: ClientId, session: Option<SessionId>) -> PathStatus {
        if self.faulty.load(Ordering::Acquire) == 0 {
            return PathStatus::default();
        }
        self.with(|paths| paths.path_status(client, session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_connection_is_closed_first() {
        let client = |number: u32| ClientId(u64::from(number));
        let mut paths = CallbackPaths::default();
        paths.limit_connections(2);
        for number in 1..=3 {
            let address = CallbackAddress {
                address: SocketAddr::from(([192, 0, 2, 1], 700)),
                program: 1,
                ident: number,
            };
            paths.propose_address(client(number), 1, Some(address));
            assert!(paths.confirm_address(client(number), 1));
        }
        let mut connection = |number| match paths.reserve(client(number)) {
            Ok(CallbackPath::Address(_, connection)) => connection,
            _ => panic!("no address"),
        };
        let (first, second) = (connection(1), connection(2));
        assert!(Arc::ptr_eq(&first, &connection(1)), "used again: the second is the oldest now");
        connection(3);
        assert!(Arc::ptr_eq(&first, &connection(1)));
        assert!(!Arc::ptr_eq(&second, &connection(2)), "closed for the third");
    }
}
