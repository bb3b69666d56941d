//! The registry and the grant table, without sockets and clock.

use fairness::Peer;
use lane::grant_table::{Full, GrantTable, ProtocolError, Purpose};
use lane::registry::{Arrival, Bounds, Claim, Refused, Registry};
use lane::{Commitment, Nonce};
use proptest::prelude::*;
use samehost_lane as lane;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const LIFE: Duration = Duration::from_secs(10);
/// Of the eight connections, two are reserved for root.
const BOUNDS: Bounds = Bounds { waiting: 8, spent: 40, life: LIFE };
const UID: u32 = 1000;
const USER: Peer = Peer::Local(1000);

fn nonce(number: u8) -> Nonce {
    Nonce([number; 16])
}

fn commitment(number: u8) -> Commitment {
    nonce(number).commitment()
}

#[test]
fn one_registration_one_nonce_one_lane() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    assert_eq!(registry.arrive(1, USER, now), Arrival::Waits);
    assert_eq!(registry.claim(&nonce(1), now), Claim::Nobody);
    assert_eq!(registry.register(1, commitment(1), now), Ok(()));
    assert_eq!(registry.register(1, commitment(2), now), Err(Refused::Twice));
    assert_eq!(registry.claim(&nonce(2), now), Claim::Nobody);
    assert_eq!(registry.claim(&nonce(1), now), Claim::One(1));
    assert!(registry.is_empty());
    assert_eq!(registry.claim(&nonce(1), now), Claim::Spent);
    registry.arrive(2, USER, now);
    assert_eq!(registry.register(2, commitment(1), now), Err(Refused::Spent));
    // Once forgotten, it counts as new: random numbers don't repeat.
    let later = now + LIFE;
    registry.arrive(3, USER, later);
    assert_eq!(registry.register(3, commitment(1), later), Ok(()));
}

#[test]
fn a_nonce_with_two_registrations_is_spent() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    for id in 1..=2 {
        registry.arrive(id, USER, now);
        registry.register(id, commitment(1), now).unwrap();
    }
    assert_eq!(registry.claim(&nonce(1), now), Claim::Ambiguous(vec![1, 2]));
    assert_eq!(registry.claim(&nonce(1), now), Claim::Spent);
    assert!(registry.is_empty());
}

#[test]
fn closed_and_expired_connections_match_nothing() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    for id in 1..=3 {
        registry.arrive(id, USER, now);
        registry.register(id, commitment(id as u8), now).unwrap();
    }
    assert!(registry.leave(1));
    assert!(!registry.leave(1));
    assert_eq!(registry.claim(&nonce(1), now), Claim::Nobody);
    assert_eq!(registry.next_expiry(), Some(now + LIFE));
    // It is valid until its expiry, whether or not expired connections were removed.
    assert_eq!(registry.claim(&nonce(2), now + LIFE - Duration::from_nanos(1)), Claim::One(2));
    assert_eq!(registry.claim(&nonce(3), now + LIFE), Claim::Nobody);
    assert_eq!(registry.expire(now + LIFE), [3]);
    assert_eq!(registry.next_expiry(), None);
    assert_eq!(registry.register(3, commitment(3), now + LIFE), Err(Refused::Unknown));
}

#[test]
fn registering_restarts_the_lifetime() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    registry.arrive(1, USER, now);
    registry.arrive(2, USER, now);
    registry.register(1, commitment(1), now + LIFE / 2).unwrap();
    assert_eq!(registry.register(2, commitment(2), now + LIFE), Err(Refused::Unknown));
    assert_eq!(registry.expire(now + LIFE), [2]);
    assert_eq!(registry.claim(&nonce(1), now + LIFE), Claim::One(1));
}

#[test]
fn connections_are_shared_by_user_and_the_greediest_is_displaced() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    let [greedy, modest, other] = [2000, 3000, 4000].map(Peer::Local);
    // Half of what isn't reserved for root, then in place of its own: first those that have registered
    // nothing.
    for id in 1..=3 {
        assert_eq!(registry.arrive(id, greedy, now), Arrival::Waits);
        registry.register(id, commitment(id as u8), now).unwrap();
    }
    assert_eq!(registry.arrive(4, greedy, now), Arrival::Displaces(1));
    assert_eq!(registry.arrive(5, greedy, now), Arrival::Displaces(4));
    // Others find room, and up to their share displace connections of a user that has more.
    assert_eq!(registry.arrive(6, modest, now), Arrival::Waits);
    assert_eq!(registry.arrive(7, modest, now), Arrival::Displaces(5));
    assert_eq!(registry.arrive(8, other, now), Arrival::Waits);
    assert_eq!(registry.arrive(9, other, now), Arrival::Displaces(8), "nobody has more than it would have");
    assert_eq!(registry.arrive(10, modest, now), Arrival::Displaces(6));
    // Root has reserved room, and keeps it.
    for id in 11..=12 {
        assert_eq!(registry.arrive(id, Peer::Local(0), now), Arrival::Waits);
    }
    for (id, uid) in (13..).zip(5000..5100) {
        match registry.arrive(id, Peer::Local(uid), now) {
            Arrival::Displaces(other) => assert!(!(11..=12).contains(&other)),
            arrival => assert_eq!((arrival, uid), (Arrival::Waits, 5000)),
        }
    }
    assert!(registry.len() <= BOUNDS.waiting);
}

#[test]
fn used_nonces_are_not_forgotten_early() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    let victim = commitment(0);
    registry.arrive(1, Peer::Local(1), now);
    registry.register(1, victim, now).unwrap();
    assert_eq!(registry.claim(&nonce(0), now), Claim::One(1));
    // A hostile user makes as many handshakes as it may.
    let mut made = 0;
    for number in 1..=u8::MAX {
        let id = 1 + u64::from(number);
        registry.arrive(id, USER, now);
        registry.register(id, commitment(number), now).unwrap();
        match registry.claim(&nonce(number), now) {
            Claim::One(_) => made += 1,
            refused => assert_eq!(refused, Claim::TooMany(id)),
        }
    }
    assert!((10..=20).contains(&made), "{made}");
    assert_eq!(registry.claim(&nonce(0), now), Claim::Spent);
    registry.arrive(1000, USER, now);
    assert_eq!(registry.register(1000, victim, now), Err(Refused::Spent));
    // Others aren't affected, and it is served again when its own have expired.
    for (id, who, now) in [(1001, Peer::Local(2), now), (1002, USER, now + LIFE)] {
        registry.arrive(id, who, now);
        registry.register(id, commitment(u8::MAX), now).unwrap();
        assert_eq!(registry.claim(&nonce(u8::MAX), now), Claim::One(id));
    }
}

#[test]
fn the_nonce_of_a_called_client_is_used_once() {
    let (mut registry, now) = (Registry::new(BOUNDS), Instant::now());
    assert!(registry.spend_called(commitment(1), USER, now));
    assert!(!registry.spend_called(commitment(1), USER, now));
    registry.arrive(1, USER, now);
    registry.register(1, commitment(2), now).unwrap();
    assert!(!registry.spend_called(commitment(2), USER, now));
}

#[test]
fn a_grant_from_giving_to_release() {
    let (mut grants, now) = (GrantTable::new(6, 2), Instant::now());
    assert_eq!(grants.give('a', UID, Purpose::Open, now), Ok(1));
    assert_eq!(grants.give('b', UID, Purpose::Open, now), Ok(2));
    // Two are undelivered: no third, though three may be open.
    assert_eq!(grants.give('c', UID, Purpose::Open, now), Err(Full));
    assert!(!grants.has_room(UID, Purpose::Open));
    grants.received(1).unwrap();
    assert_eq!(grants.give('c', UID, Purpose::Open, now), Ok(3));
    grants.received(3).unwrap();
    assert_eq!((grants.open(), grants.undelivered()), (3, 0));
    assert_eq!(grants.give('d', UID, Purpose::Open, now), Err(Full));
    assert_eq!(grants.release(2), Ok('b'));
    assert_eq!(grants.release(2), Err(ProtocolError::NotOpen(2)));
    assert_eq!(grants.release(99), Err(ProtocolError::NotOpen(99)));
    let mut left: Vec<_> = grants.end().collect();
    left.sort_unstable();
    assert_eq!(left, ['a', 'c']);
}

#[test]
fn one_user_of_a_lane_leaves_grants_for_others() {
    let (mut grants, now) = (GrantTable::new(400, 1000), Instant::now());
    let mut all_of = |user| std::iter::from_fn(|| grants.give((), user, Purpose::Open, now).ok()).count();
    assert_eq!(all_of(1000), 175, "half of what isn't kept for root");
    assert_eq!(all_of(1001), 87);
    assert_eq!(all_of(0), 69);
    // Released grants are available to others.
    (1..=175).for_each(|id| grants.release(id).unwrap());
    assert!(grants.has_room(1001, Purpose::Open) && grants.has_room(1002, Purpose::Open));
}

#[test]
fn invalid_receipts_are_rejected() {
    let (mut grants, now) = (GrantTable::new(9, 9), Instant::now());
    assert_eq!(grants.received(0), Ok(0));
    assert_eq!(grants.received(1), Err(ProtocolError::Receipts { receipts: 1, grants: 0 }));
    grants.give((), UID, Purpose::Open, now).unwrap();
    grants.received(1).unwrap();
    assert_eq!(grants.received(0), Err(ProtocolError::Receipts { receipts: 0, grants: 1 }));
    assert!(grants.received(u64::MAX).is_err());
}

/// The client has acknowledged two grants, and the lane ends before the server reads that. The end has
/// counted them already, so the receipts must not count again.
#[test]
fn receipts_that_are_read_after_the_end_deliver_nothing() {
    let (mut grants, now) = (GrantTable::new(9, 9), Instant::now());
    for _ in 0..3 {
        grants.give((), UID, Purpose::Open, now).unwrap();
    }
    assert_eq!(grants.received(1), Ok(1));
    assert_eq!(grants.end().count(), 3);
    assert_eq!(grants.received(3), Ok(0));
    assert_eq!((grants.open(), grants.undelivered()), (0, 0));
}

#[test]
fn a_grant_that_is_not_acknowledged_is_overdue_by_the_oldest() {
    let (mut grants, now) = (GrantTable::new(9, 9), Instant::now());
    let second = Duration::from_secs(1);
    assert!(!grants.overdue(now + LIFE * 9, LIFE));
    grants.give((), UID, Purpose::Open, now).unwrap();
    grants.give((), UID, Purpose::Open, now + second).unwrap();
    assert!(!grants.overdue(now + LIFE, LIFE));
    assert!(grants.overdue(now + LIFE + second / 2, LIFE));
    grants.received(1).unwrap();
    assert!(!grants.overdue(now + LIFE + second / 2, LIFE));
    // A grant that was released before its receipt was read still needs the receipt.
    grants.release(2).unwrap();
    assert!(grants.overdue(now + LIFE + second * 2, LIFE));
}

#[test]
fn a_grant_whose_reply_was_lost_leaks_nothing() {
    let (mut grants, now) = (GrantTable::new(2, 1), Instant::now());
    let id = grants.give('x', UID, Purpose::Open, now).unwrap();
    assert_eq!(grants.take_back(id), Some('x'));
    assert_eq!((grants.open(), grants.undelivered()), (0, 0));
    assert_eq!(grants.give('y', UID, Purpose::Open, now), Ok(id));
    grants.received(1).unwrap();
}

proptest! {
    /// Compared with a model: after any sequence of operations, open and undelivered are correct.
    #[test]
    fn grants_add_up(steps in proptest::collection::vec((0..4_u8, 0..12_u64), 0..200)) {
        // One user has half of the grants.
        let (mut grants, now) = (GrantTable::new(10, 3), Instant::now());
        let (mut open, mut given, mut receipts) = (HashMap::new(), 0_u64, 0_u64);
        for (what, number) in steps {
            match what {
                0 => {
                    let room = open.len() < (10 - 1) / 2 && given - receipts < 3;
                    assert_eq!(grants.give(number, UID, Purpose::Open, now).is_ok(), room);
                    if room {
                        given += 1;
                        open.insert(given, number);
                    }
                }
                1 => assert_eq!(grants.release(number).ok(), open.remove(&number)),
                2 => {
                    let makes_sense = (receipts..=given).contains(&number);
                    assert_eq!(grants.received(number).is_ok(), makes_sense);
                    if makes_sense {
                        receipts = number;
                    }
                }
                _ => assert_eq!(grants.overdue(now + LIFE, Duration::ZERO), given > receipts),
            }
            assert_eq!((grants.open(), grants.undelivered() as u64), (open.len(), given - receipts));
        }
    }

    /// However connections arrive, register and leave, the registry stays within its bounds and no connection
    /// is claimed twice.
    #[test]
    fn the_registry_stays_within_its_bounds(steps in proptest::collection::vec((0..5_u8, 0..6_u8), 0..200)) {
        let (mut registry, mut now, mut next) = (Registry::new(BOUNDS), Instant::now(), 1);
        let (mut alive, mut claimed) = (HashMap::new(), Vec::new());
        for (what, number) in steps {
            match what {
                0 => {
                    match registry.arrive(next, Peer::Local(number.into()), now) {
                        Arrival::Waits => assert!(alive.len() < BOUNDS.waiting),
                        Arrival::Displaces(other) => { alive.remove(&other).expect("it was waiting"); }
                        // The others are root's.
                        Arrival::Refused => panic!("there's always a place for somebody"),
                    }
                    alive.insert(next, number);
                    next += 1;
                }
                1 => {
                    if let Some(id) = alive.keys().min() {
                        let _ = registry.register(*id, commitment(number), now);
                    }
                }
                2 => match registry.claim(&nonce(number), now) {
                    Claim::One(id) => {
                        alive.remove(&id).expect("it was waiting");
                        assert!(!claimed.contains(&(number, now)));
                        claimed.push((number, now));
                    }
                    Claim::Ambiguous(ids) => ids.iter().for_each(|id| { alive.remove(id); }),
                    Claim::Nobody | Claim::Spent => {}
                    Claim::TooMany(_) => panic!("there are only six nonces"),
                },
                3 => {
                    now += LIFE / 3;
                    registry.expire(now).iter().for_each(|id| { alive.remove(id); });
                }
                _ => {
                    if let Some(id) = alive.keys().max().copied() {
                        assert!(registry.leave(id));
                        alive.remove(&id);
                    }
                }
            }
            assert_eq!(registry.len(), alive.len());
            assert!(registry.len() <= BOUNDS.waiting);
            let max = (BOUNDS.waiting - BOUNDS.waiting / 4) / 2;
            for uid in 1..6 {
                assert!(alive.values().filter(|of| **of == uid).count() <= max);
            }
        }
    }
}
