//! The engine's public interface: build, start, inspect, stop.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    Admission, CallSockets, ConnectionInfo, Limits, Program, Totals, admission::AdmitAll, engine::Engine,
    listener::Listener, supervisor, worker::Worker,
};

/// How long shutdown waits for threads to end.
const THREADS_END_WITHIN: Duration = Duration::from_secs(1);

/// Why a server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Listening on an address failed.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A thread couldn't be created.
    #[error("no thread for calls: {0}")]
    Thread(io::Error),
    /// The event queue (epoll, eventfd) couldn't be created.
    #[error("no event queue: {0}")]
    Events(io::Error),
}

/// Configures a server.
#[derive(Default)]
pub struct Builder {
    programs: Vec<Arc<dyn Program>>,
    admission: Option<Arc<dyn Admission>>,
    limits: Limits,
    addresses: Vec<SocketAddr>,
}

impl Builder {
    /// Adds a program. If several have the same number and version, the first one is called.
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Program>) -> Self {
        self.programs.push(program);
        self
    }

    /// Sets which peers are served. Without it all are.
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

    /// Adds an address to listen on. With port 0 the system chooses one. An IPv6 address is IPv6 only.
    #[must_use]
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Binds and starts the threads.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left running then.
    pub fn start(self) -> Result<Server, StartError> {
        let bind = |address| Listener::bind(address).map_err(|source| StartError::Listen { address, source });
        let listeners = self.addresses.into_iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let admission = self.admission.unwrap_or_else(|| Arc::new(AdmitAll));
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
            engine.set_supervisor();
            supervisor::run(&engine);
        });
        supervised.map_err(StartError::Thread)?;
        Ok(server)
    }
}

/// A running server. Dropping it stops it without a grace period.
pub struct Server {
    engine: Arc<Engine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// A builder with default limits.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The addresses that it listens on, in the order of [`Builder::bind`].
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.engine.listeners.iter().map(|listener| listener.address).collect()
    }

    /// The connections. Calls and bytes of a call socket are counted with its connection.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        let all = self.engine.registry.all();
        let (mut of_others, mut infos) = (Vec::new(), Vec::new());
        for connection in &all {
            match &connection.call_socket {
                Some(rules) => of_others.push((rules.connection, connection.info())),
                None => infos.push(connection.info()),
            }
        }
        for (number, more) in of_others {
            if let Some(info) = infos.iter_mut().find(|info| info.peer.connection == number) {
                info.calls += more.calls;
                info.bytes_in += more.bytes_in;
                info.bytes_out += more.bytes_out;
            }
        }
        infos
    }

    /// What opens call sockets of this server's connections.
    #[must_use]
    pub fn call_sockets(&self) -> CallSockets {
        CallSockets::new(Arc::downgrade(&self.engine))
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.engine.limits
    }

    /// The number of workers that run calls or send replies now.
    #[must_use]
    pub fn busy_workers(&self) -> usize {
        self.engine.busy_workers()
    }

    /// Totals since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (receive_memory, receive_memory_peak) = self.engine.memory.usage();
        let reply_memory = self.engine.unread.held();
        let denied = self.engine.denied.load(Ordering::Relaxed);
        Totals { denied, receive_memory, receive_memory_peak, reply_memory, ..self.engine.registry.totals() }
    }

    /// Stops listening, lets received calls finish and their replies go out, and closes all connections.
    /// Connections that aren't finished after `grace` are closed anyway. Returns whether all were finished in
    /// time. A second call does nothing and returns true.
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
        // A thread within a program can't be stopped. It ends when the program returns.
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
