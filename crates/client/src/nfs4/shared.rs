//! The clients that sessions of this process share: one client id for each server (RFC 8881 section 2.4),
//! with its session, its connections and its lease.
//!
//! Sessions share a client if they would have the same connections and be the same to the server
//! ([`ClientKey`]). What belongs to a session goes with its requests ([`crate::calling_session`]): its
//! counters and its lane's call socket. Its users are open owners of their own. A session that asks for
//! delegations shares its client with no other: a delegation is the client's, so the server doesn't recall it
//! for another session, which would change what this one believes of the file.
//!
//! Two network addresses have a client each, also if EXCHANGE_ID returns the same server owner and scope for
//! both: neither sessions nor client ids are trunked (RFC 8881 section 2.10.5). Whether the two are one
//! server can't be verified without RPCSEC_GSS (section 2.10.5.1). A client that believed it would send a
//! session's requests to whichever server says that it is the other one. One server knows two clients then:
//! their owners differ, also with the same [`Options::unique_id`] ([`super::identity`]).
//!
//! Invariant: a client ends with its last session: its session and client id are destroyed by the last
//! [`ClientUse::end`], and its connections are closed after the last [`ClientUse`] is dropped.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use proto::nfs4::MinorVersion;
use rpc::client::Policy;
use tokio::runtime;

use super::session::SessionClient;
use crate::error::Result;
use crate::options::{LaneMode, Options, ReservedPort};
use crate::user::User;

/// What sessions with one client have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientKey {
    /// The connections end with it.
    runtime: runtime::Id,
    server: SocketAddr,
    minor: MinorVersion,
    /// The user who establishes the session, and to whom the server binds the client id.
    principal: Arc<[u8]>,
    unique_id: Option<String>,
    policy: Policy,
    connections: u32,
    reserved_port: ReservedPort,
    /// On the connection of a lane, the server answers changes of names before they are durable.
    without_lane: bool,
    /// The session, if it asks for delegations: no other shares its client.
    alone: Option<u64>,
}

impl ClientKey {
    /// The key of a session of this runtime.
    pub(super) fn new(options: &Options, user: &User, server: SocketAddr, minor: MinorVersion) -> Self {
        Self {
            runtime: runtime::Handle::current().id(),
            server,
            minor,
            principal: user.ids.clone(),
            unique_id: options.unique_id.clone(),
            policy: options.policy(),
            connections: options.nconnect,
            reserved_port: options.reserved_port,
            without_lane: options.lane == LaneMode::Off,
            alone: (options.delegations == Some(true)).then_some(user.session.number),
        }
    }
}

/// A client and its sessions.
#[derive(Debug)]
struct SharedClient {
    client: Arc<SessionClient>,
    /// The sessions that haven't ended. With the last of them the client ends, and no other session joins it.
    sessions: Mutex<usize>,
}

impl Drop for SharedClient {
    fn drop(&mut self) {
        self.client.close();
    }
}

impl SharedClient {
    fn join(self: Arc<Self>) -> Option<ClientUse> {
        let mut sessions = self.sessions.lock();
        if *sessions == 0 {
            return None;
        }
        *sessions += 1;
        drop(sessions);
        Some(ClientUse { shared: self, is_ended: AtomicBool::new(false) })
    }
}

/// A session's part in a client.
#[derive(Debug)]
pub(super) struct ClientUse {
    shared: Arc<SharedClient>,
    is_ended: AtomicBool,
}

impl Drop for ClientUse {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ClientUse {
    pub(super) fn client(&self) -> &Arc<SessionClient> {
        &self.shared.client
    }

    /// The session ends. Returns whether it was the last one.
    fn leave(&self) -> bool {
        if self.is_ended.swap(true, AcqRel) {
            return false;
        }
        let mut sessions = self.shared.sessions.lock();
        *sessions -= 1;
        *sessions == 0
    }

    /// Ends the session at the server: what it has open is closed, and if no other session has the client,
    /// that ends. Files that are still open can be used further.
    pub(super) async fn end(&self) {
        if self.leave() {
            self.client().end().await;
        } else {
            self.client().changes_sent().await;
        }
    }
}

/// The client of a key, while a session has it. The lock is held while one is made.
type ClientOfKey = tokio::sync::Mutex<Weak<SharedClient>>;

/// The places of clients. One that no session has any more is removed when the next session looks.
type ClientsByKey = Vec<(ClientKey, Arc<ClientOfKey>)>;

/// The clients of this process.
static CLIENTS: LazyLock<Mutex<ClientsByKey>> = LazyLock::new(Mutex::default);

/// The place of a key's client.
fn client_of(key: ClientKey) -> Arc<ClientOfKey> {
    let mut clients = CLIENTS.lock();
    // A place that another task has isn't locked here, and is kept.
    let is_needed = |place: &Arc<ClientOfKey>| place.try_lock().is_ok_and(|client| client.strong_count() > 0);
    clients.retain(|(_, place)| Arc::strong_count(place) > 1 || is_needed(place));
    if let Some((_, place)) = clients.iter().find(|(other, _)| *other == key) {
        return place.clone();
    }
    let place = Arc::<ClientOfKey>::default();
    clients.push((key, place.clone()));
    place
}

/// A part in the client of a key, which `make` makes if there is none.
///
/// # Errors
/// Those of `make`.
pub(super) async fn use_client(
    key: ClientKey,
    make: impl Future<Output = Result<Arc<SessionClient>>>,
) -> Result<ClientUse> {
    let place = client_of(key);
    let mut current = place.lock().await;
    if let Some(joined) = current.upgrade().and_then(SharedClient::join) {
        return Ok(joined);
    }
    let shared = Arc::new(SharedClient { client: make.await?, sessions: Mutex::new(1) });
    *current = Arc::downgrade(&shared);
    Ok(ClientUse { shared, is_ended: AtomicBool::new(false) })
}
