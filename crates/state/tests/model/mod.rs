//! The engine compared with a plain reference model: two clients that open, lock, wait for locks, hold
//! delegations, return them or don't, fall silent, restart and come back; local processes that get grants or
//! conflict with delegations and locks; and a server that restarts, in random order. Both must return the
//! same and record the same clients, and no client may reclaim what another has been given meanwhile.
//!
//! 384 sequences of some 100 steps; SAMEHOST_MODEL_CASES sets another number.

mod comparison;
mod reference;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use comparison::{Comparison, record};
use proptest::prelude::*;
use reference::CLIENTS;
use state::{LockNotice, StateId};
use steps::Step;

impl Comparison {
    /// The invariants after every step.
    fn check(&mut self) {
        let effects = self.engine.take_effects(self.now());
        let mut recalled: Vec<StateId> = effects.recalls.iter().map(|recall| recall.id).collect();
        let expected = std::mem::take(&mut self.model.recalled);
        let other = |id: &StateId| id.other;
        let mut expected: Vec<StateId> = expected.iter().map(|nr| self.ids[nr]).collect();
        recalled.sort_unstable_by_key(other);
        expected.sort_unstable_by_key(other);
        assert_eq!(recalled, expected);
        self.records.retain(|instance, _| !effects.forget.contains(instance));
        self.records.extend(effects.remember.iter().map(|record| (record.instance.clone(), record.clone())));
        self.model.begin_turns();
        let mut notified: Vec<_> = std::mem::take(&mut self.model.notified);
        notified.sort_unstable();
        let notified_by_engine = |notice: &LockNotice<u32>| {
            let (index, owner) = self.owner(&notice.who);
            (index, owner, notice.key)
        };
        let mut notices: Vec<_> = effects.notices.iter().map(notified_by_engine).collect();
        notices.sort_unstable();
        assert_eq!(notices, notified);
        let outside = self.model.waiters.iter().filter(|waiter| waiter.outside).count();
        assert_eq!(self.engine.blocked_waiters(usize::MAX).len(), outside);
        let model = &mut self.model;
        for index in 0..CLIENTS {
            let recorded = self.records.contains_key(&record(model.instance(index)));
            let lost = model.lost.contains(&index) || !model.revoked[index].is_empty();
            assert!(recorded || lost || !model.has_state(index), "client {index} couldn't reclaim its state");
            assert!(!(recorded && lost), "client {index} could reclaim lost state");
        }
        for (index, client) in
            self.clients.iter_mut().enumerate().filter(|(index, _)| model.known[*index].alive)
        {
            client.has.0 = model.opens.iter().filter(|open| open.client == index).cloned().collect();
            client.has.1 = model.locks.iter().filter(|lock| lock.client == index).cloned().collect();
            client.has.2 = model.delegations.iter().filter(|given| given.client == index).cloned().collect();
        }
        let alive = model.known.iter().filter(|known| known.alive).count();
        assert_eq!(
            self.engine.counts(),
            (alive, alive, model.opens.len() + model.locks.len() + model.delegations.len())
        );
        let delegated = |writes| model.delegations.iter().filter(|given| given.writes == writes).count();
        assert_eq!(self.engine.delegated(), [false, true].map(delegated));
        let denied = model.opens.iter().any(|open| open.union().1 != 0);
        assert_eq!(self.engine.denies(), denied);
        let live = model.opens.iter().map(|open| (open.nr, open.client));
        let live: BTreeMap<u64, usize> = live
            .chain(model.locks.iter().map(|lock| (lock.nr, lock.client)))
            .chain(model.delegations.iter().map(|given| (given.nr, given.client)))
            .collect();
        let revoked: BTreeSet<u64> = model.revoked.iter().flatten().map(|(nr, _)| *nr).collect();
        let clients = &self.clients;
        self.ids.retain(|nr, id| {
            let owner = live.get(nr).and_then(|index| clients[*index].session);
            for (client, _) in clients.iter().filter_map(|client| client.session) {
                let tested = self.engine.test_stateid(client, id);
                let expected = owner.is_some_and(|(owner, _)| owner == client);
                assert_eq!(tested.is_ok(), expected, "state {nr}: {tested:?}");
            }
            live.contains_key(nr) || revoked.contains(nr)
        });
    }
}

fn cases() -> u32 {
    std::env::var("SAMEHOST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(384)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn the_engine_agrees_with_the_model(steps in steps::steps()) {
        let mut comparison = Comparison::new();
        for index in 0..CLIENTS {
            comparison.arrive(index, false);
            comparison.take(Step::Complete(index));
        }
        comparison.check();
        for step in steps {
            comparison.take(step);
            comparison.check();
        }
    }
}
