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

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use client_state::{SessionError, SlotError, SlotTable, StateManager, Step, TakenSlot, Unanswered};
use parking_lot::Mutex;
use proto::nfs4::{
    self, BindConnToSession4Args, BindConnToSession4ResOk, CREATE_SESSION_CONN_BACK_CHAN, CallbackSecParms4,
    ChannelAttrs4, ChannelDirFromClient4, ClientOwner4, Clientid4Args, CreateSession4Args,
    CreateSession4ResOk, DestroySession4Args, EXCHGID_CONFIRMED_R, EXCHGID_USE_NON_PNFS, ExchangeId4Args,
    ExchangeId4ResOk, MinorVersion, NfsImplId4, Nfsstat4, Nfstime4, Operation, ReclaimComplete4Args,
    Sequence4Args, Sequence4ResOk, Sessionid4, StateProtect4A,
};
use rpc::client::{Client, Policy, Receive, Request};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use xdr::{Array, Encoder, Opaque};

use super::callbacks::{self, Callbacks, MAX_CALLBACK, MAX_CALLBACK_OPERATIONS, MAX_CALLBACK_SLOTS, Recall};
use super::compound::{Compound, Results, refused};
use super::lock::LockWaiters;
use super::state::ClientState;
use crate::connection::send;
use crate::counters::{SessionCounters, bump};
use crate::error::{Error, Result, RpcError};
use crate::options::MAX_TRANSFER;
use crate::types::Handle;
use crate::user::User;

/// Room for what is around a payload in a request or reply, in bytes.
const MAX_HEAD: u32 = 4 << 10;

/// The largest reply that the server keeps for a retry, in bytes. Replies to requests that are executed once
/// have some handles and attributes.
const MAX_KEPT_REPLY: u32 = 4 << 10;

/// The operations of a request. Only the resolution of a path has more than a dozen, and it is divided.
const MAX_OPERATIONS: u32 = 64;

/// The fewest operations of a request that a session must permit: those of OPEN with SEQUENCE.
const MIN_OPERATIONS: u32 = 8;

/// The smallest requests and replies that a session must permit, in bytes: a page of data.
const MIN_MESSAGE: u32 = MAX_HEAD + (4 << 10);

/// The slots that the client asks for: more than a mount of many users keeps busy.
const MAX_REQUESTS: u32 = 128;

/// The pause before a request is sent again whose slot is busy on the server or whose session was lost again,
/// or whose server asks to wait during the establishment of a session. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long the client's own requests may take when the session's users are gone.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The lease until the server has said its own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A session that the server has created.
#[derive(Debug)]
pub(super) struct EstablishedSession {
    /// The state manager's number of the session.
    number: u64,
    id: Sessionid4,
    clientid: u64,
    /// The largest request and reply of the fore channel, in bytes.
    max_request: u32,
    max_reply: u32,
    max_operations: u32,
    slots: Mutex<SlotTable>,
    /// Told when a slot becomes free.
    free: Notify,
    /// The requests that wait for a slot.
    waiting: AtomicUsize,
    /// The server has lost the session: nothing is sent in it any more.
    is_lost: AtomicBool,
    /// A task tells the server that slots aren't used any more (CB_RECALL_SLOT).
    is_complying: AtomicBool,
}

/// A client id, its current session, and the connections.
#[derive(Debug)]
pub(super) struct SessionClient {
    rpc: Arc<Client>,
    runtime: Runtime,
    pub(super) counters: Arc<SessionCounters>,
    /// The user who establishes sessions.
    pub(super) owner: Arc<User>,
    pub(super) minor: MinorVersion,
    /// `co_ownerid`.
    owner_id: Vec<u8>,
    /// `co_verifier`: another in each instance of the client.
    verifier: [u8; 8],
    callbacks: Arc<Callbacks>,
    manager: Mutex<StateManager>,
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
    pub(super) state: ClientState,
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

/// What the SEQUENCE of a reply tells about its request.
enum SequenceOutcome {
    Executed(Sequence4ResOk),
    /// An error that is about the slot.
    Slot(SlotError),
    /// The server doesn't know the session any more.
    SessionLost,
    /// The connection must be bound to the session.
    Unbound,
    /// The request is refused whatever its slot.
    Refused(Nfsstat4),
}

/// A slot that is given back, also if the caller doesn't wait for the reply.
struct SlotGuard<'a> {
    client: &'a Arc<SessionClient>,
    session: &'a Arc<EstablishedSession>,
    taken: Option<TakenSlot>,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.client.abandon(self.session, taken);
        }
    }
}

/// Counts a request that waits for a slot.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl EstablishedSession {
    /// A slot for a request, as soon as one is free. `None` if the session is lost.
    pub(super) async fn take(&self) -> Option<TakenSlot> {
        let taken = self.slots.lock().take();
        if taken.is_some() {
            return taken;
        }
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let freed = self.free.notified();
            // What happened before is not announced.
            if self.is_lost.load(Acquire) {
                return None;
            }
            let taken = self.slots.lock().take();
            if taken.is_some() {
                return taken;
            }
            freed.await;
        }
    }

    /// Gives a slot back, and wakes requests that wait for one.
    fn give_back<T>(&self, give: impl FnOnce(&mut SlotTable) -> T) -> T {
        let mut slots = self.slots.lock();
        let given = give(&mut slots);
        let waiting = self.waiting.load(Relaxed);
        let free = if waiting > 0 { slots.available() as usize } else { 0 };
        drop(slots);
        (0..free.min(waiting)).for_each(|_| self.free.notify_one());
        given
    }

    const fn sequence(&self, taken: &TakenSlot, keeps_reply: bool) -> Sequence4Args {
        Sequence4Args {
            sessionid: self.id,
            sequenceid: taken.sequence(),
            slotid: taken.slot(),
            highest_slotid: taken.highest(),
            cachethis: keeps_reply,
        }
    }
}

/// Who a client is to its server.
pub(super) struct ClientIdentity {
    pub(super) owner_id: Vec<u8>,
    pub(super) verifier: [u8; 8],
}

impl SessionClient {
    /// A client without a session yet. Must run in a tokio runtime.
    pub(super) fn new(
        rpc: Arc<Client>,
        owner: Arc<User>,
        counters: Arc<SessionCounters>,
        minor: MinorVersion,
        identity: ClientIdentity,
        callbacks: Arc<Callbacks>,
        policy: Policy,
    ) -> Arc<Self> {
        let client = Arc::new(Self {
            rpc,
            runtime: Runtime::current(),
            counters,
            owner,
            minor,
            owner_id: identity.owner_id,
            verifier: identity.verifier,
            callbacks,
            manager: Mutex::new(StateManager::new(DEFAULT_LEASE)),
            created: Mutex::new(None),
            current: ArcSwapOption::empty(),
            is_ready: Notify::new(),
            wake: Arc::default(),
            is_ended: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            policy,
            state: ClientState::default(),
        });
        let weak = Arc::downgrade(&client);
        client.callbacks.set_handler(Arc::new(move |recall| match weak.upgrade() {
            Some(client) => client.recall(recall),
            None => Nfsstat4::Badhandle,
        }));
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

    /// The operations that a request may have, SEQUENCE not counted.
    pub(super) fn max_operations(&self) -> usize {
        let session = self.created.lock();
        session.as_ref().map_or(1, |session| session.max_operations.saturating_sub(1).max(1) as usize)
    }

    /// Takes the steps that keep the session, until the client is dropped. `lease` is the server's lease time
    /// in seconds.
    pub(super) fn keep(self: &Arc<Self>, lease: Option<u32>) {
        if let Some(seconds) = lease {
            self.manager.lock().set_lease(Duration::from_secs(seconds.max(1).into()));
        }
        self.runtime.spawn(keep(Arc::downgrade(self), self.wake.clone()));
    }

    /// Sends a request in the session and waits for its reply. The operations behind SEQUENCE may have
    /// failed.
    ///
    /// # Errors
    /// The call's; those of establishing a session; that the server has lost the reply to a request that must
    /// not be executed twice.
    pub(super) async fn call(
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

    /// Whether the server keeps the client's state for certain.
    pub(super) fn is_lease_valid(&self) -> bool {
        self.manager.lock().is_lease_valid(Instant::now())
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
    async fn within<T>(&self, started: Instant, wait: impl Future<Output = T>) -> Result<T> {
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

    /// Ends the client: the session's users are gone. What the client sends by itself, as CLOSE or a renewal
    /// of the lease, has [`CLOSE_TIMEOUT`] to be answered; it would keep a connection to a server that never
    /// answers.
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
                self.manager.lock().bound();
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
        let reply = send(&self.rpc, &self.counters, request, small, encode).await;
        let failed = |source| Error::Rpc { object: "COMPOUND".to_owned(), source: RpcError(source) };
        let reply = reply.map_err(failed)?;
        Ok(CompoundReply { results: reply.results, session: 0, payload: reply.payload })
    }

    /// NULL.
    pub(super) async fn null(&self, user: &User) -> Result<()> {
        bump(&self.counters.wire.round_trips);
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
    fn sequenced(&self, session: &EstablishedSession, sent: Instant, flags: u32) {
        let step = {
            let mut manager = self.manager.lock();
            manager.sequenced(session.number, sent, flags);
            manager.step(sent)
        };
        if !matches!(step, Step::Wait(_) | Step::Renew) {
            self.offer_session();
            self.wake.notify_one();
        }
    }

    /// Binds a connection to the session, for both channels.
    async fn bind(&self, session: &EstablishedSession) -> Result<()> {
        let operation = Operation::BindConnToSession;
        let args = BindConnToSession4Args {
            sessionid: session.id,
            dir: ChannelDirFromClient4::ForeOrBoth,
            use_conn_in_rdma_mode: false,
        };
        let reply = self.send(&self.owner, &Compound::new().then(operation, &args), None, None).await?;
        let _: BindConnToSession4ResOk = Results::new(&reply.results)?.get(operation)?;
        Ok(())
    }

    /// The server recalls something.
    fn recall(self: &Arc<Self>, recall: Recall<'_>) -> Nfsstat4 {
        match recall {
            Recall::Slots { session, highest } => self.recall_slot(session, highest),
            Recall::Delegation { id, file } => {
                let Some(file) = Handle::new(file) else { return Nfsstat4::Badhandle };
                if !self.update(|held| held.recall(&file, id)) {
                    return Nfsstat4::BadStateid;
                }
            }
            Recall::Delegations { keep } => self.update(|held| held.keep_delegations(keep)),
        }
        Nfsstat4::Ok
    }

    /// CB_RECALL_SLOT.
    fn recall_slot(self: &Arc<Self>, session: Sessionid4, highest: u32) {
        let Some(current) = self.current.load_full().filter(|current| current.id == session) else { return };
        let owes_sequence = {
            let mut slots = current.slots.lock();
            slots.recall(highest);
            slots.owes_sequence()
        };
        if owes_sequence && !current.is_complying.swap(true, AcqRel) {
            self.runtime.spawn(comply(Arc::downgrade(self), current));
        }
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

    /// Establishes the first session.
    ///
    /// # Errors
    /// Those of EXCHANGE_ID and CREATE_SESSION.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<()> {
        let mut pause = MIN_PAUSE;
        while self.current.load().is_none() {
            let step = self.manager.lock().step(Instant::now());
            match self.take_step(step).await {
                Ok(()) => {}
                Err(StepError::Again) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(StepError::Failed(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Nothing waits for the reply to a request any more.
    fn abandon(self: &Arc<Self>, session: &Arc<EstablishedSession>, taken: TakenSlot) {
        session.slots.lock().abandon(taken);
        self.runtime.spawn(settle_abandoned(Arc::downgrade(self), Arc::downgrade(session)));
    }

    /// A request shows that the session can't be used any more.
    fn discard(&self, session: &Arc<EstablishedSession>, error: SessionError) {
        self.manager.lock().failed(session.number, error);
        session.is_lost.store(true, Release);
        session.free.notify_waiters();
        self.offer_session();
        self.wake.notify_one();
    }

    /// Takes one step. After it, ordinary requests are sent as soon as the state manager permits it.
    async fn take_step(self: &Arc<Self>, step: Step) -> Result<(), StepError> {
        let created = self.created.lock().clone();
        match step {
            Step::ExchangeId => self.exchange_id().await?,
            Step::CreateSession { client, sequence } => self.create_session(client, sequence).await?,
            Step::DestroySession => {
                if let Some(session) = created {
                    let args = DestroySession4Args { sessionid: session.id };
                    let destroy = Compound::new().then(Operation::DestroySession, &args);
                    // Whatever the server answers, the session isn't used any more.
                    self.send(&self.owner, &destroy, None, None).await?;
                }
                self.manager.lock().session_destroyed();
            }
            Step::BindConnections => {
                if let Some(session) = created {
                    self.bind(&session).await?;
                }
                self.manager.lock().bound();
            }
            Step::Reclaim { loss } => {
                if let Some(session) = created {
                    self.reclaim(loss, &session).await?;
                }
                self.manager.lock().reclaimed(loss);
            }
            Step::ReclaimComplete => {
                if let Some(session) = created {
                    self.complete_reclaim(&session).await?;
                }
                self.manager.lock().reclaim_completed();
            }
            Step::TestStates => {
                if let Some(session) = created {
                    self.test_states(&session).await?;
                }
                self.manager.lock().tested();
            }
            Step::Renew => {
                if let Some(session) = created
                    && let Some(taken) = session.take().await
                {
                    self.send_in(&session, taken, &self.owner, &Compound::new()).await?;
                }
            }
            Step::Wait(_) => {}
        }
        self.offer_session();
        Ok(())
    }

    /// Offers the last session that was created to ordinary requests while they may be sent, and no session
    /// otherwise.
    fn offer_session(&self) {
        // It stays locked, so that no other thread offers what it has seen before.
        let manager = self.manager.lock();
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

    /// Sends a request of the state manager's, also in a session that ordinary requests may not use yet.
    pub(super) async fn send_in(
        self: &Arc<Self>,
        session: &Arc<EstablishedSession>,
        taken: TakenSlot,
        user: &User,
        compound: &Compound,
    ) -> Result<CompoundReply, StepError> {
        let sent = Instant::now();
        let sequence = session.sequence(&taken, compound.keeps_reply());
        let reply = match self.send(user, compound, Some(&sequence), None).await {
            Ok(reply) => reply,
            Err(error) => {
                if is_denied(&error) {
                    session.give_back(|slots| slots.not_executed(taken));
                } else {
                    self.abandon(session, taken);
                }
                return Err(error.into());
            }
        };
        let outcome = Results::new(&reply.results).and_then(|results| sequence_outcome(results, &sequence));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.abandon(session, taken);
                return Err(error.into());
            }
        };
        match outcome {
            SequenceOutcome::Executed(ok) => {
                session.give_back(|slots| slots.answered(taken, ok.highest_slotid, ok.target_highest_slotid));
                self.sequenced(session, sent, ok.status_flags);
                return Ok(reply);
            }
            SequenceOutcome::Slot(error) => match session.give_back(|slots| slots.failed(taken, error)) {
                Unanswered::Repeat(taken) => self.abandon(session, taken),
                Unanswered::TakeAnother | Unanswered::ReplyLost => {}
                Unanswered::ReplaceSession => self.discard(session, SessionError::Disordered),
            },
            SequenceOutcome::SessionLost => self.discard(session, SessionError::Unknown),
            SequenceOutcome::Unbound => {
                session.give_back(|slots| slots.not_executed(taken));
                self.manager.lock().failed(session.number, SessionError::NotBound);
            }
            SequenceOutcome::Refused(status) => {
                session.give_back(|slots| slots.not_executed(taken));
                return Err(refused(Operation::Sequence, status).into());
            }
        }
        Err(StepError::Again)
    }

    /// EXCHANGE_ID.
    async fn exchange_id(&self) -> Result<(), StepError> {
        let operation = Operation::ExchangeId;
        let args = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: self.verifier, ownerid: Opaque(&self.owner_id) },
            flags: EXCHGID_USE_NON_PNFS,
            state_protect: StateProtect4A::None,
            client_impl_id: Array(vec![NfsImplId4 {
                domain: Opaque(b"samehost.org"),
                name: Opaque(concat!("samehost ", env!("CARGO_PKG_VERSION")).as_bytes()),
                date: Nfstime4::default(),
            }]),
        };
        let reply = self.send(&self.owner, &Compound::new().then(operation, &args), None, None).await?;
        let mut results = Results::new(&reply.results)?;
        match results.status(operation)? {
            Nfsstat4::Ok => {}
            Nfsstat4::Delay => return Err(StepError::Again),
            status => return Err(refused(operation, status).into()),
        }
        let ok: ExchangeId4ResOk<'_> = results.value(operation)?;
        let is_confirmed = ok.flags & EXCHGID_CONFIRMED_R != 0;
        self.manager.lock().exchanged(ok.clientid, ok.sequenceid, is_confirmed);
        Ok(())
    }

    /// CREATE_SESSION.
    async fn create_session(&self, clientid: u64, sequence: u32) -> Result<(), StepError> {
        let operation = Operation::CreateSession;
        let args = CreateSession4Args {
            clientid,
            sequence,
            flags: CREATE_SESSION_CONN_BACK_CHAN,
            fore_chan_attrs: ChannelAttrs4 {
                maxrequestsize: MAX_TRANSFER + MAX_HEAD,
                maxresponsesize: MAX_TRANSFER + MAX_HEAD,
                maxresponsesize_cached: MAX_KEPT_REPLY,
                maxoperations: MAX_OPERATIONS,
                maxrequests: MAX_REQUESTS,
                ..ChannelAttrs4::default()
            },
            back_chan_attrs: ChannelAttrs4 {
                maxrequestsize: MAX_CALLBACK,
                maxresponsesize: MAX_CALLBACK,
                maxresponsesize_cached: MAX_CALLBACK,
                maxoperations: MAX_CALLBACK_OPERATIONS,
                maxrequests: MAX_CALLBACK_SLOTS,
                ..ChannelAttrs4::default()
            },
            cb_program: callbacks::PROGRAM,
            sec_parms: Array(vec![CallbackSecParms4::None]),
        };
        let reply = self.send(&self.owner, &Compound::new().then(operation, &args), None, None).await?;
        let mut results = Results::new(&reply.results)?;
        match results.status(operation)? {
            Nfsstat4::Ok => {}
            Nfsstat4::Delay => return Err(StepError::Again),
            Nfsstat4::StaleClientid | Nfsstat4::SeqMisordered => {
                self.manager.lock().session_refused();
                return Err(StepError::Again);
            }
            status => return Err(refused(operation, status).into()),
        }
        let ok: CreateSession4ResOk = results.value(operation)?;
        let fore = ok.fore_chan_attrs;
        let message = fore.maxrequestsize.min(fore.maxresponsesize);
        if fore.maxoperations < MIN_OPERATIONS || message < MIN_MESSAGE {
            let what =
                "its session permits too few operations in a request, or too small requests or replies";
            return Err(Error::Protocol { object: operation.name().to_owned(), what }.into());
        }
        let number = {
            let mut manager = self.manager.lock();
            manager.session_created();
            manager.session()
        };
        self.callbacks.set_session(ok.sessionid);
        *self.created.lock() = Some(Arc::new(EstablishedSession {
            number,
            id: ok.sessionid,
            clientid,
            max_request: fore.maxrequestsize.min(MAX_TRANSFER + MAX_HEAD),
            max_reply: fore.maxresponsesize.min(MAX_TRANSFER + MAX_HEAD),
            max_operations: fore.maxoperations.min(MAX_OPERATIONS),
            slots: Mutex::new(SlotTable::new(fore.maxrequests)),
            free: Notify::new(),
            waiting: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
            is_complying: AtomicBool::new(false),
        }));
        Ok(())
    }

    /// RECLAIM_COMPLETE.
    async fn complete_reclaim(self: &Arc<Self>, session: &Arc<EstablishedSession>) -> Result<(), StepError> {
        let operation = Operation::ReclaimComplete;
        let compound = Compound::once().then(operation, &ReclaimComplete4Args { one_fs: false });
        let Some(taken) = session.take().await else { return Err(StepError::Again) };
        let reply = self.send_in(session, taken, &self.owner, &compound).await?;
        match reply.results()?.status(operation)? {
            Nfsstat4::Ok | Nfsstat4::CompleteAlready => Ok(()),
            Nfsstat4::Delay => Err(StepError::Again),
            status => Err(refused(operation, status).into()),
        }
    }

    /// DESTROY_SESSION and DESTROY_CLIENTID. Errors are ignored: without these the lease expires. A request
    /// afterwards, by a file that is still open, makes another client id and session.
    pub(super) async fn end(self: &Arc<Self>) {
        self.update(|held| held.keep_delegations(0));
        self.changes_sent().await;
        let Some(session) = self.current.load_full() else { return };
        self.is_ended.store(true, Release);
        self.discard(&session, SessionError::StaleClientId);
        let destroy =
            Compound::new().then(Operation::DestroySession, &DestroySession4Args { sessionid: session.id });
        let forget =
            Compound::new().then(Operation::DestroyClientid, &Clientid4Args { clientid: session.clientid });
        for compound in [destroy, forget] {
            if self.send(&self.owner, &compound, None, None).await.is_err() {
                return;
            }
        }
    }
}

/// Why a step was not taken.
pub(super) enum StepError {
    /// Another step is due, or the same one after a pause.
    Again,
    Failed(Error),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Takes the state manager's steps when they are due, until the client is dropped.
async fn keep(client: Weak<SessionClient>, wake: Arc<Notify>) {
    let mut pause = MIN_PAUSE;
    // Once for an outage.
    let mut is_logged = false;
    loop {
        let Some(this) = client.upgrade().filter(|this| !this.is_closed.load(Acquire)) else { return };
        let step = this.manager.lock().step(Instant::now());
        let until = match step {
            _ if this.is_ended.load(Acquire) => {
                drop(this);
                wake.notified().await;
                continue;
            }
            Step::Wait(until) => {
                (pause, is_logged) = (MIN_PAUSE, false);
                until
            }
            step => match this.take_step(step).await {
                Ok(()) => continue,
                Err(error) => {
                    if let StepError::Failed(error) = error
                        && !std::mem::replace(&mut is_logged, true)
                    {
                        tracing::warn!(server = %this.rpc.address(), %error, "no NFSv4 session");
                    }
                    pause = (pause * 2).min(MAX_PAUSE);
                    Instant::now() + pause
                }
            },
        };
        drop(this);
        // An error means that it's time.
        let _ = tokio::time::timeout_at(until.into(), wake.notified()).await;
    }
}

/// Tells the server that slots which it recalls aren't used any more, until it recalls no further ones.
async fn comply(client: Weak<SessionClient>, session: Arc<EstablishedSession>) {
    while let Some(client) = client.upgrade() {
        let sent = client.call(&client.owner, &Compound::new(), None).await;
        session.is_complying.store(false, Release);
        let owes_sequence = sent.is_ok() && session.slots.lock().owes_sequence();
        if !owes_sequence || session.is_lost.load(Acquire) || session.is_complying.swap(true, AcqRel) {
            return;
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

/// What SEQUENCE's result tells about the request, which has these arguments of SEQUENCE.
///
/// # Errors
/// The result can't be decoded, or is that of another request (RFC 8881 section 18.46.3).
fn sequence_outcome(mut results: Results<'_>, of: &Sequence4Args) -> Result<SequenceOutcome> {
    let operation = Operation::Sequence;
    Ok(match results.status(operation)? {
        Nfsstat4::Ok => {
            let ok: Sequence4ResOk = results.value(operation)?;
            if (ok.sessionid, ok.slotid, ok.sequenceid) != (of.sessionid, of.slotid, of.sequenceid) {
                let what = "it answers a request of another slot or session";
                return Err(Error::Protocol { object: operation.name().to_owned(), what });
            }
            SequenceOutcome::Executed(ok)
        }
        Nfsstat4::Delay => SequenceOutcome::Slot(SlotError::Delay),
        Nfsstat4::Badslot => SequenceOutcome::Slot(SlotError::BadSlot),
        Nfsstat4::BadHighSlot => SequenceOutcome::Slot(SlotError::BadHighSlot),
        Nfsstat4::SeqMisordered => SequenceOutcome::Slot(SlotError::SeqMisordered),
        Nfsstat4::SeqFalseRetry => SequenceOutcome::Slot(SlotError::SeqFalseRetry),
        Nfsstat4::RetryUncachedRep => SequenceOutcome::Slot(SlotError::RetryUncachedRep),
        Nfsstat4::Badsession | Nfsstat4::Deadsession | Nfsstat4::StaleClientid => {
            SequenceOutcome::SessionLost
        }
        Nfsstat4::ConnNotBoundToSession => SequenceOutcome::Unbound,
        status => SequenceOutcome::Refused(status),
    })
}

/// Finds out what became of abandoned requests, until none is left or the session has ended.
async fn settle_abandoned(client: Weak<SessionClient>, session: Weak<EstablishedSession>) {
    let mut pause = MIN_PAUSE;
    let mut repeated = None;
    loop {
        let (Some(client), Some(session)) = (client.upgrade(), session.upgrade()) else { return };
        if session.is_lost.load(Acquire) {
            return;
        }
        let Some(taken) = repeated.take().or_else(|| session.slots.lock().take_abandoned()) else { return };
        let sequence = session.sequence(&taken, false);
        let reply = client.send(&client.owner, &Compound::new(), Some(&sequence), None).await;
        let outcome = reply.and_then(|reply| sequence_outcome(Results::new(&reply.results)?, &sequence));
        match outcome {
            Ok(SequenceOutcome::Executed(ok)) => {
                session.give_back(|slots| slots.answered(taken, ok.highest_slotid, ok.target_highest_slotid));
            }
            Ok(SequenceOutcome::Slot(error)) => match session.give_back(|slots| slots.failed(taken, error)) {
                Unanswered::Repeat(taken) => repeated = Some(taken),
                Unanswered::TakeAnother | Unanswered::ReplyLost => {}
                Unanswered::ReplaceSession => client.discard(&session, SessionError::Disordered),
            },
            Ok(SequenceOutcome::SessionLost) => client.discard(&session, SessionError::Unknown),
            Ok(SequenceOutcome::Refused(_)) | Err(Error::Protocol { .. }) => {
                client.discard(&session, SessionError::Disordered);
            }
            // The server doesn't answer, or not on this connection.
            Ok(SequenceOutcome::Unbound) | Err(_) => repeated = Some(taken),
        }
        if repeated.is_some() {
            drop((client, session));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}
