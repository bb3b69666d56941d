//! CLOSE: one COMPOUND closes several files.
//!
//! No application waits for a CLOSE. So a file that is closed waits [`MAX_DELAY`] for further ones, unless
//! the client ends, or removes the file's name: the last CLOSE of a file without a name frees its space.

use std::collections::VecDeque;
use std::time::Duration;

use client_state::{OpenChange, StateError, StateId};
use proto::nfs4::{Operation as Op, Stateid4};

use super::requests::{StateAnswer, open_change, state_id};
use super::{ChangeInFlight, HeldState, MAX_PAUSE, MIN_PAUSE, OpenOwner};
use crate::nfs4::compound::{Compound, Results};
use crate::nfs4::session::{CompoundReply, SessionClient};
use crate::types::{Handle, Operation};

/// How long a CLOSE waits for others.
const MAX_DELAY: Duration = Duration::from_millis(50);

/// The CLOSEs of a COMPOUND. Each has two operations.
const MAX_CLOSES: usize = 24;

type Close = OpenChange<Handle, OpenOwner>;

/// The CLOSEs to be sent, the first to wait first.
#[derive(Debug, Default)]
pub(super) struct QueuedCloses {
    queue: VecDeque<Close>,
    /// A task sends them.
    has_sender: bool,
}

impl QueuedCloses {
    /// Returns whether [`send_closes`] has to be spawned.
    pub(super) fn push(&mut self, close: Close) -> bool {
        self.queue.push_back(close);
        !std::mem::replace(&mut self.has_sender, true)
    }

    /// Whether there are enough for a COMPOUND.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_CLOSES
    }

    /// The CLOSEs of the next COMPOUND, which are the same user's. With none the sender ends.
    fn take(&mut self, max: usize) -> Vec<Close> {
        let Some(owner) = self.queue.front().map(|close| close.owner().clone()) else {
            self.has_sender = false;
            return Vec::new();
        };
        let same = self.queue.iter().take(max).take_while(|close| *close.owner() == owner).count();
        self.queue.drain(..same).collect()
    }

    /// CLOSEs that weren't executed.
    fn put_back(&mut self, closes: Vec<Close>) {
        closes.into_iter().rev().for_each(|close| self.queue.push_front(close));
    }

    /// Whether the file of a name in a directory is to be closed.
    fn has_name(&self, directory: &Handle, name: &[u8]) -> bool {
        let is_it = |(at, by): (Handle, Box<[u8]>)| at == *directory && *by == *name;
        self.queue.iter().any(|close| close.file().place().is_some_and(is_it))
    }
}

impl SessionClient {
    /// The file of a name in a directory loses the name: it is closed first.
    pub(in crate::nfs4) async fn close_before_removal(&self, directory: &Handle, name: &[u8]) {
        loop {
            let changed = self.state.changed.notified();
            if !self.look(|held| held.closes.has_name(directory, name)) {
                return;
            }
            self.state.close_now.notify_one();
            changed.await;
        }
    }
}

/// Sends what is queued until nothing is.
pub(super) async fn send_closes(in_flight: ChangeInFlight) {
    let client = in_flight.client().clone();
    let max = (client.max_operations() / 2).clamp(1, MAX_CLOSES);
    let mut pause = MIN_PAUSE;
    loop {
        if client.look(|held| !held.closes.queue.is_empty() && !held.closes.is_full()) {
            // An error means that it's time.
            let _ = tokio::time::timeout(MAX_DELAY, client.state.close_now.notified()).await;
        }
        let closes = client.with_held(|held| held.closes.take(max));
        let Some(first) = closes.first() else {
            client.state.changed.notify_waiters();
            return;
        };
        if client.is_ended() {
            // A further request would begin another client id, which has nothing to close.
            client.update(|held| {
                closes.into_iter().for_each(|close| held.opens.changed(close, Err(StateError::Gone)));
            });
            continue;
        }
        let owner = first.owner().clone();
        let compound = closes.iter().fold(Compound::once(), |compound, close| open_change(compound, close).1);
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
            for (close, answer) in closes.drain(..).zip(answers) {
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
