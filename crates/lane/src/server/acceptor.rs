//! The acceptor: connections that aren't lanes yet.
//!
//! One thread waits for all of them, so that a thousand registrations cost at most a thousand descriptors,
//! bounded by the registry, and no threads. A nonce from an NFS connection reads them on its own thread. A
//! client's messages from before it sends its nonce have arrived by then, so one non-blocking read is enough.
//! Only readable connections are read: silent ones cost a nonce nothing.

use super::NonceOutcome;
use super::grant_budget::share_of;
use crate::message::{self, HandshakeRefusal, LaneReply, LaneRequest, VERSIONS};
use crate::nonce::{Commitment, Nonce};
use crate::peer::PeerCredentials;
use crate::registry::{Arrival, Bounds, Claim, Registry, WaitingId};
use crate::socket::{self, Received};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;
use tracing::debug;

/// The most connections accepted in a row from one listener.
const MAX_ACCEPT: usize = 1024;
/// The epoll data of the wake-up and the listeners. Waiting connections have larger numbers.
pub(super) const WAKE: u64 = 0;
const FIRST_LISTENER: u64 = 1;
const FIRST_WAITING: u64 = 16;

/// A connection that may become a lane.
pub(super) struct WaitingConnection {
    pub(super) socket: OwnedFd,
    pub(super) process: PeerCredentials,
    pub(super) version: u32,
    pub(super) through: String,
    registered: bool,
}

impl WaitingConnection {
    /// A client that the server has called and that has registered.
    pub(super) fn called(socket: OwnedFd, process: PeerCredentials, version: u32, through: String) -> Self {
        Self { socket, process, version, through, registered: true }
    }
}

/// A listening socket and its name for the status.
pub(super) struct LaneListener {
    pub(super) socket: OwnedFd,
    pub(super) name: String,
}

/// The connections that aren't lanes yet. Used under a lock.
pub(super) struct Acceptor {
    epoll: std::sync::Arc<OwnedFd>,
    listeners: Vec<LaneListener>,
    registry: Registry,
    waiting: HashMap<WaitingId, WaitingConnection>,
    next: WaitingId,
    /// The most sockets in the epoll set.
    most: usize,
}

/// The result of a nonce.
pub(super) enum Claimed {
    /// No registration. A client may be waiting to be called.
    Nobody,
    /// The connection that becomes a lane.
    One(Box<WaitingConnection>),
    /// The nonce was used before or registered twice: no lane.
    Never(NonceOutcome),
}

impl Acceptor {
    pub(super) fn new(
        epoll: std::sync::Arc<OwnedFd>,
        listeners: Vec<LaneListener>,
        bounds: Bounds,
    ) -> rustix::io::Result<Self> {
        for (number, listener) in (FIRST_LISTENER..).zip(&listeners) {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, &listener.socket, data, epoll::EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            listeners,
            registry: Registry::new(bounds),
            waiting: HashMap::new(),
            next: FIRST_WAITING,
            most: bounds.waiting + FIRST_WAITING as usize,
        })
    }

    /// Handles a readable socket. Returns whether the process has run out of descriptors, so that the socket
    /// would be readable again at once.
    pub(super) fn ready(&mut self, data: u64, now: Instant) -> bool {
        if data >= FIRST_WAITING {
            self.read(data, now);
            return false;
        }
        self.accept(now)
    }

    /// Handles a nonce from an NFS connection.
    pub(super) fn claim(&mut self, nonce: &Nonce, now: Instant) -> Claimed {
        self.accept(now);
        let mut events = Vec::with_capacity(self.most);
        // It fails only with a signal. Then the acceptor's thread reads, and the client probes again.
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&no_wait));
        let ready = events.iter().map(|event| event.data.u64()).filter(|data| *data >= FIRST_WAITING);
        ready.for_each(|id| self.read(id, now));
        match self.registry.claim(nonce, now) {
            Claim::Nobody => Claimed::Nobody,
            Claim::Spent => Claimed::Never(NonceOutcome::Spent),
            Claim::Ambiguous(ids) => {
                debug!("a nonce was registered by {} connections: nothing is local", ids.len());
                ids.into_iter().for_each(|id| self.refuse(id, HandshakeRefusal::Ambiguous));
                Claimed::Never(NonceOutcome::Ambiguous)
            }
            Claim::TooMany(id) => {
                self.refuse(id, HandshakeRefusal::TooMany);
                Claimed::Never(NonceOutcome::TooMany)
            }
            Claim::One(id) => match self.waiting.remove(&id) {
                Some(waiting) => {
                    let _ = epoll::delete(&self.epoll, &waiting.socket);
                    Claimed::One(Box::new(waiting))
                }
                None => Claimed::Never(NonceOutcome::Failed),
            },
        }
    }

    /// A client that the server has called has registered this commitment. Returns whether it may become a
    /// lane.
    pub(super) fn spend_called(
        &mut self,
        commitment: Commitment,
        process: &PeerCredentials,
        now: Instant,
    ) -> bool {
        self.registry.spend_called(commitment, share_of(process), now)
    }

    /// Closes connections that have waited for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        for id in self.registry.expire(now) {
            self.close(id);
        }
    }

    /// The next time at which [`Acceptor::expire`] has something to do.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.registry.next_expiry()
    }

    /// The number of waiting connections.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Closes the listeners and all waiting connections.
    pub(super) fn shut(&mut self) {
        for listener in self.listeners.drain(..) {
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
        let ids: Vec<_> = self.waiting.keys().copied().collect();
        ids.into_iter().for_each(|id| self.refuse(id, HandshakeRefusal::Draining));
    }

    fn accept(&mut self, now: Instant) -> bool {
        for index in 0..self.listeners.len() {
            for _ in 0..MAX_ACCEPT {
                let listener = &self.listeners[index];
                let socket = match rustix::net::accept_with(&listener.socket, SocketFlags::CLOEXEC) {
                    Ok(socket) => socket,
                    Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => return true,
                    Err(_) => break,
                };
                let through = listener.name.clone();
                if let Ok(process) = PeerCredentials::of(&socket) {
                    self.arrive(
                        WaitingConnection { socket, process, version: 0, through, registered: false },
                        now,
                    );
                }
            }
        }
        false
    }

    fn arrive(&mut self, waiting: WaitingConnection, now: Instant) {
        let id = self.next;
        let data = epoll::EventData::new_u64(id);
        let process = &waiting.process;
        match self.registry.arrive(id, share_of(process), now) {
            Arrival::Waits => {}
            Arrival::Displaces(other) => self.refuse(other, HandshakeRefusal::TooMany),
            Arrival::Refused => {
                let _ = socket::send(
                    &waiting.socket,
                    &message::encode(&LaneReply::Refused(HandshakeRefusal::TooMany)),
                    &[],
                );
                return;
            }
        }
        if epoll::add(&self.epoll, &waiting.socket, data, epoll::EventFlags::IN | epoll::EventFlags::RDHUP)
            .is_err()
        {
            self.registry.leave(id);
            return;
        }
        self.next += 1;
        self.waiting.insert(id, waiting);
        // Read its registration at once: a connection that has registered is displaced after one that hasn't.
        self.read(id, now);
    }

    /// Reads the one message that a waiting connection may send.
    fn read(&mut self, id: WaitingId, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        let mut buffer = [0; message::MAX_MESSAGE + 1];
        let length = match socket::receive_bytes(&waiting.socket, &mut buffer, false) {
            Err(Errno::AGAIN) => return,
            Ok(Received::Datagram { length, .. }) => length,
            Ok(Received::HangUp | Received::Violation(_)) | Err(_) => return self.close(id),
        };
        let Ok(LaneRequest::Register { lowest, highest, commitment }) = message::decode(&buffer[..length])
        else {
            return self.close(id);
        };
        let Some(version) = message::negotiate(lowest, highest) else {
            return self.refuse(
                id,
                HandshakeRefusal::Version { lowest: *VERSIONS.start(), highest: *VERSIONS.end() },
            );
        };
        waiting.version = version;
        waiting.registered = true;
        if self.registry.register(id, commitment, now).is_err() {
            self.refuse(id, HandshakeRefusal::Ambiguous);
        }
    }

    fn refuse(&mut self, id: WaitingId, refusal: HandshakeRefusal) {
        if let Some(waiting) = self.waiting.get(&id) {
            // Closing a socket with unread data gives the other end ECONNRESET instead of the refusal.
            let _ = socket::receive_bytes(&waiting.socket, &mut [0; message::MAX_MESSAGE + 1], false);
            let _ = socket::send(&waiting.socket, &message::encode(&LaneReply::Refused(refusal)), &[]);
        }
        self.close(id);
    }

    fn close(&mut self, id: WaitingId) {
        self.registry.leave(id);
        // Closing removes it from the epoll set.
        self.waiting.remove(&id);
    }
}
