//! Blocking locks: requests are served in their order, and absent clients delay others only briefly.

use crate::common::{self, COURTESY, HERE, LEASE, LIMITS, Machine, ROOT, client, engine, open, root};
use state::{
    ByteRange, ClientId, LockDenied, LockKind, LockNotice, LockOwner, LockRequest, Locker, SetClientId,
    StateId, Time,
};

const NOW: Time = Time(5000);
const FILE: u32 = 1;
/// The length of a turn for a client that is notified, and for one that polls.
const NOTIFIED_TURN: u64 = LEASE / 12;
const POLLING_TURN: u64 = LEASE / 3;

/// An owner that locks `FILE`.
#[derive(Clone, Copy)]
struct Owner {
    client: ClientId,
    open: StateId,
    name: &'static str,
}

impl Owner {
    fn new(engine: &mut Machine, client: ClientId, name: &'static str) -> Self {
        Self { client, open: engine.open(NOW, &open(client, name, &FILE, 3, 0)).unwrap(), name }
    }

    fn lock_owner(self) -> LockOwner {
        LockOwner { client: self.client, owner: self.name.as_bytes().to_vec() }
    }

    fn request(self, range: ByteRange, kind: LockKind, waits: bool) -> LockRequest<'static, u32> {
        let locker = Locker::New { open: self.open, owner: self.name.as_bytes() };
        LockRequest {
            by: common::leaked(self.client),
            key: &FILE,
            locker,
            range,
            kind,
            reclaim: false,
            waits,
        }
    }

    /// LOCK by a client that waits.
    fn lock(
        self,
        engine: &mut Machine,
        now: Time,
        bytes: (u64, u64),
        kind: LockKind,
    ) -> Result<StateId, LockDenied> {
        let range = ByteRange { first: bytes.0, last: bytes.1 };
        let begun = engine.lock_begin(now, &self.request(range, kind, true)).unwrap()?;
        Ok(engine.lock_done(&begun, range, kind).unwrap())
    }

    fn all(self, engine: &mut Machine, now: Time) -> Result<StateId, LockDenied> {
        self.lock(engine, now, (0, 99), LockKind::Write)
    }

    fn unlock(self, engine: &mut Machine, id: &StateId) {
        let all = ByteRange { first: 0, last: u64::MAX };
        let begun = engine.unlock_begin(&root(self.client), id, &FILE, all).unwrap();
        engine.unlock_done(&begun, all).unwrap();
    }
}

fn v40(engine: &mut Machine, name: &str) -> ClientId {
    let asked = SetClientId { owner: name.as_bytes(), peer: HERE, verifier: [1; 8], principal: &ROOT };
    let (id, confirm) = engine.setclientid(NOW, &asked).unwrap();
    engine.setclientid_confirm(NOW, id, confirm, &ROOT).unwrap();
    id
}

fn notices(engine: &mut Machine, now: Time) -> Vec<LockOwner> {
    let notices = engine.take_effects(now).notices;
    assert!(notices.iter().all(|LockNotice { key, .. }| *key == FILE));
    notices.into_iter().map(|notice| notice.who).collect()
}

/// Four owners of one client of 4.0.
fn four(engine: &mut Machine) -> [Owner; 4] {
    let client = v40(engine, "old");
    ["a", "b", "c", "d"].map(|name| Owner::new(engine, client, name))
}

#[test]
fn requests_are_served_in_order() {
    let mut engine = engine();
    let [a, b, c, d] = four(&mut engine);
    let mut held = a.all(&mut engine, NOW).unwrap();
    for (waits, holds) in [(b, a), (c, a), (d, a)] {
        assert_eq!(waits.all(&mut engine, NOW).unwrap_err().owner, holds.lock_owner());
    }
    let mut holder = a;
    for (next, others) in [(b, vec![d, c]), (c, vec![d]), (d, vec![])] {
        holder.unlock(&mut engine, &held);
        // Also the last holder, and owners that don't wait.
        for other in others.iter().chain([&a]) {
            assert_eq!(other.all(&mut engine, NOW).unwrap_err().owner, next.lock_owner(), "{}", other.name);
            let range = ByteRange { first: 0, last: 99 };
            let once = engine.lock_begin(NOW, &other.request(range, LockKind::Read, false)).unwrap();
            assert_eq!(once.unwrap_err().owner, next.lock_owner());
        }
        held = next.all(&mut engine, NOW).unwrap();
        holder = next;
    }
    assert_eq!(notices(&mut engine, NOW), [], "4.0 has no such callback");
}

#[test]
fn a_missed_turn_passes_to_the_next() {
    let mut engine = engine();
    let [a, b, c, d] = four(&mut engine);
    let held = a.all(&mut engine, NOW).unwrap();
    for waits in [b, c] {
        waits.all(&mut engine, NOW).unwrap_err();
    }
    a.unlock(&mut engine, &held);
    drop(engine.take_effects(NOW));
    let late = NOW.plus(POLLING_TURN);
    assert_eq!(d.all(&mut engine, NOW.plus(POLLING_TURN - 1)).unwrap_err().owner, b.lock_owner());
    assert_eq!(d.all(&mut engine, late).unwrap_err().owner, c.lock_owner());
    assert_eq!(b.all(&mut engine, late).unwrap_err().owner, c.lock_owner(), "it has lost its place");
    // A waiter without a request for a lease gets no turn.
    engine.renew40(NOW.plus(LEASE), a.client).unwrap();
    let locked = d.all(&mut engine, NOW.plus(LEASE)).map(drop);
    assert_eq!(locked, Ok(()), "c's turn is over, and b comes after d");
}

#[test]
fn a_waiter_without_a_request_for_a_lease_gets_no_turn() {
    let mut engine = engine();
    let [a, b, c, _] = four(&mut engine);
    let held = a.all(&mut engine, NOW).unwrap();
    b.all(&mut engine, NOW).unwrap_err();
    engine.renew40(NOW.plus(LEASE), a.client).unwrap();
    a.unlock(&mut engine, &held);
    c.all(&mut engine, NOW.plus(LEASE + 1)).unwrap();
}

#[test]
fn a_client_with_callbacks_is_notified_once() {
    let mut engine = engine();
    let [(me, _), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let (a, b) = (Owner::new(&mut engine, me, "a"), Owner::new(&mut engine, other, "b"));
    let held = a.all(&mut engine, NOW).unwrap();
    b.all(&mut engine, NOW).unwrap_err();
    b.all(&mut engine, NOW).unwrap_err();
    assert_eq!(notices(&mut engine, NOW), []);
    a.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), [b.lock_owner()]);
    engine.tick(NOW);
    assert_eq!(notices(&mut engine, NOW), []);
    assert_eq!(a.all(&mut engine, NOW.plus(NOTIFIED_TURN - 1)).unwrap_err().owner, b.lock_owner());
    b.all(&mut engine, NOW.plus(NOTIFIED_TURN - 1)).unwrap();
    // a waits now, and is notified when b's lock ends with its open.
    assert_eq!(notices(&mut engine, NOW), []);
    engine.close(&root(other), &b.open, &FILE).unwrap();
    assert_eq!(notices(&mut engine, NOW), [a.lock_owner()]);
}

#[test]
fn a_waiter_that_could_not_get_its_lock_delays_no_other() {
    let mut engine = engine();
    let [a, b, c, d] = four(&mut engine);
    a.lock(&mut engine, NOW, (0, 9), LockKind::Read).unwrap();
    b.lock(&mut engine, NOW, (0, 19), LockKind::Write).unwrap_err();
    // A part of what b waits for is free, and c may lock that; a may convert its own lock.
    let held = c.lock(&mut engine, NOW, (10, 19), LockKind::Write).unwrap();
    a.lock(&mut engine, NOW, (0, 9), LockKind::Write).unwrap();
    // Two readers have their turns together.
    let readers = [b, d];
    readers.iter().for_each(|reader| {
        drop(reader.lock(&mut engine, NOW, (15, 15), LockKind::Read).unwrap_err());
    });
    c.unlock(&mut engine, &held);
    for reader in readers {
        reader.lock(&mut engine, NOW, (15, 15), LockKind::Read).unwrap();
    }
}

#[test]
fn downgrading_a_lock_admits_readers() {
    let mut engine = engine();
    let [a, b, c, _] = four(&mut engine);
    a.all(&mut engine, NOW).unwrap();
    b.lock(&mut engine, NOW, (0, 9), LockKind::Read).unwrap_err();
    a.lock(&mut engine, NOW, (0, 99), LockKind::Read).unwrap();
    assert_eq!(c.lock(&mut engine, NOW, (0, 9), LockKind::Write).unwrap_err().owner, a.lock_owner());
    b.lock(&mut engine, NOW, (0, 9), LockKind::Read).unwrap();
}

#[test]
fn a_waiter_for_a_local_process_delays_no_other_until_that_unlocks() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let [a, b] = ["a", "b"].map(|name| Owner::new(&mut engine, me, name));
    let range = ByteRange { first: 0, last: 9 };
    let request = a.request(range, LockKind::Write, true);
    for _ in 0..2 {
        let begun = engine.lock_begin(NOW, &request).unwrap().unwrap();
        engine.lock_blocked_locally(NOW, &begun, &request);
    }
    engine.tick(NOW);
    assert_eq!(notices(&mut engine, NOW), []);
    let waiting = engine.blocked_waiters(10);
    assert_eq!(
        waiting.iter().map(|waiting| (waiting.key, waiting.who.clone())).collect::<Vec<_>>(),
        [(FILE, a.lock_owner())]
    );
    assert_eq!(engine.blocked_waiters(0).len(), 0);
    let once = b.request(range, LockKind::Write, false);
    let begun = engine.lock_begin(NOW, &once).unwrap().expect("only the kernel refuses it");
    engine.lock_blocked_locally(NOW, &begun, &once);
    assert_eq!(engine.blocked_waiters(10).len(), 1, "b doesn't wait");
    engine.unblock(&waiting[0]);
    assert_eq!(notices(&mut engine, NOW), [a.lock_owner()]);
    assert_eq!(engine.blocked_waiters(10).len(), 0);
    assert_eq!(b.all(&mut engine, NOW).unwrap_err().owner, a.lock_owner());
    a.lock(&mut engine, NOW, (0, 9), LockKind::Write).unwrap();
}

#[test]
fn waiters_for_local_processes_are_returned_round_robin() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let (range, kind) = (ByteRange { first: 0, last: 9 }, LockKind::Write);
    for file in 0..4 {
        let open = engine.open(NOW, &open(me, "a", &file, 3, 0)).unwrap();
        let locker = Locker::New { open, owner: b"a" };
        let asked =
            LockRequest { by: &root(me), key: &file, locker, range, kind, reclaim: false, waits: true };
        let begun = engine.lock_begin(NOW, &asked).unwrap().unwrap();
        engine.lock_blocked_locally(NOW, &begun, &asked);
    }
    let mut blocked =
        |max| engine.blocked_waiters(max).into_iter().map(|waiting| waiting.key).collect::<Vec<_>>();
    let rounds: Vec<u32> = (0..8).flat_map(|_| blocked(1)).collect();
    assert_eq!(rounds, [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!([blocked(3), blocked(3), blocked(9)], [vec![0, 1, 2], vec![3, 0, 1], vec![2, 3, 0, 1]]);
}

#[test]
fn the_queue_is_limited_and_entries_end_with_their_clients() {
    let mut engine = engine();
    let (me, _) = client(&mut engine, NOW, "me");
    let (other, session) = client(&mut engine, NOW, "other");
    let (a, b) = (Owner::new(&mut engine, me, "a"), Owner::new(&mut engine, other, "b"));
    let held = a.all(&mut engine, NOW).unwrap();
    for byte in 0..=LIMITS.waiting as u64 / 2 {
        b.lock(&mut engine, NOW, (byte, byte), LockKind::Write).unwrap_err();
    }
    a.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW).len(), LIMITS.waiting / 2);
    // b's client is silent: its waiters delay no other.
    let later = NOW.plus(LEASE + COURTESY);
    engine.destroy_session(session, &ROOT, None).unwrap();
    a.all(&mut engine, later).unwrap();
}

/// A client gets no notification for an open that it made under a delegation: such a waiter delays no other
/// until it has opened the file again.
#[test]
fn an_open_made_under_a_delegation_has_no_place_in_the_queue() {
    let mut engine = engine();
    let [(one, _), (two, _)] = ["one", "two"].map(|name| client(&mut engine, NOW, name));
    let (holder, other) = (Owner::new(&mut engine, one, "a"), Owner::new(&mut engine, two, "b"));
    let claimed = state::OpenRequest { under_delegation: true, ..open(two, "c", &FILE, 3, 0) };
    let claimed = Owner { client: two, open: engine.open(NOW, &claimed).unwrap(), name: "c" };
    let mut held = holder.all(&mut engine, NOW).unwrap();
    claimed.all(&mut engine, NOW).unwrap_err();
    other.all(&mut engine, NOW).unwrap_err();
    holder.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), [other.lock_owner()]);
    held = other.all(&mut engine, NOW).unwrap();
    claimed.all(&mut engine, NOW).unwrap_err();
    other.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), []);
    // The next request is served, from any owner.
    held = holder.all(&mut engine, NOW).unwrap();
    claimed.all(&mut engine, NOW).unwrap_err();
    let claimed = Owner::new(&mut engine, two, "c");
    claimed.all(&mut engine, NOW).unwrap_err();
    holder.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), [claimed.lock_owner()]);
    claimed.all(&mut engine, NOW).unwrap();
}
