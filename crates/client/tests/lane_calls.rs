//! Operations on names and attributes over the lane's call socket.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use samehost_client as client;

use client::{Access, Counters, LaneMode, OpenOptions, Operation, Session, SetAttributes, Status, Version};
use support::{Served, by_each_version, wait_for};

by_each_version! {
    #[tokio::test]
    names_and_attributes_take_one_round_trip_over_the_lane_each,
    #[tokio::test]
    an_open_of_a_small_file_costs_one_round_trip,
    #[tokio::test]
    a_server_that_stops_executes_each_call_once,
}

/// A session with a required lane, by this version of NFS.
async fn lane_by(served: &Served, version: Version) -> Session {
    let options = served.options(LaneMode::Required).version(version);
    Session::connect(&served.url(), options).await.expect("a session with a lane")
}

/// The round trips over TCP that a session has made since `before`.
fn over_tcp(session: &Session, before: &Counters) -> u64 {
    session.counters().wire.round_trips - before.wire.round_trips
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// Makes calls until one was made over the lane.
async fn wait_for_lane_calls(session: &Session) {
    let before = session.counters().events.lane_calls;
    let root = session.root();
    while session.counters().events.lane_calls == before {
        session.attributes(&root).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn names_and_attributes_take_one_round_trip_over_the_lane_each(version: Version) {
    let served = Served::with_lane();
    let session = lane_by(&served, version).await;
    let root = session.root();
    session.attributes(&root).await.unwrap();
    let before = session.counters();
    let directory = session.make_dir(&root, b"dir", &SetAttributes::default()).await.unwrap().handle;
    let link = session.symlink(&directory, b"link", b"target", &SetAttributes::default()).await.unwrap();
    assert_eq!(session.read_link(&link.handle).await.unwrap(), b"target");
    assert_eq!(session.lookup(&directory, b"link").await.unwrap().handle, link.handle);
    assert_eq!(session.lookup(&directory, b"none").await.unwrap_err().status(), Some(Status::NoEntry));
    session.set_attributes(&directory, &mode(0o750), None).await.unwrap();
    assert_eq!(session.attributes(&directory).await.unwrap().mode & 0o7777, 0o750);
    assert_eq!(session.access(&directory, Access::READ).await.unwrap(), Access::READ);
    session.rename(&directory, b"link", &root, b"moved").await.unwrap();
    session.link(&link.handle, &root, b"second").await.unwrap();
    session.remove(&root, b"moved").await.unwrap();
    session.remove_dir(&root, b"dir").await.unwrap();
    let after = session.counters();
    assert_eq!(over_tcp(&session, &before), 0, "{after:?}");
    let calls = after.events.lane_calls - before.events.lane_calls;
    assert_eq!((calls, after.lane.round_trips - before.lane.round_trips), (12, 12));
    // They count as calls of their operations.
    assert_eq!(after.calls(Operation::Lookup) - before.calls(Operation::Lookup), 2);

    // An access control list of NFSv4 may be long.
    session.acls(&root).await.unwrap();
    let over_v4 = u64::from(version != Version::V3);
    assert_eq!(over_tcp(&session, &before), over_v4);
    // NULL shows whether the server replies over TCP.
    session.null().await.unwrap();
    assert_eq!(over_tcp(&session, &before), over_v4 + 1);

    session.set_lane_mode(LaneMode::Off);
    session.attributes(&root).await.unwrap();
    assert_eq!(over_tcp(&session, &before), over_v4 + 2);
    session.set_lane_mode(LaneMode::Auto);
    wait_for("a lane again", || session.lane().local).await;
    wait_for_lane_calls(&session).await;
}

/// The round trips over the lane, and over TCP, of opening, reading and closing a small file.
async fn small_file(session: &Session, name: &str) -> (u64, u64) {
    let before = session.counters();
    let file = session.open(name.as_bytes(), &OpenOptions::reading()).await.unwrap();
    assert_eq!(file.read_into(Vec::new(), 0, 4096).await.unwrap(), b"small");
    file.close().await.unwrap();
    let after = session.counters();
    let lane = after.lane.round_trips - before.lane.round_trips;
    (lane, after.wire.round_trips - before.wire.round_trips)
}

/// With a lane a grant is the open, of NFSv4 too: nothing is asked over the wire besides, before or after the
/// open returns. A tree needs no request.
async fn an_open_of_a_small_file_costs_one_round_trip(version: Version) {
    let with = |served: &Served, lane| {
        let options = served.options(lane).version(version);
        let url = served.url();
        async move { Session::connect(&url, options).await.unwrap() }
    };
    let (files, trees) = (Served::with_lane(), Served::with_trees());
    for served in [&files, &trees] {
        fs::write(served.export().join("one"), b"small").unwrap();
        fs::write(served.export().join("two"), b"small").unwrap();
    }
    let granted = with(&files, LaneMode::Required).await;
    assert_eq!(small_file(&granted, "one").await, (1, 0));
    assert_eq!(small_file(&granted, "two").await, (1, 0));
    let in_tree = with(&trees, LaneMode::Required).await;
    wait_for("a tree", || in_tree.lane().tree).await;
    assert_eq!(small_file(&in_tree, "one").await, (0, 0));
    // LOOKUP or OPEN, and READ. NFSv4's CLOSE is sent in the background.
    let wire = with(&files, LaneMode::Off).await;
    let (over_lane, over_wire) = small_file(&wire, "one").await;
    assert_eq!(over_lane, 0);
    let close = u64::from(version != Version::V3);
    assert!((2..=2 + close).contains(&over_wire), "{over_wire} round trips");
}

#[tokio::test]
async fn many_calls_at_once_have_their_own_results() {
    let served = Served::with_lane();
    for number in 0..500_u32 {
        let path = served.export().join(format!("f{number}"));
        fs::write(&path, vec![7; number as usize]).unwrap();
    }
    let session = served.lane().await;
    let before = session.counters();
    let calls: Vec<_> = (0..500_u64)
        .map(|number| {
            let session = session.clone();
            tokio::spawn(async move {
                let name = format!("f{number}");
                let found = session.lookup(&session.root(), name.as_bytes()).await.unwrap();
                assert_eq!(session.attributes(&found.handle).await.unwrap().size, number);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(over_tcp(&session, &before), 0);
}

/// Root's process may claim every user. AUTH_NONE is for TCP alone.
#[tokio::test]
async fn each_user_of_a_session_acts_as_itself() {
    let served = Served::with_lane();
    fs::set_permissions(served.export(), fs::Permissions::from_mode(0o777)).unwrap();
    let session = served.lane().await;
    let claimed = client::Credential::Sys { uid: 4711, gid: 4711, groups: vec![] };
    let user = session.as_user(claimed);
    let before = session.counters();
    let made = user.make_dir(&session.root(), b"theirs", &SetAttributes::default()).await.unwrap();
    assert_eq!(session.attributes(&made.handle).await.unwrap().uid, 4711);
    assert_eq!(over_tcp(&session, &before), 0);
    let nobody = session.as_user(client::Credential::None);
    nobody.attributes(&session.root()).await.unwrap();
    assert_eq!(over_tcp(&session, &before), 1);
    session.attributes(&session.root()).await.unwrap();
    assert_eq!(over_tcp(&session, &before), 1);
}

/// Directories made and removed while the server stops and starts: every call is executed exactly once.
async fn a_server_that_stops_executes_each_call_once(version: Version) {
    let mut served = Served::with_lane();
    let session = lane_by(&served, version).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopping, working) = (stop.clone(), session.clone());
    let work = tokio::spawn(async move {
        let root = working.root();
        let mut number = 0_u32;
        while !stopping.load(Relaxed) {
            let name = format!("d{number}");
            working.make_dir(&root, name.as_bytes(), &SetAttributes::default()).await.unwrap();
            working.remove_dir(&root, name.as_bytes()).await.unwrap();
            number += 1;
        }
        number
    });
    for _ in 0..3 {
        wait_for_lane_calls(&session).await;
        served = tokio::task::spawn_blocking(move || {
            served.stop();
            served.restart();
            served
        })
        .await
        .unwrap();
        session.null().await.unwrap();
        session.probe().await;
    }
    wait_for_lane_calls(&session).await;
    stop.store(true, Relaxed);
    assert!(work.await.unwrap() > 0);
    assert_eq!(fs::read_dir(served.export()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_server_that_is_killed_fails_no_call() {
    let mut served = Served::with_lane();
    let session = served.lane().await;
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (stop, session) = (stop.clone(), session.clone());
            let path = served.export().join(format!("f{worker}"));
            fs::write(&path, b"").unwrap();
            tokio::spawn(async move {
                let name = format!("f{worker}");
                let file = session.lookup(&session.root(), name.as_bytes()).await.unwrap().handle;
                let mut count = 0;
                while !stop.load(Relaxed) {
                    let wanted = 0o400 | (count % 64);
                    session.set_attributes(&file, &mode(wanted), None).await.unwrap();
                    assert_eq!(session.attributes(&file).await.unwrap().mode & 0o7777, wanted);
                    count += 1;
                }
            })
        })
        .collect();
    for _ in 0..3 {
        wait_for_lane_calls(&session).await;
        served = tokio::task::spawn_blocking(move || {
            served.kill();
            served.restart();
            served
        })
        .await
        .unwrap();
        session.null().await.unwrap();
        session.probe().await;
    }
    wait_for_lane_calls(&session).await;
    stop.store(true, Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
}
