//! The grace period after a restart: which clients may reclaim, and until when.

use crate::common::{
    self, HERE, LEASE, Machine, OTHER, ROOT, THERE, begin, client, creation, engine, fresh, named, open,
    record, recorded, root,
};
use fairness::Peer;
use state::{ClientId, ClientRecord, Error, Principal, RecordHolder, SetClientId, StateId, Time};

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
    assert_eq!(engine.open(start, &reclaim(old, &1)), Err(Error::NoGrace), "after RECLAIM_COMPLETE");
    assert!(engine.in_grace(start), "one is missing");
    engine.tick(Time(LEASE));
    assert_eq!(engine.take_effects(Time(LEASE)).forget, [recorded("lost")]);
    assert_eq!(engine.open(Time(LEASE), &open(new, "o", &1, 3, 0)), Err(Error::ShareDenied));
    engine.open(Time(LEASE), &open(new, "o", &3, 3, 0)).unwrap();
    let (lost, _) = fresh(&mut engine, Time(LEASE), "lost");
    assert_eq!(engine.open(Time(LEASE), &reclaim(lost, &9)), Err(Error::NoGrace), "too late");
}

/// Some records were damaged: the missing clients are unknown.
#[test]
fn the_grace_period_has_its_full_length_if_records_are_missing() {
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

/// A late client may finish, as long as it keeps reclaiming.
#[test]
fn reclaims_extend_the_grace_period_to_at_most_two_leases() {
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
    // What the client hasn't reclaimed it has lost, and may not know it yet (RFC 8881 section 8.4.3).
    let mut forgotten = engine.take_effects(now).forget;
    forgotten.sort();
    assert_eq!(forgotten, ["late", "lost"].map(recorded));
    assert_eq!(
        reclaim(&mut engine, Time(2 * LEASE), late, 1),
        Err(Error::NoGrace),
        "it keeps what it reclaimed"
    );
    engine.reclaim_complete(&root(late)).unwrap();
    assert_eq!(engine.take_effects(now).remember, [record("late")]);
}

#[test]
fn other_clients_do_not_extend_the_grace_period() {
    let mut engine = common::after(&["gone", "done"]);
    let now = Time(LEASE - 1);
    // A client without records, one after RECLAIM_COMPLETE, and one of 4.0 that only renews its lease.
    let (new, session) = fresh(&mut engine, now, "new");
    assert_eq!(reclaim(&mut engine, now, new, 1), Err(Error::NoGrace));
    begin(&mut engine, now, session, 0, 1);
    let (done, _) = fresh(&mut engine, START, "done");
    engine.reclaim_complete(&root(done)).unwrap();
    assert_eq!(reclaim(&mut engine, now, done, 1), Err(Error::NoGrace));
    fresh(&mut engine, now, "done");
    assert!(engine.in_grace(now) && !engine.in_grace(Time(LEASE)));
}

/// A client of 4.0 needs time from its confirmation to its first reclaim.
#[test]
fn a_client_that_returns_in_time_may_begin_to_reclaim() {
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
fn a_client_after_reclaim_complete_may_reclaim_after_the_next_restart() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, START, "me");
    assert_eq!(engine.take_effects(START).remember, [record("me")]);
    // Until it has had no state for a lease.
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
    assert_eq!(engine.take_effects(later).remember, [record("me")]);
}

/// The client and the server restart together: nobody waits for the client's former instance.
#[test]
fn a_restarted_client_ends_its_recorded_former_instance() {
    let mut engine = common::after(&["me", "other"]);
    let me = engine.exchange_id(START, &named("me", 2)).unwrap();
    assert!(engine.take_effects(START).forget.is_empty(), "the new instance isn't confirmed");
    engine.create_session(START, &creation(me.client, me.sequence)).unwrap();
    assert_eq!(engine.take_effects(START).forget, [recorded("me")], "before CREATE_SESSION is answered");
    // The former instance, if it is there after all, is a client that has lost its state.
    let (former, _) = fresh(&mut engine, START, "me");
    assert_eq!(reclaim(&mut engine, START, former, 1), Err(Error::NoGrace));
    assert!(engine.in_grace(START), "the other one may reclaim");
    let (other, _) = fresh(&mut engine, START, "other");
    engine.reclaim_complete(&root(other)).unwrap();
    assert!(!engine.in_grace(START));

    // The same in 4.0.
    let mut engine = common::after(&["zero"]);
    let asked = SetClientId { owner: b"zero", peer: HERE, verifier: [2; 8], principal: &ROOT };
    let (zero, confirm) = engine.setclientid(START, &asked).unwrap();
    assert!(engine.in_grace(START));
    engine.setclientid_confirm(START, zero, confirm, &ROOT).unwrap();
    assert_eq!(engine.take_effects(START).forget, [recorded("zero")]);
    assert!(!engine.in_grace(START));

    // And with the clients of another server, which a server of a cluster accepts.
    let mut engine = common::engine();
    engine.accept_reclaims(START, [record("me")], false, LEASE);
    assert!(engine.in_grace(START));
    let me = engine.exchange_id(START, &named("me", 2)).unwrap();
    engine.create_session(START, &creation(me.client, me.sequence)).unwrap();
    assert!(!engine.is_reclaiming(START));
}

/// The attack: names are easy to guess. A stranger with a client's name, another user of the client's host, a
/// peer that is several users, and anybody where the record doesn't say whose it is, end no record.
#[test]
fn others_do_not_end_a_recorded_client() {
    let held = |peer, principal| ClientRecord { holder: RecordHolder::new(peer, principal), ..record("me") };
    let cases = [
        (held(HERE, &ROOT), THERE, &ROOT),
        (held(HERE, &ROOT), HERE, &OTHER),
        (held(HERE, &ROOT), HERE, &Principal::Anonymous),
        (held(Peer::Local(0), &ROOT), Peer::Local(1000), &ROOT),
        (held(Peer::Local(0), &ROOT), HERE, &ROOT),
        (held(Peer::LocalUnknown, &ROOT), Peer::LocalUnknown, &ROOT),
        (ClientRecord { holder: None, ..record("me") }, HERE, &ROOT),
    ];
    for (record, peer, principal) in cases {
        let mut engine = common::with_records([record.clone()]);
        let asked = state::ExchangeId { peer, principal, ..named("me", 2) };
        let thief = engine.exchange_id(START, &asked).unwrap();
        let request = state::CreateSession { principal, ..creation(thief.client, thief.sequence) };
        engine.create_session(START, &request).unwrap();
        let by = state::Requester { client: thief.client, principal: principal.clone() };
        engine.reclaim_complete(&by).unwrap();
        assert!(engine.in_grace(START) && engine.take_effects(START).forget.is_empty(), "{record:?}, {peer}");
        // The client reclaims, wherever it comes from.
        let (me, _) = fresh(&mut engine, START, "me");
        reclaim(&mut engine, START, me, 1).unwrap();
    }
}

/// A client may move to another address. Then it is that address which may end its record.
#[test]
fn a_record_is_held_from_where_the_client_is() {
    let mut engine = common::after(&["me"]);
    let moved = |verifier| state::ExchangeId { peer: THERE, ..named("me", verifier) };
    let me = engine.exchange_id(START, &moved(1)).unwrap();
    engine.create_session(START, &creation(me.client, me.sequence)).unwrap();
    // Another client at the former address doesn't end one that is back.
    let other = engine.exchange_id(START, &named("me", 2)).unwrap();
    engine.create_session(START, &creation(other.client, other.sequence)).unwrap();
    assert!(engine.take_effects(START).forget.is_empty());
    reclaim(&mut engine, START, me.client, 1).unwrap();
    engine.reclaim_complete(&root(me.client)).unwrap();
    let now = ClientRecord { holder: RecordHolder::new(THERE, &ROOT), ..record("me") };
    assert_eq!(engine.take_effects(START).remember, std::slice::from_ref(&now));
    for (ends, peer) in [(false, HERE), (true, THERE)] {
        let mut engine = common::with_records([now.clone()]);
        let next = engine.exchange_id(START, &state::ExchangeId { peer, ..named("me", 3) }).unwrap();
        engine.create_session(START, &creation(next.client, next.sequence)).unwrap();
        assert_eq!(engine.in_grace(START), !ends, "{peer}");
    }
}

/// A restarted client has nothing to reclaim, and a client that only knows another's name can't send
/// RECLAIM_COMPLETE for it.
#[test]
fn instances_reclaim_not_names() {
    let unheld = ClientRecord { holder: None, ..record("me") };
    let mut engine = common::with_records([unheld]);
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
