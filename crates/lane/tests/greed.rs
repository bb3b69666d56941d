//! Greedy local users, and what they leave for others.

mod common;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use common::{Raw, World, as_user};
use lane::message::{self, HandshakeRefusal, LaneReply};
use lane::{LaneCredential, Nonce, OpenStatus};
use samehost_lane as lane;

/// A lane, if the server gives one.
fn try_lane(world: &World) -> Result<(Raw, OwnedFd), HandshakeRefusal> {
    let raw = world.raw();
    let nonce = Nonce::random().unwrap();
    raw.register(&nonce);
    world.nonce_arrives(nonce.0);
    let (bytes, memory) = raw.receive().expect("an answer");
    match message::decode(&bytes) {
        Ok(LaneReply::Local { .. }) => Ok((raw, memory.expect("the interlock's memory"))),
        Ok(LaneReply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

/// All lanes that the server gives this user.
fn all_lanes(world: &Arc<World>, uid: u32) -> Option<Vec<(Raw, OwnedFd)>> {
    let world = Arc::clone(world);
    as_user(uid, uid, &[], move || std::iter::from_fn(|| try_lane(&world).ok()).take(1000).collect())
}

fn as_itself(uid: u32) -> LaneCredential {
    LaneCredential { uid, gid: uid, gids: vec![] }
}

#[test]
fn five_greedy_users_leave_lanes_for_others() {
    let world = Arc::new(World::limits(|limits| limits.lanes = 64));
    let mut held = Vec::new();
    for uid in 4711..4716 {
        let Some(lanes) = all_lanes(&world, uid) else { return };
        assert!(!lanes.is_empty());
        held.push(lanes);
    }
    assert!(world.server.status().len() <= 48, "a quarter is kept for root");
    let its = Arc::clone(&world);
    let newcomer = as_user(4800, 4800, &[], move || try_lane(&its).map(drop));
    assert_eq!(newcomer, Some(Ok(())));
    let root: Vec<_> = std::iter::from_fn(|| try_lane(&world).ok()).take(16).collect();
    assert_eq!(root.len(), 16);
    // They all work.
    for (raw, _memory) in &root {
        raw.open(1, b"hello");
        assert!(raw.receive().unwrap().1.is_some());
    }
}

#[test]
fn the_idle_lane_of_the_greediest_user_is_displaced() {
    let world = Arc::new(World::limits(|limits| limits.lanes = 8));
    // Six aren't root's. One user takes three, and the next one's second displaces the first one's third: a
    // third of them each, and a third for the next user.
    let Some(greedy) = all_lanes(&world, 4711) else { return };
    let Some(modest) = all_lanes(&world, 4712) else { return };
    assert_eq!((greedy.len(), modest.len()), (3, 2));
    let alive = |raw: &Raw, uid| {
        raw.try_open_as(1, b"hello", as_itself(uid)).is_ok()
            && raw.receive().is_some_and(|(_, fd)| fd.is_some())
    };
    let greedy_alive = greedy.iter().filter(|(raw, _)| alive(raw, 4711)).count();
    let modest_alive = modest.iter().filter(|(raw, _)| alive(raw, 4712)).count();
    assert_eq!((greedy_alive, modest_alive), (2, 2));
    assert_eq!(world.server.status().len(), 4);
}

#[test]
fn unacknowledged_files_count_against_their_own_user() {
    let world = Arc::new(World::limits(|limits| limits.under_way = 32));
    let its = Arc::clone(&world);
    let stingy = as_user(4711, 4711, &[], move || {
        let lanes: Vec<_> = (0..8).map(|_| its.raw_lane()).collect();
        let mut granted = 0;
        for (raw, _memory) in &lanes {
            loop {
                raw.open_as(1, b"hello", as_itself(4711));
                let (bytes, fd) = raw.receive().unwrap();
                if fd.is_none() {
                    let refused = LaneReply::NotOpened { serial: 1, status: OpenStatus::TooMany };
                    assert_eq!(message::decode(&bytes), Ok(refused));
                    break;
                }
                granted += 1;
            }
        }
        (lanes, granted)
    });
    let Some((_lanes, granted)) = stingy else { return };
    assert_eq!(granted, 12, "half of what isn't root's");
    let its = Arc::clone(&world);
    let other = as_user(4712, 4712, &[], move || {
        let (raw, _memory) = its.raw_lane();
        raw.open_as(1, b"hello", as_itself(4712));
        raw.receive().unwrap().1.is_some()
    });
    assert_eq!(other, Some(true));
    let (raw, _memory) = world.raw_lane();
    raw.open(1, b"hello");
    assert!(raw.receive().unwrap().1.is_some());
}

/// The mount of root, which many users share.
#[test]
fn a_greedy_user_of_roots_lane_leaves_grants_for_others() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::limits(|limits| limits.lane_grants = 40);
    let (raw, memory) = world.raw_lane();
    let mut received = 0_u64;
    let mut open = |uid: u32| {
        raw.open_as(1, b"hello", as_itself(uid));
        let (bytes, fd) = raw.receive().unwrap();
        if fd.is_none() {
            let refused = LaneReply::NotOpened { serial: 1, status: OpenStatus::TooMany };
            assert_eq!(message::decode(&bytes), Ok(refused));
            return false;
        }
        received += 1;
        rustix::io::pwrite(&memory, &received.to_ne_bytes(), lane::interlock::RECEIVED as u64).unwrap();
        true
    };
    let mut all_of = |uid| (0..1000).take_while(|_| open(uid)).count();
    assert_eq!([all_of(1000), all_of(1001), all_of(0)], [17, 9, 7]);
}
