//! The client's side of a client id and its session (RFC 8881 sections 2.4 and 2.10).
//!
//! [`client_state::StateManager`] decides what to do: establish the session, establish it again when the
//! server has lost it, renew the lease while nothing else does. A task takes these steps. Requests wait while
//! there is no session.
//!
//! Every request has a slot of the session ([`client_state::SlotTable`]) and is sent on any of the
//! connections: the server binds a connection to the session with the first SEQUENCE on it, because the
//! client id is protected by nothing more (SP4_NONE, RFC 8881 section 2.10.3.1). When a connection is lost,
//! `rpc` sends the same bytes on the next one, so that the server recognises a retry by its slot.
//!
//! `establish` takes the state manager's steps. `slots` has the slots, and reads what a SEQUENCE's result
//! tells about its request.

mod establish;
mod slots;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use client_state::{SessionError, StateManager, Step, TakenSlot, Unanswered};
use parking_lot::Mutex;
use proto::nfs4::{self, MinorVersion, Nfsstat4, Operation, Sequence4Args, Sequence4ResOk};
use rpc::client::{Client, Policy, Receive, Request};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use xdr::Encoder;

use super::callbacks::{Callbacks, Recall};
use super::compound::{Compound, Results, refused};
use super::identity::ClientIdentity;
use super::lock::LockWaiters;
use super::moved::MovedFilesystems;
use super::offloads::OffloadTable;
use super::state::ClientState;
use crate::connection::send;
use crate::counters::bump;
use crate::error::{Error, Result, RpcError};
use crate::types::Handle;
use crate::uncommitted_writes::UncommittedPool;
use crate::user::User;

use establish::ServerIdentity;
pub(super) use establish::{MAX_IN_FLIGHT, StepError};
pub(super) use slots::EstablishedSession;
use slots::{SequenceOutcome, SlotGuard, sequence_outcome};

/// Room for what is around a payload in a request or reply, in bytes.
const MAX_HEAD: u32 = 4 << 10;

/// The pause before a request is sent again whose slot is busy on the server or whose session was lost again,
/// or whose server asks to wait during the establishment of a session. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long the client's own requests may take when the session's users are gone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The lease until the server has said its own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A client id, its current session, and the connections. What it does by itself counts to the session that
/// made it.
#[derive(Debug)]
pub(super) struct SessionClient {
    rpc: Arc<Client>,
    runtime: Runtime,
    /// The user who establishes sessions.
    pub(super) owner: Arc<User>,
    pub(super) minor: MinorVersion,
    /// Taken by EXCHANGE_ID, which may change the owner.
    identity: tokio::sync::Mutex<ClientIdentity>,
    callbacks: Arc<Callbacks>,
    manager: Mutex<StateManager>,
    /// The server that answered last.
    server: Mutex<Option<ServerIdentity>>,
    /// The last session that was created.
    created: Mutex<Option<Arc<EstablishedSession>>>,
    /// The session for ordinary requests, while there is one.
    current: ArcSwapOption<EstablishedSession>,
    /// Told when there is one.
    is_ready: Notify,
    /// Told when there may be another step to take, and when the client is dropped.
    wake: Arc<Notify>,
    /// The client id was destroyed. The next request makes another.
    is_ended: AtomicBool,
    /// No request can be sent any more.
    is_closed: AtomicBool,
    policy: Policy,
    /// Until when the lease is valid for certain, in nanoseconds since `made`; 0 if it isn't.
    lease_until: AtomicU64,
    made: Instant,
    pub(super) moved: MovedFilesystems,
    /// The server says that it has moved a filesystem with state of the client.
    is_lease_moved: AtomicBool,
    /// Whether one of its sessions has ever had a lane.
    pub(super) had_lane: Arc<AtomicBool>,
    pub(super) state: ClientState,
    /// The asynchronous copies.
    pub(super) offloads: OffloadTable,
    /// The data that waits to be sent.
    written_behind: OnceLock<Weak<UncommittedPool>>,
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// The reply to a request: the results behind SEQUENCE's.
#[derive(Debug)]
pub(super) struct CompoundReply {
    results: Vec<u8>,
    /// The number of the session that it was sent in; 0 outside of one.
    pub(super) session: u64,
    /// The bulk data, if the request had a buffer for it.
    pub(super) payload: Vec<u8>,
}

impl CompoundReply {
    /// The results behind SEQUENCE's.
    pub(super) fn results(&self) -> Result<Results<'_>> {
        let mut results = Results::new(&self.results)?;
        let _: Sequence4ResOk = results.get(Operation::Sequence)?;
        Ok(results)
    }
}

impl SessionClient {
    /// A client without a session yet. Must run in a tokio runtime.
    pub(super) fn new(
        rpc: Arc<Client>,
        owner: Arc<User>,
        minor: MinorVersion,
        identity: ClientIdentity,
        callbacks: Arc<Callbacks>,
        policy: Policy,
    ) -> Arc<Self> {
        let client = Arc::new(Self {
            rpc,
            runtime: Runtime::current(),
            owner,
            minor,
            identity: tokio::sync::Mutex::new(identity),
            callbacks,
            manager: Mutex::new(StateManager::new(DEFAULT_LEASE)),
            server: Mutex::new(None),
            created: Mutex::new(None),
            current: ArcSwapOption::empty(),
            is_ready: Notify::new(),
            wake: Arc::default(),
            is_ended: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            offloads: OffloadTable::new(&policy),
            policy,
            lease_until: AtomicU64::new(0),
            made: Instant::now(),
            moved: MovedFilesystems::default(),
            is_lease_moved: AtomicBool::new(false),
            had_lane: Arc::default(),
            state: ClientState::default(),
            written_behind: OnceLock::new(),
        });
        client.callbacks.set_client(&client);
        client
    }

    /// The largest READ and WRITE that requests and replies of the session have room for, in bytes.
    pub(super) fn max_transfers(&self) -> (u32, u32) {
        // Also while it is being replaced: the next one has the same sizes.
        let session = self.created.lock();
        session.as_ref().map_or((0, 0), |session| {
            (session.max_reply.saturating_sub(MAX_HEAD), session.max_request.saturating_sub(MAX_HEAD))
        })
    }

    /// The largest reply that the server keeps to a request that is executed once, in bytes.
    pub(super) fn max_kept_reply(&self) -> u32 {
        let session = self.created.lock();
        session.as_ref().map_or(0, |session| session.max_kept.min(session.max_reply))
    }

    /// The operations that a request may have, SEQUENCE not counted.
    pub(super) fn max_operations(&self) -> usize {
        let session = self.created.lock();
        session.as_ref().map_or(1, |session| session.max_operations.saturating_sub(1).max(1) as usize)
    }

    /// Takes the steps that keep the session, until the client is dropped.
    pub(super) fn keep(self: &Arc<Self>) {
        self.runtime.spawn(establish::keep(Arc::downgrade(self), self.wake.clone()));
    }

    /// The server's lease time, in seconds.
    pub(super) fn set_lease(&self, seconds: u32) {
        self.manager.lock().set_lease(Duration::from_secs(seconds.max(1).into()));
        self.wake.notify_one();
    }

    /// Sends a request in the session and waits for its reply. The operations behind SEQUENCE may have
    /// failed.
    ///
    /// # Errors
    /// The call's; those of establishing a session; that the server has lost the reply to a request that must
    /// not be executed twice; [`Error::Moved`], if nothing was done before.
    pub(super) async fn call(
        self: &Arc<Self>,
        user: &User,
        compound: &Compound,
        receive: Option<Receive>,
    ) -> Result<CompoundReply> {
        let reply = self.execute(user, compound, receive).await?;
        if Results::new(&reply.results)?.status == Nfsstat4::Moved
            && let Some(moved) = Box::pin(self.moved(user, compound, &reply)).await
        {
            return Err(moved);
        }
        Ok(reply)
    }

    /// As [`SessionClient::call`]; NFS4ERR_MOVED is an operation's status like others.
    pub(super) async fn execute(
        self: &Arc<Self>,
        user: &User,
        compound: &Compound,
        mut receive: Option<Receive>,
    ) -> Result<CompoundReply> {
        let started = Instant::now();
        let mut pause = MIN_PAUSE;
        let mut repetitions = 0_u64;
        loop {
            // A lost session is replaced at once. A server that loses one after the other isn't flooded.
            if repetitions > 1 {
                self.within(started, tokio::time::sleep(pause)).await?;
                pause = (pause * 2).min(MAX_PAUSE);
            }
            repetitions += 1;
            let session = self.session(started).await?;
            let Some(taken) = self.within(started, session.take()).await? else { continue };
            let mut guard = SlotGuard { client: self, session: &session, taken: Some(taken) };
            while let Some(taken) = &guard.taken {
                let sequence = session.sequence(taken, compound.keeps_reply());
                let (limit, split) = receive.as_ref().map_or((0, None), |at| (at.limit, Some(at.split)));
                let sent = Instant::now();
                let reply = match self.send(user, compound, Some(&sequence), receive.take()).await {
                    Err(error) if is_denied(&error) => {
                        if let Some(taken) = guard.taken.take() {
                            session.give_back(|slots| slots.not_executed(taken));
                        }
                        return Err(error);
                    }
                    reply => reply?,
                };
                let CompoundReply { results, payload, .. } = reply;
                let results_of = Results::new(&results)?;
                let outcome = sequence_outcome(results_of.clone(), &sequence)?;
                if !matches!(outcome, SequenceOutcome::Executed(_)) {
                    receive = split.map(|split| Receive { into: payload, limit, split });
                    let Some(taken) = guard.taken.take() else { break };
                    match self.unanswered(&session, taken, outcome, compound).await? {
                        Some(taken) => {
                            guard.taken = Some(taken);
                            self.within(started, tokio::time::sleep(pause)).await?;
                            pause = (pause * 2).min(MAX_PAUSE);
                            continue;
                        }
                        None => break,
                    }
                }
                let SequenceOutcome::Executed(ok) = outcome else { break };
                let Some(taken) = guard.taken.take() else { break };
                session.give_back(|slots| {
                    slots.answered(taken, ok.highest_slotid, ok.target_highest_slotid);
                });
                self.sequenced(&session, sent, ok.status_flags);
                // Most servers say here that they have executed a retry and not kept its reply.
                if results_of.status == Nfsstat4::RetryUncachedRep && !compound.keeps_reply() {
                    receive = split.map(|split| Receive { into: payload, limit, split });
                    break;
                }
                return Ok(CompoundReply { results, payload, session: session.number });
            }
        }
    }

    /// Runs `f` if the session with this number hasn't been replaced, and keeps it from being replaced
    /// meanwhile.
    pub(super) fn while_current<T>(&self, session: u64, f: impl FnOnce() -> T) -> Option<T> {
        let manager = self.manager.lock();
        (manager.session() == session).then(f)
    }

    /// Whether the server may have the lost state of the client.
    pub(super) fn can_reclaim(&self) -> bool {
        self.manager.lock().can_reclaim()
    }

    /// As [`SessionClient::is_lease_valid`], as far as was known a moment ago. Locks nothing.
    pub(super) fn was_lease_valid(&self) -> bool {
        let until = Duration::from_nanos(self.lease_until.load(Relaxed));
        self.made.elapsed() < until
    }

    /// Notes how long the lease is valid. The caller holds the lock, so that no older value comes later.
    fn note_lease(&self, manager: &StateManager) {
        let until = manager.valid_until().map_or(Duration::ZERO, |until| until - self.made);
        self.lease_until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Whether the server keeps the client's state for certain.
    pub(super) fn is_lease_valid(&self) -> bool {
        self.manager.lock().is_lease_valid(Instant::now())
    }

    /// Whether the server has revoked state of the client, as its last SEQUENCE said.
    pub(super) fn knows_of_revoked_state(&self) -> bool {
        self.manager.lock().has_revoked_state()
    }

    /// The connections.
    pub(super) const fn rpc(&self) -> &Arc<Client> {
        &self.rpc
    }

    /// Says where a session that asks for delegations keeps the data that waits to be sent.
    pub(super) fn set_written_behind(&self, pool: &Arc<UncommittedPool>) {
        let _ = self.written_behind.set(Arc::downgrade(pool));
    }

    /// The data that waits to be sent of a session that asks for delegations.
    pub(super) fn written_behind(&self) -> Option<Arc<UncommittedPool>> {
        self.written_behind.get()?.upgrade()
    }

    /// The server's address.
    pub(super) fn address(&self) -> SocketAddr {
        self.rpc.address()
    }

    /// Runs a task beside the requests of the client's users.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime.spawn(task)
    }

    /// The owners that wait for locks, whom the server notifies.
    pub(super) fn lock_waiters(&self) -> &LockWaiters {
        &self.callbacks.lock_waiters
    }

    /// Whether the client id was destroyed, and with it all state.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Acquire)
    }

    /// Waits for a part of a request that began at `started`: without a limit in a hard client, and in a soft
    /// one as long as for a reply.
    pub(super) async fn within<T>(&self, started: Instant, wait: impl Future<Output = T>) -> Result<T> {
        if self.policy.hard {
            return Ok(wait.await);
        }
        let left = self.policy.timeout().saturating_sub(started.elapsed());
        tokio::time::timeout(left, wait).await.map_err(|_| self.timed_out(started))
    }

    fn timed_out(&self, started: Instant) -> Error {
        let (address, after) = (self.rpc.address(), started.elapsed());
        let source = RpcError(rpc::client::Error::TimedOut { address, after });
        Error::Rpc { object: "SEQUENCE".to_owned(), source }
    }

    /// Ends the client: its sessions and their users are gone. What the client sends by itself, as CLOSE or a
    /// renewal of the lease, has [`CLOSE_TIMEOUT`] to be answered; it would keep a connection to a server
    /// that never answers.
    pub(super) fn close(self: &Arc<Self>) {
        let client = Arc::downgrade(self);
        self.wake.notify_one();
        self.runtime.spawn(async move {
            tokio::time::sleep(CLOSE_TIMEOUT).await;
            let Some(client) = client.upgrade() else { return };
            client.is_closed.store(true, Release);
            client.rpc.close();
            if let Some(session) = client.created.lock().clone() {
                session.is_lost.store(true, Release);
                session.free.notify_waiters();
            }
            client.is_ready.notify_waiters();
            client.wake.notify_one();
        });
    }

    /// What to do with a request whose SEQUENCE failed: sent again in its slot, or, with `None`, in another.
    async fn unanswered(
        self: &Arc<Self>,
        session: &Arc<EstablishedSession>,
        taken: TakenSlot,
        outcome: SequenceOutcome,
        compound: &Compound,
    ) -> Result<Option<TakenSlot>> {
        match outcome {
            SequenceOutcome::Executed(_) => {}
            SequenceOutcome::Slot(error) => match session.give_back(|slots| slots.failed(taken, error)) {
                Unanswered::Repeat(taken) => return Ok(Some(taken)),
                Unanswered::TakeAnother => {}
                Unanswered::ReplyLost if !compound.keeps_reply() => {}
                Unanswered::ReplyLost => {
                    return Err(Error::Protocol {
                        object: "SEQUENCE".to_owned(),
                        what: "it has executed the request and lost the reply",
                    });
                }
                Unanswered::ReplaceSession => self.discard(session, SessionError::Disordered),
            },
            SequenceOutcome::SessionLost => self.discard(session, SessionError::Unknown),
            SequenceOutcome::Unbound => {
                // The server has executed nothing.
                session.give_back(|slots| slots.not_executed(taken));
                self.bind(session).await?;
            }
            SequenceOutcome::Refused(status) => {
                session.give_back(|slots| slots.not_executed(taken));
                return Err(refused(Operation::Sequence, status));
            }
        }
        Ok(None)
    }

    /// Makes a call of COMPOUND, in the session or outside of it.
    async fn send(
        &self,
        user: &User,
        compound: &Compound,
        sequence: Option<&Sequence4Args>,
        receive: Option<Receive>,
    ) -> Result<CompoundReply> {
        let (payload, trailer) = compound.payload();
        let request = Request {
            program: nfs4::PROGRAM,
            version: nfs4::VERSION,
            procedure: nfs4::COMPOUND,
            credential: &user.wire,
            payload,
            trailer,
            receive,
        };
        // What establishes or keeps a session is about its connections.
        let small = sequence.is_some() && compound.is_small();
        let encode = |to: &mut Encoder| compound.encode(self.minor, sequence, to);
        let reply = send(&self.rpc, &user.session, request, small, encode).await;
        let failed = |source| Error::Rpc { object: "COMPOUND".to_owned(), source: RpcError(source) };
        let reply = reply.map_err(failed)?;
        Ok(CompoundReply { results: reply.results, session: 0, payload: reply.payload })
    }

    /// NULL.
    pub(super) async fn null(&self, user: &User) -> Result<()> {
        bump(&user.session.counters.wire.round_trips);
        let request = Request {
            program: nfs4::PROGRAM,
            version: nfs4::VERSION,
            procedure: 0,
            credential: &user.wire,
            payload: Bytes::new(),
            trailer: Bytes::new(),
            receive: None,
        };
        let reply = self.rpc.call(request, |_| {}).await;
        reply.map(drop).map_err(|source| Error::Rpc { object: "NULL".to_owned(), source: RpcError(source) })
    }

    /// A SEQUENCE that was sent at `sent` has succeeded, with these `sr_status_flags`.
    fn sequenced(self: &Arc<Self>, session: &EstablishedSession, sent: Instant, flags: u32) {
        let step = {
            let mut manager = self.manager.lock();
            manager.sequenced(session.number, sent, flags);
            self.note_lease(&manager);
            manager.step(sent)
        };
        if !matches!(step, Step::Wait(_) | Step::Renew) {
            self.offer_session();
            self.wake.notify_one();
        }
        self.note_moved_lease(sent, flags);
    }

    /// A SEQUENCE that was sent at `sent` had these `sr_status_flags`. A server goes on saying that it has
    /// moved a filesystem.
    fn note_moved_lease(self: &Arc<Self>, sent: Instant, flags: u32) {
        let is_moved = flags & nfs4::SEQ4_LEASE_MOVED != 0;
        if self.is_lease_moved.load(Relaxed) != is_moved && (!is_moved || self.lease_moved(sent)) {
            self.is_lease_moved.store(is_moved, Relaxed);
        }
    }

    /// A connection was lost.
    pub(super) fn disconnected(&self) {
        self.manager.lock().disconnected(Instant::now());
        self.offloads.doubt();
        self.wake.notify_one();
    }

    /// The server recalls something.
    pub(super) fn recall(self: &Arc<Self>, recall: Recall<'_>) -> Nfsstat4 {
        match recall {
            Recall::Slots { session, highest } => self.recall_slot(session, highest),
            Recall::Delegation { id, file } => {
                let Some(file) = Handle::new(file) else { return Nfsstat4::Badhandle };
                if !self.update(|held| held.recall(&file, id)) {
                    return Nfsstat4::BadStateid;
                }
                self.close_now();
            }
            Recall::Delegations { keep, kinds } => {
                self.update(|held| held.keep_delegations(keep, kinds));
                self.close_now();
            }
        }
        Nfsstat4::Ok
    }

    /// The current session, as soon as there is one.
    async fn session(&self, started: Instant) -> Result<Arc<EstablishedSession>> {
        loop {
            let ready = self.is_ready.notified();
            if let Some(session) = self.current.load_full() {
                return Ok(session);
            }
            if self.is_closed.load(Acquire) {
                let source = RpcError(rpc::client::Error::Closed { address: self.rpc.address() });
                return Err(Error::Rpc { object: "SEQUENCE".to_owned(), source });
            }
            if self.is_ended.swap(false, AcqRel) {
                self.wake.notify_one();
            }
            self.within(started, ready).await?;
        }
    }

    /// A request shows that the session can't be used any more.
    fn discard(&self, session: &Arc<EstablishedSession>, error: SessionError) {
        self.manager.lock().failed(session.number, error);
        session.is_lost.store(true, Release);
        session.free.notify_waiters();
        self.offer_session();
        self.wake.notify_one();
    }

    /// Offers the last session that was created to ordinary requests while they may be sent, and no session
    /// otherwise.
    fn offer_session(&self) {
        // It stays locked, so that no other thread offers what it has seen before.
        let manager = self.manager.lock();
        self.note_lease(&manager);
        let created = self.created.lock().clone();
        let is_good = |session: &Arc<EstablishedSession>| {
            manager.is_ready() && session.number == manager.session() && !session.is_lost.load(Acquire)
        };
        let offered = created.filter(is_good);
        let is_offered = offered.is_some();
        self.current.store(offered);
        drop(manager);
        if is_offered {
            self.is_ready.notify_waiters();
        }
    }
}

/// Whether the server has denied a call: it hasn't looked at its SEQUENCE.
const fn is_denied(error: &Error) -> bool {
    use rpc::client::Error as E;
    matches!(
        error,
        Error::Rpc {
            source: RpcError(
                E::RpcVersion { .. }
                    | E::Auth { .. }
                    | E::ProgramUnavailable { .. }
                    | E::ProgramMismatch { .. }
                    | E::ProcedureUnavailable { .. }
                    | E::GarbageArguments { .. }
                    | E::TooLong { .. }
            ),
            ..
        }
    )
}
