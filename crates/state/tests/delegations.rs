//! Delegations: when they are granted, what recalls them, and what happens if they aren't returned.

use crate::common::{
    COURTESY, DISTRUST, HERE, LEASE, Machine, ROOT, after, any, begin, client, engine, fresh, open, record,
    recorded, root, wants,
};
use fairness::Peer;
use state::{
    AccessKind, ClientId, DelegationRequest, Direction, Error, NoDelegation, RecallTimeout, SessionId,
    SetClientId, Share, StateId, Time,
};

const NOW: Time = Time(5000);
const FILE: u32 = 1;

/// Opens the file and gets a delegation.
fn delegate(engine: &mut Machine, now: Time, client: ClientId, key: &u32, access: u8) -> StateId {
    engine.open(now, &open(client, "o", key, access, 0)).unwrap();
    let begun = engine.delegate_begin(now, &wants(&root(client), key, access & 2 != 0)).unwrap();
    engine.delegate_done(&begun).unwrap()
}

fn refused(engine: &mut Machine, now: Time, client: ClientId, writes: bool) -> NoDelegation {
    engine.delegate_begin(now, &wants(&root(client), &FILE, writes)).map(drop).unwrap_err()
}

#[test]
fn readers_share_a_file_and_a_writer_recalls_all_of_them() {
    let mut engine = engine();
    let [(me, _), (other, _), (third, session)] =
        ["me", "other", "third"].map(|name| client(&mut engine, NOW, name));
    let mine = delegate(&mut engine, NOW, me, &FILE, 1);
    let others = delegate(&mut engine, NOW, other, &FILE, 1);
    assert_eq!(engine.delegated(), [2, 0]);
    assert_eq!(refused(&mut engine, NOW, me, false), NoDelegation::Held);
    assert_eq!(engine.check_open(NOW, &open(third, "o", &FILE, 1, 0)), Ok(()));
    assert_eq!(engine.open(NOW, &open(third, "o", &FILE, 2, 0)), Err(Error::Delay));
    let recalls = engine.take_effects(NOW).recalls;
    assert_eq!(
        recalls.iter().map(|recall| (recall.client, recall.id)).collect::<Vec<_>>(),
        [(me, mine), (other, others)]
    );
    assert_eq!(engine.open(NOW, &open(third, "o", &FILE, 2, 0)), Err(Error::Delay), "not yet");
    assert!(engine.take_effects(NOW).recalls.is_empty(), "once");
    engine.delegreturn(NOW, &root(me), &mine, &FILE).unwrap();
    engine.delegreturn(NOW, &root(other), &any(others), &FILE).unwrap();
    assert_eq!(engine.delegreturn(NOW, &root(other), &others, &FILE), Err(Error::BadStateid));
    engine.open(NOW, &open(third, "o", &FILE, 2, 0)).unwrap();
    assert_eq!(refused(&mut engine, NOW, me, false), NoDelegation::Contention, "a client writes");
    begin(&mut engine, NOW, session, 0, 1);
    assert_eq!(engine.delegated(), [0, 0]);
}

#[test]
fn a_delegation_does_not_conflict_with_its_own_client() {
    let mut engine = engine();
    let [(me, _), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let mine = delegate(&mut engine, NOW, me, &FILE, 1);
    engine.open(NOW, &open(me, "o", &FILE, 3, 0)).unwrap();
    for touch in [
        AccessKind::Read,
        AccessKind::Write,
        AccessKind::Change,
        AccessKind::Open(Share { access: 3, deny: 0 }),
    ] {
        assert_eq!(engine.check_conflicts(NOW, Some(me), &FILE, touch), Ok(()), "{touch:?}");
    }
    for touch in [AccessKind::Read, AccessKind::Open(Share { access: 1, deny: 0 })] {
        assert_eq!(engine.check_conflicts(NOW, None, &FILE, touch), Ok(()), "{touch:?}");
    }
    assert!(engine.take_effects(NOW).recalls.is_empty());
    engine.check_delegation(me, &mine, &FILE, 1).unwrap();
    assert_eq!(engine.check_delegation(me, &mine, &FILE, 2), Err(Error::Openmode));
    let mut io = |client, direction| engine.check_io(NOW, Some(client), &mine, &FILE, direction);
    assert_eq!(io(me, Direction::Read), Ok(()));
    assert_eq!(io(me, Direction::Write), Err(Error::Openmode));
    assert_eq!(io(other, Direction::Read), Err(Error::BadStateid));
    assert_eq!(engine.check_conflicts(NOW, None, &FILE, AccessKind::Change), Err(Error::Delay), "NFSv3");
    assert_eq!(engine.take_effects(NOW).recalls.len(), 1);
}

#[test]
fn a_delegation_for_writing_is_alone() {
    let mut engine = engine();
    let [(me, _), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let mine = delegate(&mut engine, NOW, me, &FILE, 3);
    assert_eq!(engine.write_delegation(Some(me), &FILE).map(|writer| writer.id), None);
    assert_eq!(
        engine.write_delegation(None, &FILE).map(|writer| (writer.client, writer.id)),
        Some((me, mine))
    );
    engine.check_io(NOW, Some(me), &mine, &FILE, Direction::Write).unwrap();
    let read = engine.check_io(NOW, Some(other), &StateId::ANONYMOUS, &FILE, Direction::Read);
    assert_eq!(read, Err(Error::Delay));
    assert_eq!(engine.open(NOW, &open(other, "o", &FILE, 1, 0)), Err(Error::Delay));
    engine.delegreturn(NOW, &root(me), &mine, &FILE).unwrap();
    engine.open(NOW, &open(other, "o", &FILE, 1, 0)).unwrap();
    assert_eq!(refused(&mut engine, NOW, other, false), NoDelegation::Contention, "the first may write");
    assert_eq!(refused(&mut engine, NOW, me, true), NoDelegation::Contention, "another reads");
}

#[test]
fn an_open_that_denies_reading_recalls_readers() {
    let mut engine = engine();
    let [(me, _), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let mine = delegate(&mut engine, NOW, me, &FILE, 1);
    let deny = open(other, "o", &FILE, 1, 1);
    assert_eq!(engine.open(NOW, &deny), Err(Error::ShareDenied), "the open itself comes first");
    assert!(engine.take_effects(NOW).recalls.is_empty());
    engine.delegreturn(NOW, &root(me), &mine, &FILE).unwrap();
}

#[test]
fn a_delegation_not_returned_within_a_lease_is_revoked_and_the_holder_is_informed() {
    let mut engine = engine();
    let [(me, session), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let mine = delegate(&mut engine, NOW, me, &FILE, 1);
    assert_eq!(engine.open(NOW, &open(other, "o", &FILE, 2, 0)), Err(Error::Delay));
    let later = NOW.plus(LEASE - 1);
    assert!(!begin(&mut engine, later, session, 0, 1).revoked);
    assert_eq!(engine.check_conflicts(later, None, &FILE, AccessKind::Write), Err(Error::Delay));
    let late = NOW.plus(LEASE);
    engine.take_effects(NOW).remember.clear();
    engine.open(late, &open(other, "o", &FILE, 2, 0)).unwrap();
    // After a restart it could reclaim what the other has had, so it may reclaim nothing until it has
    // acknowledged the revocation.
    engine.open(late, &open(me, "o", &9, 1, 0)).unwrap();
    let effects = engine.take_effects(late);
    assert_eq!((effects.forget, effects.remember), (vec![recorded("me")], vec![]));
    assert_eq!(engine.test_stateid(me, &mine), Err(Error::DelegRevoked));
    let io = engine.check_io(late, Some(me), &mine, &FILE, Direction::Read);
    assert_eq!(io, Err(Error::DelegRevoked));
    assert!(begin(&mut engine, late, session, 1, 1).revoked);
    engine.free_stateid(&root(me), &mine).unwrap();
    assert_eq!(engine.take_effects(late).remember, [record("me")]);
    assert!(!begin(&mut engine, late, session, 2, 1).revoked);
    assert_eq!(engine.test_stateid(me, &mine), Err(Error::BadStateid));
}

#[test]
fn a_local_process_waits_no_longer_than_its_timeout() {
    let mut engine = engine();
    let (me, session) = client(&mut engine, NOW, "me");
    let mine = delegate(&mut engine, NOW, me, &FILE, 1);
    engine.recall_for_local_open(NOW, &FILE, false, RecallTimeout { writers: 300, readers: 100 });
    assert!(engine.take_effects(NOW).recalls.is_empty(), "a reader");
    engine.recall_for_local_open(NOW, &FILE, true, RecallTimeout { writers: 300, readers: 100 });
    engine.recall_for_local_open(NOW, &FILE, true, RecallTimeout { writers: 300, readers: 100 });
    assert_eq!(engine.take_effects(NOW).recalls.len(), 1);
    begin(&mut engine, NOW, session, 0, 1);
    engine.tick(NOW.plus(299));
    assert_eq!(engine.test_stateid(me, &mine), Ok(()));
    engine.tick(NOW.plus(300));
    assert_eq!(engine.test_stateid(me, &mine), Err(Error::DelegRevoked));
    assert_eq!(engine.take_effects(NOW).released.len(), 1, "the kernel lease is released");
    assert_eq!(engine.delegreturn(NOW, &root(me), &mine, &FILE), Ok(()), "the revocation is acknowledged");
    assert_eq!(engine.delegreturn(NOW, &root(me), &mine, &FILE), Err(Error::BadStateid));
}

#[test]
fn a_conflict_between_begin_and_done_wins() {
    let mut engine = engine();
    let [(me, _), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    engine.open(NOW, &open(me, "o", &FILE, 1, 0)).unwrap();
    let begun = engine.delegate_begin(NOW, &wants(&root(me), &FILE, false)).unwrap();
    assert_eq!(engine.open(NOW, &open(other, "o", &FILE, 2, 0)), Err(Error::Delay));
    assert!(engine.take_effects(NOW).recalls.is_empty(), "the client doesn't know of it");
    assert_eq!(engine.delegate_done(&begun), None);
    engine.open(NOW, &open(other, "o", &FILE, 2, 0)).unwrap();
    assert_eq!(engine.delegated(), [0, 0]);
    let begun = engine.delegate_begin(NOW, &wants(&root(other), &2, true)).expect("it is not open");
    engine.delegate_failed(&begun);
    assert!(!engine.is_open(&2));
}

#[test]
fn a_contended_file_is_not_delegated_for_a_lease() {
    let mut engine = engine();
    let [(me, session), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let mine = delegate(&mut engine, NOW, me, &FILE, 1);
    assert_eq!(engine.check_conflicts(NOW, Some(other), &FILE, AccessKind::Change), Err(Error::Delay));
    engine.delegreturn(NOW, &root(me), &mine, &FILE).unwrap();
    assert_eq!(refused(&mut engine, NOW.plus(LEASE - 1), me, false), NoDelegation::Contention);
    begin(&mut engine, NOW.plus(LEASE), session, 0, 1);
    let again = engine.delegate_begin(NOW.plus(LEASE), &wants(&root(me), &FILE, false)).unwrap();
    engine.delegate_failed(&again);
    assert_eq!(engine.delegated(), [0, 0]);
}

#[test]
fn a_courtesy_client_loses_its_delegations_with_everything_else() {
    let mut engine = engine();
    let [(me, _), (other, session)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    delegate(&mut engine, NOW, me, &FILE, 3);
    let late = NOW.plus(LEASE + 1);
    begin(&mut engine, NOW.plus(LEASE), session, 0, 1);
    engine.tick(late);
    assert_eq!(engine.delegated(), [0, 1], "there is no conflict");
    engine.open(late, &open(other, "o", &FILE, 1, 0)).unwrap();
    let effects = engine.take_effects(NOW);
    assert_eq!((effects.ended, effects.recalls.len(), effects.released.len()), (vec![me], 0, 1));
    engine.tick(late.plus(LEASE + COURTESY));
    assert_eq!(engine.delegated(), [0, 0]);
}

#[test]
fn delegations_are_limited_and_the_largest_holder_is_asked_to_return_some() {
    let mut engine = engine();
    let names = ["a", "b", "c"].map(|name| client(&mut engine, NOW, name).0);
    for (at, client) in names.iter().take(2).enumerate() {
        for file in 0..4 {
            delegate(&mut engine, NOW, *client, &(100 * at as u32 + file), 1);
        }
    }
    engine.open(NOW, &open(names[0], "o", &FILE, 1, 0)).unwrap();
    engine.open(NOW, &open(names[2], "o", &50, 1, 0)).unwrap();
    let refused = |engine: &mut Machine, client, key| {
        engine.delegate_begin(NOW, &wants(&root(client), key, false)).map(drop)
    };
    assert_eq!(refused(&mut engine, names[0], &50), Err(NoDelegation::Resource));
    assert_eq!(engine.take_effects(NOW).recall_any, [(names[0], 3)]);
    assert_eq!(refused(&mut engine, names[0], &50), Err(NoDelegation::Resource));
    assert!(engine.take_effects(NOW).recall_any.is_empty(), "once in a while");
    assert_eq!(refused(&mut engine, names[2], &50), Err(NoDelegation::Resource));
    assert_eq!(
        engine.take_effects(NOW).recall_any,
        [(names[1], 3)],
        "the largest holder among those that weren't asked"
    );
}

#[test]
fn delegations_are_reclaimed_after_a_restart() {
    let mut engine = after(&["me"]);
    let start = Time(10);
    let (me, session) = fresh(&mut engine, start, "me");
    let reclaimed = state::OpenRequest { reclaim: true, ..open(me, "o", &FILE, 3, 0) };
    engine.open(start, &reclaimed).unwrap();
    let begun = engine
        .delegate_begin(start, &DelegationRequest { reclaim: true, ..wants(&root(me), &FILE, true) })
        .unwrap();
    let id = engine.delegate_done(&begun).unwrap();
    engine.check_io(start, Some(me), &id, &FILE, Direction::Write).unwrap();
    engine.open(start, &state::OpenRequest { reclaim: true, ..open(me, "o", &2, 3, 0) }).unwrap();
    let begun = engine
        .delegate_begin(start, &DelegationRequest { reclaim: true, ..wants(&root(me), &2, true) })
        .unwrap();
    let back = engine.delegate_and_recall(start, &begun).unwrap();
    assert_eq!(engine.take_effects(NOW).recalls.iter().map(|recall| recall.id).collect::<Vec<_>>(), [back]);
    begin(&mut engine, start, session, 0, 1);
}

#[test]
fn a_client_of_version_0_learns_that_its_delegation_has_expired() {
    let mut engine = engine();
    let asked = SetClientId { owner: b"old", peer: HERE, verifier: [1; 8], principal: &ROOT };
    let (old, confirm) = engine.setclientid(NOW, &asked).unwrap();
    engine.setclientid_confirm(NOW, old, confirm, &ROOT).unwrap();
    let mine = delegate(&mut engine, NOW, old, &FILE, 1);
    assert!(engine.holds_delegations(old));
    assert_eq!(engine.check_conflicts(NOW, None, &FILE, AccessKind::Write), Err(Error::Delay));
    let late = NOW.plus(LEASE);
    engine.renew40(late, old).unwrap();
    engine.check_conflicts(late, None, &FILE, AccessKind::Write).unwrap();
    let effects = engine.take_effects(late);
    assert_eq!((effects.forget, effects.remember), (vec![recorded("old")], vec![]));
    assert_eq!(engine.check_delegation(old, &mine, &FILE, 1), Err(Error::Expired));
    for (time, remembered) in [("first", vec![record("old")]), ("second", vec![])] {
        assert_eq!(engine.client_of(late, &mine), Err(Error::Expired), "the {time} time");
        assert_eq!(engine.take_effects(late).remember, remembered, "the {time} time");
    }
    assert!(!engine.holds_delegations(old));
}

/// A request, which renews the lease.
fn renew(engine: &mut Machine, now: Time, session: SessionId, sequence: u32) {
    let ticket = begin(engine, now, session, 0, sequence);
    engine.finish(&ticket, None);
}

/// A client with read-only access to root's files, and others at its address: in any case root's own opens
/// wait for them only once.
#[test]
fn readers_that_do_not_return_their_delegations_delay_a_local_process_once() {
    const TIMEOUT: RecallTimeout = RecallTimeout { writers: LEASE, readers: 100 };
    const PEER: Peer = Peer::V4([192, 0, 2, 1]);
    const FILES: u32 = 6;
    // They return nothing, or return at the last moment, or fall silent.
    for (returns, silent) in [(false, false), (true, false), (false, true)] {
        let mut engine = engine();
        let mut now = NOW;
        let clients = ["a", "b", "c"].map(|name| client(&mut engine, now, name));
        let mut requests = 0;
        let (mut waited, mut given) = (0, std::collections::BTreeMap::new());
        for round in 0..3 {
            for file in 0..FILES {
                // Each of them has as many delegations as it gets.
                for of in 0..FILES {
                    for (client, _) in clients {
                        if engine.open(now, &open(client, "o", &of, 1, 0)).is_err() {
                            continue;
                        }
                        let by = root(client);
                        let asked =
                            DelegationRequest { peer: PEER, may_write: false, ..wants(&by, &of, false) };
                        if let Ok(begun) = engine.delegate_begin(now, &asked) {
                            given.insert((of, client), engine.delegate_done(&begun).unwrap());
                        }
                    }
                }
                assert!(
                    round + file == 0 || given.is_empty() || now < NOW.plus(2 * LEASE),
                    "nothing is delegated"
                );
                engine.recall_for_local_open(now, &file, true, TIMEOUT);
                let start = now;
                let waits = |engine: &Machine| {
                    clients.iter().any(|(client, _)| engine.holds_delegation_of(*client, &file))
                };
                while waits(&engine) {
                    now = now.plus(1);
                    requests += 1;
                    if !silent {
                        for (_, session) in &clients {
                            renew(&mut engine, now, *session, requests);
                        }
                    }
                    if returns && now.0 - start.0 == TIMEOUT.readers - 1 {
                        for ((_, client), id) in given.iter().filter(|((of, _), _)| *of == file) {
                            let _ = engine.delegreturn(now, &root(*client), &any(*id), &file);
                        }
                    }
                    engine.tick(now);
                }
                waited += now.0 - start.0;
                given.retain(|(of, client), _| engine.holds_delegation_of(*client, of));
            }
        }
        // The first file alone, and then all the others together.
        assert!(waited <= TIMEOUT.readers + LEASE, "{waited}");
        assert!(waited >= TIMEOUT.readers - 1, "{waited}");
        // Other clients get delegations of other files.
        let (third, _) = client(&mut engine, now, "third");
        delegate(&mut engine, now, third, &FILES, 1);
    }
}

#[test]
fn a_file_with_a_revoked_delegation_is_not_delegated_for_long() {
    let mut engine = engine();
    let [(me, _), (other, session)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    delegate(&mut engine, NOW, me, &FILE, 1);
    let timeout = RecallTimeout { writers: 300, readers: 100 };
    engine.recall_for_local_open(NOW, &FILE, true, timeout);
    let late = NOW.plus(300);
    engine.tick(late);
    for now in [late, late.plus(DISTRUST - 1)] {
        renew(&mut engine, now, session, 1 + u32::from(now > late));
        assert_eq!(refused(&mut engine, now, other, false), NoDelegation::Contention, "for any client");
    }
    renew(&mut engine, late.plus(DISTRUST), session, 3);
    delegate(&mut engine, late.plus(DISTRUST), other, &FILE, 1);
}

#[test]
fn a_revocation_recalls_all_delegations_of_the_client_and_bars_it_for_long() {
    let mut engine = engine();
    let (me, session) = client(&mut engine, NOW, "me");
    delegate(&mut engine, NOW, me, &FILE, 1);
    let kept = delegate(&mut engine, NOW, me, &2, 1);
    engine.recall_for_local_open(NOW, &FILE, true, RecallTimeout { writers: 300, readers: 100 });
    assert_eq!(engine.take_effects(NOW).recalls.len(), 1);
    renew(&mut engine, NOW.plus(300), session, 1);
    engine.tick(NOW.plus(300));
    let recalls = engine.take_effects(NOW).recalls;
    assert_eq!(recalls.iter().map(|recall| recall.id).collect::<Vec<_>>(), [kept]);
    engine.delegreturn(NOW.plus(301), &root(me), &kept, &2).unwrap();
    let wants =
        |engine: &mut Machine, now| engine.delegate_begin(now, &wants(&root(me), &3, false)).map(drop);
    engine.open(NOW.plus(301), &open(me, "o", &3, 1, 0)).unwrap();
    renew(&mut engine, NOW.plus(DISTRUST), session, 2);
    assert_eq!(wants(&mut engine, NOW.plus(DISTRUST)), Err(NoDelegation::Distrusted));
    assert_eq!(wants(&mut engine, NOW.plus(300 + DISTRUST)), Ok(()));
}

#[test]
fn a_client_that_falls_silent_over_a_recall_is_distrusted_as_well() {
    let mut engine = engine();
    let [(me, _), (other, session)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    delegate(&mut engine, NOW, me, &FILE, 1);
    let half = NOW.plus(LEASE / 2);
    assert_eq!(engine.open(half, &open(other, "o", &FILE, 2, 0)), Err(Error::Delay));
    // Its lease expires before the delegation would be revoked.
    let late = NOW.plus(LEASE + 1);
    renew(&mut engine, late, session, 1);
    engine.open(late, &open(other, "o", &FILE, 2, 0)).unwrap();
    assert_eq!(engine.take_effects(late).ended, [me]);
    assert!(!engine.holds_delegation_of(me, &FILE));
    let by = root(other);
    let same_peer = DelegationRequest { peer: wants(&root(me), &2, false).peer, ..wants(&by, &2, false) };
    engine.open(late, &open(other, "o", &2, 1, 0)).unwrap();
    assert_eq!(engine.delegate_begin(late, &same_peer).map(drop), Err(NoDelegation::Distrusted));
    assert_eq!(refused(&mut engine, late.plus(2 * LEASE), other, true), NoDelegation::Contention);
}
