//! The steps of the state manager, and the client's end.

use std::time::Instant;

use client_state::{SlotTable, StateError, StateId, Step};
use state::Error;

use super::requests::{Task, Tested, is_reclaim};
use super::{Asked, Host};
use crate::messages::{Call, Message, Reply};
use crate::mutations::Mutation;

impl Host {
    /// Takes the state manager's step. Returns whether another one can be taken at once.
    pub(super) fn take_step(&mut self, now: Instant) -> bool {
        let step = self.manager.step(now);
        match step {
            Step::ExchangeId | Step::CreateSession { .. } => self.ask(step),
            Step::DestroySession if self.session.is_none() || self.mistakes(Mutation::KeepBadSession) => {
                self.requeue_sent(true);
                self.session = None;
                self.manager.session_destroyed();
                return true;
            }
            Step::DestroySession if self.sent.is_empty() || self.mistakes(Mutation::DestroyInUse) => {
                self.ask(step);
            }
            Step::DestroySession => {}
            Step::BindConnections => {
                self.manager.bound();
                return true;
            }
            Step::Reclaim { loss } => return self.reclaim(loss),
            Step::ReclaimComplete if self.mistakes(Mutation::SkipReclaimComplete) => {
                self.manager.reclaim_completed(now);
                return true;
            }
            Step::ReclaimComplete => {
                if !self.has(|task| matches!(task, Task::ReclaimComplete)) {
                    self.push(Task::ReclaimComplete);
                }
            }
            Step::TestStates => {
                let is_testing = self.has(|task| matches!(task, Task::Test(..)));
                if !is_testing {
                    self.test(now);
                }
                return !is_testing;
            }
            Step::Renew => {
                if !self.has(|task| matches!(task, Task::Renew)) && !self.mistakes(Mutation::NeverRenew) {
                    self.renew();
                }
            }
            Step::Wait(_) => {}
        }
        false
    }

    /// Makes the call of a step, unless it is on its way.
    fn ask(&mut self, step: Step) {
        if let Some((asked, _)) = &self.asked {
            assert_eq!(*asked, step, "it has been asked for another step");
            return;
        }
        let call = match step {
            Step::ExchangeId => Call::ExchangeId(self.verifier()),
            Step::CreateSession { client, sequence } => {
                let advance =
                    if self.mistakes(Mutation::AdvanceCreateSession) { self.repetitions } else { 0 };
                let is_mistaken = self.mistakes(Mutation::BelieveNewClientId);
                let client = if is_mistaken { self.client } else { client };
                Call::CreateSession { client, sequence: sequence + advance }
            }
            _ => Call::DestroySession(self.session.as_ref().expect("there is one").1),
        };
        let asked = self.post(call);
        self.asked = Some((step, asked));
    }

    /// The verifier of this run of the client.
    fn verifier(&mut self) -> [u8; 8] {
        match self.mutation {
            Some(Mutation::ChangeVerifier) => self.number().to_be_bytes(),
            Some(Mutation::KeepVerifier) => [0; 8],
            _ => [self.restarts; 8],
        }
    }

    /// Sends a call outside of a session.
    fn post(&mut self, call: Call) -> Asked {
        let message = Message { number: self.number(), call };
        self.network.push(message);
        Asked { message, reply: None }
    }

    /// The call of a step is answered.
    pub(super) fn step_answered(&mut self) {
        let Some((_, asked)) = self.asked.take() else { return };
        self.repetitions = 0;
        match (asked.message.call, asked.reply.expect("it has a reply")) {
            (_, Ok(Reply::Exchanged { client, sequence, confirmed })) => {
                self.client = client;
                if self.mistakes(Mutation::BelieveNewClientId) {
                    self.manager.exchanged(1, sequence, true);
                } else {
                    self.manager.exchanged(client, sequence, confirmed);
                }
            }
            (_, Ok(Reply::Created(session))) => {
                self.manager.session_created();
                self.session = Some((self.manager.session(), session, SlotTable::new(4)));
            }
            (Call::CreateSession { .. }, Err(error)) => {
                assert!(self.mutation.is_some() || error == Error::StaleClientid, "{error}");
                self.manager.session_refused();
            }
            (Call::DestroySession(_), _) => {
                self.requeue_sent(false);
                self.session = None;
                self.manager.session_destroyed();
            }
            (call, reply) => panic!("{call:?}: {reply:?}"),
        }
    }

    pub(super) fn say_farewell(&mut self) {
        if let Some(call) = self.farewells.pop() {
            self.farewell = Some(self.post(call));
        }
    }

    /// A call of the client's end is answered.
    pub(super) fn farewell_answered(&mut self) {
        // Whatever the answer is: the lease ends without.
        self.farewell = None;
        self.say_farewell();
    }

    /// Reclaims what was lost.
    fn reclaim(&mut self, loss: u64) -> bool {
        if loss != self.losses.0 {
            self.losses.0 = loss;
            if !self.mistakes(Mutation::SkipOpenReclaims) {
                self.recover();
            }
            self.has_lost_state |= self.has(is_reclaim);
        } else if self.has(is_reclaim) && !self.mistakes(Mutation::CompleteEarly) {
            return false;
        } else if loss != self.losses.1 {
            self.losses.1 = loss;
            if !self.mistakes(Mutation::SkipLockReclaims) {
                self.locks.recover();
            }
        } else {
            self.manager.reclaimed(loss);
        }
        true
    }

    /// Begins to reclaim everything. Reclaims of an earlier loss are over.
    fn recover(&mut self) {
        self.delegations.recover();
        self.opens.recover();
        for (number, task) in std::mem::take(&mut self.queue) {
            match task {
                Task::Change(change) if change.is_reclaim() => {
                    self.opens.changed(change, Err(StateError::Refused));
                }
                Task::Lock(change, None, _) if change.is_reclaim() => {}
                task => self.queue.push((number, task)),
            }
        }
        self.take_changes();
    }

    /// Begins to test all states, or ends it.
    fn test(&mut self, now: Instant) {
        self.is_testing = !self.is_testing;
        if !self.is_testing {
            self.manager.tested(now, std::mem::take(&mut self.has_found));
            return;
        }
        let opens = self.opens.state_ids();
        let opens = opens.map(|(file, owner, id)| Task::Test(Tested::Open(*owner), *file, id));
        let locks = self.locks.state_ids();
        let locks = locks.map(|(file, owner, id)| Task::Test(Tested::Lock(*owner), *file, id));
        let delegations = self.delegations.state_ids();
        let delegations = delegations.map(|(file, id)| Task::Test(Tested::Delegation, *file, id));
        let tests: Vec<_> = opens.chain(locks).chain(delegations).collect();
        tests.into_iter().for_each(|test| self.push(test));
    }

    /// The server doesn't have a state.
    pub(super) fn gone(&mut self, tested: Tested, file: u32, id: StateId) {
        match tested {
            Tested::Open(owner) => self.opens.gone(&file, &owner, id),
            Tested::Lock(owner) => self.locks.gone(&file, &owner, id),
            Tested::Delegation => self.delegations.gone(&mut self.opens, &mut self.locks, &file, id),
        }
    }
}
