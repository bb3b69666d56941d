//! The engine's public face: build, start, look at, stop.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

use super::{
    Admission, Limits, Peer, Program, admission::Everybody, engine::Engine, listener::Listener, supervisor,
    worker::Worker,
};

/// How long threads have to end once they have nothing more to do.
const THREADS_END_WITHIN: Duration = Duration::from_secs(1);

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A thread can't be made.
    #[error("no thread for calls: {0}")]
    Thread(io::Error),
    /// There is nothing to wait for events with (epoll, eventfd).
    #[error("no event queue: {0}")]
    Events(io::Error),
}

/// What a server will be.
#[derive(Default)]
pub struct Builder {
    programs: Vec<Arc<dyn Program>>,
    admission: Option<Arc<dyn Admission>>,
    limits: Limits,
    addresses: Vec<SocketAddr>,
}

impl Builder {
    /// Adds a program. The first one of a number and version answers.
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Program>) -> Self {
        self.programs.push(program);
        self
    }

    /// Has `admission` asked which peers are served. Without it everybody is.
    #[must_use]
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds an address to listen on; port 0 lets the system choose. An IPv6 address is IPv6 only.
    #[must_use]
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Binds and starts answering.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(self) -> Result<Server, StartError> {
        let bind = |address| Listener::bind(address).map_err(|source| StartError::Listen { address, source });
        let listeners = self.addresses.into_iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let admission = self.admission.unwrap_or_else(|| Arc::new(Everybody));
        let engine = Arc::new(
            Engine::new(self.limits, admission, self.programs, listeners)
                .map_err(|error| StartError::Events(error.into()))?,
        );
        let server = Server { threads: Mutex::default(), engine: Arc::clone(&engine) };
        for index in 0..engine.limits.threads {
            let worker = Worker::new(Arc::clone(&engine), index);
            server.spawn(format!("nfs-worker-{index}"), move || worker.run()).map_err(StartError::Thread)?;
        }
        let supervised = server.spawn("nfs-supervisor".into(), move || {
            engine.i_supervise();
            supervisor::run(&engine);
        });
        supervised.map_err(StartError::Thread)?;
        Ok(server)
    }
}

/// One connection, as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Who.
    pub peer: Peer,
    /// Whether the peer was admitted when that was last asked.
    pub admitted: bool,
    /// Since when.
    pub since: SystemTime,
    /// Calls received so far.
    pub calls: u64,
    /// Bytes received so far.
    pub bytes_in: u64,
    /// Bytes sent so far.
    pub bytes_out: u64,
}

/// What the engine has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections accepted.
    pub connections: u64,
    /// Connections closed at once because of a limit.
    pub refused: u64,
    /// Idle connections closed to make room for others.
    pub displaced: u64,
    /// Connections closed because the peer broke the protocol or stalled.
    pub broken: u64,
    /// Calls run or answered with an error.
    pub calls: u64,
    /// Calls denied because their peer isn't admitted.
    pub denied: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Receive memory in use now, in bytes.
    pub receive_memory: usize,
    /// The most receive memory that was in use at any time, in bytes.
    pub receive_memory_peak: usize,
    /// Memory for replies that peers leave unread now, in bytes.
    pub reply_memory: usize,
}

/// A running server; dropping it stops it without grace.
pub struct Server {
    engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Starts describing a server.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it listens, in the order of [`Builder::bind`].
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.engine.listeners.iter().map(|listener| listener.address).collect()
    }

    /// Who is connected.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.engine.registry.all().iter().map(|connection| connection.info()).collect()
    }

    /// What it has done so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (receive_memory, receive_memory_peak) = self.engine.memory.usage();
        let reply_memory = self.engine.unread.held();
        let denied = self.engine.denied.load(Ordering::Relaxed);
        Totals { denied, receive_memory, receive_memory_peak, reply_memory, ..self.engine.registry.totals() }
    }

    /// Stops listening, lets the calls that have come in finish and their replies go out, and closes; what
    /// isn't done after `grace` is closed all the same. Returns whether everything was done in time. A second
    /// call does nothing and returns true.
    pub fn shutdown(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        if self.engine.stopping.swap(true, Ordering::SeqCst) {
            return true;
        }
        self.engine.listeners.iter().for_each(Listener::close);
        for connection in self.engine.registry.all() {
            connection.finish(&self.engine.epoll);
        }
        let in_time = self.engine.registry.wait_until_empty(deadline);
        for connection in self.engine.registry.all() {
            self.engine.close(&connection, false);
        }
        self.engine.end();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        // A thread that is within a program can't be stopped. It ends when the program returns; until then it
        // is let be.
        let patience = Instant::now() + THREADS_END_WITHIN;
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        for thread in threads.extract_if(.., |thread| thread.is_finished()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the RPC server has panicked");
            }
        }
        if !threads.is_empty() {
            tracing::warn!(threads = threads.len(), "calls still running after the server has stopped");
        }
        in_time
    }

    fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let stack = self.engine.limits.stack;
        let thread = std::thread::Builder::new().name(name).stack_size(stack).spawn(body)?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}
