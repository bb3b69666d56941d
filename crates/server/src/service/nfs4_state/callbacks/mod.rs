//! Calls from the server to its clients: recalls of delegations, notices of locks, and results of copies (RFC
//! 8881 sections 2.10.3, 10.2 and 20, RFC 7530 sections 10.2 and 15).
//!
//! One thread sends all callbacks and waits for all replies at once, so that no decision of the server waits
//! for a client. The queue is bounded, and so is the time for a reply. A recall is repeated until the
//! delegation has ended: the engine revokes the delegations of a client that doesn't answer.

mod message;
mod paths;
mod sending;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fairness::{LogLimit, Shares, Standing};
use parking_lot::Mutex;
use proto::nfs4::{
    Bitmap4, CB_NOTIFY_LOCK, CB_RECALL, CB_RECALL_ANY, CbNotifyLock4Args, CbRecall4Args, CbRecallAny4Args,
    RCA4_RDATA_DLG, RCA4_WDATA_DLG, StateOwner4, Stateid4,
};
use state::{ClientId, EngineLimits, LockNotice, LockOwner, Recall, SessionId, StateId};
use store::FileHandle;
use tokio::sync::mpsc;
use xdr::Opaque;

pub(crate) use message::{CallbackError, CallbackOperation};
use paths::PathStatus;
pub(crate) use paths::{CallbackAddress, CallbackProgram, MAX_BACK_SLOTS, PathTable};

/// The most callbacks that wait to be sent: the recall of every delegation, and as many others.
const MAX_QUEUED: usize = 2 * EngineLimits::DEFAULT.delegations;
/// The most clients' addresses that are probed at the same time, shared by peer. Each probe costs a
/// connection, and an address that doesn't answer costs it for long.
const MAX_PROBES: usize = 64;
/// The most workers that wait for a client's reply at the same time.
const MAX_WAITING_WORKERS: usize = 4;
/// The longest time for a reply.
const MAX_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of [`CallbackState::tick`].
const TICK: Duration = Duration::from_secs(1);

/// Receives the result of a callback, the body of the operation's result, on the callback thread.
pub(crate) type CallbackDone = Box<dyn FnOnce(Result<Vec<u8>, CallbackError>) + Send>;

/// What the callback thread needs of the server's state.
pub(crate) trait CallbackState: Send + Sync {
    /// Called every second.
    fn tick(&self);

    /// Whether the client still holds the delegation.
    fn holds_delegation(&self, client: ClientId, id: &StateId, file: &FileHandle) -> bool;
}

/// A job of the callback thread.
enum Job {
    Recall(Recall<FileHandle>),
    Send {
        client: ClientId,
        operation: CallbackOperation,
        done: CallbackDone,
    },
    /// Find out whether the address of an NFSv4.0 client answers.
    Probe(ClientId),
}

/// The queue to the callback thread, and the paths to the clients.
pub(crate) struct Callbacks {
    jobs: mpsc::Sender<Job>,
    /// The paths to the clients.
    pub(crate) paths: Arc<PathTable>,
    /// The number of workers in [`Callbacks::call`].
    waiting: AtomicUsize,
    /// Delegations that clients were asked to return.
    pub(crate) recalls: AtomicU64,
}

impl Callbacks {
    /// The queue, and its receiving end for [`start`]. `lease` is the length of a lease.
    pub(crate) fn new(lease: Duration) -> (Self, CallbackQueue) {
        let (jobs, queue) = mpsc::channel(MAX_QUEUED);
        let paths = Arc::new(PathTable::new(MAX_REPLY_TIMEOUT.min(lease / 4)));
        let queue = CallbackQueue { jobs: queue, paths: Arc::clone(&paths) };
        let (waiting, recalls) = (AtomicUsize::new(0), AtomicU64::new(0));
        (Self { jobs, paths, waiting, recalls }, queue)
    }

    /// Queues a call of one operation, which the client's minor version must have. Doesn't wait.
    pub(crate) fn send(&self, client: ClientId, operation: CallbackOperation, done: CallbackDone) {
        if let Err(refused) = self.jobs.try_send(Job::Send { client, operation, done })
            && let Job::Send { done, .. } = refused.into_inner()
        {
            done(Err(CallbackError::Busy));
        }
    }

    /// Calls a client and waits for the result, `timeout` at most.
    ///
    /// # Errors
    /// `Busy` when [`MAX_WAITING_WORKERS`] wait already, and why the call has no result.
    pub(crate) fn call(
        &self,
        client: ClientId,
        operation: CallbackOperation,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallbackError> {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let answer = if waiting < MAX_WAITING_WORKERS {
            let (sender, receiver) = sync_channel(1);
            // The receiver is gone when the timeout has passed.
            self.send(client, operation, Box::new(move |answer| drop(sender.try_send(answer))));
            receiver.recv_timeout(timeout).unwrap_or(Err(CallbackError::Timeout))
        } else {
            Err(CallbackError::Busy)
        };
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        answer
    }

    /// CB_RECALL: recalls a delegation.
    pub(super) fn recall(&self, recall: Recall<FileHandle>) {
        self.recalls.fetch_add(1, Ordering::Relaxed);
        if self.jobs.try_send(Job::Recall(recall)).is_err() {
            static LIMIT: LogLimit = LogLimit::new(10);
            if let Some(skipped) = LIMIT.admit(Instant::now()) {
                tracing::warn!(
                    skipped,
                    "a delegation can't be recalled now: it will be revoked when its time is up"
                );
            }
        }
    }

    /// CB_RECALL_ANY (4.1): asks a client to keep no more than `keep` delegations. A client that doesn't
    /// comply gets no more of them.
    pub(super) fn recall_any(&self, client: ClientId, keep: usize) {
        let objects_to_keep = u32::try_from(keep).unwrap_or(u32::MAX);
        let type_mask = Bitmap4::of(&[RCA4_RDATA_DLG, RCA4_WDATA_DLG]);
        let operation =
            CallbackOperation::new(CB_RECALL_ANY, &CbRecallAny4Args { objects_to_keep, type_mask });
        self.send(client, operation, Box::new(drop));
    }

    /// CB_NOTIFY_LOCK (4.1): tells a client that a lock it waits for may be available. A client that isn't
    /// reached polls.
    pub(super) fn notify_lock(&self, notice: &LockNotice<FileHandle>) {
        let LockOwner { client, owner } = &notice.who;
        let lock_owner = StateOwner4 { clientid: client.0, owner: Opaque(owner) };
        let args = CbNotifyLock4Args { fh: Opaque(notice.key.as_bytes()), lock_owner };
        self.send(*client, CallbackOperation::new(CB_NOTIFY_LOCK, &args), Box::new(drop));
    }

    /// Finds out whether the address of an NFSv4.0 client answers.
    pub(crate) fn probe(&self, client: ClientId) {
        // With a full queue the client's next RENEW probes again.
        let _ = self.jobs.try_send(Job::Probe(client));
    }

    /// Whether a client can be called, as far as is known.
    pub(crate) fn is_up(&self, client: ClientId) -> bool {
        self.paths.with(|paths| paths.is_up(client))
    }

    /// The status of the paths to a client, and of that session's back channel.
    pub(crate) fn path_status(&self, client: ClientId, session: Option<SessionId>) -> PathStatus {
        self.paths.path_status(client, session)
    }
}

/// The receiving end of the queue.
pub(crate) struct CallbackQueue {
    jobs: mpsc::Receiver<Job>,
    paths: Arc<PathTable>,
}

/// Starts the callback thread, which ends with `state`.
///
/// # Errors
/// If the thread or its runtime can't be created.
pub(crate) fn start(state: Weak<dyn CallbackState>, queue: CallbackQueue) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let body = move || runtime.block_on(run(state, queue));
    std::thread::Builder::new().name("nfs4-callbacks".into()).spawn(body).map(drop)
}

async fn run(state: Weak<dyn CallbackState>, mut queue: CallbackQueue) {
    let mut ticks = tokio::time::interval(TICK);
    let probes = Arc::new(Mutex::new(Shares::new(MAX_PROBES)));
    loop {
        tokio::select! {
            job = queue.jobs.recv() => match job {
                Some(job) => {
                    let (paths, probes) = (Arc::clone(&queue.paths), Arc::clone(&probes));
                    drop(tokio::spawn(run_job(state.clone(), paths, probes, job)));
                }
                None => return,
            },
            _ = ticks.tick() => match state.upgrade() {
                Some(state) => state.tick(),
                None => return,
            },
        }
    }
}

async fn run_job(
    state: Weak<dyn CallbackState>,
    table: Arc<PathTable>,
    probes: Arc<Mutex<Shares>>,
    job: Job,
) {
    match job {
        Job::Send { client, operation, done } => done(sending::call(&table, client, &operation).await),
        // A probe above the bound is made at the client's next RENEW.
        Job::Probe(client) => {
            let Some(peer) = table.with(|paths| paths.peer(client)) else { return };
            let may_probe = probes.lock().take(&peer, Standing::Admitted, 1);
            if may_probe {
                sending::probe(&table, client).await;
                probes.lock().give_back(&peer, 1);
            }
        }
        Job::Recall(recall) => recall_until_ended(&state, &table, recall).await,
    }
}

/// Sends CB_RECALL until the client acknowledges it or the delegation has ended.
async fn recall_until_ended(state: &Weak<dyn CallbackState>, table: &PathTable, recall: Recall<FileHandle>) {
    let Recall { client, id, key } = recall;
    let args = CbRecall4Args { stateid: wire_stateid(&id), truncate: false, fh: Opaque(key.as_bytes()) };
    let operation = CallbackOperation::new(CB_RECALL, &args);
    let mut pause = Duration::from_secs(1);
    loop {
        let answer = sending::call(table, client, &operation).await;
        if answer.is_ok() {
            return;
        }
        tracing::debug!(?client, ?answer, "a recall failed");
        // The client may not have seen the delegation yet, or may be reachable later.
        tokio::time::sleep(pause).await;
        pause *= 2;
        if !state.upgrade().is_some_and(|state| state.holds_delegation(client, &id, &key)) {
            return;
        }
    }
}

/// A state id on the wire.
pub(crate) const fn wire_stateid(id: &StateId) -> Stateid4 {
    Stateid4 { seqid: id.seqid, other: id.other }
}
