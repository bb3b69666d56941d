//! One TCP connection: its two halves, and how it is armed in epoll.
//!
//! Locks, in the order in which they are taken: the receiving half, then the sending half's queue. Neither is
//! held while a program runs or while bytes are sent.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};

use sys::TcpOwner;

use fairness::Standing;

use super::{
    ConnectionInfo, Peer, Verdict, admission::Remembered, back::Calls, engine::Engine, memory::Asker,
    receive::Receive, send::Send, workers_share::WorkersShare,
};

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// Who.
    pub peer: Peer,
    /// Whom to charge.
    pub share: fairness::Peer,
    /// What all connections of the peer share.
    pub workers: Arc<WorkersShare>,
    /// Since when.
    pub since: SystemTime,
    /// Whether the peer is served.
    pub admission: Remembered,
    /// The receiving half, with the turn.
    pub receive: Mutex<Receive>,
    /// The sending half.
    pub send: Send,
    /// Calls in the other direction.
    pub back: Calls,
    last_used: AtomicU64,
    socket: OwnedFd,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// A fresh connection over the non-blocking `socket`.
    pub fn new(
        socket: OwnedFd,
        number: u64,
        address: SocketAddr,
        local: SocketAddr,
        owner: TcpOwner,
        engine: &Engine,
    ) -> Self {
        let peer = Peer { connection: number, address, local, owner };
        let share = peer.share();
        Self {
            peer,
            share,
            workers: engine.registry.workers_of(&share),
            since: SystemTime::now(),
            admission: Remembered::ask(&*engine.admission, &peer),
            receive: Mutex::new(Receive::new(engine.limits.max_record)),
            send: Send::new(Arc::clone(&engine.unread), peer),
            back: Calls::default(),
            last_used: AtomicU64::new(engine.moment()),
            socket,
        }
    }

    /// Whether the peer is served, now.
    #[inline]
    pub fn verdict(&self, engine: &Engine) -> Verdict {
        self.admission.verdict(&*engine.admission, &self.peer)
    }

    /// Which reserves are open to the peer, by the last verdict.
    pub fn standing(&self) -> Standing {
        if self.share.is_local_root() {
            Standing::LocalRoot
        } else if self.admission.was_admitted() {
            Standing::Admitted
        } else {
            Standing::Stranger
        }
    }

    /// A worker works for it, now.
    #[inline]
    pub fn use_now(&self, engine: &Engine) {
        self.last_used.store(engine.moment(), Ordering::Relaxed);
    }

    /// The moment when a worker last began to work for it.
    pub fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Whether nothing would be cut off if it were closed, but for a small call that has only begun to come
    /// in.
    pub fn is_idle(&self, receive: &Receive) -> bool {
        receive.turn.is_quiet() && receive.large_progress().is_none() && self.send.state().1
    }

    /// Who asks for memory for this connection.
    pub fn asker(&self) -> Asker {
        Asker { connection: self.number(), peer: self.share, standing: self.standing() }
    }

    /// Its number, which is also its epoll data.
    pub const fn number(&self) -> u64 {
        self.peer.connection
    }

    /// Arms the connection, once, for whatever it can go on with. `receive` is its locked receiving half, of
    /// a connection that nobody drives. Who leaves replies in the queue of a full socket arms it again
    /// afterwards.
    pub fn arm(&self, epoll: &OwnedFd, receive: &Receive, stopping: bool) -> Result<(), Errno> {
        self.arm_for(epoll, self.interest(receive, stopping))
    }

    /// What the connection can go on with.
    pub fn interest(&self, receive: &Receive, stopping: bool) -> EventFlags {
        let mut flags = EventFlags::ONESHOT;
        let (blocked, empty) = self.send.state();
        if blocked {
            return flags | EventFlags::OUT;
        }
        if !receive.queued && !receive.ended && !stopping {
            flags |= EventFlags::IN;
        }
        if !empty || (!receive.queued && receive.has_next()) {
            flags |= EventFlags::OUT; // there is something to do at once
        }
        flags
    }

    /// Arms the connection, once, for `interest`.
    pub fn arm_for(&self, epoll: &OwnedFd, interest: EventFlags) -> Result<(), Errno> {
        epoll::modify(epoll, &self.socket, EventData::new_u64(self.number()), interest)
    }

    /// Makes a worker look at the connection, which closes it if it has nothing left to do; for an engine
    /// that stops.
    pub fn finish(&self, epoll: &OwnedFd) {
        let receive = self.receive.lock();
        if !receive.turn.is_driven() && !receive.closed {
            let (data, flags) = (EventData::new_u64(self.number()), EventFlags::OUT | EventFlags::ONESHOT);
            // Fails only for a connection that is being closed already.
            let _ = epoll::modify(epoll, &self.socket, data, flags);
        }
    }

    /// How it stands.
    pub fn info(&self) -> ConnectionInfo {
        let (calls, bytes_in) = {
            let receive = self.receive.lock();
            (receive.calls, receive.bytes)
        };
        ConnectionInfo {
            peer: self.peer,
            admitted: self.admission.was_admitted(),
            since: self.since,
            calls,
            bytes_in,
            bytes_out: self.send.bytes_out(),
        }
    }
}
