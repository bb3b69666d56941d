//! The client's side of a client id and its session (RFC 8881 sections 2.4 and 2.10): established when it is
//! first needed, established again when the server has lost it, and kept alive while it is idle.
//!
//! Every request has a slot of the session ([`client_state::SlotTable`]) and is sent on any of the
//! connections: the server binds a connection to the session with the first SEQUENCE on it, because the
//! client id is protected by nothing more (SP4_NONE, RFC 8881 section 2.10.3.1). When a connection is lost,
//! `rpc` sends the same bytes on the next one, so that the server recognises a retry by its slot.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use client_state::{SlotError, SlotTable, TakenSlot, Unanswered};
use parking_lot::Mutex;
use proto::nfs4::{
    self, BindConnToSession4Args, BindConnToSession4ResOk, CREATE_SESSION_CONN_BACK_CHAN, CallbackSecParms4,
    ChannelAttrs4, ChannelDirFromClient4, ClientOwner4, Clientid4Args, CreateSession4Args,
    CreateSession4ResOk, DestroySession4Args, EXCHGID_CONFIRMED_R, EXCHGID_USE_NON_PNFS, ExchangeId4Args,
    ExchangeId4ResOk, MinorVersion, NfsImplId4, Nfsstat4, Nfstime4, Operation, ReclaimComplete4Args,
    SEQ4_BACKCHANNEL_FAULT, SEQ4_CB_PATH_DOWN, SEQ4_CB_PATH_DOWN_SESSION, Sequence4Args, Sequence4ResOk,
    Sessionid4, StateProtect4A,
};
use rpc::client::{Client, Receive, Request};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;
use xdr::{Array, Opaque};

use super::callbacks::{self, Callbacks, MAX_CALLBACK, MAX_CALLBACK_OPERATIONS, MAX_CALLBACK_SLOTS};
use super::compound::{Compound, Results, malformed, refused};
use crate::counters::{SessionCounters, bump};
use crate::error::{Error, Result, RpcError};
use crate::options::MAX_TRANSFER;
use crate::user::User;

/// Room for what is around a payload in a request or reply, in bytes.
const MAX_HEAD: u32 = 4 << 10;

/// The largest reply that the server keeps for a retry, in bytes. Replies to requests that are executed once
/// have some handles and attributes.
const MAX_KEPT_REPLY: u32 = 4 << 10;

/// The operations of a request. Only the resolution of a path has more than a dozen, and it is divided.
const MAX_OPERATIONS: u32 = 64;

/// The slots that the client asks for: more than a mount of many users keeps busy.
const MAX_REQUESTS: u32 = 128;

/// The pause before a request is sent again whose slot is busy on the server, or whose server asks to wait
/// during the establishment of a session. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The lease until the server has said its own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A session that the server has created.
#[derive(Debug)]
struct EstablishedSession {
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
}

/// A client id, its current session, and the connections.
#[derive(Debug)]
pub(super) struct SessionClient {
    rpc: Arc<Client>,
    runtime: Runtime,
    counters: Arc<SessionCounters>,
    /// The user who establishes sessions.
    owner: Arc<User>,
    pub(super) minor: MinorVersion,
    /// `co_ownerid`.
    owner_id: Vec<u8>,
    /// `co_verifier`: another in each instance of the client.
    verifier: [u8; 8],
    callbacks: Arc<Callbacks>,
    current: ArcSwapOption<EstablishedSession>,
    establishing: tokio::sync::Mutex<()>,
    /// A request has renewed the lease since the last look.
    is_renewed: AtomicBool,
    /// The back channel is being bound.
    is_binding: AtomicBool,
}

/// The reply to a request: the results behind SEQUENCE's.
#[derive(Debug)]
pub(super) struct CompoundReply {
    results: Vec<u8>,
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
            self.session.slots.lock().abandon(taken);
            let settling = settle_abandoned(Arc::downgrade(self.client), Arc::downgrade(self.session));
            self.client.runtime.spawn(settling);
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
    async fn take(&self) -> Option<TakenSlot> {
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
            current: ArcSwapOption::empty(),
            establishing: tokio::sync::Mutex::new(()),
            is_renewed: AtomicBool::new(false),
            is_binding: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&client);
        client.callbacks.on_recall_slot(Box::new(move |session, highest| {
            if let Some(client) = weak.upgrade() {
                client.recall_slot(session, highest);
            }
        }));
        client
    }

    /// The largest READ and WRITE that requests and replies of the session have room for, in bytes.
    pub(super) fn max_transfers(&self) -> (u32, u32) {
        let session = self.current.load();
        session.as_ref().map_or((0, 0), |session| {
            (session.max_reply.saturating_sub(MAX_HEAD), session.max_request.saturating_sub(MAX_HEAD))
        })
    }

    /// The operations that a request may have, SEQUENCE not counted.
    pub(super) fn max_operations(&self) -> usize {
        let session = self.current.load();
        session.as_ref().map_or(1, |session| session.max_operations.saturating_sub(1).max(1) as usize)
    }

    /// Renews the lease whenever no request has for a third of it, until the client is dropped.
    pub(super) fn keep_alive(self: &Arc<Self>, lease: Option<u32>) {
        let lease = lease.map_or(DEFAULT_LEASE, |seconds| Duration::from_secs(seconds.max(3).into()));
        let weak = Arc::downgrade(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(lease / 3).await;
                let Some(client) = weak.upgrade() else { return };
                if !client.is_renewed.swap(false, Relaxed) {
                    let owner = client.owner.clone();
                    if let Err(error) = client.call(&owner, &Compound::new(), None).await {
                        tracing::debug!(%error, "the lease isn't renewed");
                    }
                }
            }
        });
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
        loop {
            let session = self.session().await?;
            let Some(taken) = session.take().await else { continue };
            let mut guard = SlotGuard { client: self, session: &session, taken: Some(taken) };
            let mut pause = MIN_PAUSE;
            while let Some(taken) = &guard.taken {
                let sequence = session.sequence(taken, compound.keeps_reply());
                let (limit, split) = receive.as_ref().map_or((0, None), |at| (at.limit, Some(at.split)));
                let reply = self.send(user, compound, Some(&sequence), receive.take()).await?;
                let CompoundReply { results, payload } = reply;
                let results_of = Results::new(&results)?;
                let outcome = sequence_outcome(results_of.clone())?;
                if !matches!(outcome, SequenceOutcome::Executed(_)) {
                    receive = split.map(|split| Receive { into: payload, limit, split });
                    let Some(taken) = guard.taken.take() else { break };
                    match self.unanswered(&session, taken, outcome, compound).await? {
                        Some(taken) => {
                            guard.taken = Some(taken);
                            tokio::time::sleep(pause).await;
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
                self.note_status(ok.status_flags);
                // Most servers say here that they have executed a retry and not kept its reply.
                if results_of.status == Nfsstat4::RetryUncachedRep && !compound.keeps_reply() {
                    receive = split.map(|split| Receive { into: payload, limit, split });
                    break;
                }
                return Ok(CompoundReply { results, payload });
            }
        }
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
                Unanswered::ReplaceSession => self.discard(session),
            },
            SequenceOutcome::SessionLost => self.discard(session),
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
        bump(&self.counters.wire.round_trips);
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
        let reply = self.rpc.call(request, |to| compound.encode(self.minor, sequence, to)).await;
        let failed = |source| Error::Rpc { object: "COMPOUND".to_owned(), source: RpcError(source) };
        let reply = reply.map_err(failed)?;
        Ok(CompoundReply { results: reply.results, payload: reply.payload })
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

    /// Reacts to `sr_status_flags`.
    fn note_status(self: &Arc<Self>, flags: u32) {
        if !self.is_renewed.load(Relaxed) {
            self.is_renewed.store(true, Relaxed);
        }
        let down = SEQ4_CB_PATH_DOWN | SEQ4_CB_PATH_DOWN_SESSION | SEQ4_BACKCHANNEL_FAULT;
        if flags & down != 0 && !self.is_binding.swap(true, Relaxed) {
            let client = self.clone();
            self.runtime.spawn(async move {
                if let Some(session) = client.current.load_full()
                    && let Err(error) = client.bind(&session).await
                {
                    tracing::debug!(%error, "the back channel isn't bound");
                }
                // Not more often than this, however often the server reports it.
                tokio::time::sleep(MAX_PAUSE).await;
                client.is_binding.store(false, Relaxed);
            });
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

    /// CB_RECALL_SLOT.
    fn recall_slot(self: &Arc<Self>, session: Sessionid4, highest: u32) {
        let Some(current) = self.current.load_full().filter(|current| current.id == session) else { return };
        let owes_sequence = {
            let mut slots = current.slots.lock();
            slots.recall(highest);
            slots.owes_sequence()
        };
        if owes_sequence {
            let client = self.clone();
            self.runtime.spawn(async move {
                let owner = client.owner.clone();
                let _ = client.call(&owner, &Compound::new(), None).await;
            });
        }
    }

    /// The current session; establishes one if there is none.
    async fn session(self: &Arc<Self>) -> Result<Arc<EstablishedSession>> {
        match self.current.load_full() {
            Some(session) => Ok(session),
            None => Box::pin(self.establish()).await,
        }
    }

    /// Establishes the first session.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<()> {
        self.session().await.map(drop)
    }

    /// The server has lost the session, or it can't be used any more.
    fn discard(&self, session: &Arc<EstablishedSession>) {
        let current = self.current.load();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            self.current.compare_and_swap(&current, None);
        }
        session.is_lost.store(true, Release);
        session.free.notify_waiters();
    }

    /// Establishes a session, with the client id that the server has for this client or a new one.
    async fn establish(self: &Arc<Self>) -> Result<Arc<EstablishedSession>> {
        let _one = self.establishing.lock().await;
        if let Some(session) = self.current.load_full() {
            return Ok(session);
        }
        let mut pause = MIN_PAUSE;
        loop {
            let attempt = match self.exchange_id().await {
                Ok((clientid, sequence, is_known)) => {
                    let created = self.create_session(clientid, sequence).await;
                    created.map(|session| (session, is_known))
                }
                Err(error) => Err(error),
            };
            match attempt {
                Ok((session, is_known)) => {
                    let session = Arc::new(session);
                    self.callbacks.set_session(session.id);
                    if !is_known {
                        self.complete_reclaim(&session).await?;
                    }
                    self.current.store(Some(session.clone()));
                    return Ok(session);
                }
                // The client id has expired between the two requests, or the server is busy.
                Err(EstablishError::Again) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(EstablishError::Failed(error)) => return Err(error),
            }
        }
    }

    /// EXCHANGE_ID. Returns the client id, the sequence number of its next CREATE_SESSION, and whether the
    /// server knew the client with its state.
    async fn exchange_id(&self) -> Result<(u64, u32, bool), EstablishError> {
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
        established(operation, results.status(operation)?)?;
        let ok: ExchangeId4ResOk<'_> = results.value(operation)?;
        Ok((ok.clientid, ok.sequenceid, ok.flags & EXCHGID_CONFIRMED_R != 0))
    }

    /// CREATE_SESSION.
    async fn create_session(
        &self,
        clientid: u64,
        sequence: u32,
    ) -> Result<EstablishedSession, EstablishError> {
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
        established(operation, results.status(operation)?)?;
        let ok: CreateSession4ResOk = results.value(operation)?;
        let fore = ok.fore_chan_attrs;
        Ok(EstablishedSession {
            id: ok.sessionid,
            clientid,
            max_request: fore.maxrequestsize,
            max_reply: fore.maxresponsesize,
            max_operations: fore.maxoperations.min(MAX_OPERATIONS),
            slots: Mutex::new(SlotTable::new(fore.maxrequests)),
            free: Notify::new(),
            waiting: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        })
    }

    /// RECLAIM_COMPLETE, in a session that nothing else uses yet: the client has nothing to reclaim, or has
    /// reclaimed it (RFC 8881 section 18.51).
    async fn complete_reclaim(&self, session: &Arc<EstablishedSession>) -> Result<()> {
        let operation = Operation::ReclaimComplete;
        let compound = Compound::once().then(operation, &ReclaimComplete4Args { one_fs: false });
        let taken = session.take().await.ok_or_else(|| malformed(Operation::CreateSession.name()))?;
        let sequence = session.sequence(&taken, true);
        let reply = self.send(&self.owner, &compound, Some(&sequence), None).await?;
        let mut results = Results::new(&reply.results)?;
        let ok: Sequence4ResOk = results.get(Operation::Sequence)?;
        session.give_back(|slots| slots.answered(taken, ok.highest_slotid, ok.target_highest_slotid));
        match results.status(operation)? {
            Nfsstat4::Ok | Nfsstat4::CompleteAlready => Ok(()),
            status => Err(refused(operation, status)),
        }
    }

    /// DESTROY_SESSION and DESTROY_CLIENTID. Errors are ignored: without these the lease expires.
    pub(super) async fn end(&self) {
        let Some(session) = self.current.swap(None) else { return };
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

/// Why a session isn't established.
enum EstablishError {
    /// Another attempt may succeed.
    Again,
    Failed(Error),
}

impl From<Error> for EstablishError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Whether an operation that establishes a session has succeeded.
fn established(operation: Operation, status: Nfsstat4) -> Result<(), EstablishError> {
    match status {
        Nfsstat4::Ok => Ok(()),
        Nfsstat4::Delay | Nfsstat4::StaleClientid | Nfsstat4::SeqMisordered => Err(EstablishError::Again),
        status => Err(EstablishError::Failed(refused(operation, status))),
    }
}

/// What SEQUENCE's result tells about the request.
fn sequence_outcome(mut results: Results<'_>) -> Result<SequenceOutcome> {
    let operation = Operation::Sequence;
    Ok(match results.status(operation)? {
        Nfsstat4::Ok => SequenceOutcome::Executed(results.value(operation)?),
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
        let is_current = client.current.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, &session));
        if !is_current {
            return;
        }
        let Some(taken) = repeated.take().or_else(|| session.slots.lock().take_abandoned()) else { return };
        let sequence = session.sequence(&taken, false);
        let reply = client.send(&client.owner, &Compound::new(), Some(&sequence), None).await;
        let outcome = reply.and_then(|reply| sequence_outcome(Results::new(&reply.results)?));
        match outcome {
            Ok(SequenceOutcome::Executed(ok)) => {
                session.give_back(|slots| slots.answered(taken, ok.highest_slotid, ok.target_highest_slotid));
            }
            Ok(SequenceOutcome::Slot(error)) => match session.give_back(|slots| slots.failed(taken, error)) {
                Unanswered::Repeat(taken) => repeated = Some(taken),
                Unanswered::TakeAnother | Unanswered::ReplyLost => {}
                Unanswered::ReplaceSession => client.discard(&session),
            },
            Ok(SequenceOutcome::SessionLost | SequenceOutcome::Refused(_)) => client.discard(&session),
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
