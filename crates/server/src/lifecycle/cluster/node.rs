//! The thread that runs the machine of this node.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::{Carry, Effect, Event, Fate, Member, MemberConfig, Service as Permitted};
use rados::{Reason, Settings};
use recovery::{ClusterRecords, GraceDatabase};
use signal_hook::consts::SIGTERM;

use super::JoinedCluster;
use super::commands::{AddressHook, AddressMove};
use super::session::{CephSession, SessionState};
use super::workers::{Worker, start_watch, until_done};
use crate::lifecycle::running::RunningServer;
use crate::service::nfs4_state::RequiredRecords;

/// How long a node gives and confirms state after RADOS and the metadata server have last answered. Below the
/// time after which the metadata server drops a silent session whose cache others need (`session_timeout`,
/// 60 s); `session_autoclose` (300 s) drops the rest.
const VOUCH: Duration = Duration::from_secs(45);
/// For how long the gate is opened at a time.
const PERMIT: Duration = Duration::from_secs(4);
/// The most events in the queue.
const MAX_EVENTS: usize = 64;
/// How long a stopping server waits until the others give no state that its clients may reclaim.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The running node. Dropping it ends the node without a word to the cluster, as a crash does.
#[derive(Debug)]
pub(crate) struct ClusterNode {
    events: SyncSender<Event>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ClusterNode {
    /// Starts the node. `keeps_locks`: the locks of the former run were kept.
    pub fn start(
        running: &Arc<RunningServer>,
        joined: JoinedCluster,
        session: CephSession,
        keeps_locks: bool,
    ) -> io::Result<Self> {
        let (events, inbox) = sync_channel(MAX_EVENTS);
        let stops = Arc::new(AtomicBool::new(false));
        let config = MemberConfig { node: joined.node.clone(), session: session.name.clone(), vouch: VOUCH };
        let node = NodeThread {
            member: Member::new(config, Instant::now()),
            running: Arc::downgrade(running),
            name: joined.node,
            grace: joined.grace.clone(),
            records: joined.records,
            session: Arc::new(session),
            keeps_locks,
            hook: joined.hook,
            ceph: joined.ceph,
            reads: Worker::start("cluster-read", events.clone())?,
            tasks: Worker::start("cluster-task", events.clone())?,
            probes: Worker::start("cluster-probe", events.clone())?,
            accepts: false,
            stops: Arc::clone(&stops),
        };
        let weak = Arc::downgrade(running);
        running.service.state.require_records(RequiredRecords {
            timeout: VOUCH,
            give_up: Box::new(move || end_without_records(&weak)),
        });
        start_watch(joined.grace, events.clone(), Arc::clone(&stops))?;
        let thread = thread::Builder::new().name("cluster".to_owned()).spawn(move || node.run(&inbox))?;
        Ok(Self { events, stops, thread: Some(thread) })
    }

    /// Leaves the cluster so that the clients, if there are any, may reclaim from the next run: waits until
    /// the others give no state.
    pub fn stop(mut self, has_clients: bool) {
        let _ = self.events.try_send(Event::Stop { has_clients });
        let deadline = Instant::now() + STOP_TIMEOUT;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                tracing::error!(
                    "the other nodes of the cluster still give opens and locks after {} s: clients of this \
                     server may be unable to reclaim",
                    STOP_TIMEOUT.as_secs()
                );
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Release);
    }
}

/// What the thread has.
struct NodeThread {
    member: Member,
    running: Weak<RunningServer>,
    name: String,
    grace: GraceDatabase,
    records: Arc<ClusterRecords>,
    session: Arc<CephSession>,
    keeps_locks: bool,
    hook: AddressHook,
    ceph: Settings,
    reads: Worker,
    tasks: Worker,
    probes: Worker,
    /// Reclaims are being accepted, and the machine doesn't know that all are done.
    accepts: bool,
    stops: Arc<AtomicBool>,
}

impl NodeThread {
    fn run(mut self, inbox: &Receiver<Event>) {
        loop {
            self.publish();
            for effect in self.member.take_effects() {
                if let Effect::Restart(_) | Effect::Leave = effect {
                    self.end(&effect);
                    return;
                }
                self.execute(effect);
            }
            let now = Instant::now();
            let due = self.member.next_tick().map(|at| at.saturating_duration_since(now));
            let event = match inbox.recv_timeout(due.unwrap_or(PERMIT).min(PERMIT / 4)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => Event::Tick,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            self.accepts |= event == Event::ReclaimsAccepted;
            self.member.handle(Instant::now(), event);
            if self.accepts && !self.is_reclaiming() {
                self.accepts = false;
                self.member.handle(Instant::now(), Event::Reclaimed);
            }
        }
    }

    fn is_reclaiming(&self) -> bool {
        self.running
            .upgrade()
            .is_some_and(|running| running.service.state.run(|engine, now| engine.is_reclaiming(now)))
    }

    /// Tells the gate and the engine what is permitted for the next moments.
    fn publish(&self) {
        let Some(running) = self.running.upgrade() else { return };
        let until = Instant::now() + PERMIT;
        let permitted = self.member.service(until);
        let is_enforced = permitted != Permitted::Normal;
        let began = running.service.state.run(|engine, now| {
            let began = is_enforced && !engine.in_grace(now);
            engine.enforce_grace(is_enforced);
            engine.keep_expired(permitted == Permitted::Silent);
            began
        });
        // What clients open in trees isn't asked of this server.
        if began {
            running.service.trees.recall(|_| true);
        }
        if let Some(gate) = &running.service.cluster {
            gate.open((permitted != Permitted::Silent).then_some(until));
        }
    }

    /// Starts an effect.
    fn execute(&mut self, effect: Effect) {
        tracing::debug!(?effect, "cluster");
        match effect {
            Effect::Read => {
                let grace = self.grace.clone();
                let read = move || match grace.read() {
                    Ok(found) => Some(Event::Read(found)),
                    Err(error) => {
                        tracing::warn!(%error, "cluster: the grace database can't be read");
                        Some(Event::ReadFailed)
                    }
                };
                if !self.reads.execute(read) {
                    self.member.handle(Instant::now(), Event::ReadFailed);
                }
            }
            Effect::ProbeSession => {
                let session = Arc::clone(&self.session);
                let probe = move || {
                    Some(match session.state() {
                        SessionState::Alive => Event::SessionProbed,
                        SessionState::Lost => Event::SessionLost,
                        SessionState::Unknown => Event::ProbeFailed,
                    })
                };
                if !self.probes.execute(probe) {
                    self.member.handle(Instant::now(), Event::ProbeFailed);
                }
            }
            other => self.begin_task(other),
        }
    }

    /// Starts an effect whose answer the machine awaits before it goes on.
    fn begin_task(&self, effect: Effect) {
        let (grace, records, stops) =
            (self.grace.clone(), Arc::clone(&self.records), Arc::clone(&self.stops));
        let (running, name) = (self.running.clone(), self.name.clone());
        let (session, keeps_locks) = (Arc::clone(&self.session), self.keeps_locks);
        let (hook, ceph) = (self.hook.clone(), self.ceph.clone());
        let is_drained = self.member.seen().is_some_and(|seen| seen.database.is_taken_over(&self.name));
        let current = self.member.seen().map_or(0, |seen| seen.database.current);
        let task = move || -> Option<Event> {
            match effect {
                Effect::Write { version, old, new } => Some(match grace.write(version, &old, &new) {
                    Ok(version) => Event::Written { version },
                    Err(error) if error.reason() == Some(Reason::Changed) => Event::WriteRefused,
                    Err(error) => {
                        tracing::warn!(%error, "cluster: the grace database can't be written");
                        Event::WriteFailed
                    }
                }),
                Effect::FindRecords { of, up_to } => {
                    let found = until_done(&stops, "read client records", || records.find(&of, up_to))?;
                    let has_clients = found.is_some_and(|found| {
                        !found.recovered.clients.is_empty() || !found.recovered.damaged.is_empty()
                    });
                    Some(Event::RecordsFound(has_clients))
                }
                Effect::RemoveRecords { of } => {
                    tracing::warn!(
                        "the filesystem no longer holds the locks of {of}'s clients, or may have given them \
                         to others: none of them can reclaim"
                    );
                    until_done(&stops, "remove client records", || records.remove(&of, current))?;
                    Some(Event::RecordsRemoved)
                }
                Effect::Examine { sessions } => {
                    for former in sessions {
                        let is_held = if former == session.name {
                            keeps_locks
                        } else {
                            until_done(&stops, "examine a former session", || session.has_locks_of(&former))?
                        };
                        if !is_held {
                            return Some(Event::Examined(Fate::Lost));
                        }
                    }
                    Some(Event::Examined(Fate::Held))
                }
                Effect::StartEnforcing => {
                    running.upgrade()?.service.cluster.as_ref()?.wait_for_running();
                    Some(Event::Enforcing)
                }
                Effect::OpenRecords { epoch, carry } => {
                    let carries = carry == Carry::Recorded;
                    until_done(&stops, "open client records", || records.open(epoch, carries))?;
                    Some(Event::RecordsOpened)
                }
                Effect::TakeAddress { of } => {
                    hook.run(AddressMove::Take, &of);
                    None
                }
                Effect::Release { sessions } => {
                    for former in sessions {
                        until_done(&stops, "end a former session", || session.end_former(&ceph, &former))?;
                    }
                    Some(Event::Released)
                }
                Effect::ReleaseOwn => {
                    running.upgrade()?.service.state.release_all();
                    Some(Event::OwnReleased)
                }
                Effect::AcceptReclaims { of, up_to } => {
                    for of in of {
                        let found = until_done(&stops, "read client records", || records.find(&of, up_to))?;
                        let Some(found) = found else { continue };
                        let state = Arc::clone(&running.upgrade()?.service.state);
                        state.accept_reclaims(found.recovered);
                    }
                    running.upgrade()?.service.cluster.as_ref()?.execute_calls();
                    Some(Event::ReclaimsAccepted)
                }
                Effect::EndReclaims => {
                    let running = running.upgrade()?;
                    running.service.state.run(|engine, now| engine.end_reclaims(now));
                    running.service.cluster.as_ref()?.wait_for_running();
                    Some(Event::ReclaimsEnded)
                }
                Effect::Resume { epoch } => {
                    running.upgrade()?.service.cluster.as_ref()?.execute_calls();
                    // They are of no use any more, and harmless.
                    let removed = records.remove(&name, epoch.saturating_sub(1));
                    if let Err(error) = removed {
                        tracing::debug!(%error, "cluster: old client records stay");
                    }
                    None
                }
                Effect::FallSilent => {
                    let running = running.upgrade()?;
                    let grace = running.config.lock().grace;
                    if let Some(lane) = &running.lane {
                        lane.drain(grace);
                    }
                    running.wire.shutdown(grace);
                    running.service.cluster.as_ref()?.wait_for_running();
                    if is_drained {
                        hook.run(AddressMove::GiveUp, &name);
                    }
                    Some(Event::Silent)
                }
                Effect::Read | Effect::ProbeSession | Effect::Restart(_) | Effect::Leave => None,
            }
        };
        if !self.tasks.execute(task) {
            tracing::error!("cluster: more tasks than one at a time");
        }
    }

    /// Ends this run. A server that wasn't asked to stop is stopped.
    fn end(&self, last: &Effect) {
        if let Some(running) = self.running.upgrade()
            && let Some(gate) = &running.service.cluster
        {
            gate.end();
        }
        match last {
            Effect::Restart(reason) => {
                tracing::error!("{reason}: this server ends, and has to be started again");
            }
            _ => tracing::info!("{} has left the cluster", self.name),
        }
        let _ = signal_hook::low_level::raise(SIGTERM);
    }
}

/// A client's record can't be written: this server ends, and answers nothing any more.
fn end_without_records(running: &Weak<RunningServer>) {
    if let Some(running) = running.upgrade()
        && let Some(gate) = &running.service.cluster
    {
        gate.end();
    }
    tracing::error!(
        "an NFSv4 client can't be recorded in RADOS: this server ends, and has to be started again"
    );
    let _ = signal_hook::low_level::raise(SIGTERM);
}
