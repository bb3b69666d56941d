//! Establishing a session and keeping it: the steps of [`client_state::StateManager`].

use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::time::Instant;

use client_state::{SessionError, SlotTable, Step, TakenSlot, Unanswered};
use parking_lot::Mutex;
use proto::nfs4::{
    BindConnToSession4Args, BindConnToSession4ResOk, CREATE_SESSION_CONN_BACK_CHAN, CallbackSecParms4,
    ChannelAttrs4, ChannelDirFromClient4, ClientOwner4, Clientid4Args, CreateSession4Args,
    CreateSession4ResOk, DestroySession4Args, EXCHGID_CONFIRMED_R, EXCHGID_USE_NON_PNFS, ExchangeId4Args,
    ExchangeId4ResOk, NfsImplId4, Nfsstat4, Nfstime4, Operation, ReclaimComplete4Args, StateProtect4A,
};
use tokio::sync::Notify;
use xdr::{Array, Opaque};

use super::slots::{SequenceOutcome, sequence_outcome};
use super::{CompoundReply, EstablishedSession, MAX_HEAD, MAX_PAUSE, MIN_PAUSE, SessionClient, is_denied};
use crate::error::{Error, Result, Status};
use crate::nfs4::callbacks::{self, MAX_CALLBACK, MAX_CALLBACK_OPERATIONS, MAX_CALLBACK_SLOTS};
use crate::nfs4::compound::{Compound, Results, refused};
use crate::nfs4::delegation::ANY_DELEGATION;
use crate::options::MAX_TRANSFER;
use crate::user::User;

/// The largest reply that the server keeps for a retry, in bytes. Replies to requests that are executed once
/// have some handles and attributes, and the content of a small file that is opened.
const MAX_KEPT_REPLY: u32 = 8 << 10;

/// The operations of a request. Only the resolution of a path has more than a dozen, and it is divided.
const MAX_OPERATIONS: u32 = 64;

/// The fewest operations of a request that a session must permit: those of OPEN with SEQUENCE.
const MIN_OPERATIONS: u32 = 8;

/// The smallest requests and replies that a session must permit, in bytes: a page of data.
const MIN_MESSAGE: u32 = MAX_HEAD + (4 << 10);

/// The slots that the client asks for: more than a mount of many users keeps busy. A request that waits for
/// one costs a wake-up.
const MAX_REQUESTS: u32 = 136;

/// Calls in flight on a connection: one for each slot, and some for the calls that establish a session, for
/// which the requests of a lost session wait. More than about 200 wouldn't fit into the buffer of the lane's
/// call socket.
pub(in crate::nfs4) const MAX_IN_FLIGHT: usize = MAX_REQUESTS as usize + 24;

impl SessionClient {
    /// Establishes the first session.
    ///
    /// # Errors
    /// Those of EXCHANGE_ID and CREATE_SESSION.
    pub(in crate::nfs4) async fn connect(self: &Arc<Self>) -> Result<()> {
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
                    self.send_undelayed(&destroy).await?;
                }
                self.manager.lock().session_destroyed();
            }
            Step::BindConnections => {
                if let Some(session) = created {
                    self.bind(&session).await?;
                }
            }
            Step::Reclaim { loss } => {
                if let Some(session) = created {
                    self.offloads.recover(session.number);
                    self.reclaim(loss, &session).await?;
                }
                self.manager.lock().reclaimed(loss);
            }
            Step::ReclaimComplete => {
                if let Some(session) = created {
                    self.complete_reclaim(&session).await?;
                }
                self.manager.lock().reclaim_completed(Instant::now());
            }
            Step::TestStates => {
                let has_found = match created {
                    Some(session) => self.test_states(&session).await?,
                    None => false,
                };
                self.manager.lock().tested(Instant::now(), has_found);
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

    /// Sends a request of the state manager's, also in a session that ordinary requests may not use yet.
    pub(in crate::nfs4) async fn send_in(
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

    /// Binds a connection to the session, for both channels. If the server doesn't know the session, a step
    /// that replaces it is due.
    pub(super) async fn bind(&self, session: &Arc<EstablishedSession>) -> Result<()> {
        let operation = Operation::BindConnToSession;
        let args = BindConnToSession4Args {
            sessionid: session.id,
            dir: ChannelDirFromClient4::ForeOrBoth,
            use_conn_in_rdma_mode: false,
        };
        let reply = self.send(&self.owner, &Compound::new().then(operation, &args), None, None).await?;
        let mut results = Results::new(&reply.results)?;
        match results.status(operation)? {
            Nfsstat4::Ok => {
                let _: BindConnToSession4ResOk = results.value(operation)?;
                self.manager.lock().bound();
            }
            Nfsstat4::Badsession | Nfsstat4::Deadsession => self.discard(session, SessionError::Unknown),
            status => return Err(refused(operation, status)),
        }
        Ok(())
    }

    /// EXCHANGE_ID, with another owner if this one is another client's at the server.
    async fn exchange_id(&self) -> Result<(), StepError> {
        let mut identity = self.identity.lock().await;
        let operation = Operation::ExchangeId;
        loop {
            let owner_id = identity.owner_id();
            let args = ExchangeId4Args {
                clientowner: ClientOwner4 { verifier: identity.verifier(), ownerid: Opaque(&owner_id) },
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
            let server = ServerIdentity::of(&ok);
            if identity.claim_in(&server.scope).await {
                self.note_server(&server);
                let is_confirmed = ok.flags & EXCHGID_CONFIRMED_R != 0;
                self.manager.lock().exchanged(ok.clientid, ok.sequenceid, is_confirmed);
                return Ok(());
            }
        }
    }

    /// The server has this identity. If it is another one than before, nothing of the client's is there.
    fn note_server(&self, now: &ServerIdentity) {
        let before = self.server.lock().replace(now.clone());
        let Some(before) = before.filter(|before| before != now) else { return };
        let is_other_scope = before.scope != now.scope;
        self.manager.lock().server_changed(is_other_scope);
        let server = self.rpc.address();
        if is_other_scope {
            tracing::warn!(%server, "another NFSv4 server answers: locks are lost, files opened again");
        } else {
            tracing::info!(%server, "another NFSv4 server of the same scope answers: state is reclaimed");
        }
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
            // The last: another instance of the client has ended it meanwhile.
            Nfsstat4::StaleClientid | Nfsstat4::SeqMisordered | Nfsstat4::Badsession => {
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
        self.offloads.doubt();
        *self.created.lock() = Some(Arc::new(EstablishedSession {
            number,
            id: ok.sessionid,
            clientid,
            max_request: fore.maxrequestsize.min(MAX_TRANSFER + MAX_HEAD),
            max_reply: fore.maxresponsesize.min(MAX_TRANSFER + MAX_HEAD),
            max_kept: fore.maxresponsesize_cached.min(MAX_KEPT_REPLY),
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
    pub(in crate::nfs4) async fn end(self: &Arc<Self>) {
        self.update(|held| held.keep_delegations(0, ANY_DELEGATION));
        self.changes_sent().await;
        let Some(session) = self.current.load_full() else { return };
        self.is_ended.store(true, Release);
        self.discard(&session, SessionError::StaleClientId);
        let destroy =
            Compound::new().then(Operation::DestroySession, &DestroySession4Args { sessionid: session.id });
        let forget =
            Compound::new().then(Operation::DestroyClientid, &Clientid4Args { clientid: session.clientid });
        for compound in [destroy, forget] {
            if self.send_undelayed(&compound).await.is_err() {
                return;
            }
        }
    }

    /// Sends a request outside of the session, and again while the server delays it, for a limited time.
    async fn send_undelayed(&self, compound: &Compound) -> Result<CompoundReply> {
        let mut pause = MIN_PAUSE;
        loop {
            let reply = self.send(&self.owner, compound, None, None).await?;
            if Results::new(&reply.results)?.status != Nfsstat4::Delay || pause >= MAX_PAUSE {
                return Ok(reply);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

/// Which server has answered EXCHANGE_ID (RFC 8881 section 2.5 and 2.10.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    /// `eir_server_owner.so_major_id`.
    owner: Box<[u8]>,
    /// `eir_server_scope`.
    scope: Box<[u8]>,
}

impl ServerIdentity {
    fn of(ok: &ExchangeId4ResOk<'_>) -> Self {
        Self { owner: ok.server_owner.major_id.0.into(), scope: ok.server_scope.0.into() }
    }
}

/// Why a step was not taken.
pub(in crate::nfs4) enum StepError {
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
pub(super) async fn keep(client: Weak<SessionClient>, wake: Arc<Notify>) {
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
                        && error.status() != Some(Status::TryLater)
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
