//! CLOSE: one COMPOUND closes several files.
//!
//! No application waits for a CLOSE. A file that is closed by itself is closed at the server at once: for
//! others it is open until then, which excludes their deny modes, and on the server's host execve(2) of a
//! file that was written. Files that are closed within [`MAX_DELAY`] of a CLOSE wait for the end of that
//! time, unless
//! - the client ends,
//! - a delegation is recalled, which is returned after the CLOSEs of its file,
//! - or the client removes the file's name: the last CLOSE of a file without a name frees its space.
//!
//! An OPEN of the same user takes CLOSEs that wait along, behind its own operations. If it fails, they
//! haven't been executed, and wait on.
//!
//! Order doesn't matter to the server's state: a CLOSE names the state id that the client knew when it was
//! queued. If the file has been opened again since, the server refuses it (`NFS4ERR_OLD_STATEID`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use client_state::{OpenChange, StateError, StateId};
use proto::nfs4::{Nfsstat4, Operation as Op, Stateid4};
use tokio::time::Instant;

use super::requests::{StateAnswer, named_by, open_change, state_id};
use super::{ChangeInFlight, HeldState, MAX_PAUSE, MIN_PAUSE, OpenOwner};
use crate::nfs4::compound::{Compound, Results};
use crate::nfs4::session::SessionClient;
use crate::types::{Handle, Operation};

/// The time between CLOSEs, which collects those of the next request.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// The CLOSEs of a COMPOUND. Each has two operations.
const MAX_CLOSES: usize = 24;

/// The CLOSEs that go with an OPEN. Some servers keep replies of 1 KiB only, and refuse a request whose reply
/// is longer.
const MAX_ALONG: usize = 4;

/// How long a removal waits for the CLOSE before it.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

type Close = OpenChange<Handle, OpenOwner>;

/// When a CLOSE is due, and its number in the order of close(2).
type Due = (Instant, u64);

/// The CLOSEs to be sent.
#[derive(Debug, Default)]
pub(super) struct QueuedCloses {
    /// Those of each user with the times at which they are due, the earliest first. No queue is empty.
    queues: BTreeMap<OpenOwner, VecDeque<(Due, Close)>>,
    /// The files whose CLOSEs are sent and not answered.
    under_way: Vec<Handle>,
    /// Those that went with OPENs.
    along: Vec<Handle>,
    last_number: u64,
    /// When CLOSEs were sent last.
    last_sent: Option<Instant>,
    /// How often the server has lost what the CLOSEs until then were for.
    losses: u64,
    /// A task sends them.
    has_sender: bool,
}

impl QueuedCloses {
    /// Returns whether [`send_closes`] has to be spawned.
    pub(super) fn push(&mut self, close: Close, now: Instant) -> bool {
        let due = self.last_sent.map_or(now, |sent| now.max(sent + MAX_DELAY));
        self.last_number += 1;
        let due = (due, self.last_number);
        self.queues.entry(close.owner().clone()).or_default().push_back((due, close));
        !std::mem::replace(&mut self.has_sender, true)
    }

    /// Whether there are enough for a COMPOUND.
    pub(super) fn is_full(&self) -> bool {
        self.queues.values().any(|queue| queue.len() >= MAX_CLOSES)
    }

    /// All of them, after the server has lost what they would close.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Close> + use<> {
        self.losses += 1;
        std::mem::take(&mut self.queues).into_values().flatten().map(|(_, close)| close)
    }

    /// None of them waits any longer.
    fn make_due(&mut self, now: Instant) {
        self.queues.values_mut().flatten().for_each(|((due, _), _)| *due = (*due).min(now));
    }

    /// When the next COMPOUND is due, if that is not yet.
    fn delayed_until(&self, now: Instant) -> Option<Instant> {
        let due = self.queues.values().filter_map(|queue| Some(queue.front()?.0.0)).min();
        due.filter(|due| !self.is_full() && *due > now)
    }

    /// The CLOSEs of the next COMPOUND, which are the same user's. With none the sender ends.
    fn take(&mut self, max: usize, now: Instant) -> Vec<(Due, Close)> {
        let due = |(_, queue): &(&OpenOwner, &VecDeque<(Due, Close)>)| Some(queue.front()?.0);
        let Some(owner) = self.queues.iter().min_by_key(due).map(|(owner, _)| owner.clone()) else {
            self.has_sender = false;
            self.under_way.clear();
            return Vec::new();
        };
        let mut closes = self.queues.remove(&owner).unwrap_or_default();
        let rest = closes.split_off(closes.len().min(max));
        if !rest.is_empty() {
            self.queues.insert(owner, rest);
        }
        self.last_sent = Some(now);
        self.under_way = closes.iter().map(|(_, close)| close.file().clone()).collect();
        closes.into()
    }

    /// The CLOSEs that go with an OPEN of this user.
    fn take_along(&mut self, owner: &OpenOwner, max: usize, now: Instant) -> Vec<(Due, Close)> {
        let Some(queue) = self.queues.get_mut(owner) else { return Vec::new() };
        let closes: Vec<_> = queue.drain(..queue.len().min(max)).collect();
        if queue.is_empty() {
            self.queues.remove(owner);
        }
        self.last_sent = Some(now);
        self.along.extend(closes.iter().map(|(_, close)| close.file().clone()));
        closes
    }

    /// CLOSEs that went with an OPEN were answered, or not.
    fn end_along(&mut self, closes: &[(Due, Close)]) {
        for (_, close) in closes {
            if let Some(at) = self.along.iter().position(|file| file == close.file()) {
                self.along.swap_remove(at);
            }
        }
    }

    /// CLOSEs that weren't executed.
    fn put_back(&mut self, closes: Vec<(Due, Close)>) {
        for (due, close) in closes.into_iter().rev() {
            self.queues.entry(close.owner().clone()).or_default().push_front((due, close));
        }
    }

    /// Whether the file of a name in a directory is to be closed.
    fn has_name(&self, directory: &Handle, name: &[u8]) -> bool {
        let is_it = |(at, by): (Handle, Box<[u8]>)| at == *directory && *by == *name;
        let queued = self.queues.values().flatten().map(|(_, close)| close.file());
        queued.chain(&self.under_way).chain(&self.along).any(|file| file.place().is_some_and(is_it))
    }
}

/// The CLOSEs that go with an OPEN, until its reply is there.
pub(in crate::nfs4) struct ClosesAlong {
    /// There are some.
    in_flight: Option<ChangeInFlight>,
    closes: Vec<(Due, Close)>,
    losses: u64,
}

impl ClosesAlong {
    /// Those of a user that wait, at most `max`. They must be handed to [`ClosesAlong::end`].
    pub(in crate::nfs4) fn take(client: &Arc<SessionClient>, owner: &OpenOwner, max: usize) -> Self {
        let max = max.min(MAX_ALONG);
        let take =
            |held: &mut HeldState| (held.closes.take_along(owner, max, Instant::now()), held.closes.losses);
        let (closes, losses) = client.with_held(take);
        let in_flight = (!closes.is_empty()).then(|| ChangeInFlight::new(client));
        Self { in_flight, closes, losses }
    }

    /// The request with the CLOSEs behind its operations.
    pub(in crate::nfs4) fn behind(&self, compound: &Compound) -> Compound {
        self.closes.iter().fold(compound.clone(), |to, (_, close)| open_change(to, close).compound)
    }

    /// The results behind those of the OPEN have come, in the session with this number. `None`: there is no
    /// reply, or the OPEN has failed.
    pub(in crate::nfs4) fn end(self, reply: Option<(u64, Results<'_>)>) {
        let Self { in_flight, closes, losses } = self;
        let Some(in_flight) = in_flight else { return };
        let client = in_flight.client().clone();
        let (session, answers, status) = match reply {
            Some((session, results)) => {
                let status = results.status;
                (Some(session), answers(results, closes.len()), status)
            }
            None => (None, Vec::new(), Nfsstat4::Ok),
        };
        client.closes_answered(closes, answers, status, session, losses, |held, closes| {
            held.closes.end_along(closes);
        });
        let begins = client.with_held(|held| {
            let waits = !held.closes.queues.is_empty();
            waits && !std::mem::replace(&mut held.closes.has_sender, true)
        });
        if begins {
            drop(client.spawn(send_closes(in_flight)));
        }
    }
}

impl SessionClient {
    /// Enters the answers to the first of these CLOSEs, of which the last one's status is `status`. The rest
    /// wasn't executed.
    fn closes_answered(
        self: &Arc<Self>,
        mut closes: Vec<(Due, Close)>,
        answers: Vec<Result<StateId, StateError>>,
        status: Nfsstat4,
        session: Option<u64>,
        losses: u64,
        end: impl FnOnce(&mut HeldState, &[(Due, Close)]),
    ) {
        if let Some((_, close)) = closes.get(answers.len().wrapping_sub(1)) {
            self.free_if_revoked(named_by(&close.request()), status);
        }
        self.with_held(|held| end(held, &closes));
        let rest = closes.split_off(answers.len());
        let report = |held: &mut HeldState| {
            for ((_, close), answer) in closes.drain(..).zip(answers) {
                held.opens.changed(close, answer);
            }
        };
        match session {
            Some(session) => drop(self.update_in(session, report)),
            None => self.update(report),
        }
        // Also those whose answer is of a session that was replaced.
        closes.extend(rest);
        self.update(|held| {
            if held.closes.losses == losses {
                held.closes.put_back(closes);
            } else {
                closes.into_iter().for_each(|(_, close)| held.opens.changed(close, Err(StateError::Gone)));
            }
        });
    }

    /// Sends the queued CLOSEs now.
    pub(in crate::nfs4) fn close_now(&self) {
        self.with_held(|held| held.closes.make_due(Instant::now()));
        self.state.close_now.notify_one();
    }

    /// The file of a name in a directory loses the name: it is closed first. A server that delays the CLOSE
    /// doesn't delay this.
    pub(in crate::nfs4) async fn close_before_removal(&self, directory: &Handle, name: &[u8]) {
        if !self.look(|held| held.closes.has_name(directory, name)) {
            return;
        }
        self.close_now();
        let closed = async {
            loop {
                let changed = self.state.changed.notified();
                if !self.look(|held| held.closes.has_name(directory, name)) {
                    return;
                }
                changed.await;
            }
        };
        // After an error the CLOSE comes later than the removal, and only then frees the space.
        let _ = tokio::time::timeout(REMOVAL_TIMEOUT, closed).await;
    }
}

/// Sends what is queued until nothing is.
pub(super) async fn send_closes(in_flight: ChangeInFlight) {
    let client = in_flight.client().clone();
    let max = (client.max_operations() / 2).clamp(1, MAX_CLOSES);
    let mut pause = MIN_PAUSE;
    loop {
        if let Some(due) = client.look(|held| held.closes.delayed_until(Instant::now())) {
            // An error means that it's time.
            let _ = tokio::time::timeout_at(due, client.state.close_now.notified()).await;
        }
        let (closes, losses) =
            client.with_held(|held| (held.closes.take(max, Instant::now()), held.closes.losses));
        let Some((_, first)) = closes.first() else {
            client.state.changed.notify_waiters();
            return;
        };
        if client.is_ended() {
            // A further request would begin another client id, which has nothing to close.
            client.update(|held| {
                closes.into_iter().for_each(|(_, close)| held.opens.changed(close, Err(StateError::Gone)));
            });
            continue;
        }
        let owner = first.owner().clone();
        let compound = closes.iter().fold(Compound::once(), |to, (_, close)| open_change(to, close).compound);
        owner.user().session.counters.call(Operation::Close);
        // NFS4ERR_MOVED is the answer to one CLOSE: those behind it may be of other filesystems.
        let reply = client.execute(owner.user(), &compound, None).await;
        let (session, answers, status) = match &reply {
            Ok(reply) => {
                let (answers, status) = reply.results().map_or_else(
                    |_| (vec![Err(StateError::Refused)], Nfsstat4::Io),
                    |results| {
                        let status = results.status;
                        (answers(results, closes.len()), status)
                    },
                );
                (Some(reply.session), answers, status)
            }
            Err(error) => {
                tracing::debug!(%error, "CLOSEs aren't answered");
                (None, vec![Err(StateError::Refused); closes.len()], Nfsstat4::Ok)
            }
        };
        let is_delayed = answers.is_empty();
        client.closes_answered(closes, answers, status, session, losses, |held, _| {
            held.closes.under_way.clear();
        });
        if is_delayed {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        } else {
            pause = MIN_PAUSE;
        }
    }
}

/// The answers to the first CLOSEs of a request, up to one that the server delays. Those behind one that
/// failed weren't executed.
fn answers(mut results: Results<'_>, count: usize) -> Vec<Result<StateId, StateError>> {
    let mut answers = Vec::with_capacity(count);
    while answers.len() < count {
        let Some(answer) = answer(&mut results) else { break };
        answers.push(answer);
        if answer.is_err() {
            break;
        }
    }
    answers
}

/// The next answer. `None`: the server delays it.
fn answer(results: &mut Results<'_>) -> Option<Result<StateId, StateError>> {
    for operation in [Op::Putfh, Op::Close] {
        match results.status(operation).map(StateAnswer::of) {
            Ok(StateAnswer::Ok) => {}
            Ok(StateAnswer::Delayed) => return None,
            Ok(StateAnswer::Failed(error)) => return Some(Err(error)),
            Ok(StateAnswer::Denied) | Err(_) => return Some(Err(StateError::Refused)),
        }
    }
    let id = results.value::<Stateid4>(Op::Close);
    Some(id.map(state_id).map_err(|_| StateError::Refused))
}

#[cfg(test)]
mod tests;
