//! Client ids, sessions, and exactly-once semantics.

use crate::common::{
    self, COURTESY, LEASE, OTHER, ROOT, THERE, begin, client, creation, engine, named, open, recorded,
    request, root,
};
use state::{
    ChannelAttrs, ClientId, CreateSession, Error, ExchangeId, Sequence, SequenceResult, SessionId, Time,
};

const NOW: Time = Time(5000);

/// The cases of RFC 8881 section 18.35.4, by number.
#[test]
fn exchange_id_has_nine_cases() {
    let mut engine = engine();
    // 1: a new owner id.
    let new = engine.exchange_id(NOW, &named("a", 1)).unwrap();
    assert!(!new.confirmed);
    // 4: unconfirmed, it is replaced.
    let again = engine.exchange_id(NOW, &named("a", 1)).unwrap();
    assert!(again.client != new.client && !again.confirmed);
    assert_eq!(engine.create_session(NOW, &creation(new.client, 1)), Err(Error::StaleClientid));
    // 7: nothing confirmed to update.
    let update = ExchangeId { update: true, ..named("a", 1) };
    assert_eq!(engine.exchange_id(NOW, &update), Err(Error::Noent));
    engine.create_session(NOW, &creation(again.client, again.sequence)).unwrap();
    engine.reclaim_complete(&root(again.client)).unwrap();
    // 2: repeated by the same instance.
    let same = engine.exchange_id(NOW, &named("a", 1)).unwrap();
    assert_eq!((same.client, same.confirmed, same.sequence), (again.client, true, 2));
    // 6, 8, 9: updates.
    assert_eq!(engine.exchange_id(NOW, &update).unwrap(), same);
    assert_eq!(engine.exchange_id(NOW, &ExchangeId { verifier: [9; 8], ..update }), Err(Error::NotSame));
    assert_eq!(engine.exchange_id(NOW, &ExchangeId { principal: &OTHER, ..update }), Err(Error::Perm));
    // 3: another principal's, with and without state, and after the lease.
    let other_user = ExchangeId { principal: &OTHER, ..named("a", 1) };
    let id = engine.open(NOW, &open(again.client, "o", &1, 1, 0)).unwrap();
    assert_eq!(engine.exchange_id(NOW, &other_user), Err(Error::ClidInuse));
    assert_eq!(engine.exchange_id(NOW.plus(LEASE + 1), &other_user).map(|e| e.confirmed), Ok(false));
    assert_eq!(engine.test_stateid(again.client, &id), Err(Error::BadStateid));
}

/// Case 5: the old instance's state stays until the new one has a session.
#[test]
fn a_restarted_client_loses_its_state_when_it_is_confirmed() {
    let mut engine = engine();
    let (old, session) = client(&mut engine, NOW, "a");
    let id = engine.open(NOW, &open(old, "o", &1, 3, 3)).unwrap();
    let new = engine.exchange_id(NOW, &named("a", 2)).unwrap();
    assert!(!new.confirmed && new.client != old);
    assert_eq!(engine.test_stateid(old, &id), Ok(()));
    engine.create_session(NOW, &creation(new.client, new.sequence)).unwrap();
    assert_eq!(engine.test_stateid(old, &id), Err(Error::BadStateid));
    assert_eq!(engine.sequence(NOW, &request(session, 0, 1)), Err(Error::BadSession));
    assert_eq!(engine.take_effects(NOW).forget, [recorded("a")], "the old instance has nothing to reclaim");
}

#[test]
fn create_session_repeats_its_reply_to_a_retry() {
    let mut engine = engine();
    let exchanged = engine.exchange_id(NOW, &named("a", 1)).unwrap();
    let asked = creation(exchanged.client, exchanged.sequence);
    let misordered = CreateSession { sequence: 5, ..asked };
    assert_eq!(engine.create_session(NOW, &misordered), Err(Error::SeqMisordered));
    let replay_of_none = CreateSession { sequence: 0, ..asked };
    assert_eq!(engine.create_session(NOW, &replay_of_none), Err(Error::SeqMisordered));
    assert_eq!(
        engine.create_session(NOW, &CreateSession { principal: &OTHER, ..asked }),
        Err(Error::ClidInuse)
    );
    let tiny = ChannelAttrs { request: 10, ..asked.channel };
    assert_eq!(engine.create_session(NOW, &CreateSession { channel: tiny, ..asked }), Err(Error::Toosmall));
    let huge =
        ChannelAttrs { request: u32::MAX, response: u32::MAX, cached: u32::MAX, operations: 99, slots: 99 };
    let created = engine.create_session(NOW, &CreateSession { channel: huge, ..asked }).unwrap();
    assert_eq!(created.channel, common::CHANNEL);
    assert_eq!(engine.create_session(NOW, &asked), Ok(created), "a retry");
    let more = engine.create_session(NOW, &CreateSession { sequence: 2, ..asked }).unwrap();
    assert_ne!(more.session, created.session);
    assert_eq!(engine.create_session(NOW, &creation(ClientId(99), 1)), Err(Error::StaleClientid));
    assert_eq!(engine.take_effects(NOW).remember, [], "it has nothing to reclaim");
}

#[test]
fn a_slot_runs_each_request_once() {
    let mut engine = engine();
    let (_, session) = client(&mut engine, NOW, "a");
    let first = begin(&mut engine, NOW, session, 0, 1);
    assert_eq!(engine.sequence(NOW, &request(session, 0, 1)), Err(Error::Delay), "it is running");
    assert_eq!(engine.sequence(NOW, &request(session, 0, 2)), Err(Error::Delay));
    let other = begin(&mut engine, NOW, session, 1, 1);
    engine.finish(&first, Some(b"reply"));
    engine.finish(&other, None);
    assert_eq!(
        engine.sequence(NOW, &request(session, 0, 1)),
        Ok(SequenceResult::Replay(b"reply"[..].into()))
    );
    let false_retry = Sequence { fingerprint: 2, ..request(session, 0, 1) };
    assert_eq!(engine.sequence(NOW, &false_retry), Err(Error::SeqFalseRetry));
    assert_eq!(engine.sequence(NOW, &request(session, 1, 1)), Err(Error::RetryUncachedRep));
    assert_eq!(engine.sequence(NOW, &request(session, 0, 3)), Err(Error::SeqMisordered));
    assert_eq!(engine.sequence(NOW, &request(session, 2, 0)), Err(Error::SeqMisordered), "never used");
    begin(&mut engine, NOW, session, 0, 2);
}

#[test]
fn a_session_limits_its_requests() {
    let mut engine = engine();
    let (_, session) = client(&mut engine, NOW, "a");
    let asked = request(session, 0, 1);
    for (bad, error) in [
        (Sequence { session: SessionId([0; 16]), ..asked }, Error::BadSession),
        (Sequence { slot: 4, highest_slot: 9, ..asked }, Error::BadSlot),
        (Sequence { slot: 2, highest_slot: 1, ..asked }, Error::BadHighSlot),
        (Sequence { length: 4097, ..asked }, Error::ReqTooBig),
        (Sequence { operations: 9, ..asked }, Error::TooManyOps),
    ] {
        assert_eq!(engine.sequence(NOW, &bad), Err(error));
    }
    begin(&mut engine, NOW, session, 0, 1);
}

#[test]
fn sessions_and_clients_can_be_destroyed_when_unused() {
    let mut engine = engine();
    let (client, session) = client(&mut engine, NOW, "a");
    let running = begin(&mut engine, NOW, session, 0, 1);
    assert_eq!(engine.destroy_clientid(&root(client)), Err(Error::ClientidBusy));
    assert_eq!(engine.destroy_session(session, &ROOT, None), Err(Error::Delay));
    assert_eq!(engine.destroy_session(session, &ROOT, Some(0)), Ok(()), "by its own request");
    engine.finish(&running, Some(b"not requested again"));
    assert_eq!(engine.destroy_session(session, &ROOT, None), Err(Error::BadSession));
    let id = engine.open(NOW, &open(client, "o", &1, 1, 0)).unwrap();
    assert_eq!(engine.destroy_clientid(&root(client)), Err(Error::ClientidBusy));
    engine.close(&root(client), &id, &1).unwrap();
    engine.take_effects(NOW).remember.clear();
    assert_eq!(engine.destroy_clientid(&root(client)), Ok(()));
    assert_eq!(engine.destroy_clientid(&root(client)), Err(Error::StaleClientid));
    assert_eq!(engine.take_effects(NOW).forget, [recorded("a")]);
    assert_eq!(engine.counts(), (0, 0, 0));
}

#[test]
fn clients_without_state_expire_with_the_lease_and_others_later() {
    let mut engine = engine();
    let unconfirmed = engine.exchange_id(NOW, &named("never", 1)).unwrap();
    let (_idle, _) = client(&mut engine, NOW, "idle");
    let (busy, session) = client(&mut engine, NOW, "busy");
    let id = engine.open(NOW, &open(busy, "o", &1, 3, 3)).unwrap();
    engine.tick(NOW.plus(LEASE));
    assert_eq!(engine.counts().0, 3);
    engine.tick(NOW.plus(LEASE + 1));
    assert_eq!(engine.counts().0, 1);
    assert_eq!(engine.create_session(NOW, &creation(unconfirmed.client, 1)), Err(Error::StaleClientid));
    // It comes back before another client has a conflict.
    let late = NOW.plus(LEASE + COURTESY);
    begin(&mut engine, late, session, 0, 1);
    assert_eq!(engine.test_stateid(busy, &id), Ok(()));
    engine.tick(late.plus(LEASE + COURTESY + 1));
    assert_eq!(engine.counts(), (0, 0, 0));
}

#[test]
fn an_excess_client_replaces_the_one_that_expired_first() {
    let mut engine = engine();
    for number in 0_u64..8 {
        client(&mut engine, NOW.plus(number), &format!("c{number}"));
    }
    let asked = named("one more", 1);
    assert_eq!(engine.exchange_id(NOW.plus(8), &asked), Err(Error::Delay));
    let later = NOW.plus(LEASE + 2);
    engine.exchange_id(later, &asked).unwrap();
    let again = engine.exchange_id(later, &named("c0", 1)).unwrap();
    assert!(!again.confirmed, "c0 was the oldest; c1 is removed for its return");
    assert!(engine.exchange_id(later, &named("c2", 1)).unwrap().confirmed);
}

/// Client names can be guessed, and AUTH_SYS lets every host act as root: a client with the same name from
/// another address is another client.
#[test]
fn an_impostor_with_a_clients_name_neither_ends_nor_blocks_it() {
    let mut engine = engine();
    let impostor = |verifier| ExchangeId { peer: THERE, ..named("a", verifier) };
    let arrives = |engine: &mut common::Machine, asked: &ExchangeId<'_>| {
        let made = engine.exchange_id(NOW, asked).unwrap();
        assert!(!made.confirmed);
        let asked = creation(made.client, made.sequence);
        (made.client, engine.create_session(NOW, &asked).unwrap().session)
    };
    // The impostor is first, and repeats its attempts; the client is accepted all the same.
    let (his_id, his_session) = arrives(&mut engine, &impostor(8));
    let (me, mine) = client(&mut engine, NOW, "a");
    let id = engine.open(NOW, &open(me, "o", &1, 3, 3)).unwrap();
    let unconfirmed = engine.exchange_id(NOW, &named("a", 2)).unwrap();
    for verifier in [9, 10] {
        let (next, _) = arrives(&mut engine, &impostor(verifier));
        assert!(next != his_id && next != me);
    }
    assert_eq!(engine.sequence(NOW, &request(his_session, 0, 1)), Err(Error::BadSession), "he has restarted");
    assert_eq!(engine.test_stateid(me, &id), Ok(()));
    begin(&mut engine, NOW, mine, 0, 1);
    // The client's restart ends its own state, but not the impostor's.
    let (clients, _, states) = engine.counts();
    engine.create_session(NOW, &creation(unconfirmed.client, unconfirmed.sequence)).unwrap();
    assert_eq!((engine.counts().0, engine.counts().2), (clients - 1, states - 1));
}

/// The same instance is the same client at any address: it may have two addresses, or a new one.
#[test]
fn a_client_may_have_several_addresses() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "a");
    let elsewhere = ExchangeId { peer: THERE, ..named("a", 1) };
    let same = engine.exchange_id(NOW, &elsewhere).unwrap();
    assert_eq!((same.client, same.confirmed), (me, true));
    engine.create_session(NOW, &creation(me, same.sequence)).unwrap();
    engine.exchange_id(NOW, &ExchangeId { update: true, ..elsewhere }).unwrap();
    engine.open(NOW, &open(me, "o", &1, 3, 3)).unwrap();
    assert_eq!(
        engine.exchange_id(NOW, &ExchangeId { principal: &OTHER, ..elsewhere }),
        Err(Error::ClidInuse)
    );
    // After a restart at the other address its old state is protected for a lease.
    let restarted = engine.exchange_id(NOW, &ExchangeId { verifier: [2; 8], ..elsewhere }).unwrap();
    engine.create_session(NOW, &creation(restarted.client, 1)).unwrap();
    engine.reclaim_complete(&root(restarted.client)).unwrap();
    let again = open(restarted.client, "o", &1, 3, 3);
    assert_eq!(engine.open(NOW, &again), Err(Error::ShareDenied));
    let later = NOW.plus(LEASE + 1);
    engine.exchange_id(later, &ExchangeId { verifier: [2; 8], ..elsewhere }).unwrap();
    engine.open(later, &again).unwrap();
}
