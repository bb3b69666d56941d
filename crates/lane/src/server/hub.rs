//! The lane server as a whole: starting, the nonce's arrival, the status, recall and the end.

use super::budget::{Budget, share_of};
use super::caller::{Call, Caller};
use super::door::{self, Claimed, Door, Waiting};
use super::lane::{self, LaneShared};
use super::lanes::{Lanes, Room};
use super::listen::listen;
use super::{Answer, Bound, Granter, LaneInfo, LaneOptions, NfsConnection, StartError};
use crate::message::{self, Refusal, Reply};
use crate::nonce::Nonce;
use crate::registry::Bounds;
use crate::socket;
use fairness::LogLimit;
use parking_lot::{Condvar, Mutex};
use rustix::event::{Timespec, epoll};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::barrier::{BarrierScope, barrier, is_offered};
use tracing::{debug, info, warn};

/// Stack of a lane's thread: a datagram, the granter's paths, and room.
const STACK: usize = 512 * 1024;
/// How often a draining server looks at its clients' counts of I/O under way.
const DRAIN_TICK: Duration = Duration::from_millis(1);
/// How long the end of a lane's thread is waited for, beyond the bound of a drain: it may be in the
/// filesystem.
const THREAD_END: Duration = Duration::from_secs(1);
/// Why a lane ends that never began.
const UNTOLD: &str = "the client went before it could be told";
/// Why a lane ends whose NFS connection has.
const UNBOUND: &str = "its NFS connection was closed";
/// Why a lane ends that makes way.
const DISPLACED: &str = "its user had the most lanes, and another user wanted one";
/// How long the door rests when the process has run out of descriptors.
const REST: Duration = Duration::from_millis(20);

/// The server's end of all lanes. Dropping it ends all lanes without waiting for I/O under way.
pub struct LaneServer {
    hub: Arc<Hub>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    socket_file: Option<PathBuf>,
    sockets: Vec<String>,
    problems: Vec<String>,
}

/// What the server's threads share.
pub(super) struct Hub {
    options: LaneOptions,
    granter: Arc<dyn Granter>,
    epoll: Arc<OwnedFd>,
    wake: OwnedFd,
    door: Mutex<Door>,
    lanes: Mutex<Lanes>,
    budget: Arc<Budget>,
    lane_ended: Condvar,
    pub(super) caller: Option<Caller>,
}

impl LaneServer {
    /// Starts listening. Removes the sockets of dead servers from the run directory first.
    ///
    /// # Errors
    /// [`StartError`]. One socket of the two is enough to start: see [`LaneServer::problems`] for the other.
    pub fn start(options: LaneOptions, granter: Arc<dyn Granter>) -> Result<Self, StartError> {
        let (listeners, socket_file, mut problems) = listen(&options);
        if listeners.is_empty() {
            return Err(StartError::NoSocket(problems.join("; ")));
        }
        let sockets = listeners.iter().map(|listener| listener.name.clone()).collect();
        let os = |what| move |error: rustix::io::Errno| StartError::Os { what, error: error.into() };
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create1"))?);
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).map_err(os("eventfd"))?;
        let data = epoll::EventData::new_u64(door::WAKE);
        epoll::add(&epoll, &wake, data, epoll::EventFlags::IN).map_err(os("epoll_ctl"))?;
        let limits = options.limits;
        let bounds = Bounds { waiting: limits.waiting, spent: limits.spent, life: limits.waiting_life };
        let door = Door::new(Arc::clone(&epoll), listeners, bounds).map_err(os("epoll_ctl"))?;
        let caller = (options.search_namespaces && Caller::is_possible()).then(Caller::new);
        if options.search_namespaces && caller.is_none() {
            problems.push(
                "containers reach the lane through a shared run directory only (without CAP_SYS_ADMIN \
                 nothing is searched)"
                    .into(),
            );
        }
        let hub = Arc::new(Hub {
            options,
            granter,
            epoll,
            wake,
            door: Mutex::new(door),
            lanes: Mutex::new(Lanes::new(limits.lanes)),
            budget: Arc::new(Budget::new(limits.grants, limits.under_way)),
            lane_ended: Condvar::new(),
            caller,
        });
        let server = Self { hub, threads: Mutex::default(), socket_file, sockets, problems };
        let spawn = |name: &str, work: fn(&Arc<Hub>)| {
            let hub = Arc::clone(&server.hub);
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&hub));
            thread.map(|thread| server.threads.lock().push(thread))
        };
        let os = |error| StartError::Os { what: "starting a thread", error };
        spawn("lane-door", attend_door).map_err(os)?;
        if server.hub.caller.is_some() {
            spawn("lane-caller", super::caller::run).map_err(os)?;
        }
        // Whoever starts us says them where they are seen ([`LaneServer::problems`]).
        server.problems.iter().for_each(|problem| debug!("lane: {problem}"));
        info!("lane: listening on {}", server.sockets.join(", "));
        Ok(server)
    }

    /// Where the server listens, in the words of a client's report.
    #[must_use]
    pub fn sockets(&self) -> &[String] {
        &self.sockets
    }

    /// What didn't work at start, in words an admin can act on.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// How many connections wait to become a lane.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.hub.door.lock().waiting()
    }

    /// A nonce came over an NFS connection (UUID_IS_LOCAL): if its client is among ours, the lane is bound,
    /// and Local is in the client's socket when this returns `true`. The LOCALIO program calls this before it
    /// sends its void reply. Never waits for anybody. If it returns `false`, a client that waits to be called
    /// may still be found, later and by another thread.
    pub fn uuid_is_local(&self, nonce: Nonce, nfs: NfsConnection) -> bool {
        self.answer(nonce, nfs) == Answer::Local
    }

    /// As [`LaneServer::uuid_is_local`], and says why not.
    pub fn answer(&self, nonce: Nonce, nfs: NfsConnection) -> Answer {
        let now = Instant::now();
        let claimed = self.hub.door.lock().claim(&nonce, now);
        match claimed {
            Claimed::One(waiting) => self.hub.bind(*waiting, nonce, nfs, || true),
            Claimed::Never(why) => why,
            Claimed::Nobody => {
                if let Some(caller) = &self.hub.caller {
                    caller.ask(Call { nonce, nfs, asked: now });
                }
                Answer::Unknown
            }
        }
    }

    /// An NFS connection has gone, and no call of it runs any more: the lanes that are bound to it end. The
    /// rules that their files were granted by were those of the connection, and nothing else says that the
    /// client is still there. A client that comes back probes again.
    pub fn connection_closed(&self, number: u64) {
        // First those to come: a client that is being called becomes a lane before its connection is looked
        // at again.
        if let Some(caller) = &self.hub.caller {
            caller.forget(number);
        }
        let bound: Vec<_> = {
            let lanes = self.hub.lanes.lock();
            lanes.all().filter(|lane| lane.bound.connection == number).cloned().collect()
        };
        bound.iter().for_each(|lane| lane.end(UNBOUND));
    }

    /// Whether clients in other network namespaces are searched for.
    #[must_use]
    pub fn searches(&self) -> bool {
        self.hub.caller.is_some()
    }

    /// All lanes.
    #[must_use]
    pub fn status(&self) -> Vec<LaneInfo> {
        self.hub.all_lanes().iter().map(|lane| lane.info()).collect()
    }

    /// Ends the grants of the lanes that `which` names: the next I/O on each goes over the wire or asks anew.
    /// The lanes stay. I/O under way is not waited for. Returns how many lanes it were.
    pub fn recall(&self, which: impl Fn(&LaneInfo) -> bool) -> usize {
        self.hub.each(which, LaneShared::recall)
    }

    /// Ends the lanes that `which` names. Returns how many it were.
    pub fn revoke(&self, which: impl Fn(&LaneInfo) -> bool) -> usize {
        self.hub.each(which, |lane| lane.end("the server revoked it"))
    }

    /// Stops accepting, refuses new grants and new local I/O, waits (at most `bound`) until no I/O is under
    /// way on a granted file, ends every lane and removes the socket file. Returns whether all I/O had ended.
    /// The second call finds nothing to do.
    pub fn drain(&self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        // The name goes first: who finds it must find somebody.
        if let Some(path) = &self.socket_file {
            let _ = std::fs::remove_file(path);
        }
        self.hub.lanes.lock().stopping = true;
        self.hub.door.lock().shut();
        if let Some(caller) = &self.hub.caller {
            caller.stop();
        }
        let lanes = self.hub.all_lanes();
        lanes.iter().for_each(|lane| lane.begin_drain());
        // The interlock's other half: from here on, every thread that has begun I/O is seen to have. Where
        // the kernel refuses (after having offered it), nothing that is seen proves anything, and the bound
        // has to do.
        let ordered =
            lanes.is_empty() || !is_offered(BarrierScope::Host) || barrier(BarrierScope::Host).is_ok();
        drop(lanes);
        let in_flight = || !ordered || self.hub.all_lanes().iter().any(|lane| lane.in_flight() != 0);
        let mut busy = in_flight();
        while busy && Instant::now() < deadline {
            std::thread::sleep(DRAIN_TICK);
            busy = in_flight();
        }
        if busy {
            warn!("lane: local I/O was still under way after {bound:?}: going without it");
        }
        self.hub.all_lanes().iter().for_each(|lane| lane.end("the server is stopping"));
        self.hub.wait_for_lanes(Instant::now() + THREAD_END);
        let _ = rustix::io::write(&self.hub.wake, &1_u64.to_ne_bytes());
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

/// The thread at the door: accepts, reads registrations, and looks after what is late.
fn attend_door(hub: &Arc<Hub>) {
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        let timeout = hub.next_look().map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        match epoll::wait(&hub.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                // Can't be; but a door that is shut for good must be seen, and must not spin.
                warn!("lane: epoll_wait: {error}");
                std::thread::sleep(REST);
            }
        }
        if hub.lanes.lock().stopping {
            return;
        }
        let now = Instant::now();
        let mut exhausted = false;
        {
            let mut door = hub.door.lock();
            for event in &events {
                let data = event.data.u64();
                if data == door::WAKE {
                    // Emptied, or it would wake us for ever.
                    let _ = rustix::io::read(&hub.wake, &mut [0; 8]);
                } else {
                    exhausted |= door.ready(data, now);
                }
            }
            door.expire(now);
        }
        if exhausted {
            static LIMIT: LogLimit = LogLimit::new(1);
            if let Some(skipped) = LIMIT.admit(now) {
                warn!(skipped, "lane: out of descriptors (RLIMIT_NOFILE): connections have to wait");
            }
            std::thread::sleep(REST);
        }
        hub.look_at_receipts();
    }
}

impl Hub {
    /// How long the door's thread may sleep; `None` while nobody is there.
    fn next_look(&self) -> Option<Duration> {
        let expiry = self.door.lock().next_expiry().map(|at| at.saturating_duration_since(Instant::now()));
        let receipts = (!self.lanes.lock().is_empty()).then(|| self.options.limits.receipt / 4);
        // One millisecond more, so that what is due is over.
        expiry.into_iter().chain(receipts).min().map(|wait| wait + Duration::from_millis(1))
    }

    fn all_lanes(&self) -> Vec<Arc<LaneShared>> {
        self.lanes.lock().all().cloned().collect()
    }

    /// What the clients have acknowledged by now; who is late loses its lane.
    fn look_at_receipts(&self) {
        let now = Instant::now();
        self.all_lanes().iter().for_each(|lane| lane.check_receipts(now));
    }

    fn each(&self, which: impl Fn(&LaneInfo) -> bool, act: impl Fn(&LaneShared)) -> usize {
        let lanes = self.all_lanes();
        let chosen = lanes.iter().filter(|lane| which(&lane.info()));
        chosen.map(|lane| act(lane)).count()
    }

    /// Makes a lane of a connection whose nonce has come. `Local`: the word is in its socket. `stands`:
    /// whether the NFS connection does, asked once [`LaneServer::connection_closed`] finds the lane.
    fn bind(
        self: &Arc<Self>,
        waiting: Waiting,
        nonce: Nonce,
        nfs: NfsConnection,
        stands: impl FnOnce() -> bool,
    ) -> Answer {
        let Waiting { socket, process, version, through, .. } = waiting;
        let refuse = |socket: &OwnedFd, refusal, answer| {
            let _ = socket::send(socket, &message::encode(&Reply::Refused(refusal)), &[]);
            answer
        };
        let limits = self.options.limits;
        let share = share_of(&process);
        let room = {
            let mut lanes = self.lanes.lock();
            if lanes.stopping {
                return refuse(&socket, Refusal::Draining, Answer::Draining);
            }
            lanes.take(share)
        };
        let Some(Room { number, displaced }) = room else {
            return refuse(&socket, Refusal::TooMany, Answer::TooMany);
        };
        if let Some(displaced) = displaced {
            debug!(lane = displaced.bound.lane, "ends for another user's: its own has the most");
            displaced.end(DISPLACED);
        }
        let bound = Bound { lane: number, connection: nfs.number, nfs_peer: nfs.peer, process };
        let lane = match LaneShared::new(bound, through, socket, limits, Arc::clone(&self.budget)) {
            Ok(lane) => Arc::new(lane),
            Err(error) => {
                warn!("lane: no memory for the interlock: {error}");
                self.lanes.lock().give_back(share);
                return Answer::Failed;
            }
        };
        {
            let mut lanes = self.lanes.lock();
            if lanes.stopping {
                lanes.give_back(share);
                return Answer::Draining;
            }
            lanes.insert(Arc::clone(&lane));
        }
        if !stands() {
            self.forget(number);
            return Answer::Failed;
        }
        // First the thread, then the word: a client that is told is served.
        let hub = Arc::clone(self);
        let (told, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let its = Arc::clone(&lane);
        let thread =
            std::thread::Builder::new().name(format!("lane-{number}")).stack_size(STACK).spawn(move || {
                let _gone = Forget { hub: &hub, number };
                if wait.recv().is_ok() {
                    lane::serve(&its, &*hub.granter, &|| hub.look_at_receipts());
                }
            });
        if let Err(error) = thread {
            warn!("lane: no thread for a lane: {error}");
            self.forget(number);
            return Answer::Failed;
        }
        if !lane.say_local(version, nonce, self.options.instance) {
            lane.end(UNTOLD);
            return Answer::Failed;
        }
        debug!(lane = number, process = ?lane.bound.process, nfs_peer = %nfs.peer, "lane bound");
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if told.send(()).is_ok() { Answer::Local } else { Answer::Failed }
    }

    /// Makes a lane of a client that we called.
    pub(super) fn bind_called(self: &Arc<Self>, waiting: Waiting, call: &Call) -> bool {
        let fresh = {
            let mut door = self.door.lock();
            door.spend_called(call.nonce.commitment(), &waiting.process, Instant::now())
        };
        let stands = || self.caller.as_ref().is_some_and(Caller::client_is_connected);
        fresh && self.bind(waiting, call.nonce, call.nfs, stands) == Answer::Local
    }

    fn forget(&self, number: u64) {
        let gone = self.lanes.lock().remove(number);
        drop(gone);
        self.lane_ended.notify_all();
    }

    fn wait_for_lanes(&self, deadline: Instant) {
        let mut lanes = self.lanes.lock();
        while !lanes.is_empty() {
            if self.lane_ended.wait_until(&mut lanes, deadline).timed_out() {
                warn!("lane: {} lane threads are still in the filesystem", lanes.len());
                return;
            }
        }
    }
}

/// Takes a lane off the list when its thread ends, however it ends.
struct Forget<'a> {
    hub: &'a Hub,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.hub.forget(self.number);
    }
}
