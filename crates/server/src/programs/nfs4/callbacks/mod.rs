//! Calls from the server to its clients: recalls of delegations, and whatever else a client is to be told
//! (RFC 8881 sections 2.10.3, 10.2, 20; RFC 7530 sections 10.2, 15).
//!
//! One thread sends them all, and waits for all replies at once; nobody who decides anything waits for a
//! client. What is queued is bounded, a wait is too. A recall is sent again until the delegation has gone one
//! way or the other: the engine takes it away in the end from a client that doesn't answer.

mod message;
mod paths;
mod sending;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairness::{LogLimit, Shares, Standing};
use parking_lot::Mutex;
use proto::nfs4::{
    Bitmap4, CB_NOTIFY_LOCK, CB_RECALL, CB_RECALL_ANY, CbNotifyLock4Args, CbRecall4Args, CbRecallAny4Args,
    Nfsstat4, RCA4_RDATA_DLG, RCA4_WDATA_DLG, StateOwner4, Stateid4,
};
use state::{ClientId, LockNotice, LockOwner, Recall, SessionId, StateId};
use store::FileHandle;
use tokio::sync::mpsc;
use xdr::Opaque;

pub(crate) use message::Operation;
pub(crate) use paths::{Address, CallbackProgram, MOST_SLOTS};
use paths::{Paths, Trouble};

use super::state_manager::{MAX_DELEGATIONS, StateManager};

/// How many callbacks may wait to be sent: every delegation's recall, and as many others.
const QUEUE: usize = 2 * MAX_DELEGATIONS;
/// How many clients' addresses are tried at the same time, shared by address: each costs a connection, and
/// one that isn't answered costs it for long.
const MOST_PROBED: usize = 64;
/// How many workers may wait for a client's answer at the same time.
const MOST_WAITING: usize = 4;
/// How often the engine is told the time when nobody calls.
const TICK: Duration = Duration::from_secs(1);

/// Why a callback has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The client can't be reached.
    #[error("there is no way to the client")]
    Path,
    /// It didn't answer in time.
    #[error("the client doesn't answer")]
    Silent,
    /// Its answer makes no sense.
    #[error("the client's answer makes no sense")]
    Garbage,
    /// It said no.
    #[error("the client answers {0:?}")]
    Refused(Nfsstat4),
    /// Too many are on their way.
    #[error("too many callbacks are on their way")]
    Busy,
}

/// What is told when a callback has come to its end: the body of the operation's result.
pub(crate) type Done = Box<dyn FnOnce(Result<Vec<u8>, Failure>) + Send>;

/// What the thread is to do.
enum Job {
    Recall(Recall<FileHandle>),
    Send {
        client: ClientId,
        operation: Operation,
        done: Done,
    },
    /// To find out whether the address of a client of 4.0 answers.
    Probe(ClientId),
}

/// The longest that a client may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The table of ways, and what is asked of it most without its lock.
pub(crate) struct Table {
    paths: Mutex<Paths>,
    /// How long a client may take to answer: a part of a lease, so that it hears in time that it can't be
    /// called.
    patience: Duration,
    /// How many clients are in any trouble.
    in_trouble: AtomicUsize,
}

impl Table {
    /// Looks at the table, or changes it.
    pub(crate) fn with<T>(&self, with: impl FnOnce(&mut Paths) -> T) -> T {
        let mut paths = self.paths.lock();
        let result = with(&mut paths);
        self.in_trouble.store(paths.in_trouble(), Ordering::Release);
        result
    }
}

/// The sending end.
pub(crate) struct Callbacks {
    jobs: mpsc::Sender<Job>,
    /// The ways to the clients.
    pub(crate) ways: Arc<Table>,
    waiting: AtomicUsize,
}

impl Callbacks {
    /// The sending end, and what [`run`] takes.
    pub(crate) fn new(lease: Duration) -> (Self, Inbox) {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (paths, in_trouble) = Default::default();
        let ways = Arc::new(Table { paths, patience: PATIENCE.min(lease / 4), in_trouble });
        let inbox = Inbox { queue, ways: Arc::clone(&ways) };
        (Self { jobs, ways, waiting: AtomicUsize::new(0) }, inbox)
    }

    /// Calls a client with one operation, which mustn't be one that the client's minor version doesn't have;
    /// `done` is told what came of it, on the callbacks' thread. Doesn't wait.
    pub(crate) fn send(&self, client: ClientId, operation: Operation, done: Done) {
        if let Err(refused) = self.jobs.try_send(Job::Send { client, operation, done })
            && let Job::Send { done, .. } = refused.into_inner()
        {
            done(Err(Failure::Busy));
        }
    }

    /// As [`Callbacks::send`], and waits for the answer, `within` at most. Only so many do at a time.
    pub(crate) fn ask(
        &self,
        client: ClientId,
        operation: Operation,
        within: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let answer = if waiting < MOST_WAITING {
            let (sender, receiver) = sync_channel(1);
            // Who has stopped waiting isn't told.
            self.send(client, operation, Box::new(move |answer| drop(sender.try_send(answer))));
            receiver.recv_timeout(within).unwrap_or(Err(Failure::Silent))
        } else {
            Err(Failure::Busy)
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        answer
    }

    /// Calls a delegation back.
    pub(super) fn recall(&self, recall: Recall<FileHandle>) {
        if self.jobs.try_send(Job::Recall(recall)).is_err() {
            static LIMIT: LogLimit = LogLimit::new(10);
            if let Some(skipped) = LIMIT.admit(Instant::now()) {
                tracing::warn!(
                    skipped,
                    "a delegation can't be recalled now: it will be taken away when its time is up"
                );
            }
        }
    }

    /// Asks a client to keep only so many of its delegations (4.1).
    pub(super) fn ask_back(&self, client: ClientId, keep: usize) {
        let objects_to_keep = u32::try_from(keep).unwrap_or(u32::MAX);
        let type_mask = Bitmap4::of(&[RCA4_RDATA_DLG, RCA4_WDATA_DLG]);
        let operation = Operation::new(CB_RECALL_ANY, &CbRecallAny4Args { objects_to_keep, type_mask });
        // Who doesn't gets no more.
        self.send(client, operation, Box::new(drop));
    }

    /// Tells a client that one of its owners may have the lock it waits for (4.1).
    pub(super) fn notify(&self, notice: &LockNotice<FileHandle>) {
        let LockOwner { client, owner } = &notice.who;
        let lock_owner = StateOwner4 { clientid: client.0, owner: Opaque(owner) };
        let args = CbNotifyLock4Args { fh: Opaque(notice.key.as_bytes()), lock_owner };
        // Who isn't reached asks by itself.
        self.send(*client, Operation::new(CB_NOTIFY_LOCK, &args), Box::new(drop));
    }

    /// Finds out whether a client of 4.0 can be called.
    pub(crate) fn probe(&self, client: ClientId) {
        // It is done at the client's next RENEW otherwise.
        let _ = self.jobs.try_send(Job::Probe(client));
    }

    /// Whether a client can be called, as far as is known.
    pub(crate) fn is_up(&self, client: ClientId) -> bool {
        self.ways.with(|paths| paths.is_up(client))
    }

    /// What keeps a client from being called, through that session if it has any.
    pub(crate) fn trouble(&self, client: ClientId, session: Option<SessionId>) -> Trouble {
        if self.ways.in_trouble.load(Ordering::Acquire) == 0 {
            return Trouble::default();
        }
        self.ways.with(|paths| paths.trouble(client, session))
    }
}

/// What the thread takes its work from.
pub(crate) struct Inbox {
    queue: mpsc::Receiver<Job>,
    ways: Arc<Table>,
}

/// Starts the thread, which ends with `states`.
///
/// # Errors
/// When there is no thread to be had, or nothing to wait with.
pub(crate) fn start(states: &Arc<StateManager>, inbox: Inbox) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let states = Arc::downgrade(states);
    let body = move || runtime.block_on(run(states, inbox));
    std::thread::Builder::new().name("nfs4-callbacks".into()).spawn(body).map(drop)
}

async fn run(states: Weak<StateManager>, mut inbox: Inbox) {
    let mut ticks = tokio::time::interval(TICK);
    let probes = Arc::new(Mutex::new(Shares::new(MOST_PROBED)));
    loop {
        tokio::select! {
            job = inbox.queue.recv() => match job {
                Some(job) => {
                    let (ways, probes) = (Arc::clone(&inbox.ways), Arc::clone(&probes));
                    drop(tokio::spawn(work(states.clone(), ways, probes, job)));
                }
                None => return,
            },
            _ = ticks.tick() => match states.upgrade() {
                Some(states) => states.tick(),
                None => return,
            },
        }
    }
}

async fn work(states: Weak<StateManager>, ways: Arc<Table>, probes: Arc<Mutex<Shares>>, job: Job) {
    match job {
        Job::Send { client, operation, done } => done(sending::call(&ways, client, &operation).await),
        // One too many is done at the client's next RENEW.
        Job::Probe(client) => {
            let Some(peer) = ways.with(|paths| paths.peer(client)) else { return };
            let may = probes.lock().take(&peer, Standing::Admitted, 1);
            if may {
                sending::probe(&ways, client).await;
                probes.lock().give_back(&peer, 1);
            }
        }
        Job::Recall(recall) => {
            let Recall { client, id, key } = recall;
            let args = CbRecall4Args { stateid: wire(&id), truncate: false, fh: Opaque(key.as_bytes()) };
            let operation = Operation::new(CB_RECALL, &args);
            let mut pause = Duration::from_secs(1);
            loop {
                let answer = sending::call(&ways, client, &operation).await;
                if answer.is_ok() {
                    return;
                }
                tracing::debug!(?client, ?answer, "a delegation isn't given back yet");
                // It may not know of the delegation yet, or can be reached again later.
                tokio::time::sleep(pause).await;
                pause *= 2;
                let is_there = |states: Arc<StateManager>| {
                    states.run(|engine, _| engine.check_delegation(client, &id, &key, 0).is_ok())
                };
                if !states.upgrade().is_some_and(is_there) {
                    return;
                }
            }
        }
    }
}

/// A state id on the wire.
pub(super) const fn wire(id: &StateId) -> Stateid4 {
    Stateid4 { seqid: id.seqid, other: id.other }
}
