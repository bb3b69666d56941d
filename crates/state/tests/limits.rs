//! One client can't exhaust the server, and a thousand silent clients keep their state as long as there is no
//! conflict.

use crate::common::{
    self, COURTESY, HERE, LEASE, LIMITS, ROOT, any, client, client_at, creation, engine, named, open, root,
};
use state::{
    ByteRange, Engine, EngineConfig, Error, ExchangeId, LockKind, LockRequest, Locker, SetClientId, Time,
};

const NOW: Time = Time(5000);

#[test]
fn the_sessions_of_a_client_are_limited() {
    let mut engine = engine();
    let (me, first) = client(&mut engine, NOW, "me");
    let more = |sequence| creation(me, sequence);
    for sequence in 2..=LIMITS.sessions as u32 {
        engine.create_session(NOW, &more(sequence)).unwrap();
    }
    let next = LIMITS.sessions as u32 + 1;
    assert_eq!(engine.create_session(NOW, &more(next)), Err(Error::Delay));
    engine.destroy_session(first, &ROOT, None).unwrap();
    engine.create_session(NOW, &more(next)).unwrap();
}

#[test]
fn the_reply_caches_of_all_sessions_are_limited_and_shared() {
    const REPLIES: u64 = 400 << 10;
    let limits = state::EngineLimits { clients: 1000, replies: REPLIES, ..LIMITS };
    let (mut engine, now) = (common::bounded(limits), NOW);
    let session = |engine: &mut common::Machine, now, host, number: usize| {
        let name = number.to_string();
        let asked = ExchangeId { peer: common::host(host), ..named(&name, 1) };
        let exchanged = engine.exchange_id(now, &asked).unwrap();
        engine.create_session(now, &creation(exchanged.client, exchanged.sequence))
    };
    let mut made = Vec::new();
    let mut takes_all = |engine: &mut common::Machine, host| {
        let before = made.len();
        loop {
            match session(engine, now, host, made.len()) {
                Ok(created) => made.push(created),
                Err(error) => break assert_eq!(error, Error::Nospc),
            }
        }
        made[before..].iter().map(|created| u64::from(created.channel.cached) + 1024).sum::<u64>()
    };
    let first = takes_all(&mut engine, 1);
    assert!(first <= REPLIES / 2 && first > REPLIES / 5 * 2, "{first}: one host has half");
    let second = takes_all(&mut engine, 2);
    assert!(second <= REPLIES / 4 && second > REPLIES / 6, "{second}: the next has half of the rest");
    assert!(made.iter().all(|created| created.channel.slots == 1), "so little is divided among many");
    session(&mut engine, now, 3, 10_000).unwrap();
    // Destroyed sessions and expired clients make room.
    let own = session(&mut engine, now, 3, 10_001).unwrap();
    engine.destroy_session(own.session, &ROOT, None).unwrap();
    assert_eq!(session(&mut engine, now, 1, 20_001).err(), Some(Error::Nospc));
    session(&mut engine, now.plus(LEASE + 1), 1, 20_002).unwrap();
}

#[test]
fn locks_count_as_states_and_are_limited_together_with_opens() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let id = engine.open(NOW, &open(me, "o", &1, 3, 0)).unwrap();
    let mut lock = |owner: &[u8]| {
        let locker = Locker::New { open: id, owner };
        let range = ByteRange::of(owner[0].into(), 1).unwrap();
        let asked = LockRequest {
            by: &root(me),
            key: &1,
            locker,
            range,
            kind: LockKind::Write,
            reclaim: false,
            waits: false,
        };
        let begun = engine.lock_begin(NOW, &asked)?.expect("no conflict");
        engine.lock_done(&begun, range, LockKind::Write)
    };
    for owner in 1..LIMITS.states as u8 {
        lock(&[owner]).unwrap();
    }
    assert_eq!(lock(&[99]), Err(Error::Delay));
    assert_eq!(engine.open(NOW, &open(me, "another", &2, 1, 0)), Err(Error::Delay));
    // Those who are about to create or truncate a file learn it before they do.
    assert_eq!(engine.check_open(NOW, &open(me, "another", &2, 1, 0)), Err(Error::Delay));
    assert_eq!(engine.check_open(NOW, &open(me, "o", &1, 1, 0)), Ok(()), "this owner has it open already");
    assert_eq!(engine.check_room_for_new(NOW, me), Err(Error::Delay));
    let (other, _) = client(&mut engine, NOW, "other");
    assert_eq!(engine.check_room_for_new(NOW, other), Ok(()));
    engine.open(NOW, &open(other, "o", &1, 3, 0)).expect("each client has its own limit");
}

#[test]
fn the_states_of_all_clients_are_limited_and_silent_clients_make_room() {
    // One host has half of them.
    let mut engine = common::bounded(state::EngineLimits { all: 14, ..LIMITS });
    let (me, _) = client_at(&mut engine, NOW, common::host(1), "me");
    let (other, session) = client_at(&mut engine, NOW, common::host(1), "other");
    let opened = engine.open(NOW, &open(me, "o", &1, 3, 0)).unwrap();
    let kind = LockKind::Write;
    let range = |number: u64| ByteRange::of(10 * number, 5).unwrap();
    let by = root(me);
    let lock = |engine: &mut common::Machine, now, number| {
        let locker = Locker::New { open: opened, owner: b"l" };
        let (range, reclaim, waits) = (range(number), false, false);
        let asked = LockRequest { by: &by, key: &1, locker, range, kind, reclaim, waits };
        let begun = engine.lock_begin(now, &asked)?.expect("no conflict");
        engine.lock_done(&begun, range, kind)
    };
    // An open, a lock owner, and four ranges.
    let locks = [1, 2, 3, 4].map(|number| lock(&mut engine, NOW, number).unwrap());
    engine.open(NOW, &open(other, "o", &2, 3, 0)).unwrap();
    assert_eq!(lock(&mut engine, NOW, 5), Err(Error::Delay));
    assert_eq!(engine.open(NOW, &open(other, "o", &3, 3, 0)), Err(Error::Delay));
    assert_eq!(engine.check_room_for_new(NOW, other), Err(Error::Delay));
    engine.open(NOW, &open(other, "o", &2, 1, 0)).expect("this owner has it open already");
    assert!(engine.delegate_begin(NOW, &common::wants(&root(other), &2, true)).is_err());
    // Released state counts for nobody's share.
    let begun = engine.unlock_begin(&root(me), &locks[3], &1, range(1)).unwrap();
    engine.unlock_done(&begun, range(1)).unwrap();
    engine.open(NOW, &open(other, "o", &3, 3, 0)).unwrap();
    // And so does the state of a client whose lease has expired.
    let later = NOW.plus(LEASE + 1);
    common::begin(&mut engine, later, session, 0, 1);
    engine.open(later, &open(other, "o", &4, 3, 0)).unwrap();
    assert_eq!(engine.counts().2, 3, "the other has lost everything");
}

#[test]
fn the_ranges_of_an_owner_on_a_file_are_limited() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let open = engine.open(NOW, &open(me, "o", &1, 3, 0)).unwrap();
    let range = ByteRange::of(0, u64::MAX).unwrap();
    let locker = Locker::New { open, owner: b"l" };
    let kind = LockKind::Write;
    let asked = LockRequest { by: &root(me), key: &1, locker, range, kind, reclaim: false, waits: false };
    let begun = engine.lock_begin(NOW, &asked).unwrap().unwrap();
    let id = any(engine.lock_done(&begun, range, kind).unwrap());
    let mut unlock = |first, length| {
        let range = ByteRange::of(first, length).unwrap();
        let begun = engine.unlock_begin(&root(me), &id, &1, range)?;
        engine.unlock_done(&begun, range).map(drop)
    };
    // Each unlock leaves a range on either side.
    for number in 1..LIMITS.ranges as u64 {
        unlock(10 * number, 5).unwrap();
    }
    assert_eq!(unlock(1000, 5), Err(Error::LockRange));
    // Removing a whole range, or an end of one, is always possible.
    unlock(10, 10).unwrap();
    unlock(1000, u64::MAX).unwrap();
    unlock(2, 1).unwrap();
}

#[test]
fn unused_owners_of_version_0_are_forgotten_above_the_limit() {
    let mut engine = engine();
    let asked = SetClientId { owner: b"old", peer: HERE, verifier: [1; 8], principal: &ROOT };
    let (me, confirm) = engine.setclientid(NOW, &asked).unwrap();
    engine.setclientid_confirm(NOW, me, confirm, &ROOT).unwrap();
    let begin = |engine: &mut common::Machine, name: &[u8], seqid| {
        let owner = state::StateOwner::Open(name.to_vec());
        let begun = engine.owner_begin(NOW, &root(me), &owner, seqid, true);
        engine.owner_end(&root(me), &owner, seqid, begun.is_ok().then(|| b"reply"[..].into()));
        begun
    };
    let open = |engine: &mut common::Machine, name| {
        assert_eq!(begin(engine, name, 1), Ok(state::OwnerRequest::New));
        let id = engine.open(NOW, &state::OpenRequest { owner: name, ..open(me, "", &1, 1, 0) }).unwrap();
        engine.open_confirm(&root(me), &id, &1).unwrap()
    };
    open(&mut engine, b"has");
    let closed = open(&mut engine, b"had");
    engine.close(&root(me), &closed, &1).unwrap();
    let had = state::StateOwner::Open(b"had".to_vec());
    engine.remember_closed_open(me, &closed, &had);
    assert_eq!(engine.owner_of(NOW, &closed, &ROOT), Ok((me, had)), "CLOSE may be sent again");
    for number in 0..200_u32 {
        assert_eq!(begin(&mut engine, &number.to_be_bytes(), 1), Ok(state::OwnerRequest::New));
    }
    assert_eq!(engine.owner_of(NOW, &closed, &ROOT), Err(Error::BadStateid));
    assert_eq!(begin(&mut engine, b"had", 7), Ok(state::OwnerRequest::New), "a new owner");
    assert_eq!(begin(&mut engine, b"has", 7), Err(Error::BadSeqid));
    assert_eq!(begin(&mut engine, b"has", 2), Ok(state::OwnerRequest::New));
}

#[test]
fn a_thousand_silent_clients_lose_only_conflicting_state() {
    const MANY: u32 = 1000;
    let mut random = 0;
    let config = EngineConfig {
        boot: 7,
        lease: LEASE,
        courtesy: COURTESY,
        distrust: 1000,
        limits: state::EngineLimits { clients: 2 * MANY as usize, ..LIMITS },
    };
    let mut engine: common::Machine = Engine::new(
        config,
        Box::new(move || {
            random += 1;
            random
        }),
        [],
        Time(0),
    );
    let silent: Vec<_> = (0..MANY)
        .map(|number| {
            let (id, session) =
                client_at(&mut engine, NOW, common::host(number), &format!("silent {number}"));
            (id, session, engine.open(NOW, &open(id, "o", &number, 3, 3)).unwrap())
        })
        .collect();
    let later = NOW.plus(LEASE + 1);
    engine.tick(later);
    assert_eq!(engine.counts().0, MANY as usize, "they keep their state");
    let (me, _) = client(&mut engine, later, "me");
    engine.open(later, &open(me, "o", &500, 1, 0)).unwrap();
    // All other clients come back and still have their state.
    for (number, (id, session, opened)) in silent.iter().enumerate() {
        let back = engine.sequence(later, &common::request(*session, 0, 1)).is_ok();
        assert_eq!(back, number != 500, "client {number}");
        assert_eq!(engine.test_stateid(*id, opened).is_ok(), back);
    }
}
