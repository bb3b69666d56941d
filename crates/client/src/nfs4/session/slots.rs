//! A session that the server has created, and its slots.
//!
//! Invariant: a slot that was taken is given back, by its answer or by [`settle_abandoned`].

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};

use client_state::{SessionError, SlotError, SlotTable, TakenSlot, Unanswered};
use parking_lot::Mutex;
use proto::nfs4::{Nfsstat4, Operation, Sequence4Args, Sequence4ResOk, Sessionid4};
use tokio::sync::Notify;

use super::{MAX_PAUSE, MIN_PAUSE, SessionClient};
use crate::error::{Error, Result};
use crate::nfs4::compound::{Compound, Results};

/// A session that the server has created.
#[derive(Debug)]
pub(in crate::nfs4) struct EstablishedSession {
    /// The state manager's number of the session.
    pub(super) number: u64,
    pub(super) id: Sessionid4,
    pub(super) clientid: u64,
    /// The largest request and reply of the fore channel, in bytes.
    pub(super) max_request: u32,
    pub(super) max_reply: u32,
    /// The largest reply that the server keeps, in bytes.
    pub(super) max_kept: u32,
    pub(super) max_operations: u32,
    pub(super) slots: Mutex<SlotTable>,
    /// Told when a slot becomes free.
    pub(super) free: Notify,
    /// The requests that wait for a slot.
    pub(super) waiting: AtomicUsize,
    /// The server has lost the session: nothing is sent in it any more.
    pub(super) is_lost: AtomicBool,
    /// A task tells the server that slots aren't used any more (CB_RECALL_SLOT).
    pub(super) is_complying: AtomicBool,
}

/// What the SEQUENCE of a reply tells about its request.
pub(super) enum SequenceOutcome {
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
pub(super) struct SlotGuard<'a> {
    pub(super) client: &'a Arc<SessionClient>,
    pub(super) session: &'a Arc<EstablishedSession>,
    pub(super) taken: Option<TakenSlot>,
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
    pub(in crate::nfs4) async fn take(&self) -> Option<TakenSlot> {
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
    pub(super) fn give_back<T>(&self, give: impl FnOnce(&mut SlotTable) -> T) -> T {
        let mut slots = self.slots.lock();
        let given = give(&mut slots);
        let waiting = self.waiting.load(Relaxed);
        let free = if waiting > 0 { slots.available() as usize } else { 0 };
        drop(slots);
        (0..free.min(waiting)).for_each(|_| self.free.notify_one());
        given
    }

    pub(super) const fn sequence(&self, taken: &TakenSlot, keeps_reply: bool) -> Sequence4Args {
        Sequence4Args {
            sessionid: self.id,
            sequenceid: taken.sequence(),
            slotid: taken.slot(),
            highest_slotid: taken.highest(),
            cachethis: keeps_reply,
        }
    }
}

impl SessionClient {
    /// Nothing waits for the reply to a request any more.
    pub(super) fn abandon(self: &Arc<Self>, session: &Arc<EstablishedSession>, taken: TakenSlot) {
        session.slots.lock().abandon(taken);
        self.runtime.spawn(settle_abandoned(Arc::downgrade(self), Arc::downgrade(session)));
    }

    /// CB_RECALL_SLOT.
    pub(super) fn recall_slot(self: &Arc<Self>, session: Sessionid4, highest: u32) {
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

/// What SEQUENCE's result tells about the request, which has these arguments of SEQUENCE.
///
/// # Errors
/// The result can't be decoded, or is that of another request (RFC 8881 section 18.46.3).
pub(super) fn sequence_outcome(mut results: Results<'_>, of: &Sequence4Args) -> Result<SequenceOutcome> {
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
