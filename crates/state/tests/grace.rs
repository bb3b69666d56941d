//! What clients get back after a restart, until when, and who may.

use crate::common::{
    self, HERE, LEASE, Machine, ROOT, THERE, begin, client, creation, engine, fresh, named, open, recorded,
    root,
};
use state::{ClientId, Error, SetClientId, StateId, Time};

const START: Time = Time(0);

fn reclaim(engine: &mut Machine, now: Time, client: ClientId, key: u32) -> Result<StateId, Error> {
    engine.open(now, &state::OpenRequest { reclaim: true, ..open(client, "o", &key, 3, 3) })
}

#[test]
fn old_clients_reclaim_first() {
    let mut engine = common::after(&["old", "lost"]);
    let start = Time(0);
    let (old, _) = fresh(&mut engine, start, "old");
    let (new, session) = fresh(&mut engine, start, "new");
    assert!(!begin(&mut engine, start, session, 0, 1).reclaim_needed);
    engine.reclaim_complete(&root(new)).unwrap();
    assert_eq!(engine.reclaim_complete(&root(new)), Err(Error::CompleteAlready));
    let reclaim = |client, key| state::OpenRequest { reclaim: true, ..open(client, "o", key, 3, 3) };
    assert_eq!(engine.open(start, &open(new, "o", &1, 3, 0)), Err(Error::Grace));
    assert_eq!(engine.open(start, &open(old, "o", &2, 3, 0)), Err(Error::Grace));
    assert_eq!(engine.open(start, &reclaim(new, &1)), Err(Error::NoGrace), "it had nothing");
    engine.open(start, &reclaim(old, &1)).unwrap();
    engine.reclaim_complete(&root(old)).unwrap();
    assert_eq!(engine.open(start, &reclaim(old, &1)), Err(Error::NoGrace), "it has said that it was done");
    assert!(engine.in_grace(start), "one is missing");
    engine.tick(Time(LEASE));
    assert_eq!(engine.take_effects(Time(LEASE)).forget, [recorded("lost")]);
    assert_eq!(engine.open(Time(LEASE), &open(new, "o", &1, 3, 0)), Err(Error::ShareDenied));
    engine.open(Time(LEASE), &open(new, "o", &3, 3, 0)).unwrap();
    let (lost, _) = fresh(&mut engine, Time(LEASE), "lost");
    assert_eq!(engine.open(Time(LEASE), &reclaim(lost, &9)), Err(Error::NoGrace), "too late");
}

/// Some records were damaged: the clients that are missing may have been anybody's.
#[test]
fn the_grace_period_lasts_its_whole_time_where_clients_are_missing() {
    for known in [&["old"][..], &[]] {
        let mut engine = common::after(known);
        engine.recovered_incompletely();
        if !known.is_empty() {
            let (old, _) = fresh(&mut engine, START, "old");
            reclaim(&mut engine, START, old, 1).unwrap();
            engine.reclaim_complete(&root(old)).unwrap();
        }
        let (new, _) = client(&mut engine, START, "new");
        assert_eq!(reclaim(&mut engine, START, new, 2), Err(Error::NoGrace), "nothing is known of it");
        for now in [START, Time(LEASE - 1)] {
            engine.tick(now);
            assert!(engine.in_grace(now));
            assert_eq!(engine.open(now, &open(new, "o", &2, 3, 0)), Err(Error::Grace));
        }
        engine.tick(Time(LEASE));
        engine.open(Time(LEASE), &open(new, "o", &2, 3, 0)).unwrap();
    }
}

/// Whoever is late has time to come to an end, as long as it goes on.
#[test]
fn the_grace_period_lasts_while_somebody_reclaims_and_for_two_leases_at_most() {
    let mut engine = common::after(&["late", "lost"]);
    let step = LEASE / 8;
    let (late, _) = fresh(&mut engine, Time(LEASE - 1), "late");
    let mut now = Time(LEASE - 1);
    let mut key = 0;
    while now.plus(step) < Time(2 * LEASE) {
        now = now.plus(step - 1);
        key += 1;
        reclaim(&mut engine, now, late, key).unwrap();
        engine.tick(now);
        assert!(engine.in_grace(now), "{now:?}");
    }
    let (new, _) = client(&mut engine, now, "new");
    let other = open(new, "o", &99, 1, 0);
    assert_eq!(engine.open(Time(2 * LEASE - 1), &other), Err(Error::Grace));
    assert_eq!(reclaim(&mut engine, Time(2 * LEASE), late, 1), Err(Error::NoGrace));
    engine.open(Time(2 * LEASE), &other).unwrap();
    // What the other hasn't reclaimed it has lost, too, and may not know that yet (RFC 8881 section 8.4.3).
    let mut forgotten = engine.take_effects(now).forget;
    forgotten.sort();
    assert_eq!(forgotten, ["late", "lost"].map(recorded));
    assert_eq!(
        reclaim(&mut engine, Time(2 * LEASE), late, 1),
        Err(Error::NoGrace),
        "it has what it reclaimed"
    );
    engine.reclaim_complete(&root(late)).unwrap();
    assert_eq!(engine.take_effects(now).remember, [recorded("late")]);
}

#[test]
fn nobody_else_makes_the_grace_period_longer() {
    let mut engine = common::after(&["gone", "done"]);
    let now = Time(LEASE - 1);
    // One that had nothing, one that has said that it was done, and one of 4.0 that only renews its lease.
    let (new, session) = fresh(&mut engine, now, "new");
    assert_eq!(reclaim(&mut engine, now, new, 1), Err(Error::NoGrace));
    begin(&mut engine, now, session, 0, 1);
    let (done, _) = fresh(&mut engine, START, "done");
    engine.reclaim_complete(&root(done)).unwrap();
    assert_eq!(reclaim(&mut engine, now, done, 1), Err(Error::NoGrace));
    fresh(&mut engine, now, "done");
    assert!(engine.in_grace(now) && !engine.in_grace(Time(LEASE)));
}

/// The time that a client of 4.0 takes from its confirmation to its first reclaim.
#[test]
fn who_comes_back_in_time_may_begin() {
    let mut engine = common::after(&["zero", "one"]);
    let now = Time(LEASE - 1);
    let asked = SetClientId { owner: b"zero", peer: HERE, verifier: [1; 8], principal: &ROOT };
    let (zero, confirm) = engine.setclientid(now, &asked).unwrap();
    engine.setclientid_confirm(now, zero, confirm, &ROOT).unwrap();
    let soon = now.plus(LEASE / 8 - 1);
    reclaim(&mut engine, soon, zero, 1).unwrap();
    let (one, _) = fresh(&mut engine, soon, "one");
    reclaim(&mut engine, soon.plus(LEASE / 8 - 1), one, 2).unwrap();
}

#[test]
fn who_has_said_that_it_is_done_is_waited_for_after_the_next_restart() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, START, "me");
    assert_eq!(engine.take_effects(START).remember, [recorded("me")]);
    // Until it has had nothing for a lease.
    for at in [LEASE / 2, LEASE, LEASE + LEASE / 2] {
        let again = engine.exchange_id(Time(at), &named("me", 1)).unwrap();
        engine.create_session(Time(at), &creation(me, again.sequence)).unwrap();
        engine.tick(Time(at));
        assert!(engine.take_effects(Time(at)).forget.is_empty(), "after {at}");
    }
    let later = Time(2 * LEASE);
    engine.tick(later);
    assert_eq!(engine.take_effects(later).forget, [recorded("me")]);
    engine.open(later, &open(me, "o", &1, 1, 0)).unwrap();
    assert_eq!(engine.take_effects(later).remember, [recorded("me")]);
}

/// Who has restarted has nothing to reclaim, and who only knows a client's name can't say for it that it has
/// reclaimed everything.
#[test]
fn instances_reclaim_and_not_names() {
    let mut engine = common::after(&["me"]);
    for (peer, verifier) in [(HERE, 2), (THERE, 3)] {
        let asked = state::ExchangeId { peer, ..named("me", verifier) };
        let other = engine.exchange_id(START, &asked).unwrap();
        engine.create_session(START, &creation(other.client, other.sequence)).unwrap();
        assert_eq!(reclaim(&mut engine, START, other.client, 1), Err(Error::NoGrace));
        engine.reclaim_complete(&root(other.client)).unwrap();
        assert!(engine.in_grace(START));
    }
    // From another address, too.
    let me = engine.exchange_id(START, &state::ExchangeId { peer: THERE, ..named("me", 1) }).unwrap();
    engine.create_session(START, &creation(me.client, me.sequence)).unwrap();
    reclaim(&mut engine, START, me.client, 1).unwrap();
}
