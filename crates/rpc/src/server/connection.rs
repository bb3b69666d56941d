//! One connection: its receiving and sending halves, and how it is armed in epoll.
//!
//! Lock order: the receiving half, then the sending half's queue. Neither is held while a program runs or
//! while bytes are sent.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use rustix::{
    event::{
        PollFd, PollFlags, Timespec,
        epoll::{self, EventData, EventFlags},
        poll,
    },
    io::Errno,
};

use fairness::Standing;

use super::{
    Admission, ConnectionInfo, Peer, Verdict, admission::CachedVerdict, call_socket::CallSocketRules,
    callbacks::PendingCallbacks, engine::Engine, memory::MemoryRequester, receive::Receive, send::Send,
    sender_turn::SendInterest, workers_share::WorkersShare,
};
use crate::transport::Transport;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// The peer.
    pub peer: Peer,
    /// The peer that it is charged to.
    pub share: fairness::Peer,
    /// What all connections of the peer share.
    pub workers: Arc<WorkersShare>,
    /// When it was accepted.
    pub since: SystemTime,
    /// Whether the peer is served.
    pub admission: CachedVerdict,
    /// The receiving half, with the driver's role.
    pub receive: Mutex<Receive>,
    /// The sending half.
    pub send: Send,
    /// Calls in the other direction.
    pub callbacks: Arc<PendingCallbacks>,
    /// The byte stream.
    pub transport: Transport<OwnedFd>,
    /// For a call socket, the connection that it belongs to and what may be called.
    pub call_socket: Option<CallSocketRules>,
    last_used: AtomicU64,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

impl Connection {
    /// A fresh connection over `transport`.
    pub fn new(
        engine: &Engine,
        transport: Transport<OwnedFd>,
        peer: Peer,
        call_socket: Option<CallSocketRules>,
    ) -> Self {
        Self {
            peer,
            share: peer.share(),
            workers: engine.registry.workers_of(&peer.share()),
            since: SystemTime::now(),
            admission: CachedVerdict::ask(&*engine.admission, &peer),
            receive: Mutex::new(Receive::new(engine.limits.max_record)),
            send: Send::new(Arc::clone(&engine.unread), peer, engine.limits.reply_queue),
            callbacks: Arc::default(),
            transport,
            call_socket,
            last_used: AtomicU64::new(engine.moment()),
        }
    }

    /// Whether the peer is served, now.
    #[inline]
    pub fn verdict(&self, admission: &dyn Admission) -> Verdict {
        self.admission.verdict(admission, &self.peer)
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

    /// Notes that a worker drives it at the moment `now` of the engine.
    #[inline]
    pub fn use_now(&self, now: u64) {
        self.last_used.store(now, Ordering::Relaxed);
    }

    /// The moment when a worker last became its driver.
    pub fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Whether closing it would cut off nothing but the beginning of a small call.
    pub fn is_idle(&self, receive: &Receive) -> bool {
        receive.turn.is_quiet() && receive.large_progress().is_none() && self.send.is_idle()
    }

    /// The requester of memory for this connection.
    pub fn requester(&self) -> MemoryRequester {
        MemoryRequester { connection: self.number(), peer: self.share, standing: self.standing() }
    }

    /// Its number, which is also its epoll data.
    pub const fn number(&self) -> u64 {
        self.peer.connection
    }

    /// Arms the connection, once, for everything that it can continue with. `receive` is its locked receiving
    /// half; the connection has no driver. A thread that has sent arms it again when it leaves.
    pub fn arm(&self, epoll: &OwnedFd, receive: &Receive, stopping: bool) -> Result<(), Errno> {
        self.arm_for(epoll, self.interest(receive, stopping))
    }

    /// The events that the connection can continue with.
    pub fn interest(&self, receive: &Receive, stopping: bool) -> EventFlags {
        Self::interest_for(self.send.interest(), receive, stopping)
    }

    /// As [`Connection::interest`], for a sending half with this interest.
    pub fn interest_for(send: SendInterest, receive: &Receive, stopping: bool) -> EventFlags {
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::OUT, send.socket);
        if !send.calls || receive.queued {
            return flags;
        }
        flags.set(EventFlags::IN, !receive.ended && !stopping);
        if receive.has_next() {
            flags |= EventFlags::OUT; // there is something to do at once
        }
        flags
    }

    /// Arms the connection, once, for `interest`.
    pub fn arm_for(&self, epoll: &OwnedFd, interest: EventFlags) -> Result<(), Errno> {
        epoll::modify(epoll, &self.transport, EventData::new_u64(self.number()), interest)
    }

    /// Whether one of the events of `interest` has occurred, so that the connection gets an event as soon as
    /// it is armed. An error or the end of the stream counts.
    pub fn has_event(&self, interest: EventFlags) -> bool {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, interest.contains(EventFlags::IN));
        wanted.set(PollFlags::OUT, interest.contains(EventFlags::OUT));
        let mut polled = [PollFd::new(&self.transport, wanted)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Makes a worker look at the connection, which closes it if nothing is left to do. For an engine that
    /// stops, and for a call socket that receives no more.
    pub fn finish(&self, epoll: &OwnedFd) {
        let receive = self.receive.lock();
        if !receive.turn.is_driven() && !receive.closed {
            let (data, flags) = (EventData::new_u64(self.number()), EventFlags::OUT | EventFlags::ONESHOT);
            // It fails only for a connection that is being closed already.
            let _ = epoll::modify(epoll, &self.transport, data, flags);
        }
    }

    /// A snapshot for the status.
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
