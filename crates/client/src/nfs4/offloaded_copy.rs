//! An asynchronous copy: a COPY, and the wait for the end of what it begins (RFC 7862 sections 4.8, 15.2,
//! 15.8 and 15.9). [`client_state::Offloads`] decides.
//!
//! 1. A task sends the COPY, so that a copy that it begins is known, and cancelled, also if the caller stops
//!    waiting before the reply comes.
//! 2. The caller waits for CB_OFFLOAD, and asks by OFFLOAD_STATUS from time to time.
//! 3. When [`OffloadedCopy`] is dropped, the server is told by OFFLOAD_CANCEL if it still has the copy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client_state::{OffloadAnswer, OffloadRef, OffloadStep, StartingCopy};
use io::Stability;
use proto::nfs4::{Copy4ResOk, Nfsstat4, OffloadStatus4ResOk, Operation as Op, Stateid4Args, Verifier4};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::compound::{Compound, refused};
use super::offloads::CopyEnd;
use super::session::{CompoundReply, SessionClient};
use super::state::{ChangeInFlight, OpenOwner, is_gone, state_id, stateid};
use crate::error::{Error, Result, RpcError};
use crate::operations::CopyReply;
use crate::types::{Handle, Operation};
use crate::user::User;

/// How long a COPY is sent, and its reply waited for, after its caller has stopped waiting. Without a limit a
/// COPY that waits for a server would overwrite the file long after its caller has ended.
const ABANDONED_COPY: Duration = Duration::from_secs(5);

/// The pause before an OFFLOAD_CANCEL is sent again that the server delays. It doubles.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// How often it is sent.
const MAX_CANCELS: u32 = 8;

/// A COPY on its way.
struct CopyInFlight {
    client: Arc<SessionClient>,
    starting: Option<StartingCopy<Handle>>,
}

impl CopyInFlight {
    fn new(client: &Arc<SessionClient>, target: Handle) -> Self {
        let starting = client.offloads.change(|offloads| offloads.starting(target));
        Self { client: client.clone(), starting: Some(starting) }
    }

    /// The asynchronous copy that was begun, if the reply names one.
    fn answered(mut self, owner: &OpenOwner, reply: &CompoundReply) -> Result<Option<OffloadedCopy>> {
        let Some(begun) = begun(reply) else { return Ok(None) };
        let Some(id) = begun.response.callback_id.0.first().copied() else { return Ok(None) };
        let Some(starting) = self.starting.take() else { return Ok(None) };
        let (id, session) = (state_id(id), reply.session);
        let started =
            self.client.offloads.change(|table| table.started(starting, id, session, Instant::now()));
        let what = "its state id is that of another copy";
        let offload = started.map_err(|_| Error::Protocol { object: Op::Copy.name().to_owned(), what })?;
        Ok(Some(OffloadedCopy {
            client: self.client.clone(),
            owner: owner.clone(),
            offload: Some(offload),
            verifier: begun.response.writeverf,
            is_consecutive: begun.consecutive,
        }))
    }
}

impl Drop for CopyInFlight {
    fn drop(&mut self) {
        if let Some(starting) = self.starting.take() {
            self.client.offloads.change(|offloads| offloads.not_started(starting));
        }
    }
}

/// The result of COPY, if it has succeeded.
fn begun(reply: &CompoundReply) -> Option<Copy4ResOk> {
    let mut results = reply.results().ok()?;
    for operation in [Op::Putfh, Op::Savefh, Op::Putfh] {
        results.succeeded(operation).ok()?;
    }
    results.get(Op::Copy).ok()
}

/// The reply to a COPY, and the asynchronous copy that it names.
pub(super) type CopyBegun = (CompoundReply, Option<OffloadedCopy>);

/// Sends a COPY. If nobody waits for it any more, what it has begun is cancelled.
async fn send_copy(
    in_flight: ChangeInFlight,
    owner: OpenOwner,
    target: Handle,
    compound: Compound,
    mut answer: oneshot::Sender<Result<CopyBegun>>,
) {
    let client = in_flight.client();
    let copy = CopyInFlight::new(client, target);
    let abandoned = async {
        answer.closed().await;
        tokio::time::sleep(ABANDONED_COPY).await;
    };
    let reply = tokio::select! {
        biased;
        reply = client.call(owner.user(), &compound, None) => reply,
        () = abandoned => return,
    };
    let begun = reply.and_then(|reply| Ok((copy.answered(&owner, &reply)?, reply)));
    let _ = answer.send(begun.map(|(offloaded, reply)| (reply, offloaded)));
}

impl SessionClient {
    /// Sends a COPY to `target` in a request of PUTFH, SAVEFH, PUTFH, COPY, and what may follow.
    pub(super) async fn call_copy(
        self: &Arc<Self>,
        user: &User,
        target: &Handle,
        compound: Compound,
    ) -> Result<CopyBegun> {
        user.session.counters.call(Operation::Copy);
        let (answer, answered) = oneshot::channel();
        let (in_flight, owner) = (ChangeInFlight::new(self), OpenOwner::new(user));
        drop(self.spawn(send_copy(in_flight, owner, target.clone(), compound, answer)));
        // The task ends without an answer when the runtime does.
        let ended = |_| rpc::client::Error::Closed { address: self.address() };
        answered.await.map_err(|error| call_error(ended(error)))?
    }
}

fn call_error(source: rpc::client::Error) -> Error {
    Error::Rpc { object: Op::Copy.name().to_owned(), source: RpcError(source) }
}

/// What became of an asynchronous copy.
#[derive(Debug)]
pub(super) enum CopyOutcome {
    /// It has ended, perhaps early: this much is copied.
    Copied(CopyReply),
    /// The server has lost it. It isn't known that anything is copied.
    Lost,
    /// The server tells nothing about it, and was asked to cancel it.
    Inconclusive,
}

/// An asynchronous copy. It is cancelled when this is dropped before its end is known.
#[derive(Debug)]
pub(super) struct OffloadedCopy {
    client: Arc<SessionClient>,
    owner: OpenOwner,
    offload: Option<OffloadRef<Handle>>,
    /// The write verifier at the beginning.
    verifier: Verifier4,
    is_consecutive: bool,
}

impl OffloadedCopy {
    /// Waits for the end of a copy of `requested` bytes. Of one that ends early, the bytes from the start on
    /// count that the server has reported, as unstable ones: the write verifier at the beginning shows
    /// whether they survive.
    ///
    /// # Errors
    /// The error of a copy that has copied nothing; those of OFFLOAD_STATUS, if the call fails; that a copy
    /// makes no progress in a soft client.
    pub(super) async fn outcome(mut self, requested: u64) -> Result<CopyOutcome> {
        let begun = Instant::now();
        let step = self.last_step().await?;
        let unstable = (Stability::Unstable, self.verifier);
        let is_consecutive = self.is_consecutive;
        let copied = |count: u64, (stability, verifier)| {
            // Of a part that isn't consecutive nothing is known.
            let is_known = count > 0 && (is_consecutive || count == requested);
            is_known.then_some(CopyOutcome::Copied(CopyReply { count, stability, verifier }))
        };
        match step {
            OffloadStep::Ended(CopyEnd { status, count, written }) => {
                match copied(count, written.unwrap_or(unstable)) {
                    Some(copied) => Ok(copied),
                    // A server that stops may end its copies like this.
                    None if status == Nfsstat4::Ok || is_gone(status) => Ok(CopyOutcome::Lost),
                    None => Err(refused(Op::Copy, status)),
                }
            }
            OffloadStep::Lost { copied: count } => Ok(copied(count, unstable).unwrap_or(CopyOutcome::Lost)),
            OffloadStep::Inconclusive { copied: count } => {
                self.cancelled().await;
                Ok(copied(count, unstable).unwrap_or(CopyOutcome::Inconclusive))
            }
            OffloadStep::Stalled | OffloadStep::Wait(_) | OffloadStep::Ask => {
                self.cancelled().await;
                let (address, after) = (self.client.address(), begun.elapsed());
                Err(call_error(rpc::client::Error::TimedOut { address, after }))
            }
        }
    }

    /// Waits and asks until nothing remains to be waited and asked for.
    async fn last_step(&self) -> Result<OffloadStep<CopyEnd>> {
        let Some(offload) = &self.offload else { return Ok(OffloadStep::Lost { copied: 0 }) };
        let table = &self.client.offloads;
        loop {
            let changed = table.changed();
            match table.step(offload) {
                OffloadStep::Wait(until) => {
                    // An error means that it is time.
                    let _ = tokio::time::timeout_at(until.into(), changed).await;
                }
                OffloadStep::Ask => {
                    // Whatever the server does with the question, a callback is an answer.
                    let answer = tokio::select! {
                        biased;
                        () = self.decided(offload) => continue,
                        answer = self.ask(offload) => answer?,
                    };
                    table.change(|offloads| offloads.asked(offload, Instant::now(), answer));
                }
                step => return Ok(step),
            }
        }
    }

    /// Waits until nothing remains to be asked.
    async fn decided(&self, offload: &OffloadRef<Handle>) {
        let table = &self.client.offloads;
        loop {
            let changed = table.changed();
            if !matches!(table.step(offload), OffloadStep::Wait(_) | OffloadStep::Ask) {
                return;
            }
            changed.await;
        }
    }

    /// OFFLOAD_STATUS.
    async fn ask(&self, offload: &OffloadRef<Handle>) -> Result<OffloadAnswer<CopyEnd>> {
        let user = self.owner.user();
        user.session.counters.call(Operation::Offloadstatus);
        let args = Stateid4Args { stateid: stateid(offload.id()) };
        let compound = Compound::new().put_fh(offload.file()).then(Op::OffloadStatus, &args);
        let reply = self.client.call(user, &compound, None).await?;
        let mut results = reply.results()?;
        let mut status = results.status(Op::Putfh)?;
        if status == Nfsstat4::Ok {
            status = results.status(Op::OffloadStatus)?;
        }
        Ok(match status {
            Nfsstat4::Ok => {
                let OffloadStatus4ResOk { count, complete } = results.value(Op::OffloadStatus)?;
                match complete.0.first() {
                    Some(status) => OffloadAnswer::Ended(CopyEnd { status: *status, count, written: None }),
                    None => OffloadAnswer::Running(count),
                }
            }
            // It will know later, and has the copy until it says otherwise.
            Nfsstat4::Delay | Nfsstat4::Grace => OffloadAnswer::Running(0),
            // Of the last one the result isn't known.
            Nfsstat4::Stale | Nfsstat4::Fhexpired | Nfsstat4::Badhandle | Nfsstat4::CompleteAlready => {
                OffloadAnswer::Unknown
            }
            status if is_gone(status) => OffloadAnswer::Unknown,
            _ => OffloadAnswer::Inconclusive,
        })
    }

    /// The copy isn't waited for any more. Returns the task that cancels it, if the server still has it.
    fn cancel(&mut self) -> Option<JoinHandle<()>> {
        let offload = self.offload.take()?;
        let is_due = self.client.offloads.change(|offloads| offloads.finish(&offload));
        is_due.then(|| {
            let in_flight = ChangeInFlight::new(&self.client);
            self.client.spawn(send_cancel(in_flight, self.owner.clone(), offload))
        })
    }

    /// Cancels the copy and waits until the server has been told, so that it doesn't overwrite what comes
    /// next.
    async fn cancelled(&mut self) {
        if let Some(cancel) = self.cancel() {
            // An error means that the runtime ends.
            let _ = cancel.await;
        }
    }
}

impl Drop for OffloadedCopy {
    fn drop(&mut self) {
        drop(self.cancel());
    }
}

/// OFFLOAD_CANCEL. Its result doesn't matter: the server has stopped the copy, doesn't know it, or can't stop
/// it.
async fn send_cancel(in_flight: ChangeInFlight, owner: OpenOwner, offload: OffloadRef<Handle>) {
    let (client, user) = (in_flight.client(), owner.user());
    let args = Stateid4Args { stateid: stateid(offload.id()) };
    let compound = Compound::new().put_fh(offload.file()).then(Op::OffloadCancel, &args);
    let mut pause = MIN_PAUSE;
    for _ in 0..MAX_CANCELS {
        if client.is_ended() {
            // A further request would begin another client id, which has no copies.
            return;
        }
        user.session.counters.call(Operation::Offloadcancel);
        let call = client.call(user, &compound, None);
        let Some(reply) = client.offloads.while_named(&offload, call).await else { return };
        let status = reply.and_then(|reply| {
            let mut results = reply.results()?;
            results.succeeded(Op::Putfh)?;
            results.status(Op::OffloadCancel)
        });
        match status {
            Ok(Nfsstat4::Delay | Nfsstat4::Grace) => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, "an asynchronous copy isn't cancelled");
                return;
            }
        }
    }
}
