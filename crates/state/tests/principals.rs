//! State belongs to the principal that created it: another user of the same client can't use it, and nobody
//! can guess its stateid.

use std::collections::HashSet;

use crate::common::{
    self, HERE, LIMITS, OTHER, ROOT, any, client, creation, engine, leaked, open, open_as, root,
};
use state::{
    ByteRange, ClientId, CreateSession, Engine, EngineConfig, Error, LockKind, LockRequest, Locker,
    OwnerRequest, Principal, Requester, SessionId, SetClientId, Share, StateId, StateOwner, Time,
};

const NOW: Time = Time(5000);
const FILE: u32 = 1;
const USER: Principal = Principal::Sys(500);

const fn user(client: ClientId) -> Requester {
    Requester { client, principal: USER }
}

const fn other(client: ClientId) -> Requester {
    Requester { client, principal: OTHER }
}

fn lock<'a>(by: &'a Requester, locker: Locker<'a>) -> LockRequest<'a, u32> {
    let range = ByteRange::of(0, 10).unwrap();
    LockRequest { by, key: &FILE, locker, range, kind: LockKind::Write, reclaim: false, waits: false }
}

/// All operations by another user fail and change nothing. Then all of them succeed for a permitted user.
#[test]
fn an_open_and_its_locks_belong_to_their_principal_and_to_the_clients_own() {
    for may in [user as fn(ClientId) -> Requester, root] {
        let mut engine = engine();
        let (me, _) = client(&mut engine, NOW, "me");
        let (by, stranger, may) = (user(me), other(me), may(me));
        let id = any(engine.open(NOW, &open_as(&by, "o", &FILE, 3, 0)).unwrap());
        engine.open(NOW, &open_as(&by, "o", &FILE, 1, 0)).unwrap();
        let new = Locker::New { open: id, owner: b"l" };
        let begun = engine.lock_begin(NOW, &lock(&by, new)).unwrap().unwrap();
        let range = ByteRange::of(0, 10).unwrap();
        let held = any(engine.lock_done(&begun, range, LockKind::Write).unwrap());
        let share = Share { access: 1, deny: 0 };
        let wrong = Err(Error::WrongCred);
        assert_eq!(engine.close(&stranger, &id, &FILE), wrong);
        assert_eq!(engine.downgrade(&stranger, &id, &FILE, share).map(drop), wrong);
        assert_eq!(engine.lock_begin(NOW, &lock(&stranger, new)).map(drop), wrong);
        assert_eq!(engine.lock_begin(NOW, &lock(&stranger, Locker::Existing(held))).map(drop), wrong);
        assert_eq!(engine.unlock_begin(&stranger, &held, &FILE, range).map(drop), wrong);
        assert_eq!(engine.free_stateid(&stranger, &held), wrong);
        assert_eq!(engine.free_stateid(&may, &held), Err(Error::LocksHeld));
        engine.lock_begin(NOW, &lock(&may, Locker::Existing(held))).unwrap().unwrap();
        let begun = engine.unlock_begin(&may, &held, &FILE, range).unwrap();
        engine.unlock_done(&begun, range).unwrap();
        engine.free_stateid(&may, &held).unwrap();
        engine.downgrade(&may, &id, &FILE, share).unwrap();
        engine.close(&may, &id, &FILE).unwrap();
    }
}

#[test]
fn a_delegation_belongs_to_its_principal() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    engine.open(NOW, &open_as(&user(me), "o", &FILE, 3, 0)).unwrap();
    let begun = engine.delegate_begin(NOW, &common::wants(&user(me), &FILE, true)).unwrap();
    let id = engine.delegate_done(&begun).unwrap();
    assert_eq!(engine.delegreturn(NOW, &other(me), &id, &FILE), Err(Error::WrongCred));
    // After a recall another user's opens may be claimed by it: the file's permissions are checked for that.
    engine.check_delegation(me, &id, &FILE, 3).unwrap();
    engine.delegreturn(NOW, &user(me), &id, &FILE).unwrap();
}

/// Some clients keep the open owner of a process that changes its user.
#[test]
fn a_principal_that_opens_a_file_with_the_same_owner_may_close_it() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let id = any(engine.open(NOW, &open_as(&user(me), "o", &FILE, 3, 0)).unwrap());
    engine.open(NOW, &open_as(&other(me), "o", &FILE, 1, 0)).unwrap();
    let nobody = Requester { client: me, principal: Principal::Anonymous };
    assert_eq!(engine.close(&nobody, &id, &FILE), Err(Error::WrongCred));
    engine.close(&other(me), &id, &FILE).unwrap();
}

#[test]
fn a_client_and_its_sessions_belong_to_their_principal() {
    let mut engine = engine();
    let (me, session) = client(&mut engine, NOW, "me");
    let again = CreateSession { principal: &OTHER, ..creation(me, 1) };
    assert_eq!(engine.create_session(NOW, &again), Err(Error::ClidInuse), "a retry names the session");
    let more = CreateSession { sequence: 2, ..again };
    assert_eq!(engine.create_session(NOW, &more), Err(Error::ClidInuse));
    assert_eq!(engine.session_of(session, &OTHER), Err(Error::WrongCred));
    assert_eq!(engine.destroy_session(session, &OTHER, None), Err(Error::WrongCred));
    assert_eq!(engine.destroy_clientid(&other(me)), Err(Error::WrongCred));
    assert_eq!(engine.reclaim_complete(&other(me)), Err(Error::WrongCred));
    assert_eq!(engine.session_of(session, &ROOT), Ok(me));
    engine.destroy_session(session, &ROOT, None).unwrap();
    assert_eq!(engine.destroy_clientid(&other(me)), Err(Error::WrongCred));
    engine.destroy_clientid(&root(me)).unwrap();
}

#[test]
fn in_version_0_only_the_same_principal_gets_a_cached_reply() {
    let mut engine = engine();
    let asked = SetClientId { owner: b"me", peer: HERE, verifier: [1; 8], principal: &ROOT };
    let (me, confirm) = engine.setclientid(NOW, &asked).unwrap();
    assert_eq!(engine.setclientid_confirm(NOW, me, confirm, &OTHER), Err(Error::ClidInuse));
    engine.setclientid_confirm(NOW, me, confirm, &ROOT).unwrap();
    let (owner, by, stranger) = (StateOwner::Open(b"o".to_vec()), user(me), other(me));
    assert_eq!(engine.owner_begin(NOW, &by, &owner, 1, true), Ok(OwnerRequest::New));
    let id = engine.open(NOW, &open_as(&by, "o", &FILE, 3, 0)).unwrap();
    let reply: std::sync::Arc<[u8]> = b"a handle"[..].into();
    engine.owner_end(&by, &owner, 1, Some(reply.clone()));
    assert_eq!(engine.owner_begin(NOW, &stranger, &owner, 1, true), Err(Error::BadSeqid));
    assert_eq!(engine.owner_begin(NOW, &stranger, &owner, 9, true), Err(Error::BadSeqid), "a new sequence");
    assert_eq!(engine.owner_begin(NOW, &by, &owner, 1, true), Ok(OwnerRequest::Replay(reply)));
    // 4.0 has no error for state of another principal.
    for error in [
        engine.owner_of(NOW, &id, &OTHER).map(drop),
        engine.open_confirm(&stranger, &id, &FILE).map(drop),
        engine.close(&stranger, &id, &FILE),
    ] {
        assert_eq!(error, Err(Error::BadStateid));
    }
    assert_eq!(engine.renew_by(NOW, &stranger), Err(Error::Access));
    // RFC 7530 section 16.28: the client's own principal, and principals with an open.
    engine.renew_by(NOW, &root(me)).unwrap();
    engine.renew_by(NOW, &by).unwrap();
    engine.close(&by, &id, &FILE).unwrap();
    assert_eq!(engine.renew_by(NOW, &by), Err(Error::Access));
}

/// Stateids and client ids consist of random numbers and the boot number, and none is used twice.
#[test]
fn ids_are_random_numbers() {
    const BOOT: u32 = 0x0102_0304;
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    let mut turn = 0;
    // A generator that repeats itself and returns reserved values.
    let random = move || {
        turn += 1;
        bits = bits.rotate_left(13).wrapping_mul(0x2545_f491_4f6c_dd1d);
        match turn % 4 {
            0 => u64::MAX,
            1 => 0,
            2 => 77,
            _ => bits,
        }
    };
    let config = EngineConfig { boot: BOOT, lease: 1000, courtesy: 1000, distrust: 1000, limits: LIMITS };
    let mut engine: Engine<u32, ()> = Engine::new(config, Box::new(random), [], Time(0));
    let (mut clients, mut sessions, mut states) = (HashSet::new(), HashSet::new(), HashSet::new());
    for name in ["a", "b", "c", "d"] {
        let (me, SessionId(session)) = client(&mut engine, NOW, name);
        assert!(clients.insert(me) && sessions.insert(session));
        assert!(
            !session.windows(8).any(|window| window == me.0.to_be_bytes()),
            "a session id doesn't contain the client id"
        );
        for file in 0..8_u32 {
            let id = engine.open(NOW, &open(me, "o", &file, 1, 0)).unwrap();
            assert_eq!(id.other[..4], BOOT.to_be_bytes());
            assert!(states.insert(id.other) && !matches!(id.other[4..], [0, 0, 0, 0, 0, 0, 0, 0]));
            assert_eq!(engine.test_stateid(me, &id), Ok(()));
        }
    }
}

#[test]
fn a_stateid_of_another_run_is_distinguished_from_an_invalid_one() {
    let mut engine = engine();
    let asked = SetClientId { owner: b"me", peer: HERE, verifier: [1; 8], principal: &ROOT };
    let (me, confirm) = engine.setclientid(NOW, &asked).unwrap();
    engine.setclientid_confirm(NOW, me, confirm, &ROOT).unwrap();
    let id = engine.open(NOW, &open_as(leaked(me), "o", &FILE, 1, 0)).unwrap();
    let with = |at: usize| {
        let mut other = id.other;
        other[at] ^= 1;
        StateId { other, ..id }
    };
    assert_eq!(engine.client_of(NOW, &with(0)), Err(Error::StaleStateid));
    assert_eq!(engine.client_of(NOW, &with(8)), Err(Error::BadStateid));
    assert_eq!(engine.renew40(NOW, ClientId(me.0 ^ 1)), Err(Error::StaleClientid));
}
