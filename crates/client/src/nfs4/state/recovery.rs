//! The recovery of opens and locks: the reclaims after a loss, and the test of state ids.

use std::sync::Arc;

use client_state::{LockChange, OpenChange, StateError, StateId};
use futures_util::stream::{self, StreamExt as _};
use proto::nfs4::{Nfsstat4, Operation as Op, Stateid4Args, TestStateid4Args};
use xdr::Array;

use super::requests::{
    StateAnswer, StateRequest, lock_change, lock_result, open_change, open_result, state_status, stateid,
};
use super::{HeldState, MAX_PAUSE, MIN_PAUSE, OpenOwner, OwnerOfLocks};
use crate::nfs4::compound::Compound;
use crate::nfs4::session::{EstablishedSession, SessionClient, StepError};
use crate::types::Handle;

/// The reclaims that are sent at the same time.
const MAX_RECLAIMS_IN_FLIGHT: usize = 16;

/// The state ids of a TEST_STATEID.
const MAX_TESTED: usize = 256;

/// A request of the state manager's step.
#[derive(Debug)]
pub(super) enum Reclaim {
    Open(OpenChange<Handle, OpenOwner>),
    Lock(LockChange<Handle, OwnerOfLocks>),
}

impl HeldState {
    /// Begins to recover from a loss, unless that has begun.
    fn recover(&mut self, loss: u64) {
        if self.recovery.is_some_and(|(recovered, _)| recovered == loss) {
            return;
        }
        self.recovery = Some((loss, false));
        self.delegations.recover();
        self.delegated.clear();
        self.opens.recover();
        // The server has nothing to close.
        for close in self.closes.take_all() {
            self.opens.changed(close, Err(StateError::Gone));
        }
        // Results of an earlier loss's reclaims don't matter, but closing waits for those of opens.
        for reclaim in std::mem::take(&mut self.reclaims) {
            if let Reclaim::Open(change) = reclaim {
                self.opens.changed(change, Err(StateError::Refused));
            }
        }
    }

    /// Begins to reclaim the locks, once the opens are reclaimed. False if that has begun.
    fn recover_locks(&mut self) -> bool {
        match &mut self.recovery {
            Some((_, is_at_locks @ false)) => {
                *is_at_locks = true;
                self.locks.recover();
                true
            }
            _ => false,
        }
    }
}

impl SessionClient {
    /// [`client_state::Step::Reclaim`].
    pub(in crate::nfs4) async fn reclaim(
        self: &Arc<Self>,
        loss: u64,
        session: &Arc<EstablishedSession>,
    ) -> Result<(), StepError> {
        self.update(|held| held.recover(loss));
        loop {
            let reclaims = std::mem::take(&mut self.state.held.lock().reclaims);
            if reclaims.is_empty() {
                if self.update(HeldState::recover_locks) {
                    continue;
                }
                return Ok(());
            }
            let sent = stream::iter(reclaims).map(|reclaim| self.send_reclaim(session, reclaim));
            let results: Vec<_> = sent.buffer_unordered(MAX_RECLAIMS_IN_FLIGHT).collect().await;
            results.into_iter().collect::<Result<(), _>>()?;
        }
    }

    /// Sends a reclaim. If that fails for lack of a session it is sent by the next step.
    async fn send_reclaim(
        self: &Arc<Self>,
        session: &Arc<EstablishedSession>,
        reclaim: Reclaim,
    ) -> Result<(), StepError> {
        if !self.can_reclaim() {
            self.reclaim_answered(reclaim, (StateAnswer::Failed(StateError::NoReclaim), None));
            return Ok(());
        }
        let request = match &reclaim {
            Reclaim::Open(change) => {
                Some((open_change(Compound::once(), change), change.owner().user().clone()))
            }
            Reclaim::Lock(change) => self.look(|held| {
                let (file, owner) = (change.file(), change.owner());
                let open = held.opens.io_id_of(file, &owner.through, 0).ok().flatten();
                let request = lock_change((file, owner), held.locks.request(change)?, open, false)?;
                Some((request, owner.through.user().clone()))
            }),
        };
        let Some((StateRequest { operation, compound, names }, user)) = request else {
            if let Reclaim::Lock(change) = reclaim {
                self.update(|held| held.locks.changed(change, Err(StateError::Refused.into())));
            }
            return Ok(());
        };
        let mut pause = MIN_PAUSE;
        let answer = loop {
            let reply = match session.take().await {
                Some(taken) => self.send_in(session, taken, &user, &compound).await,
                None => Err(StepError::Again),
            };
            let (status, id) = match reply.and_then(|reply| Ok(state_status(&reply, operation)?)) {
                Ok(answer) => answer,
                Err(error) => {
                    self.state.held.lock().reclaims.push(reclaim);
                    return Err(error);
                }
            };
            self.free_if_revoked(names, status);
            match StateAnswer::of(status) {
                StateAnswer::Delayed => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                answer => break (answer, id),
            }
        };
        self.reclaim_answered(reclaim, answer);
        Ok(())
    }

    fn reclaim_answered(self: &Arc<Self>, reclaim: Reclaim, answer: (StateAnswer, Option<StateId>)) {
        self.update(|held| match reclaim {
            Reclaim::Open(change) => {
                let result = open_result(answer).unwrap_or(Err(StateError::Refused));
                held.opens.changed(change, result);
            }
            Reclaim::Lock(change) => {
                let result = lock_result(answer).unwrap_or(Err(StateError::Refused.into()));
                held.locks.changed(change, result);
            }
        });
    }

    /// [`client_state::Step::TestStates`]. Returns whether any state was bad.
    pub(in crate::nfs4) async fn test_states(
        self: &Arc<Self>,
        session: &Arc<EstablishedSession>,
    ) -> Result<bool, StepError> {
        enum Of {
            Open(Handle, OpenOwner),
            Lock(Handle, OwnerOfLocks),
            Delegation(Handle),
        }
        let states: Vec<(Of, StateId)> = self.look(|held| {
            let opens = held.opens.state_ids();
            let opens = opens.map(|(file, owner, id)| (Of::Open(file.clone(), owner.clone()), id));
            let locks = held.locks.state_ids();
            let locks = locks.map(|(file, by, id)| (Of::Lock(file.clone(), by.clone()), id));
            let delegations = held.delegations.state_ids();
            let delegations = delegations.map(|(file, id)| (Of::Delegation(file.clone()), id));
            opens.chain(locks).chain(delegations).collect()
        });
        let owner = self.owner.clone();
        let mut has_found = false;
        for states in states.chunks(MAX_TESTED) {
            let stateids = Array(states.iter().map(|(_, id)| stateid(*id)).collect());
            let test = Compound::new().then(Op::TestStateid, &TestStateid4Args { stateids });
            let Some(taken) = session.take().await else { return Err(StepError::Again) };
            let reply = self.send_in(session, taken, &owner, &test).await?;
            let tested: Array<Nfsstat4, MAX_TESTED> = reply.results()?.get(Op::TestStateid)?;
            for ((of, id), status) in states.iter().zip(tested.0) {
                if status == Nfsstat4::Ok {
                    continue;
                }
                has_found = true;
                let free = Stateid4Args { stateid: stateid(*id) };
                let Some(taken) = session.take().await else { return Err(StepError::Again) };
                let free = Compound::new().then(Op::FreeStateid, &free);
                let freed = self.send_in(session, taken, &owner, &free).await?;
                if freed.results()?.status(Op::FreeStateid)? == Nfsstat4::Delay {
                    // They are tested again.
                    return Err(StepError::Again);
                }
                self.update(|held| match of {
                    Of::Open(file, owner) => held.opens.gone(file, owner, *id),
                    Of::Lock(file, owner) => held.locks.gone(file, owner, *id),
                    Of::Delegation(file) => held.delegation_gone(file, *id),
                });
            }
        }
        Ok(has_found)
    }
}
