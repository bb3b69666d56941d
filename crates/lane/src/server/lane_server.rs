//! The lane server: start, arrival of nonces, status, recall, drain.

use super::acceptor::{self, Acceptor, Claimed};
use super::call_queue::{CallQueue, ClientCall};
use super::grant_budget::GrantBudget;
use super::lane::LaneShared;
use super::lanes::Lanes;
use super::listen::listen;
use super::shared::ServerShared;
use super::{GrantService, LaneInfo, LaneOptions, LaneStartError, NfsConnection, NonceOutcome, caller};
use crate::namespaces;
use crate::nonce::Nonce;
use crate::registry::Bounds;
use fairness::LogLimit;
use parking_lot::{Condvar, Mutex};
use rustix::event::{Timespec, epoll};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::barrier::{BarrierScope, barrier, is_offered};
use tracing::{debug, info, warn};

/// The interval at which a draining server checks its clients' counts of I/O in flight.
const DRAIN_TICK: Duration = Duration::from_millis(1);
/// How long a drain waits for the lanes' threads beyond its bound: they may be in the filesystem.
const THREAD_END: Duration = Duration::from_secs(1);
/// The reason for the end of a lane whose NFS connection was closed.
const UNBOUND: &str = "its NFS connection was closed";
/// How long the acceptor pauses when the process has run out of descriptors.
const REST: Duration = Duration::from_millis(20);

/// The server's end of all lanes. Dropping it ends all lanes without waiting for I/O in flight.
pub struct LaneServer {
    shared: Arc<ServerShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    socket_file: Option<PathBuf>,
    sockets: Vec<String>,
    problems: Vec<String>,
}

impl LaneServer {
    /// Starts listening, after removing the sockets of dead servers from the run directory.
    ///
    /// # Errors
    /// [`LaneStartError`]. One of the two sockets is enough; [`LaneServer::problems`] describes the other.
    pub fn start(options: LaneOptions, service: Arc<dyn GrantService>) -> Result<Self, LaneStartError> {
        let (listeners, socket_file, mut problems) = listen(&options);
        if listeners.is_empty() {
            return Err(LaneStartError::NoSocket(problems.join("; ")));
        }
        let sockets = listeners.iter().map(|listener| listener.name.clone()).collect();
        let os = |what| move |error: rustix::io::Errno| LaneStartError::Os { what, error: error.into() };
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create1"))?);
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(os("eventfd"))?;
        let data = epoll::EventData::new_u64(acceptor::WAKE);
        epoll::add(&epoll, &wake, data, epoll::EventFlags::IN).map_err(os("epoll_ctl"))?;
        let limits = options.limits;
        let bounds = Bounds { waiting: limits.waiting, spent: limits.spent, life: limits.waiting_life };
        let acceptor = Acceptor::new(Arc::clone(&epoll), listeners, bounds).map_err(os("epoll_ctl"))?;
        let calls = (options.search_namespaces && namespaces::may_enter()).then(CallQueue::new);
        if options.search_namespaces && calls.is_none() {
            problems.push(
                "containers reach the lane through a shared run directory only (without CAP_SYS_ADMIN \
                 nothing is searched)"
                    .into(),
            );
        }
        let shared = Arc::new(ServerShared {
            options,
            service,
            epoll,
            wake,
            acceptor: Mutex::new(acceptor),
            lanes: Mutex::new(Lanes::new(limits.lanes)),
            budget: Arc::new(GrantBudget::new(limits.grants, limits.under_way)),
            lane_ended: Condvar::new(),
            calls,
        });
        let server = Self { shared, threads: Mutex::default(), socket_file, sockets, problems };
        let spawn = |name: &str, work: fn(&Arc<ServerShared>)| {
            let shared = Arc::clone(&server.shared);
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&shared));
            thread.map(|thread| server.threads.lock().push(thread))
        };
        let os = |error| LaneStartError::Os { what: "starting a thread", error };
        spawn("lane-acceptor", accept_clients).map_err(os)?;
        if server.shared.calls.is_some() {
            spawn("lane-caller", caller::run).map_err(os)?;
        }
        // The caller reports them to the administrator ([`LaneServer::problems`]).
        server.problems.iter().for_each(|problem| debug!("lane: {problem}"));
        info!("lane: listening on {}", server.sockets.join(", "));
        Ok(server)
    }

    /// The addresses that the server listens on, as a client's report names them.
    #[must_use]
    pub fn sockets(&self) -> &[String] {
        &self.sockets
    }

    /// What failed at start, in words that an administrator can act on.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The number of connections that wait to become a lane.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.acceptor.lock().waiting()
    }

    /// Handles a nonce from an NFS connection (UUID_IS_LOCAL). If its client has registered here, the lane is
    /// bound, and Local is in the client's socket when this returns `true`. The LOCALIO program calls this
    /// before it sends its void reply. Never waits for a client. If it returns `false`, another thread may
    /// still find a client that waits to be called.
    pub fn uuid_is_local(&self, nonce: Nonce, nfs: NfsConnection) -> bool {
        self.answer(nonce, nfs) == NonceOutcome::Local
    }

    /// Like [`LaneServer::uuid_is_local`], with the reason.
    pub fn answer(&self, nonce: Nonce, nfs: NfsConnection) -> NonceOutcome {
        let now = Instant::now();
        let claimed = self.shared.acceptor.lock().claim(&nonce, now);
        match claimed {
            Claimed::One(waiting) => self.shared.bind(*waiting, nonce, nfs, || true),
            Claimed::Never(why) => why,
            Claimed::Nobody => {
                if let Some(calls) = &self.shared.calls {
                    calls.ask(ClientCall { nonce, nfs, asked: now });
                }
                NonceOutcome::Unknown
            }
        }
    }

    /// An NFS connection was closed, and none of its calls is running: ends the lanes that are bound to it.
    /// Their files were granted by that connection's rules, and nothing else shows that the client still
    /// exists. A client that reconnects probes again.
    pub fn connection_closed(&self, number: u64) {
        // Pending calls first: a client that is being called becomes a lane before its connection is checked
        // again.
        if let Some(calls) = &self.shared.calls {
            calls.forget(number);
        }
        let bound: Vec<_> = {
            let lanes = self.shared.lanes.lock();
            lanes.all().filter(|lane| lane.bound.connection == number).cloned().collect()
        };
        bound.iter().for_each(|lane| lane.end(UNBOUND));
    }

    /// Whether the server searches other network namespaces for clients.
    #[must_use]
    pub fn searches(&self) -> bool {
        self.shared.calls.is_some()
    }

    /// A snapshot of all lanes.
    #[must_use]
    pub fn status(&self) -> Vec<LaneInfo> {
        self.shared.all_lanes().iter().map(|lane| lane.info()).collect()
    }

    /// Ends the grants of the lanes that `which` selects: the next I/O on each uses the wire or opens the
    /// file again. The lanes stay, and I/O in flight isn't waited for. Returns the number of lanes.
    pub fn recall(&self, which: impl Fn(&LaneInfo) -> bool) -> usize {
        self.shared.each(which, LaneShared::recall)
    }

    /// Ends the lanes that `which` selects. Returns their number.
    pub fn revoke(&self, which: impl Fn(&LaneInfo) -> bool) -> usize {
        self.shared.each(which, |lane| lane.end("the server revoked it"))
    }

    /// Stops accepting, refuses new grants and new local I/O, waits (at most `bound`) until no I/O is in
    /// flight on a granted file, ends every lane and removes the socket file. Returns whether all I/O had
    /// ended. A second call finds nothing to do.
    pub fn drain(&self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        // The name is removed first: a client that finds it must find a listening server.
        if let Some(path) = &self.socket_file {
            let _ = std::fs::remove_file(path);
        }
        self.shared.lanes.lock().stopping = true;
        self.shared.acceptor.lock().shut();
        if let Some(calls) = &self.shared.calls {
            calls.stop();
        }
        let lanes = self.shared.all_lanes();
        lanes.iter().for_each(|lane| lane.begin_drain());
        // The interlock's other half: after the barrier, every thread that has begun I/O is seen. Where the
        // kernel refuses the barrier (after having offered it), the counts prove nothing, and only the bound
        // applies.
        let ordered =
            lanes.is_empty() || !is_offered(BarrierScope::Host) || barrier(BarrierScope::Host).is_ok();
        drop(lanes);
        let in_flight = || !ordered || self.shared.all_lanes().iter().any(|lane| lane.in_flight() != 0);
        let mut busy = in_flight();
        while busy && Instant::now() < deadline {
            std::thread::sleep(DRAIN_TICK);
            busy = in_flight();
        }
        if busy {
            warn!("lane: local I/O was still under way after {bound:?}: going without it");
        }
        self.shared.all_lanes().iter().for_each(|lane| lane.end("the server is stopping"));
        self.shared.wait_for_lanes(Instant::now() + THREAD_END);
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        !busy
    }
}

impl Drop for LaneServer {
    fn drop(&mut self) {
        self.drain(Duration::ZERO);
    }
}

/// The acceptor's thread: accepts, reads registrations, and expires connections and receipts.
fn accept_clients(shared: &Arc<ServerShared>) {
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        let timeout = shared.next_look().map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        match epoll::wait(&shared.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                // Unexpected. A failing acceptor must be logged, and must not spin.
                warn!("lane: epoll_wait: {error}");
                std::thread::sleep(REST);
            }
        }
        // Emptied before what it announces is looked at: a wake-up that comes later wakes the next wait.
        let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
        if shared.lanes.lock().stopping {
            return;
        }
        let now = Instant::now();
        let mut exhausted = false;
        {
            let mut acceptor = shared.acceptor.lock();
            let ready = events.iter().map(|event| event.data.u64());
            for data in ready.filter(|data| *data != acceptor::WAKE) {
                exhausted |= acceptor.ready(data, now);
            }
            acceptor.expire(now);
        }
        if exhausted {
            static LIMIT: LogLimit = LogLimit::new(1);
            if let Some(skipped) = LIMIT.admit(now) {
                warn!(skipped, "lane: out of descriptors (RLIMIT_NOFILE): connections have to wait");
            }
            std::thread::sleep(REST);
        }
        shared.look_at_receipts();
    }
}
