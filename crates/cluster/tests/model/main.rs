//! Whole clusters in a simulation: crashes, lost notifications, slow and partitioned RADOS, tardy restarts
//! and drains. No two clients ever hold conflicting locks, clients that should be able to reclaim can, and
//! every grace period ends when everything is repaired.
//!
//! `SAMEHOST_CLUSTER_HISTORIES` is the number of histories. The histories are the same in every run.

mod clients;
mod mutations;
mod plan;
mod world;

use std::time::Instant;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use mutations::Mutation;

/// The histories of an ordinary test.
const HISTORIES: u32 = 2000;
/// The histories in which a mutation has to be noticed.
const MUTATED_HISTORIES: u32 = 4000;

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn no_history_violates_the_rules() {
    let histories = std::env::var("SAMEHOST_CLUSTER_HISTORIES");
    let histories = histories.map_or(HISTORIES, |text| text.parse().expect("a number of histories"));
    let epoch = Instant::now();
    let result = runner(histories).run(&plan::plans(), |plan| {
        let run = world::run(&plan, None, epoch);
        run.map_err(|violation| proptest::test_runner::TestCaseError::fail(violation.0))
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_mutation_is_noticed() {
    let epoch = Instant::now();
    let is_noticed = |mutation: Mutation| {
        let mut runner = runner(0);
        let mut plans = (0..MUTATED_HISTORIES).map(|_| plan::plans().new_tree(&mut runner));
        plans.any(|plan| world::run(&plan.expect("a plan").current(), Some(mutation), epoch).is_err())
    };
    let unnoticed: Vec<_> = Mutation::ALL.into_iter().filter(|mutation| !is_noticed(*mutation)).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
