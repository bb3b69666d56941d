//! The requests of sessions: each is a task until it is done, in one session or several.

use std::time::Instant;

use client_state::{
    LockChange, LockChangeRequest, LockError, NoState, OpenChange, OpenChangeRequest, OpenRef, Opening,
    SessionError, Share, SlotError, StateError, StateId, Step, TakenSlot, Unanswered,
};
use state::{Direction, Error};

use super::{App, Host};
use crate::messages::{Call, Compound, Executed, Message, Operation, Reply};
use crate::mutations::Mutation;

/// A request until it is done.
#[derive(Debug)]
pub(super) enum Task {
    /// SEQUENCE alone.
    Renew,
    ReclaimComplete,
    /// SEQUENCE alone, in the slot of an abandoned request.
    Probe,
    Open(Opening<u8>, u32, Share),
    Change(OpenChange<u32, u8>),
    /// LOCK for an application, which may not wait for it any more; or for none.
    Lock(LockChange<u32, u8>, Option<u64>, bool),
    /// The end of an application's open file, when its locks are free.
    Close(OpenRef<u32, u8>),
    /// I/O of an open file, with this state id.
    Io(u64, StateId),
    Return(u32, StateId),
    Test(Tested, u32, StateId),
}

/// The kinds of states, with the owner.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tested {
    Open(u8),
    Lock(u8),
    Delegation,
}

/// A request that was sent.
pub(super) struct Sent {
    pub(super) task: Task,
    pub(super) taken: TakenSlot,
    pub(super) message: Message,
    at: Instant,
    pub(super) reply: Option<Result<Reply, Error>>,
}

impl Host {
    pub(super) fn take_changes(&mut self) {
        let returns = self.delegations.take_returns(&self.opens, &mut self.locks);
        returns.into_iter().for_each(|(file, id)| self.push(Task::Return(file, id)));
        for change in self.opens.take_changes() {
            match change.request() {
                OpenChangeRequest::Close { id } if self.mistakes(Mutation::SkipClose) => {
                    self.opens.changed(change, Ok(id));
                }
                _ if change.is_reclaim() && self.skips_one() => {
                    self.opens.changed(change, Err(StateError::Refused));
                }
                _ => self.push(Task::Change(change)),
            }
        }
        for change in self.locks.take_changes() {
            match self.locks.request(&change) {
                Some(LockChangeRequest::Unlock { id, .. }) if self.mistakes(Mutation::SkipUnlock) => {
                    self.locks.changed(change, Ok(Some(id)));
                }
                _ => self.push(Task::Lock(change, None, false)),
            }
        }
    }

    /// Whether the one reclaim is skipped that this mistake is about.
    fn skips_one(&mut self) -> bool {
        self.mistakes(Mutation::SkipOneReclaim) && !std::mem::replace(&mut self.has_skipped, true)
    }

    fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.queue.iter().map(|(_, task)| task).chain(self.sent.iter().map(|sent| &sent.task))
    }

    pub(super) fn has(&self, is_it: fn(&Task) -> bool) -> bool {
        self.tasks().any(is_it)
    }

    /// Whether an OPEN is on its way.
    pub(super) fn is_opening(&self) -> bool {
        self.sent.iter().any(|sent| match &sent.task {
            Task::Open(..) => true,
            Task::Change(change) => matches!(change.request(), OpenChangeRequest::Open { .. }),
            _ => false,
        })
    }

    /// Whether DESTROY_SESSION is on its way.
    fn is_destroying(&self) -> bool {
        self.asked.as_ref().is_some_and(|(step, _)| *step == Step::DestroySession)
    }

    pub(super) fn send(&mut self, at: Instant) {
        if self.is_destroying() {
            return;
        }
        let Some((_, _, slots)) = &mut self.session else { return };
        let probes: Vec<_> = std::iter::from_fn(|| slots.take_abandoned()).collect();
        for taken in probes {
            let number = self.number();
            self.transmit(at, (number, Task::Probe), taken, Operation::Nothing);
        }
        for (number, task) in std::mem::take(&mut self.queue) {
            let may = self.manager.is_ready()
                || matches!(task, Task::Renew | Task::ReclaimComplete)
                || is_reclaim(&task);
            let Some((task, operation)) = self.prepare(task) else { continue };
            let taken = self.session.as_mut().filter(|_| may && operation.is_some());
            match (operation, taken.and_then(|(_, _, slots)| slots.take())) {
                (Some(operation), Some(taken)) => self.transmit(at, (number, task), taken, operation),
                _ => self.queue.push((number, task)),
            }
        }
    }

    fn transmit(&mut self, at: Instant, task: (u64, Task), taken: TakenSlot, operation: Operation) {
        let session = self.session.as_ref().expect("there is one").1;
        let (slot, sequence, highest) = (taken.slot(), taken.sequence(), taken.highest());
        let call = Call::Compound(Compound { session, slot, sequence, highest, operation });
        let message = Message { number: task.0, call };
        self.network.push(message);
        self.sent.push(Sent { task: task.1, taken, message, at, reply: None });
    }

    /// The requests that were sent get other slots.
    pub(super) fn move_requests(&mut self) {
        let Some((_, _, slots)) = &mut self.session else { return };
        for sent in &mut self.sent {
            let (Some(other), Call::Compound(compound)) = (slots.take(), &mut sent.message.call) else {
                continue;
            };
            let (slot, sequence, highest) = (other.slot(), other.sequence(), other.highest());
            *compound = Compound { slot, sequence, highest, ..*compound };
            let before = std::mem::replace(&mut sent.taken, other);
            slots.answered(before, 3, 3);
        }
    }

    /// The session has ended before these requests were answered. They are sent again in the next one,
    /// `anew` if they may be executed twice.
    pub(super) fn requeue_sent(&mut self, anew: bool) {
        for sent in std::mem::take(&mut self.sent) {
            if !matches!(sent.task, Task::Probe | Task::Renew | Task::ReclaimComplete) {
                let number = if anew { self.number() } else { sent.message.number };
                self.queue.push((number, sent.task));
            }
        }
        self.queue.retain(|(_, task)| !matches!(task, Task::Renew | Task::ReclaimComplete));
    }

    /// The reply to a request arrives.
    pub(super) fn request_answered(&mut self, at: usize) {
        let sent = self.sent.swap_remove(at);
        let is_destroying = self.is_destroying();
        let (number, _, slots) = self.session.as_mut().expect("it was sent in a session");
        let reply = match sent.reply.expect("it has a reply") {
            Ok(Reply::Executed(reply)) => reply,
            Err(Error::BadSession) if is_destroying => {
                self.queue.push((sent.message.number, sent.task));
                return;
            }
            Err(Error::BadSession) => {
                self.manager.failed(*number, SessionError::Unknown);
                self.session = None;
                self.sent.push(Sent { reply: None, ..sent });
                if self.mutation == Some(Mutation::BelieveLateReplies) {
                    let late = self.sent.extract_if(.., |sent| matches!(sent.reply, Some(Ok(_))));
                    self.late.extend(late);
                }
                // The others' replies would be the same.
                self.requeue_sent(true);
                return;
            }
            Err(Error::SeqFalseRetry) => {
                assert!(matches!(sent.task, Task::Probe), "{:?}", sent.task);
                if self.mutation == Some(Mutation::KeepSequence) {
                    slots.not_executed(sent.taken);
                } else {
                    assert_eq!(slots.failed(sent.taken, SlotError::SeqFalseRetry), Unanswered::ReplyLost);
                }
                return;
            }
            reply => panic!("{reply:?}: {:?}", sent.message),
        };
        slots.answered(sent.taken, reply.highest, reply.highest);
        let (session, now) = (*number, sent.at);
        self.sequenced(session, now, reply.flags);
        self.executed(sent.task, &sent.message, &reply);
    }

    /// A SEQUENCE has succeeded.
    fn sequenced(&mut self, session: u64, sent: Instant, flags: u32) {
        let is_blind = self.mistakes(Mutation::IgnoreRevocations);
        let sent = if self.mistakes(Mutation::RenewByReply) { self.last_run } else { sent };
        self.last_sequence = self.last_sequence.max(Some(sent));
        self.manager.sequenced(session, sent, if is_blind { flags & !0x40 } else { flags });
    }

    /// A request was executed.
    fn executed(&mut self, task: Task, message: &Message, reply: &Executed) {
        self.done(task, reply.result);
        if let Call::Compound(Compound { operation: Operation::Open(_, file, _), .. }) = message.call
            && let Some((id, kind)) = reply.delegation
        {
            // In place of one that isn't on its way back: that was revoked.
            let is_returned = |task: &Task| matches!(task, Task::Return(on, _) if *on == file);
            self.has_lost_state |= self.delegations.contains(&file) && !self.tasks().any(is_returned);
            self.delegations.granted(&mut self.opens, &mut self.locks, file, id, kind);
        }
    }

    /// The mistake of taking replies for good that arrive when there is another session.
    pub(super) fn believe_late_replies(&mut self) {
        for sent in std::mem::take(&mut self.late) {
            if let Some(Ok(Reply::Executed(reply))) = sent.reply {
                self.executed(sent.task, &sent.message, &reply);
            }
        }
    }

    /// The operation of a task, if it can be sent now. `None` for a task that is done without.
    fn prepare(&mut self, task: Task) -> Option<(Task, Option<Operation>)> {
        let operation = match &task {
            Task::Renew | Task::Probe => Operation::Nothing,
            Task::ReclaimComplete => Operation::ReclaimComplete,
            Task::Open(opening, file, share) => Operation::Open(*opening.owner(), *file, *share),
            Task::Change(change) => Operation::Change(*change.owner(), *change.file(), change.request()),
            Task::Return(file, id) => Operation::Return(*file, *id),
            Task::Test(_, _, id) => Operation::Test(*id),
            Task::Lock(..) => return self.prepare_lock(task),
            Task::Close(open) => {
                let (file, owner) = (open.file(), open.owner());
                let is_other = |app: &App| app.open.file() == file && app.open.owner() == owner;
                let is_last = !self.apps.values().any(is_other);
                // A LOCK on its way needs the access of the open that it was made through.
                let is_settled = self.locks.is_settled_for(file, owner);
                if !is_settled || is_last && !self.locks.is_free(file, owner) {
                    return Some((task, None));
                }
                let Task::Close(open) = task else { return None };
                self.opens.close(open);
                return None;
            }
            Task::Io(number, _) => {
                let app = self.apps.get_mut(number).expect("it waits for I/O");
                let direction = if app.share.access & 2 != 0 { Direction::Write } else { Direction::Read };
                match self.opens.io_id(&app.open) {
                    Ok(id) => {
                        let by_lock = self.locks.io_id(app.open.file(), app.open.owner());
                        let id = by_lock.unwrap_or(id);
                        let io = Operation::Io(*app.open.file(), id, direction);
                        return Some((Task::Io(*number, id), Some(io)));
                    }
                    Err(NoState::Recovering) => return Some((task, None)),
                    Err(NoState::Lost) => {
                        app.io -= 1;
                        return None;
                    }
                }
            }
        };
        Some((task, Some(operation)))
    }

    fn prepare_lock(&mut self, task: Task) -> Option<(Task, Option<Operation>)> {
        let Task::Lock(change, number, is_given_up) = task else { return None };
        let (file, owner) = (*change.file(), *change.owner());
        let refused = Err(LockError::State(StateError::Refused));
        let Some(request) = self.locks.request(&change) else {
            self.locks.changed(change, refused);
            self.end_io(number);
            return None;
        };
        let open = match number {
            Some(number) => self.opens.io_id(&self.apps[&number].open),
            // Also through what no application has open any more: closing waits for the locks.
            None => self.opens.io_id_of(&file, &owner, 0).and_then(|open| open.ok_or(NoState::Lost)),
        };
        let is_first = matches!(request, LockChangeRequest::Lock { id: None, .. });
        let open = match open {
            Ok(open) => open,
            Err(_) if !is_first => StateId { seqid: 0, other: [0; 12] },
            Err(NoState::Recovering) if !change.is_reclaim() => {
                return Some((Task::Lock(change, number, is_given_up), None));
            }
            Err(_) => {
                self.locks.changed(change, refused);
                self.end_io(number);
                return None;
            }
        };
        let operation = Operation::Lock(owner, file, request, open);
        Some((Task::Lock(change, number, is_given_up), Some(operation)))
    }

    fn done(&mut self, task: Task, result: Result<StateId, Error>) {
        match (task, result) {
            (task, Err(Error::Grace | Error::Delay)) => self.push(task),
            (Task::Renew | Task::Probe | Task::Close(_), _) => {}
            (Task::ReclaimComplete, result) => {
                // A session may end between the two.
                assert!(matches!(result, Ok(_) | Err(Error::CompleteAlready)), "{result:?}");
                self.manager.reclaim_completed(self.last_run);
            }
            (Task::Open(opening, file, share), Ok(id)) => {
                let open = self.opens.opened(opening, file, share, id);
                let number = self.number();
                self.apps.insert(number, App { open, share, io: 0 });
            }
            (Task::Open(opening, ..), Err(error)) => {
                assert_eq!(error, Error::ShareDenied);
                self.opens.not_opened(opening);
            }
            (Task::Change(change), result) => self.opens.changed(change, result.map_err(state_error)),
            (Task::Lock(change, number, is_given_up), result) => {
                match result {
                    Ok(_) if is_given_up && self.mistakes(Mutation::ForgetInterruptedLock) => {
                        self.locks.changed(change, Err(LockError::Denied));
                    }
                    Ok(id) if is_given_up => self.locks.given_up(change, id),
                    Err(Error::Locked) if self.mistakes(Mutation::BelieveDeniedLock) => {
                        self.locks.changed(change, Ok(Some(StateId { seqid: 1, other: [0xff; 12] })));
                    }
                    result => self.locks.changed(change, result.map(Some).map_err(lock_error)),
                }
                self.end_io(number);
            }
            (Task::Return(file, id), _) => self.delegations.returned(&mut self.opens, &file, id),
            (Task::Test(..), Ok(_)) => {}
            (Task::Test(tested, file, id), Err(_)) => {
                (self.has_lost_state, self.has_found) = (true, true);
                if !self.mistakes(Mutation::KeepTested) {
                    self.gone(tested, file, id);
                }
            }
            (Task::Io(number, _), Ok(_)) => self.end_io(Some(number)),
            (Task::Io(number, id), Err(error)) => {
                let app = &self.apps[&number];
                assert_eq!(state_error(error), StateError::Gone, "the state allows the I/O");
                // A lock's state ends with the lock. A delegation that isn't returned in time is revoked.
                let by_lock = self.locks.io_id(app.open.file(), app.open.owner());
                let is_current = by_lock == Some(id) || self.opens.io_id(&app.open) == Ok(id);
                let is_delegation = self.delegations.state_ids().any(|(_, revoked)| revoked == id);
                self.has_lost_state |= is_current && is_delegation;
                assert!(self.has_lost_state || !is_current, "it ends with the server's run or the lease");
                let (file, owner) = (*app.open.file(), *app.open.owner());
                for tested in [Tested::Open(owner), Tested::Lock(owner), Tested::Delegation] {
                    self.gone(tested, file, id);
                }
                if error == Error::DelegRevoked {
                    // The server waits for FREE_STATEID.
                    self.push(Task::Test(Tested::Delegation, file, id));
                }
                self.push(Task::Io(number, id));
            }
        }
    }
}

pub(super) const fn is_reclaim(task: &Task) -> bool {
    match task {
        Task::Change(change) => change.is_reclaim(),
        Task::Lock(change, ..) => change.is_reclaim(),
        _ => false,
    }
}

fn lock_error(error: Error) -> LockError {
    if error == Error::Locked { LockError::Denied } else { LockError::State(state_error(error)) }
}

fn state_error(error: Error) -> StateError {
    match error {
        Error::OldStateid => StateError::Old,
        Error::BadStateid | Error::Expired | Error::DelegRevoked => StateError::Gone,
        Error::NoGrace | Error::ReclaimConflict => StateError::NoReclaim,
        _ => StateError::Refused,
    }
}
