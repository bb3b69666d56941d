//! A server that was stopped for a while: the requests in its sockets' queues find all state unchanged, in
//! any order.

use crate::common::{self, LEASE, Machine, begin, client, engine, fresh, leaked, open, root, wants};
use state::{AccessKind, ByteRange, Error, LockKind, LockRequest, Locker, StateId, Time};

const FILE: u32 = 1;
const NOW: Time = Time(5 * LEASE);
/// The clock advances little while the server is stopped.
const AFTER: Time = Time(NOW.0 + LEASE / 10);

/// A lock of the whole file.
fn lock(
    engine: &mut Machine,
    now: Time,
    who: state::ClientId,
    open: StateId,
    reclaim: bool,
) -> Result<Result<(), state::LockDenied>, Error> {
    let (range, kind) = (ByteRange::of(0, u64::MAX).expect("the whole file"), LockKind::Write);
    let locker = Locker::New { open, owner: b"locker" };
    let request = LockRequest { by: leaked(who), key: &FILE, locker, range, kind, reclaim, waits: false };
    let begun = match engine.lock_begin(now, &request)? {
        Ok(begun) => begun,
        Err(denied) => return Ok(Err(denied)),
    };
    engine.lock_done(&begun, range, kind).map(|_| Ok(()))
}

#[test]
fn a_lock_request_before_the_holders_renewal_takes_nothing_away() {
    for runs in [true, false] {
        let mut engine = engine();
        let [(holder, session), (other, _)] =
            ["holder", "other"].map(|name| client(&mut engine, Time(0), name));
        begin(&mut engine, NOW, session, 0, 1);
        let held = engine.open(NOW, &open(holder, "o", &FILE, 3, 0)).unwrap();
        lock(&mut engine, NOW, holder, held, false).unwrap().unwrap();
        let theirs = engine.open(NOW, &open(other, "o", &FILE, 3, 0)).unwrap();
        // The holder's lease has nearly expired when the server is stopped.
        let since = NOW.plus(LEASE);
        let after = since.plus(LEASE / 10);
        if !runs {
            engine.resumed(since, after);
        }
        engine.tick(after);
        let got = lock(&mut engine, after, other, theirs, false).unwrap();
        assert_eq!(got.is_ok(), runs, "a running server would have received the holder's renewal");
        if !runs {
            begin(&mut engine, after.plus(1), session, 1, 1);
            assert_eq!(engine.test_stateid(holder, &held), Ok(()));
            // Its lease is extended once.
            let end = after.plus(1).plus(LEASE);
            assert!(lock(&mut engine, end, other, theirs, false).unwrap().is_err());
            assert!(lock(&mut engine, end.plus(1), other, theirs, false).unwrap().is_ok());
        }
    }
}

#[test]
fn an_expired_lease_stays_expired() {
    let mut engine = engine();
    let [(gone, _), (other, session)] = ["gone", "other"].map(|name| client(&mut engine, Time(0), name));
    let held = engine.open(Time(0), &open(gone, "o", &FILE, 3, 0)).unwrap();
    lock(&mut engine, Time(0), gone, held, false).unwrap().unwrap();
    begin(&mut engine, NOW, session, 0, 1);
    engine.resumed(NOW, AFTER);
    let theirs = engine.open(AFTER, &open(other, "o", &FILE, 3, 0)).unwrap();
    lock(&mut engine, AFTER, other, theirs, false).unwrap().unwrap();
}

#[test]
fn a_recalled_delegation_may_still_be_returned() {
    let mut engine = engine();
    let (me, session) = client(&mut engine, NOW, "me");
    let begun = engine.delegate_begin(NOW, &wants(&root(me), &FILE, false)).unwrap();
    let mine = engine.delegate_done(&begun).unwrap();
    assert_eq!(engine.check_conflicts(NOW, None, &FILE, AccessKind::Write), Err(Error::Delay));
    let since = NOW.plus(LEASE - 1);
    begin(&mut engine, since, session, 0, 1);
    let after = since.plus(LEASE / 10);
    engine.resumed(since, after);
    engine.tick(after);
    assert_eq!(engine.check_conflicts(after, None, &FILE, AccessKind::Write), Err(Error::Delay));
    assert_eq!(engine.test_stateid(me, &mine), Ok(()));
    // An eighth of a lease.
    let end = after.plus(LEASE / 8);
    engine.tick(Time(end.0 - 1));
    assert_eq!(engine.test_stateid(me, &mine), Ok(()));
    engine.tick(end);
    assert_eq!(engine.test_stateid(me, &mine), Err(Error::DelegRevoked));
}

#[test]
fn the_grace_period_continues() {
    let mut engine = common::after(&["old"]);
    let since = Time(LEASE - 1);
    let after = Time(LEASE + LEASE / 10);
    engine.resumed(since, after);
    engine.tick(after);
    assert!(engine.in_grace(after));
    let (old, _) = fresh(&mut engine, after, "old");
    engine.open(after, &state::OpenRequest { reclaim: true, ..open(old, "o", &FILE, 3, 3) }).unwrap();
    engine.reclaim_complete(&root(old)).unwrap();
    // An ended grace period doesn't begin again.
    let mut engine = common::after(&["old"]);
    engine.resumed(Time(LEASE), after);
    assert!(!engine.in_grace(after));
}
