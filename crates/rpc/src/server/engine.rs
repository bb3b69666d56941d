//! What the workers, the supervisor and the public face share.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::Thread,
};

use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    io::Errno,
};

use super::{
    Admission, Limits, Program,
    connection::Connection,
    displacing::Newcomer,
    listener::Listener,
    memory::{Memory, rounded},
    receive::Receive,
    registry::Registry,
    spare::Spare,
    unread::Unread,
    workers_share::WorkersShare,
};

/// The epoll data of the descriptor that wakes all workers to end them.
pub const STOP: u64 = 0;

/// The epoll data of the first listener; connections count on behind the last.
pub const FIRST_LISTENER: u64 = 1;

/// What a worker is doing, for the supervisor. One cache line each.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Activity {
    /// The number of the connection that it works for, 0 for none.
    pub connection: AtomicU64,
    /// Counts the steps (calls and sends) that it has begun.
    pub steps: AtomicU64,
}

/// An engine.
pub struct Engine {
    /// Bounds.
    pub limits: Limits,
    /// Which peers are served.
    pub admission: Arc<dyn Admission>,
    /// What can be called.
    pub programs: Vec<Arc<dyn Program>>,
    /// Where events come from.
    pub epoll: OwnedFd,
    /// Where connections come from.
    pub listeners: Vec<Listener>,
    /// For connections to be accepted when there are no other descriptors.
    pub spare: Spare,
    /// Who is connected.
    pub registry: Registry,
    /// Calls denied because their peer isn't admitted.
    pub denied: AtomicU64,
    /// Memory for large calls.
    pub memory: Arc<Memory>,
    /// Memory for replies that peers leave unread.
    pub unread: Arc<Unread>,
    /// One for each worker.
    pub activity: Vec<Activity>,
    /// No new connection, no new call.
    pub stopping: AtomicBool,
    /// Threads are to end.
    pub ended: AtomicBool,
    /// Whether the supervisor sleeps without a time limit.
    pub supervisor_sleeps: AtomicBool,
    supervisor: OnceLock<Thread>,
    /// Grows while anybody works: a clock that costs nothing to read, to tell by who has been idle for
    /// longest.
    moments: AtomicU64,
    next_number: AtomicU64,
    stop: OwnedFd,
}

impl Engine {
    /// Puts the parts together; nothing runs yet.
    pub fn new(
        mut limits: Limits,
        admission: Arc<dyn Admission>,
        programs: Vec<Arc<dyn Program>>,
        listeners: Vec<Listener>,
    ) -> Result<Self, Errno> {
        limits.threads = limits.threads.max(1);
        limits.receive_memory = limits.receive_memory.max(rounded(limits.max_record));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        for (number, listener) in (FIRST_LISTENER..).zip(&listeners) {
            listener.watch(&epoll, number)?;
        }
        Ok(Self {
            spare: Spare::new(),
            registry: Registry::new(&limits),
            moments: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            memory: Memory::new(limits.receive_memory, rounded(limits.max_record)),
            unread: Unread::new(limits.reply_memory),
            activity: (0..limits.threads).map(|_| Activity::default()).collect(),
            stopping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            supervisor_sleeps: AtomicBool::new(false),
            supervisor: OnceLock::new(),
            next_number: AtomicU64::new(FIRST_LISTENER + listeners.len() as u64),
            limits,
            admission,
            programs,
            epoll,
            listeners,
            stop,
        })
    }

    /// A number for the next connection.
    pub fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Now, in ticks of the supervisor.
    #[inline]
    pub fn moment(&self) -> u64 {
        self.moments.load(Ordering::Relaxed)
    }

    /// A tick of the supervisor.
    pub fn tick(&self) {
        self.moments.fetch_add(1, Ordering::Relaxed);
    }

    /// How many workers work, for anybody.
    pub fn at_work(&self) -> usize {
        self.activity.iter().filter(|activity| activity.connection.load(Ordering::SeqCst) != 0).count()
    }

    /// Has the connection number `first` driven, or the next in line if it is driven already or gone.
    pub fn go_on(&self, workers: &WorkersShare, first: Option<u64>) {
        let mut next = first;
        while let Some(number) = next {
            if let Some(connection) = self.registry.get(number) {
                let receive = connection.receive.lock();
                // An error means that the connection has gone.
                if !receive.closed
                    && !receive.turn.is_driven()
                    && connection.arm(&self.epoll, &receive, self.is_stopping()).is_ok()
                {
                    return;
                }
            }
            next = workers.next();
        }
    }

    /// Closes an idle connection to make room for `newcomer`, if one has to make way for it.
    pub fn make_way(&self, newcomer: Newcomer) -> bool {
        for number in self.registry.displaced_by(newcomer) {
            let Some(connection) = self.registry.get(number) else { continue };
            if self.close_if(&connection, false, |receive| connection.is_idle(receive)) {
                tracing::debug!(peer = %connection.peer.address, "closed: idle, and others need its place");
                self.registry.displaced();
                return true;
            }
        }
        false
    }

    /// Whether the engine is on its way to the end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The calling thread is the supervisor.
    pub fn i_supervise(&self) {
        let _ = self.supervisor.set(std::thread::current());
    }

    /// Makes sure that the supervisor is awake. Its sleeping and our having something for it are told in two
    /// words: each side writes its own first and then reads the other's, in one total order, so one of them
    /// sees.
    #[inline]
    pub fn wake_supervisor(&self) {
        if self.supervisor_sleeps.load(Ordering::SeqCst)
            && self.supervisor_sleeps.swap(false, Ordering::SeqCst)
            && let Some(supervisor) = self.supervisor.get()
        {
            supervisor.unpark();
        }
    }

    /// How many workers with slow calls of one connection may be detached. With its driver they are fewer
    /// than its peer may keep busy ([`WorkersShare`]), so that they don't hold up the peer's other
    /// connections (if there are four workers or more: less than that is for tests).
    pub fn max_detached(&self) -> usize {
        match self.limits.threads {
            few @ 0..=3 => few.saturating_sub(1),
            threads => threads * 5 / 8 - 1,
        }
    }

    /// Hands out receive memory that has become free to those who wait for it. To be called, without a lock,
    /// after whatever may have dropped a permit.
    pub fn serve_waiters(&self) {
        while let Some((number, permit)) = self.memory.next_granted() {
            let Some(connection) = self.registry.get(number) else { continue };
            let unused = {
                let mut receive = connection.receive.lock();
                if receive.queued && !receive.closed {
                    receive.begin_large(permit, &self.memory);
                    if !receive.turn.is_driven() {
                        // An error means that the connection has gone; whoever closes it is on the way.
                        let _ = connection.arm(&self.epoll, &receive, self.is_stopping());
                    }
                    None
                } else {
                    Some(permit)
                }
            };
            drop(unused);
            self.wake_supervisor();
        }
    }

    /// Closes those who hold the most while peers leave more unread than there may be. To be called, without
    /// a lock, after whatever may have left replies in a queue.
    pub fn reclaim_replies(&self) {
        while let Some(number) = self.unread.surplus() {
            let Some(connection) = self.registry.get(number) else { continue };
            tracing::info!(peer = %connection.peer.address, "closed: it leaves the most replies unread");
            self.close(&connection, true);
        }
    }

    /// Closes a connection, now. Calls of it that are running end as they do, for nobody. `broken` says it
    /// was the peer's fault.
    pub fn close(&self, connection: &Arc<Connection>, broken: bool) {
        self.close_if(connection, broken, |_| true);
    }

    /// Closes a connection, if `condition` holds of it; nobody begins to work for it in between. Returns
    /// whether it did.
    fn close_if(
        &self,
        connection: &Arc<Connection>,
        broken: bool,
        condition: impl FnOnce(&Receive) -> bool,
    ) -> bool {
        let (rest, quiet) = {
            let mut receive = connection.receive.lock();
            if receive.closed || !condition(&receive) {
                return false;
            }
            receive.closed = true;
            self.memory.hold(&connection.asker(), &mut receive.held, 0);
            (receive.clear(), receive.turn.is_quiet())
        };
        drop(rest);
        connection.send.break_off();
        connection.back.close();
        self.memory.cancel(&connection.asker());
        // Neither can fail in a way that matters: the descriptor is ours and open.
        let _ = epoll::delete(&self.epoll, connection);
        let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
        self.registry.remove(connection, broken);
        connection.workers.forget(connection.number());
        if quiet {
            self.gone(connection);
        }
        self.serve_waiters();
        true
    }

    /// Tells the programs that a closed connection's last call has ended.
    pub fn gone(&self, connection: &Connection) {
        for program in &self.programs {
            let told =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.closed(&connection.peer)));
            if told.is_err() {
                tracing::error!(program = program.number(), "panicked when told of a closed connection");
            }
        }
    }

    /// Ends the threads.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // The counter is 0 or 1: adding 1 can't fail.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.unpark();
        }
    }
}
