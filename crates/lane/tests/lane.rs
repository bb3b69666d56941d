//! A lane from the handshake to the end, with real sockets and files.

mod common;

use common::{FakeServer, LONG, Raw, World, by_name, content, root};
use lane::interlock::{Control, ControlState, FIRST_SLOT, IN_FLIGHT, SLOT_SIZE, SLOTS};
use lane::message::{self, LaneReply, LaneRequest};
use lane::{
    Access, CreateMode, GrantAttributes, LaneCredential, LaneState, NewFile, OpenError, OpenRequest,
    OpenStatus, Target,
};
use samehost_lane as lane;

use rustix::fs::{Mode, OFlags};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

#[tokio::test]
async fn handshake_open_read_release() {
    let world = World::new();
    let lane = world.connect().await;
    assert_eq!(lane.instance(), world.instance);
    assert_eq!(lane.through(), world.socket_file().to_str().unwrap());
    assert_eq!(lane.state(), LaneState::Live);

    let who = root();
    let opened = lane.open(by_name(b"hello", &who)).await.unwrap();
    assert_eq!(content(&opened.grant), "hello");
    assert_eq!(opened.handle, b"hello");
    assert_eq!(opened.attributes.file.size, 5);
    assert_eq!(&opened.verifier, b"verifier");
    assert_eq!(world.open_grants(), 1);
    assert_eq!(world.server.status()[0].grants, 1);

    let same = OpenRequest { target: Target::Handle(&opened.handle), access: Access::Read, credential: &who };
    let again = lane.open(same).await.unwrap();
    assert_eq!(content(&again.grant), "hello");
    assert_eq!(
        lane.open(by_name(b"nothing", &who)).await.unwrap_err(),
        OpenError::Refused(OpenStatus::NotFound)
    );
    drop((opened, again));
    // No Open follows that could carry the releases: they are sent by themselves.
    while world.open_grants() != 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let info = &world.server.status()[0];
    assert_eq!((info.grants, info.granted, info.refused, info.in_flight), (0, 2, 1, 0));
}

#[tokio::test]
async fn a_call_socket_connects_the_client_with_the_service() {
    let world = World::new();
    let lane = world.connect().await;
    let who = root();
    // A release that waits goes with the request.
    drop(lane.open(by_name(b"hello", &who)).await.unwrap());
    let first = lane.call_socket().await.unwrap();
    let second = lane.call_socket().await.unwrap();
    assert_eq!(world.open_grants(), 0);
    for (socket, word) in [(first, b"one"), (second, b"two")] {
        let mut at_server = world.call_sockets.lock().remove(0);
        std::os::unix::net::UnixStream::from(socket).write_all(word).unwrap();
        let mut received = [0; 3];
        at_server.read_exact(&mut received).unwrap();
        assert_eq!(&received, word);
        assert_eq!(at_server.read(&mut received).unwrap(), 0, "no copy is left");
    }
    // It costs no grant, and a lane that drains gives none.
    assert_eq!(world.server.status()[0].granted, 1);
    assert!(world.server.drain(Duration::ZERO));
    assert_eq!(lane.call_socket().await.unwrap_err(), OpenError::Gone);
}

#[tokio::test]
async fn an_older_server_is_not_asked_for_a_call_socket() {
    let fake = FakeServer::new();
    let (lane, raw, _memory) = fake.lane().await;
    assert_eq!(lane.call_socket().await.unwrap_err(), OpenError::TooOld);
    drop(lane);
    assert!(raw.receive().is_none(), "nothing was sent");
}

/// An Open that creates its file if it is missing.
fn to_make<'a>(name: &'a [u8], credential: &'a LaneCredential) -> OpenRequest<'a> {
    let new = NewFile { directory: b"root", name, mode: 0o600, how: CreateMode::Unchecked };
    OpenRequest { target: Target::New(new), access: Access::ReadWrite, credential }
}

#[tokio::test]
async fn a_file_is_created_and_opened_in_one_round_trip() {
    let world = World::new();
    let (lane, who) = (world.connect().await, root());
    for _ in 0..2 {
        let opened = lane.open(to_make(b"new", &who)).await.unwrap();
        assert_eq!(opened.handle, b"new");
        assert!(opened.directory.is_some_and(|changed| changed.after.is_some()));
        assert_eq!(rustix::io::write(&opened.grant, b"data").unwrap(), 4);
    }
    assert!(lane.open(by_name(b"new", &who)).await.unwrap().directory.is_none());
}

#[tokio::test]
async fn an_older_server_is_not_asked_for_what_it_does_not_know() {
    let who = root();
    let whole = |target| OpenRequest { target, access: Access::ReadWrite, credential: &who };
    let requests = [whole(Target::Tree(b"root")), whole(Target::Mount(b"root")), to_make(b"new", &who)];
    for (version, unknown) in [(2, &requests[..]), (3, &requests[..2])] {
        let fake = FakeServer { version, ..FakeServer::new() };
        let (lane, raw, _memory) = fake.lane().await;
        for request in unknown {
            assert_eq!(lane.open(*request).await.unwrap_err(), OpenError::TooOld);
        }
        drop(lane);
        // It has received nothing.
        assert!(raw.receive().is_none());
    }
}

#[tokio::test]
async fn a_directory_is_granted_as_a_tree() {
    let world = World::new();
    std::fs::create_dir(world.dir.path().join("tree")).unwrap();
    std::fs::write(world.dir.path().join("tree/f"), "below").unwrap();
    let (lane, who) = (world.connect().await, root());
    let request = OpenRequest { target: Target::Tree(b"tree"), access: Access::Read, credential: &who };
    let opened = lane.open(request).await.unwrap();
    assert!(opened.grant.is_live());
    let below = rustix::fs::openat(&opened.grant, "f", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(content(&below), "below");
    assert_eq!(world.open_grants(), 1);
    world.server.recall(|_| true);
    assert!(!opened.grant.is_live());
}

#[tokio::test]
async fn a_client_that_syncs_for_itself_sends_async() {
    let world = World::new();
    let (one, other) = (world.connect().await, world.connect().await);
    // Repeated messages count once.
    (0..100).for_each(|_| one.go_async());
    // The reply to the next message shows that it was processed.
    let opened = one.open(by_name(b"hello", &root())).await.unwrap();
    assert_eq!(content(&opened.grant), "hello");
    other.open(by_name(b"hello", &root())).await.unwrap();
    assert_eq!(world.asynchronous.load(SeqCst), 1);
}

#[tokio::test]
async fn pipelined_opens_return_to_their_callers() {
    let world = World::new();
    for name in 0..32 {
        std::fs::write(world.dir.path().join(name.to_string()), name.to_string()).unwrap();
    }
    let lane = world.connect().await;
    let tasks: Vec<_> = (0..320)
        .map(|number| {
            let lane = lane.clone();
            tokio::spawn(async move {
                let name = (number % 32).to_string();
                let opened = lane.open(by_name(name.as_bytes(), &root())).await.unwrap();
                assert_eq!(content(&opened.grant), name);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    lane.flush();
    world.wait_for("the releases", |world| world.open_grants() == 0);
}

#[tokio::test]
async fn releases_are_sent_with_the_next_open() {
    let fake = FakeServer::new();
    let (lane, raw, _memory) = fake.lane().await;
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let who = root();
    let mut grants = Vec::new();
    let reply = |serial, grant| {
        message::encode(&LaneReply::Opened {
            serial,
            grant,
            generation: 1,
            verifier: [0; 8],
            handle: b"",
            attributes: GrantAttributes::default(),
            directory: None,
        })
    };
    for grant in 10..20 {
        let (opened, ()) = tokio::join!(lane.open(by_name(b"x", &who)), async {
            let (bytes, _) = raw.receive().unwrap();
            let Ok(LaneRequest::Open { serial, releases, .. }) = message::decode(&bytes) else { panic!() };
            assert_eq!(releases, []);
            raw.try_send(&reply(serial, grant), &[file.as_fd()]).unwrap();
        });
        grants.push(opened.unwrap().grant);
    }
    grants.clear();
    let mut open = Box::pin(lane.open(by_name(b"y", &who)));
    assert!(tokio::time::timeout(Duration::ZERO, &mut open).await.is_err());
    let (bytes, _) = raw.receive().unwrap();
    let Ok(LaneRequest::Open { serial, releases, .. }) = message::decode(&bytes) else { panic!() };
    assert_eq!(releases, (10..20).collect::<Vec<_>>());
    raw.send(&message::encode(&LaneReply::NotOpened { serial, status: OpenStatus::Access }));
    assert_eq!(open.await.unwrap_err(), OpenError::Refused(OpenStatus::Access));
}

#[tokio::test]
async fn a_dropped_open_is_released() {
    let world = World::new();
    let lane = world.connect().await;
    for _ in 0..20 {
        let who = root();
        let mut open = Box::pin(lane.open(by_name(b"hello", &who)));
        assert!(futures_poll_once(&mut open).await.is_none());
        drop(open);
    }
    // The last of them shows that all earlier ones were answered.
    let who = root();
    let opened = lane.open(by_name(b"hello", &who)).await.unwrap();
    drop(opened);
    while world.open_grants() != 0 || world.server.status()[0].granted != 21 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Polls once, like a caller that gives up at once.
async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn the_lane_s_limit_on_grants() {
    // Half of them are the share of one user.
    let world = World::limits(|limits| limits.lane_grants = 6);
    let lane = world.connect().await;
    let who = root();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(lane.open(by_name(b"hello", &who)).await.unwrap());
    }
    let refused = lane.open(by_name(b"hello", &who)).await.unwrap_err();
    assert_eq!(refused, OpenError::Refused(OpenStatus::TooMany));
    held.pop();
    // The release is sent with this Open.
    held.push(lane.open(by_name(b"hello", &who)).await.unwrap());
    assert_eq!(world.open_grants(), 3);
}

#[tokio::test]
async fn requests_above_the_bounds_are_not_sent() {
    let world = World::new();
    let lane = world.connect().await;
    let who = root();
    let long = vec![b'x'; 256];
    assert_eq!(lane.open(by_name(&long, &who)).await.unwrap_err(), OpenError::TooLong);
    let handle = OpenRequest { target: Target::Handle(&long[..129]), access: Access::Read, credential: &who };
    assert_eq!(lane.open(handle).await.unwrap_err(), OpenError::TooLong);
    let many = lane::LaneCredential { gids: vec![1; 17], ..root() };
    assert_eq!(lane.open(by_name(b"hello", &many)).await.unwrap_err(), OpenError::TooLong);
    assert!(lane.open(by_name(&long[..255], &who)).await.is_err());
    assert_eq!(lane.state(), LaneState::Live);
}

#[tokio::test]
async fn a_client_that_hangs_up_releases_everything() {
    let world = World::new();
    let (raw, _memory) = world.raw_lane();
    for serial in 0..10 {
        raw.open(serial, b"hello");
    }
    world.wait_for("the grants", |world| world.open_grants() == 10);
    drop(raw);
    world.wait_for("their end", |world| world.open_grants() == 0 && world.server.status().is_empty());
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_lane() {
    let world = World::new();
    let lane = world.connect().await;
    let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
    drop(lane);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(content(&opened.grant), "hello");
    assert!(opened.grant.is_live());
    assert_eq!(world.server.status().len(), 1);
    drop(opened);
    world.wait_for("the lane's end", |world| world.server.status().is_empty() && world.open_grants() == 0);
}

#[tokio::test]
async fn a_stopping_server_is_noticed_without_polling() {
    let world = World::new();
    let lane = world.connect().await;
    let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
    let gone = tokio::spawn({
        let lane = lane.clone();
        async move { lane.gone().await }
    });
    let (server, dir) = (world.server, world.dir);
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    gone.await.unwrap();
    assert!(opened.grant.try_get().is_none());
    assert!(!opened.grant.is_live());
    // The descriptor stays valid: I/O in flight succeeds.
    assert_eq!(content(&opened.grant), "hello");
    assert_eq!(lane.open(by_name(b"hello", &root())).await.unwrap_err(), OpenError::Gone);
    assert_eq!(std::fs::read_dir(dir.path().join("run")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_server_that_is_killed_is_noticed_too() {
    // It can't write into the interlock any more: the hang-up must suffice.
    let fake = FakeServer::new();
    let (lane, raw, memory) = fake.lane().await;
    drop(raw);
    lane.gone().await;
    assert_eq!(lane.state(), LaneState::Gone);
    assert_eq!(memory.wide(0).unwrap().load(std::sync::atomic::Ordering::SeqCst), 1 << 2 | 2);
}

#[test]
fn a_runtime_that_is_shut_down_ends_its_lanes() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (lane, opened) = runtime.block_on(async {
        let lane = world.connect().await;
        let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
        (lane, opened)
    });
    drop(runtime);
    assert_eq!(lane.state(), LaneState::Gone);
    assert!(opened.grant.try_get().is_none());
    world.wait_for("the lane's end", |world| world.server.status().is_empty());
}

#[test]
fn a_runtime_that_sleeps_between_calls_flushes_when_asked() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lane = runtime.block_on(world.connect());
    let opened = runtime.block_on(async { lane.open(by_name(b"hello", &root())).await.unwrap() });
    drop(opened);
    lane.flush();
    world.wait_for("the release", |world| world.open_grants() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_io_under_way_and_refuses_more() {
    let world = Arc::new(World::new());
    let lane = world.connect().await;
    let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
    let under_way = opened.grant.try_get().unwrap();
    assert_eq!(world.server.status()[0].in_flight, 1);
    let draining = tokio::task::spawn_blocking({
        let world = Arc::clone(&world);
        move || world.server.drain(LONG)
    });
    lane.gone().await;
    assert_eq!(lane.state(), LaneState::Draining);
    assert!(opened.grant.try_get().is_none());
    assert!(!draining.is_finished());
    assert_eq!(content(&under_way), "hello");
    drop(under_way);
    assert!(draining.await.unwrap());
    while lane.state() != LaneState::Gone {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(world.server.status().is_empty());
    assert!(world.server.drain(LONG), "the second time there's nothing to do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_no_longer_than_its_bound() {
    let world = Arc::new(World::new());
    let lane = world.connect().await;
    let opened = lane.open(by_name(b"hello", &root())).await.unwrap();
    let _for_ever = opened.grant.try_get().unwrap();
    let its = Arc::clone(&world);
    let all_ended =
        tokio::task::spawn_blocking(move || its.server.drain(Duration::from_millis(50))).await.unwrap();
    assert!(!all_ended);
    assert!(world.server.status().is_empty());
}

#[tokio::test]
async fn a_recall_ends_the_grants_and_keeps_the_lane() {
    let world = World::new();
    let lane = world.connect().await;
    let other = world.connect().await;
    let (before, others) = (
        lane.open(by_name(b"hello", &root())).await.unwrap(),
        other.open(by_name(b"hello", &root())).await.unwrap(),
    );
    let number = world.server.status()[0].bound.lane;
    assert_eq!(world.server.recall(|lane| lane.bound.lane == number), 1);
    assert!(before.grant.try_get().is_none());
    assert!(others.grant.try_get().is_some());
    assert_eq!(lane.state(), LaneState::Live);
    let after = lane.open(by_name(b"hello", &root())).await.unwrap();
    assert!(after.grant.try_get().is_some());
    assert!(before.grant.try_get().is_none());
}

#[tokio::test]
async fn a_revoked_lane_ends_alone() {
    let world = World::new();
    let lane = world.connect().await;
    let other = world.connect().await;
    let number = world.server.status()[0].bound.lane;
    assert_eq!(world.server.revoke(|lane| lane.bound.lane == number), 1);
    lane.gone().await;
    world.wait_for("the lane's end", |world| world.server.status().len() == 1);
    assert_eq!(other.state(), LaneState::Live);
}

#[tokio::test]
async fn of_two_local_servers_each_gets_its_own_releases() {
    let (one, two) = (World::new(), World::new());
    let (first, second) = (one.connect().await, two.connect().await);
    let who = root();
    let (a, b) =
        (first.open(by_name(b"hello", &who)).await.unwrap(), second.open(by_name(b"hello", &who)).await);
    let b = b.unwrap();
    assert_eq!(a.grant.id(), b.grant.id(), "the same number on both, to make it hard");
    drop(a);
    first.flush();
    one.wait_for("the release", |one| one.open_grants() == 0);
    assert_eq!(two.open_grants(), 1);
    drop(b);
    second.flush();
    two.wait_for("the release", |two| two.open_grants() == 0);
    assert_eq!((first.state(), second.state()), (LaneState::Live, LaneState::Live));
}

#[tokio::test]
async fn grants_are_file_descriptions_of_their_own() {
    let world = World::new();
    let lane = world.connect().await;
    let who = root();
    let (a, b) = (
        lane.open(by_name(b"hello", &who)).await.unwrap(),
        lane.open(by_name(b"hello", &who)).await.unwrap(),
    );
    rustix::fs::seek(&a.grant, rustix::fs::SeekFrom::Start(3)).unwrap();
    assert_eq!(rustix::fs::tell(&b.grant).unwrap(), 0);
}

/// A server without a barrier, one with a barrier, and one that claims too many slots.
#[tokio::test]
async fn io_is_counted_in_slots_that_the_server_reads() {
    for slots in [0, SLOTS as u32, u32::MAX] {
        let mut fake = FakeServer::new();
        fake.slots = slots;
        let (lane, raw, memory) = fake.lane().await;
        let opened = fake_open(&lane, &raw).await;
        let word = |offset: usize| memory.wide((offset / 8) as u16).unwrap().load(SeqCst);
        let counts = || {
            let own: u64 = (0..SLOTS).map(|slot| word(FIRST_SLOT + slot * SLOT_SIZE)).sum();
            (word(IN_FLIGHT), own)
        };
        // Threads without a slot count in the shared word, and this may be one of them.
        let has_slot = sys::thread_slot::current().is_some_and(|slot| slot < SLOTS.min(slots as usize));
        let expected = |many| if has_slot { (0, many) } else { (many, 0) };
        let first = opened.try_get().unwrap();
        let inside = opened.try_get().unwrap();
        assert_eq!(counts(), expected(2));
        drop(first);
        assert_eq!(counts(), expected(1));
        drop(inside);
        memory
            .wide(0)
            .unwrap()
            .store(Control { state: ControlState::Draining, ..Control::FIRST }.word(), SeqCst);
        assert!(opened.try_get().is_none());
        assert_eq!(counts(), (0, 0));
    }
}

/// A grant from a server that the test controls.
async fn fake_open(lane: &lane::Lane, raw: &Raw) -> lane::Grant {
    let (file, _peer) = std::io::pipe().unwrap();
    let answer = async {
        let (bytes, _) = raw.receive().unwrap();
        let Ok(LaneRequest::Open { serial, .. }) = message::decode(&bytes) else { panic!("no Open") };
        let opened = LaneReply::Opened {
            serial,
            grant: 1,
            generation: 1,
            verifier: [0; 8],
            handle: b"handle",
            attributes: GrantAttributes::default(),
            directory: None,
        };
        raw.try_send(&message::encode(&opened), &[file.as_fd()]).unwrap();
    };
    let who = root();
    tokio::join!(lane.open(by_name(b"hello", &who)), answer).0.unwrap().grant
}
