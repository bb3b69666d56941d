//! Opens, share reservations, locks, and their stateids.

use crate::common::{LEASE, Machine, any, client, engine, open, recorded, root};
use state::{
    ByteRange, ClientId, Direction, Error, LockKind, LockOwner, LockRequest, Locker, Share, StateId, Time,
};

const NOW: Time = Time(5000);
const FILE: u32 = 1;

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::of(offset, length).unwrap()
}

/// Takes a lock that has no conflict.
fn lock(
    engine: &mut Machine,
    client: ClientId,
    locker: Locker<'_>,
    range: ByteRange,
    kind: LockKind,
) -> StateId {
    let asked =
        LockRequest { by: &root(client), key: &FILE, locker, range, kind, reclaim: false, waits: false };
    let begun = engine.lock_begin(NOW, &asked).unwrap().unwrap();
    engine.lock_done(&begun, range, kind).unwrap()
}

#[test]
fn opens_of_one_owner_are_one_state_with_a_seqid() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let first = engine.open(NOW, &open(me, "o", &FILE, 1, 0)).unwrap();
    let second = engine.open(NOW, &open(me, "o", &FILE, 2, 0)).unwrap();
    assert_eq!((second.other, first.seqid, second.seqid), (first.other, 1, 2));
    assert_ne!(engine.open(NOW, &open(me, "another", &FILE, 1, 0)).unwrap().other, first.other);
    assert_eq!(engine.test_stateid(me, &first), Err(Error::OldStateid));
    assert_eq!(engine.test_stateid(me, &second), Ok(()));
    assert_eq!(engine.test_stateid(me, &any(second)), Ok(()));
    assert_eq!(engine.test_stateid(me, &StateId { seqid: 3, ..second }), Err(Error::BadStateid));
    for special in
        [StateId::ANONYMOUS, StateId::READ_BYPASS, StateId::INVALID, StateId { seqid: 0, other: [5; 12] }]
    {
        assert_eq!(engine.test_stateid(me, &special), Err(Error::BadStateid));
    }
    let (other, _) = client(&mut engine, NOW, "other");
    assert_eq!(engine.test_stateid(other, &second), Err(Error::BadStateid), "another client's");
    assert_eq!(engine.close(&root(me), &second, &2), Err(Error::BadStateid), "another file's");
    let share = Share { access: 1, deny: 0 };
    assert_eq!(engine.downgrade(&root(me), &second, &FILE, Share { deny: 1, ..share }), Err(Error::Inval));
    let third = engine.downgrade(&root(me), &second, &FILE, share).unwrap();
    assert_eq!(third.seqid, 3);
    engine.close(&root(me), &third, &FILE).unwrap();
    assert_eq!(engine.test_stateid(me, &third), Err(Error::BadStateid));
}

#[test]
fn share_reservations_apply_to_other_owners_and_to_io() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let (other, _) = client(&mut engine, NOW, "other");
    let mine = engine.open(NOW, &open(me, "o", &FILE, 1, 2)).unwrap();
    assert_eq!(engine.check_open(NOW, &open(other, "o", &FILE, 2, 0)), Err(Error::ShareDenied));
    assert_eq!(engine.open(NOW, &open(me, "second", &FILE, 3, 0)), Err(Error::ShareDenied));
    engine.open(NOW, &open(other, "o", &FILE, 1, 0)).unwrap();
    let mut io = |id: &StateId, direction| engine.check_io(NOW, Some(me), id, &FILE, direction);
    assert_eq!(io(&mine, Direction::Read), Ok(()));
    assert_eq!(io(&mine, Direction::Write), Err(Error::Openmode));
    assert_eq!(io(&StateId::ANONYMOUS, Direction::Read), Ok(()));
    assert_eq!(io(&StateId::ANONYMOUS, Direction::Write), Err(Error::Locked));
    assert_eq!(io(&StateId::READ_BYPASS, Direction::Write), Err(Error::Locked));
    let stateless = engine.check_io(NOW, None, &mine, &FILE, Direction::Read);
    assert_eq!(stateless, Err(Error::BadStateid));
    assert_eq!(engine.open(NOW, &open(me, "o", &FILE, 3, 0)), Err(Error::ShareDenied), "its own denial");
    let both = engine.open(NOW, &open(me, "o", &2, 3, 0)).unwrap();
    engine.check_io(NOW, Some(me), &any(both), &2, Direction::Write).unwrap();
}

#[test]
fn locks_exclude_other_owners_and_are_released() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let (other, _) = client(&mut engine, NOW, "other");
    let mine = engine.open(NOW, &open(me, "o", &FILE, 3, 0)).unwrap();
    let theirs = engine.open(NOW, &open(other, "o", &FILE, 1, 0)).unwrap();
    let by = |open| Locker::New { open, owner: b"p" };
    let held = lock(&mut engine, me, by(mine), range(10, 10), LockKind::Write);
    let again = lock(&mut engine, me, Locker::Existing(held), range(20, 10), LockKind::Write);
    assert_eq!((again.other, again.seqid), (held.other, 2));
    let asker = root(other);
    let ask = |range, kind| LockRequest {
        by: &asker,
        key: &FILE,
        locker: by(theirs),
        range,
        kind,
        reclaim: false,
        waits: false,
    };
    let denied = engine.lock_begin(NOW, &ask(range(0, u64::MAX), LockKind::Read)).unwrap().unwrap_err();
    assert_eq!((denied.range, denied.kind), (range(10, 20), LockKind::Write));
    assert_eq!(denied.owner, LockOwner { client: me, owner: b"p".to_vec() });
    assert_eq!(engine.lock_begin(NOW, &ask(range(0, 5), LockKind::Write)).map(drop), Err(Error::Openmode));
    // The kernel refuses the lock: nothing is left of it.
    let begun = engine.lock_begin(NOW, &ask(range(0, 5), LockKind::Read)).unwrap().unwrap();
    engine.lock_failed(&begun);
    assert_eq!(engine.take_effects(NOW).released.len(), 1);
    assert_eq!(engine.free_stateid(&root(me), &again), Err(Error::LocksHeld));
    let begun = engine.unlock_begin(&root(me), &again, &FILE, range(0, u64::MAX)).unwrap();
    let left = engine.unlock_done(&begun, range(0, u64::MAX)).unwrap();
    assert_eq!(engine.free_stateid(&root(me), &left), Ok(()));
    assert_eq!(engine.take_effects(NOW).released.len(), 1);
    // CLOSE ends the remaining locks of the open.
    lock(&mut engine, me, by(mine), range(10, 20), LockKind::Write);
    engine.close(&root(me), &any(mine), &FILE).unwrap();
    assert_eq!(engine.take_effects(NOW).released.len(), 1);
    lock(&mut engine, other, by(theirs), range(0, u64::MAX), LockKind::Read);
}

#[test]
fn a_client_with_an_expired_lease_loses_conflicts_and_one_in_time_does_not() {
    let mut engine = engine();
    let (silent, _) = client(&mut engine, NOW, "silent");
    let id = engine.open(NOW, &open(silent, "o", &FILE, 3, 3)).unwrap();
    let other_file = engine.open(NOW, &open(silent, "o", &2, 3, 0)).unwrap();
    lock(&mut engine, silent, Locker::New { open: id, owner: b"p" }, range(0, 1), LockKind::Write);
    let later = NOW.plus(LEASE + 1);
    let (me, _) = client(&mut engine, later, "me");
    assert_eq!(engine.open(NOW, &open(me, "o", &FILE, 1, 0)), Err(Error::ShareDenied), "in time");
    engine.open(later, &open(me, "o", &2, 3, 0)).unwrap();
    assert_eq!(engine.test_stateid(silent, &id), Ok(()), "there is no conflict");
    engine.take_effects(NOW).remember.clear();
    engine.open(later, &open(me, "o", &FILE, 1, 0)).unwrap();
    for gone in [id, other_file] {
        assert_eq!(
            engine.test_stateid(silent, &gone),
            Err(Error::BadStateid),
            "a client loses all of its state"
        );
    }
    let effects = engine.take_effects(NOW);
    assert_eq!((effects.forget, effects.released.len()), (vec![recorded("silent")], 1));
}

#[test]
fn a_clients_state_is_limited() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let files: Vec<u32> = (0..17).collect();
    for file in &files[..16] {
        engine.open(NOW, &open(me, "o", file, 3, 0)).unwrap();
    }
    assert_eq!(engine.open(NOW, &open(me, "o", &files[16], 3, 0)), Err(Error::Delay));
    engine.open(NOW, &open(me, "o", &files[0], 1, 0)).unwrap();
    let (other, _) = client(&mut engine, NOW, "other");
    let id = engine.open(NOW, &open(other, "o", &FILE, 3, 0)).unwrap();
    let locker = Locker::New { open: id, owner: b"p" };
    for number in 0..8 {
        lock(&mut engine, other, locker, range(number * 10, 1), LockKind::Write);
    }
    let (range, kind) = (range(900, 1), LockKind::Write);
    let asked =
        LockRequest { by: &root(other), key: &FILE, locker, range, kind, reclaim: false, waits: false };
    assert_eq!(engine.lock_begin(NOW, &asked).map(drop), Err(Error::Delay));
}
