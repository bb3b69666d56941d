//! The engine beside a plain model of it: two clients that open, lock, wait for locks, are lent files, give
//! them back or don't, fall silent, restart and come back, local processes that are given files or want what
//! is lent or locked, and a server that restarts, in random order. Both must answer the same, and remember
//! the same; and nobody may reclaim what another has been given meanwhile.
//!
//! 384 sequences of some 100 steps; SAMEHOST_MODEL_CASES runs more.

mod both;
mod reference;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use both::{Both, record};
use proptest::prelude::*;
use reference::CLIENTS;
use state::{LockNotice, StateId};
use steps::Step;

impl Both {
    /// What must be so after every step.
    fn check(&mut self) {
        let effects = self.engine.take_effects(self.now());
        let mut recalled: Vec<StateId> = effects.recalls.iter().map(|recall| recall.id).collect();
        let expected = std::mem::take(&mut self.model.recalled);
        let other = |id: &StateId| id.other;
        let mut expected: Vec<StateId> = expected.iter().map(|nr| self.ids[nr]).collect();
        recalled.sort_unstable_by_key(other);
        expected.sort_unstable_by_key(other);
        assert_eq!(recalled, expected);
        self.records.retain(|owner| !effects.forget.contains(owner));
        self.records.extend(effects.remember.iter().cloned());
        self.model.begin_turns();
        let mut told: Vec<_> = std::mem::take(&mut self.model.told);
        told.sort_unstable();
        let told_by_engine = |notice: &LockNotice<u32>| {
            let (who, owner) = self.owner(&notice.who);
            (who, owner, notice.key)
        };
        let mut notices: Vec<_> = effects.notices.iter().map(told_by_engine).collect();
        notices.sort_unstable();
        assert_eq!(notices, told);
        let outside = self.model.waiters.iter().filter(|waiter| waiter.outside).count();
        assert_eq!(self.engine.blocked_waiters(usize::MAX).len(), outside);
        let model = &mut self.model;
        for who in 0..CLIENTS {
            let recorded = self.records.contains(&record(model.instance(who)));
            let lost = model.lost.contains(&who) || !model.revoked[who].is_empty();
            assert!(recorded || lost || !model.has_state(who), "client {who} couldn't reclaim what it has");
            assert!(!(recorded && lost), "client {who} could reclaim what it has lost");
        }
        for (who, client) in self.clients.iter_mut().enumerate().filter(|(who, _)| model.known[*who].alive) {
            client.has.0 = model.opens.iter().filter(|open| open.who == who).cloned().collect();
            client.has.1 = model.locks.iter().filter(|lock| lock.who == who).cloned().collect();
            client.has.2 = model.delegations.iter().filter(|given| given.who == who).cloned().collect();
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
        let live = model.opens.iter().map(|open| (open.nr, open.who));
        let live: BTreeMap<u64, usize> = live
            .chain(model.locks.iter().map(|lock| (lock.nr, lock.who)))
            .chain(model.delegations.iter().map(|given| (given.nr, given.who)))
            .collect();
        let revoked: BTreeSet<u64> = model.revoked.iter().flatten().map(|(nr, _)| *nr).collect();
        let clients = &self.clients;
        self.ids.retain(|nr, id| {
            let owner = live.get(nr).and_then(|who| clients[*who].session);
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
    fn the_engine_answers_as_the_model(steps in steps::steps()) {
        let mut both = Both::new();
        for who in 0..CLIENTS {
            both.arrive(who, false);
            both.take(Step::Complete(who));
        }
        both.check();
        for step in steps {
            both.take(step);
            both.check();
        }
    }
}
