//! The state that the workers, the supervisor and the public interface share.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::Thread,
};

use parking_lot::MutexGuard;
use rustix::{
    event::{
        EventfdFlags,
        epoll::{self, EventFlags},
        eventfd,
    },
    io::Errno,
};

use super::{
    Admission, Limits, Program, Verdict,
    back_channel::{CallbackSender, EncodeCallback},
    callbacks::{BackChannelError, CallbackReply},
    connection::Connection,
    displacing::Newcomer,
    listener::Listener,
    memory::{ReceiveMemory, rounded},
    receive::Receive,
    registry::Registry,
    reserved_descriptors::ReservedDescriptors,
    send::Flushed,
    unread_replies::UnreadReplies,
    workers_share::WorkersShare,
};

/// The epoll data of the descriptor that wakes all workers so that they end.
pub const STOP: u64 = 0;

/// The epoll data of the first listener. Connections are numbered after the last listener.
pub const FIRST_LISTENER: u64 = 1;

/// What a worker is doing, for the supervisor. Each has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Activity {
    /// The number of the connection that it drives, 0 for none.
    pub connection: AtomicU64,
    /// The number of steps (calls and sends) that it has begun.
    pub steps: AtomicU64,
}

/// The engine.
pub struct Engine {
    /// Bounds.
    pub limits: Limits,
    /// Which peers are served.
    pub admission: Arc<dyn Admission>,
    /// The programs that can be called.
    pub programs: Vec<Arc<dyn Program>>,
    /// The epoll instance of all workers.
    pub epoll: OwnedFd,
    /// The listening sockets.
    pub listeners: Vec<Listener>,
    /// Descriptors reserved for accepting connections when all others are in use.
    pub reserved_descriptors: ReservedDescriptors,
    /// The connections.
    pub registry: Registry,
    /// Calls denied because their peer isn't admitted.
    pub denied: AtomicU64,
    /// Memory for large calls.
    pub memory: Arc<ReceiveMemory>,
    /// Memory held by replies that peers leave unread.
    pub unread: Arc<UnreadReplies>,
    /// One entry for each worker.
    pub activity: Vec<Activity>,
    /// The engine is stopping: it accepts no connection and no call.
    pub stopping: AtomicBool,
    /// The threads are to end.
    pub ended: AtomicBool,
    /// Whether the supervisor sleeps without a timeout.
    pub supervisor_sleeps: AtomicBool,
    supervisor: OnceLock<Thread>,
    /// The number of supervisor ticks, which grows while any worker is busy. It is a clock that costs nothing
    /// to read, used to find the connection that has been idle for longest.
    moments: AtomicU64,
    next_number: AtomicU64,
    stop: OwnedFd,
}

impl Engine {
    /// Creates the engine. No thread runs yet.
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
            reserved_descriptors: ReservedDescriptors::new(),
            registry: Registry::new(&limits),
            moments: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            memory: ReceiveMemory::new(limits.receive_memory, rounded(limits.max_record)),
            unread: UnreadReplies::new(limits.reply_memory),
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

    /// The number for the next connection.
    pub fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The current time in supervisor ticks.
    #[inline]
    pub fn moment(&self) -> u64 {
        self.moments.load(Ordering::Relaxed)
    }

    /// Counts one supervisor tick.
    pub fn tick(&self) {
        self.moments.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of workers that drive a connection.
    pub fn busy_workers(&self) -> usize {
        self.activity.iter().filter(|activity| activity.connection.load(Ordering::SeqCst) != 0).count()
    }

    /// Arms connection number `first`, or the next ones in line until one has an event: its worker resumes
    /// the next one. A connection in line may have none, if a worker has driven it meanwhile.
    pub fn resume_first(&self, workers: &WorkersShare, first: Option<u64>) {
        let mut next = first;
        while let Some(number) = next {
            if let Some(connection) = self.registry.get(number) {
                let receive = connection.receive.lock();
                if !receive.closed && !receive.turn.is_driven() {
                    let interest = connection.interest(&receive, self.is_stopping());
                    // An error means that the connection is closed.
                    if connection.arm_for(&self.epoll, interest).is_ok() && connection.has_event(interest) {
                        return;
                    }
                }
            }
            next = workers.next();
        }
    }

    /// Closes an idle connection to make room for `newcomer`, if one may be displaced.
    pub fn displace_idle(&self, newcomer: Newcomer) -> bool {
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

    /// Whether the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Registers the calling thread as the supervisor.
    pub fn set_supervisor(&self) {
        let _ = self.supervisor.set(std::thread::current());
    }

    /// Wakes the supervisor if it sleeps. Two words are involved, "it sleeps" and "there is work". Each side
    /// writes its own word and then reads the other's, in one total order, so at least one side sees the
    /// other's write.
    #[inline]
    pub fn wake_supervisor(&self) {
        if self.supervisor_sleeps.load(Ordering::SeqCst)
            && self.supervisor_sleeps.swap(false, Ordering::SeqCst)
            && let Some(supervisor) = self.supervisor.get()
        {
            supervisor.unpark();
        }
    }

    /// The most workers that may be detached from one connection with slow calls. Together with the driver
    /// they are fewer than one peer may keep busy ([`WorkersShare`]), so that they don't delay the peer's
    /// other connections (with four workers or more; fewer are used in tests only).
    pub fn max_detached(&self) -> usize {
        match self.limits.threads {
            few @ 0..=3 => few.saturating_sub(1),
            threads => threads * 5 / 8 - 1,
        }
    }

    /// After a thread has driven a connection, or sent on it. Arms the connection for what it can continue
    /// with, or closes it if that is nothing. If the connection has a driver, the driver will do that.
    /// `receive` is its locked receiving half.
    pub fn settle(&self, connection: &Arc<Connection>, receive: MutexGuard<'_, Receive>) {
        if receive.closed {
            let quiet = receive.turn.is_quiet();
            drop(receive);
            if quiet {
                self.notify_closed(connection);
            }
            return;
        }
        if receive.turn.is_driven() {
            return;
        }
        let stopping = self.is_stopping();
        let sending = connection.send.interest();
        let interest = Connection::interest_for(sending, &receive, stopping);
        let is_last = (receive.ended || stopping) && receive.turn.is_quiet();
        if is_last && !interest.contains(EventFlags::OUT) && connection.send.is_idle() {
            drop(receive);
            self.close(connection, false);
            return;
        }
        // With no worker detached and no memory request pending, no other worker arms this connection before
        // the event requested here. Then the lock can be dropped first, so that the worker that gets the
        // event doesn't contend for it.
        if receive.turn.is_quiet() && !receive.queued {
            drop(receive);
            let armed = connection.arm_for(&self.epoll, interest);
            self.armed(connection, armed);
            // Both may have come before we armed: a thread that stops the engine, or one that sends a
            // callback and has armed the connection for what it left.
            if !stopping && self.is_stopping() {
                connection.finish(&self.epoll);
            } else if connection.send.interest() != sending {
                let receive = connection.receive.lock();
                if !receive.turn.is_driven() && !receive.closed {
                    let armed = connection.arm(&self.epoll, &receive, stopping);
                    drop(receive);
                    self.armed(connection, armed);
                }
            }
        } else {
            let armed = connection.arm_for(&self.epoll, interest);
            drop(receive);
            self.armed(connection, armed);
        }
    }

    /// An armed connection needs nothing more; one that can't be armed is closed.
    fn armed(&self, connection: &Arc<Connection>, armed: Result<(), Errno>) {
        // NOENT: it was closed meanwhile.
        if let Err(error) = armed
            && error != Errno::NOENT
        {
            tracing::error!(peer = %connection.peer.address, %error, "can't wait for the connection any \
                                                                      more");
            self.close(connection, false);
        }
    }

    /// Grants receive memory that has become free to the connections that wait for it. Call it, without
    /// holding a lock, after anything that may have dropped a permit.
    pub fn serve_waiters(&self) {
        while let Some((number, permit)) = self.memory.next_granted() {
            let Some(connection) = self.registry.get(number) else { continue };
            let unused = {
                let mut receive = connection.receive.lock();
                if receive.queued && !receive.closed {
                    receive.begin_large(permit, &self.memory);
                    if !receive.turn.is_driven() {
                        // An error means that the connection is being closed.
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

    /// Closes the connections that hold the most while unread replies exceed their bound. Call it, without
    /// holding a lock, after anything that may have left replies in a queue.
    pub fn reclaim_replies(&self) {
        while let Some(number) = self.unread.surplus() {
            let Some(connection) = self.registry.get(number) else { continue };
            tracing::info!(peer = %connection.peer.address, "closed: it leaves the most replies unread");
            self.close(&connection, true);
        }
    }

    /// Closes a connection at once. Its running calls finish, and their replies are discarded. `broken` means
    /// that the peer broke the protocol or stalled.
    pub fn close(&self, connection: &Arc<Connection>, broken: bool) {
        self.close_if(connection, broken, |_| true);
    }

    /// Closes a connection if `condition` holds. No worker can become its driver in between. Returns whether
    /// it was closed.
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
            self.memory.hold(&connection.requester(), &mut receive.held, 0);
            (receive.clear(), receive.turn.is_quiet())
        };
        drop(rest);
        connection.send.break_off();
        connection.callbacks.close();
        self.memory.cancel(&connection.requester());
        // It can't fail in a way that matters: the descriptor is ours and open.
        let _ = epoll::delete(&self.epoll, connection);
        connection.transport.shutdown();
        self.registry.remove(connection, broken);
        connection.workers.forget(connection.number());
        if quiet {
            self.notify_closed(connection);
        }
        self.serve_waiters();
        true
    }

    /// Tells the programs that the last call of a closed connection has ended. A call socket isn't a
    /// connection for them: it shares the identity of another one.
    pub fn notify_closed(&self, connection: &Connection) {
        if connection.call_socket.is_some() {
            return;
        }
        for program in &self.programs {
            let told =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program.closed(&connection.peer)));
            if told.is_err() {
                tracing::error!(program = program.number(), "panicked when told of a closed connection");
            }
        }
    }

    /// Makes the threads end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // The counter is 0 or 1: adding 1 can't fail.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(supervisor) = self.supervisor.get() {
            supervisor.unpark();
        }
    }
}

impl CallbackSender for Engine {
    fn send_callback(
        &self,
        connection: u64,
        encode: EncodeCallback<'_>,
    ) -> Result<CallbackReply, BackChannelError> {
        let connection = self.registry.get(connection).ok_or(BackChannelError::Gone)?;
        if connection.verdict(&*self.admission) == Verdict::Stranger {
            return Err(BackChannelError::Gone); // the exports have changed
        }
        if !connection.send.interest().calls {
            return Err(BackChannelError::Busy);
        }
        let (xid, reply) = connection.callbacks.begin()?;
        let (mut record, mut spares) = (encode(xid)?, Vec::new());
        connection.send.push(&mut record, None, &mut spares);
        let flushed = connection.send.flush(&connection.transport, false, &mut spares);
        if flushed == Flushed::Broken {
            self.close(&connection, true);
            return Err(BackChannelError::Gone);
        }
        // Workers have left it to this thread to arm the connection, if they found it sending.
        let receive = connection.receive.lock();
        if !receive.closed {
            self.settle(&connection, receive);
        }
        if flushed == Flushed::Blocked {
            self.wake_supervisor();
            self.reclaim_replies();
        }
        Ok(reply)
    }
}
