//! Blocking locks: who asks first is served first, and nobody who has gone away is waited for for long.

use crate::common::{self, COURTESY, HERE, LEASE, LIMITS, Machine, ROOT, client, engine, open, root};
use state::{
    ByteRange, ClientId, LockDenied, LockKind, LockNotice, LockOwner, LockRequest, Locker, SetClientId,
    StateId, Time,
};

const NOW: Time = Time(5000);
const FILE: u32 = 1;
/// How long a turn is for who is told of it, and for who polls.
const TOLD: u64 = LEASE / 12;
const POLLED: u64 = LEASE / 3;

/// Somebody who locks `FILE`.
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

    fn who(self) -> LockOwner {
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

    /// LOCK by the client that would wait for it.
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
    let told = engine.take_effects(now).notices;
    assert!(told.iter().all(|LockNotice { key, .. }| *key == FILE));
    told.into_iter().map(|notice| notice.who).collect()
}

/// Four owners of one client of 4.0.
fn four(engine: &mut Machine) -> [Owner; 4] {
    let client = v40(engine, "old");
    ["a", "b", "c", "d"].map(|name| Owner::new(engine, client, name))
}

#[test]
fn who_asks_first_is_served_first() {
    let mut engine = engine();
    let [a, b, c, d] = four(&mut engine);
    let mut held = a.all(&mut engine, NOW).unwrap();
    for (waits, holds) in [(b, a), (c, a), (d, a)] {
        assert_eq!(waits.all(&mut engine, NOW).unwrap_err().owner, holds.who());
    }
    let mut holder = a;
    for (next, others) in [(b, vec![d, c]), (c, vec![d]), (d, vec![])] {
        holder.unlock(&mut engine, &held);
        // Also who just had it, and who doesn't wait.
        for other in others.iter().chain([&a]) {
            assert_eq!(other.all(&mut engine, NOW).unwrap_err().owner, next.who(), "{}", other.name);
            let range = ByteRange { first: 0, last: 99 };
            let once = engine.lock_begin(NOW, &other.request(range, LockKind::Read, false)).unwrap();
            assert_eq!(once.unwrap_err().owner, next.who());
        }
        held = next.all(&mut engine, NOW).unwrap();
        holder = next;
    }
    assert_eq!(notices(&mut engine, NOW), [], "4.0 has no such callback");
}

#[test]
fn a_turn_that_is_let_pass_is_the_next_ones() {
    let mut engine = engine();
    let [a, b, c, d] = four(&mut engine);
    let held = a.all(&mut engine, NOW).unwrap();
    for waits in [b, c] {
        waits.all(&mut engine, NOW).unwrap_err();
    }
    a.unlock(&mut engine, &held);
    drop(engine.take_effects(NOW));
    let late = NOW.plus(POLLED);
    assert_eq!(d.all(&mut engine, NOW.plus(POLLED - 1)).unwrap_err().owner, b.who());
    assert_eq!(d.all(&mut engine, late).unwrap_err().owner, c.who());
    assert_eq!(b.all(&mut engine, late).unwrap_err().owner, c.who(), "it has lost its place");
    // Nor is anybody waited for who hasn't asked for a lease.
    engine.renew40(NOW.plus(LEASE), a.client).unwrap();
    assert_eq!(d.all(&mut engine, NOW.plus(LEASE)).map(drop), Ok(()), "c's turn is over, and b is behind");
}

#[test]
fn who_has_not_asked_for_a_lease_gets_no_turn() {
    let mut engine = engine();
    let [a, b, c, _] = four(&mut engine);
    let held = a.all(&mut engine, NOW).unwrap();
    b.all(&mut engine, NOW).unwrap_err();
    engine.renew40(NOW.plus(LEASE), a.client).unwrap();
    a.unlock(&mut engine, &held);
    c.all(&mut engine, NOW.plus(LEASE + 1)).unwrap();
}

#[test]
fn whoever_can_be_told_is_told_once() {
    let mut engine = engine();
    let [(me, _), (other, _)] = ["me", "other"].map(|name| client(&mut engine, NOW, name));
    let (a, b) = (Owner::new(&mut engine, me, "a"), Owner::new(&mut engine, other, "b"));
    let held = a.all(&mut engine, NOW).unwrap();
    b.all(&mut engine, NOW).unwrap_err();
    b.all(&mut engine, NOW).unwrap_err();
    assert_eq!(notices(&mut engine, NOW), []);
    a.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), [b.who()]);
    engine.tick(NOW);
    assert_eq!(notices(&mut engine, NOW), []);
    assert_eq!(a.all(&mut engine, NOW.plus(TOLD - 1)).unwrap_err().owner, b.who());
    b.all(&mut engine, NOW.plus(TOLD - 1)).unwrap();
    // a waits now, and is told when what b has goes with its open.
    assert_eq!(notices(&mut engine, NOW), []);
    engine.close(&root(other), &b.open, &FILE).unwrap();
    assert_eq!(notices(&mut engine, NOW), [a.who()]);
}

#[test]
fn nobody_is_held_back_for_who_could_not_have_it_anyhow() {
    let mut engine = engine();
    let [a, b, c, d] = four(&mut engine);
    a.lock(&mut engine, NOW, (0, 9), LockKind::Read).unwrap();
    b.lock(&mut engine, NOW, (0, 19), LockKind::Write).unwrap_err();
    // What b waits for is in part free, and c may have that; also what a has itself.
    let held = c.lock(&mut engine, NOW, (10, 19), LockKind::Write).unwrap();
    a.lock(&mut engine, NOW, (0, 9), LockKind::Write).unwrap();
    // Two readers have their turns together.
    let readers = [b, d];
    readers.iter().for_each(|who| drop(who.lock(&mut engine, NOW, (15, 15), LockKind::Read).unwrap_err()));
    c.unlock(&mut engine, &held);
    for who in readers {
        who.lock(&mut engine, NOW, (15, 15), LockKind::Read).unwrap();
    }
}

#[test]
fn a_lock_for_writing_that_becomes_one_for_reading_lets_readers_in() {
    let mut engine = engine();
    let [a, b, c, _] = four(&mut engine);
    a.all(&mut engine, NOW).unwrap();
    b.lock(&mut engine, NOW, (0, 9), LockKind::Read).unwrap_err();
    a.lock(&mut engine, NOW, (0, 99), LockKind::Read).unwrap();
    assert_eq!(c.lock(&mut engine, NOW, (0, 9), LockKind::Write).unwrap_err().owner, a.who());
    b.lock(&mut engine, NOW, (0, 9), LockKind::Read).unwrap();
}

#[test]
fn who_waits_for_a_local_process_holds_nobody_back_until_that_has_gone() {
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
        [(FILE, a.who())]
    );
    assert_eq!(engine.blocked_waiters(0).len(), 0);
    let once = b.request(range, LockKind::Write, false);
    let begun = engine.lock_begin(NOW, &once).unwrap().expect("the kernel would say no");
    engine.lock_blocked_locally(NOW, &begun, &once);
    assert_eq!(engine.blocked_waiters(10).len(), 1, "b doesn't wait");
    engine.unblock(&waiting[0]);
    assert_eq!(notices(&mut engine, NOW), [a.who()]);
    assert_eq!(engine.blocked_waiters(10).len(), 0);
    assert_eq!(b.all(&mut engine, NOW).unwrap_err().owner, a.who());
    a.lock(&mut engine, NOW, (0, 9), LockKind::Write).unwrap();
}

#[test]
fn all_that_wait_for_local_processes_are_looked_at_in_turn() {
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
    let mut looked_at =
        |most| engine.blocked_waiters(most).into_iter().map(|waiting| waiting.key).collect::<Vec<_>>();
    let rounds: Vec<u32> = (0..8).flat_map(|_| looked_at(1)).collect();
    assert_eq!(rounds, [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!([looked_at(3), looked_at(3), looked_at(9)], [vec![0, 1, 2], vec![3, 0, 1], vec![2, 3, 0, 1]]);
}

#[test]
fn the_queue_is_bounded_and_goes_with_its_clients() {
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
    // b's client is silent: what it waited for is anybody's.
    let later = NOW.plus(LEASE + COURTESY);
    engine.destroy_session(session, &ROOT, None).unwrap();
    a.all(&mut engine, later).unwrap();
}

/// Through an open that a client made by itself under a delegation it doesn't hear that a lock is free:
/// nobody is kept waiting for it, until it has opened the file anew.
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
    assert_eq!(notices(&mut engine, NOW), [other.who()]);
    held = other.all(&mut engine, NOW).unwrap();
    claimed.all(&mut engine, NOW).unwrap_err();
    other.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), []);
    // The next to ask has it, whoever that is.
    held = holder.all(&mut engine, NOW).unwrap();
    claimed.all(&mut engine, NOW).unwrap_err();
    let claimed = Owner::new(&mut engine, two, "c");
    claimed.all(&mut engine, NOW).unwrap_err();
    holder.unlock(&mut engine, &held);
    assert_eq!(notices(&mut engine, NOW), [claimed.who()]);
    claimed.all(&mut engine, NOW).unwrap();
}
