//! CLOSE: one COMPOUND closes several files.
//!
//! No application waits for a CLOSE. So a file that is closed waits [`MAX_DELAY`] for further ones, unless
//! - the client ends,
//! - a delegation is recalled, which is returned after the CLOSEs of its file,
//! - or the client removes the file's name: the last CLOSE of a file without a name frees its space.
//!
//! Order doesn't matter to the server's state: a CLOSE names the state id that the client knew when it was
//! queued. If the file has been opened again since, the server refuses it (`NFS4ERR_OLD_STATEID`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use client_state::{OpenChange, StateError, StateId};
use proto::nfs4::{Operation as Op, Stateid4};
use tokio::time::Instant;

use super::requests::{StateAnswer, open_change, state_id};
use super::{ChangeInFlight, HeldState, MAX_PAUSE, MIN_PAUSE, OpenOwner};
use crate::nfs4::compound::{Compound, Results};
use crate::nfs4::session::{CompoundReply, SessionClient};
use crate::types::{Handle, Operation};

/// How long a CLOSE waits for others.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// The CLOSEs of a COMPOUND. Each has two operations.
const MAX_CLOSES: usize = 24;

/// How long a removal waits for the CLOSE before it.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

type Close = OpenChange<Handle, OpenOwner>;

/// The CLOSEs to be sent.
#[derive(Debug, Default)]
pub(super) struct QueuedCloses {
    /// Those of each user with the times at which they are due, the earliest first. No queue is empty.
    queues: BTreeMap<OpenOwner, VecDeque<(Instant, Close)>>,
    /// The files whose CLOSEs are sent and not answered.
    under_way: Vec<Handle>,
    /// A task sends them.
    has_sender: bool,
}

impl QueuedCloses {
    /// Returns whether [`send_closes`] has to be spawned.
    pub(super) fn push(&mut self, close: Close) -> bool {
        let queue = self.queues.entry(close.owner().clone()).or_default();
        queue.push_back((Instant::now() + MAX_DELAY, close));
        !std::mem::replace(&mut self.has_sender, true)
    }

    /// Whether there are enough for a COMPOUND.
    pub(super) fn is_full(&self) -> bool {
        self.queues.values().any(|queue| queue.len() >= MAX_CLOSES)
    }

    /// All of them, after the server has lost what they would close.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Close> + use<> {
        std::mem::take(&mut self.queues).into_values().flatten().map(|(_, close)| close)
    }

    /// None of them waits any longer.
    fn make_due(&mut self) {
        let now = Instant::now();
        self.queues.values_mut().flatten().for_each(|(due, _)| *due = (*due).min(now));
    }

    /// When the next COMPOUND is due, if that is not yet.
    fn delayed_until(&self) -> Option<Instant> {
        let due = self.queues.values().filter_map(|queue| Some(queue.front()?.0)).min();
        due.filter(|due| !self.is_full() && *due > Instant::now())
    }

    /// The CLOSEs of the next COMPOUND, which are the same user's. With none the sender ends.
    fn take(&mut self, max: usize) -> Vec<(Instant, Close)> {
        let due = |(_, queue): &(&OpenOwner, &VecDeque<(Instant, Close)>)| queue.front().map(|(due, _)| *due);
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
        self.under_way = closes.iter().map(|(_, close)| close.file().clone()).collect();
        closes.into()
    }

    /// CLOSEs that weren't executed.
    fn put_back(&mut self, closes: Vec<(Instant, Close)>) {
        for (due, close) in closes.into_iter().rev() {
            self.queues.entry(close.owner().clone()).or_default().push_front((due, close));
        }
    }

    /// Whether the file of a name in a directory is to be closed.
    fn has_name(&self, directory: &Handle, name: &[u8]) -> bool {
        let is_it = |(at, by): (Handle, Box<[u8]>)| at == *directory && *by == *name;
        let queued = self.queues.values().flatten().map(|(_, close)| close.file());
        queued.chain(&self.under_way).any(|file| file.place().is_some_and(is_it))
    }
}

impl SessionClient {
    /// Sends the queued CLOSEs now.
    pub(in crate::nfs4) fn close_now(&self) {
        self.with_held(|held| held.closes.make_due());
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
        if let Some(due) = client.look(|held| held.closes.delayed_until()) {
            // An error means that it's time.
            let _ = tokio::time::timeout_at(due, client.state.close_now.notified()).await;
        }
        let closes = client.with_held(|held| held.closes.take(max));
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
        let compound = closes.iter().fold(Compound::once(), |to, (_, close)| open_change(to, close).1);
        client.counters.call(Operation::Close);
        let reply = client.call(owner.user(), &compound, None).await;
        let (session, answers) = match &reply {
            Ok(reply) => (Some(reply.session), answers(reply, closes.len())),
            Err(error) => {
                tracing::debug!(%error, "CLOSEs aren't answered");
                (None, vec![Err(StateError::Refused); closes.len()])
            }
        };
        let is_delayed = answers.is_empty();
        let mut closes = closes;
        let rest = closes.split_off(answers.len());
        let report = |held: &mut HeldState| {
            held.closes.under_way.clear();
            for ((_, close), answer) in closes.drain(..).zip(answers) {
                held.opens.changed(close, answer);
            }
        };
        match session {
            Some(session) => drop(client.update_in(session, report)),
            None => client.update(report),
        }
        // Also those whose answer is of a session that was replaced.
        closes.extend(rest);
        client.with_held(|held| held.closes.put_back(closes));
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
fn answers(reply: &CompoundReply, count: usize) -> Vec<Result<StateId, StateError>> {
    let mut answers = Vec::with_capacity(count);
    let Ok(mut results) = reply.results() else { return vec![Err(StateError::Refused)] };
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
