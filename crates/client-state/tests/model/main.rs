//! A client's state meets the server's, without a socket: messages are delayed, lost, repeated and
//! reordered, also those that establish a session and end it, sessions are lost and have faults, client and
//! server restart, and leases expire.
//!
//! What always holds: no reclaim is lost, no request of a session is executed twice, no lock is relied on
//! that the server may have given to others, and the server has no session and no state that the client
//! doesn't know of, whose former runs' it has not either. Other clients keep what they have.
//!
//! [`mutations`] has the mistakes that were made to see that they are noticed.

extern crate samehost_client_state as client_state;

mod events;
mod found;
mod host;
mod messages;
mod mutations;
mod rival;
mod server;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, RngSeed, TestRng, TestRunner};

use crate::events::{History, eventful, ordinary, punctual, recovering, unreachable};
use crate::mutations::Mutation;

/// The histories in which a mutation has to be noticed.
const MUTATED_HISTORIES: u32 = 4000;

/// The same cases in every run, unless the environment says how many others.
fn config() -> ProptestConfig {
    let cases = std::env::var("SAMEHOST_MODEL_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(256),
        rng_seed: if cases.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn the_server_has_what_applications_have(history in ordinary()) {
        history.run(None);
    }

    #[test]
    fn nothing_is_lost_without_being_reported(history in eventful()) {
        history.run(None);
    }

    #[test]
    fn what_is_revoked_is_not_believed(history in unreachable()) {
        history.run(None);
    }

    /// A client that comes back in time has everything back, however often the server restarts.
    #[test]
    fn no_reclaim_is_lost(history in recovering()) {
        history.run(None);
    }

    /// A client whose messages arrive renews its lease, and obeys recalls.
    #[test]
    fn a_client_whose_messages_arrive_loses_nothing(history in punctual()) {
        history.run(None);
    }
}

#[test]
fn every_mutation_is_noticed() {
    let any = prop_oneof![ordinary(), eventful(), recovering(), punctual(), unreachable()];
    let is_noticed = |mutation: Mutation| {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config(), rng);
        let mut histories = (0..MUTATED_HISTORIES).map(|_| any.new_tree(&mut runner));
        histories.any(|history: Result<_, _>| {
            let history: History = history.expect("a history").current();
            catch_unwind(AssertUnwindSafe(|| history.run(Some(mutation)))).is_err()
        })
    };
    let unnoticed: Vec<_> = Mutation::ALL.into_iter().filter(|mutation| !is_noticed(*mutation)).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
