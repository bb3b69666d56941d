//! Peers that break the protocol: each loses only its own connection.

mod common;

use common::{FakeServer, LONG, Raw, World, as_user, by_name, content, memory, root};
use lane::message::{self, LaneReply, LaneRequest, MAX_MESSAGE};
use lane::{
    LaneCredential, LaneState, Nonce, OpenError, OpenRequest, OpenStatus, Reason, Rendezvous,
    RendezvousOptions, Target,
};
use samehost_lane as lane;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// A descriptor whose closing can be seen at the other end.
fn tell_tale() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// Whether every copy of a pipe's writing end is closed.
fn all_closed(reader: &OwnedFd) -> bool {
    rustix::io::read(reader, &mut [0; 1]).unwrap() == 0
}

fn garbage() -> Vec<Vec<u8>> {
    let register = message::encode(&LaneRequest::Register {
        lowest: 2,
        highest: 2,
        commitment: Nonce([3; 16]).commitment(),
    });
    let mut all = vec![
        vec![0],
        vec![1; 3],
        vec![0xff; 4],
        vec![0xff; 64],
        vec![0; MAX_MESSAGE],
        vec![0; MAX_MESSAGE + 1],
        vec![0; 60_000],
        register[..register.len() - 1].to_vec(),
        [&register[..], &[0; 4]].concat(),
        message::encode(&LaneReply::Drain),
        // A list of releases with a length above the bound.
        vec![0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff],
        vec![0, 0, 0, 3, 0, 0, 1, 1],
    ];
    all.push(message::encode(&LaneRequest::Release(vec![1])));
    all
}

#[test]
fn garbage_before_the_handshake_closes_that_connection() {
    let world = World::new();
    for bytes in garbage() {
        let raw = world.raw();
        raw.send(&bytes);
        assert!(raw.is_closed(), "{} bytes", bytes.len());
    }
    // An empty datagram is a hang-up.
    let raw = world.raw();
    raw.send(&[]);
    assert!(raw.is_closed());
    assert_eq!(world.server.waiting(), 0);
    drop(world.raw_lane());
}

#[tokio::test]
async fn garbage_on_a_lane_ends_that_lane() {
    let world = World::new();
    let honest = world.connect().await;
    for bytes in garbage() {
        let (raw, _memory) = world.raw_lane();
        raw.open(1, b"hello");
        assert!(raw.receive().unwrap().1.is_some());
        raw.send(&bytes);
        if matches!(message::decode(&bytes), Ok(LaneRequest::Release(_))) {
            // Valid once, since the grant is open, but not twice.
            raw.send(&bytes);
        }
        assert!(raw.is_closed(), "{} bytes", bytes.len());
    }
    world.wait_for("the grants' end", |world| world.open_grants() == 0);
    assert_eq!(content(honest.open(by_name(b"hello", &root())).await.unwrap().grant), "hello");
}

#[test]
fn unexpected_descriptors_are_closed_with_the_connection() {
    let world = World::new();
    let register = message::encode(&LaneRequest::Register {
        lowest: 2,
        highest: 2,
        commitment: Nonce([4; 16]).commitment(),
    });
    for many in [1, 8] {
        for bound in [false, true] {
            let (reader, writer) = tell_tale();
            let raw = if bound { world.raw_lane().0 } else { world.raw() };
            raw.try_send(&register, &vec![writer.as_fd(); many]).unwrap();
            drop(writer);
            assert!(raw.is_closed());
            assert!(all_closed(&reader));
        }
    }
    assert!(!world.nonce_arrives([4; 16]));
}

#[test]
fn a_client_without_receipts_loses_its_lane_and_leaks_nothing() {
    let world = World::limits(|limits| limits.receipt = Duration::from_secs(2));
    let (raw, _memory) = world.raw_lane();
    raw.open(1, b"hello");
    let (bytes, fd) = raw.receive().unwrap();
    assert!(matches!(message::decode(&bytes), Ok(LaneReply::Opened { .. })));
    assert!(fd.is_some());
    assert_eq!(world.open_grants(), 1);
    assert!(raw.is_closed());
    world.wait_for("the grant's end", |world| world.open_grants() == 0 && world.server.status().is_empty());
}

#[test]
fn a_client_without_receipts_gets_few_grants() {
    let world = World::limits(|limits| limits.outstanding = 3);
    let (raw, _memory) = world.raw_lane();
    for serial in 0..5 {
        raw.open(serial, b"hello");
    }
    for serial in 0..5 {
        let (bytes, fd) = raw.receive().unwrap();
        assert_eq!(fd.is_some(), serial < 3);
        if serial >= 3 {
            assert_eq!(
                message::decode(&bytes),
                Ok(LaneReply::NotOpened { serial, status: OpenStatus::TooMany })
            );
        }
    }
}

#[test]
fn receipts_for_missing_grants_end_the_lane() {
    let world = World::new();
    let (raw, memory) = world.raw_lane();
    rustix::io::pwrite(&memory, &7_u64.to_ne_bytes(), lane::interlock::RECEIVED as u64).unwrap();
    // The server may have checked before it receives this.
    let _ = raw.try_open(1, b"hello");
    assert!(raw.is_closed());
    world.wait_for("the lane's end", |world| world.server.status().is_empty());
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_lane() {
    let world = World::new();
    let honest = world.connect().await;
    let (raw, _memory) = world.raw_lane();
    let begin = Instant::now();
    // Replies fill the socket, and then the lane ends: sends fail.
    let open = message::encode(&LaneRequest::Open {
        serial: 1,
        releases: vec![],
        target: lane::Target::Handle(b"nothing"),
        access: lane::Access::Read,
        credential: LaneCredential::default(),
    });
    while raw.try_send(&open, &[]).is_ok() {
        assert!(begin.elapsed() < LONG);
    }
    world.wait_for("the lane's end", |world| world.server.status().len() == 1);
    assert!(honest.open(by_name(b"hello", &root())).await.is_ok());
}

#[tokio::test]
async fn a_slow_file_delays_only_its_own_lane() {
    let world = World::new();
    let (slow, quick) = (world.connect().await, world.connect().await);
    let waiting = tokio::spawn(async move { slow.open(by_name(b"gate", &root())).await.map(drop) });
    let gate = std::sync::Arc::clone(&world.gate);
    tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
    assert!(quick.open(by_name(b"hello", &root())).await.is_ok());
    assert_eq!(world.server.status().len(), 2);
    world.gate.wait();
    assert_eq!(waiting.await.unwrap(), Err(OpenError::Refused(OpenStatus::NotFound)));
}

#[tokio::test]
async fn a_panic_over_one_file_affects_nothing_else() {
    let world = World::new();
    let (one, two) = (world.connect().await, world.connect().await);
    assert_eq!(one.open(by_name(b"panic", &root())).await.unwrap_err(), OpenError::Refused(OpenStatus::Io));
    assert!(one.open(by_name(b"hello", &root())).await.is_ok());
    assert!(two.open(by_name(b"hello", &root())).await.is_ok());
    world.connect().await;
}

#[tokio::test]
async fn a_fake_endpoint_is_detected() {
    let fake = FakeServer::new();
    let run_dir = fake.dir.path().to_path_buf();
    let world = World::with(|options| options.run_dir = Some(run_dir));
    // The true server's start has checked whether the fake one is dead.
    assert!(fake.accept().receive().is_none());
    let candidates = Rendezvous::register(fake.client_options()).await.unwrap();
    let raw = fake.accept();
    assert!(raw.receive().is_some());
    // It has received the commitment, and replies with what it has: any nonce, the commitment's head, its own
    // memory.
    raw.try_send(&fake.local([0x5a; 16]), &[memory().as_fd()]).unwrap();
    assert!(world.nonce_arrives(candidates.nonce()));
    let lane = candidates.finish(Duration::ZERO).await.unwrap();
    assert_eq!(lane.instance(), world.instance);

    // And alone:
    drop(world);
    let candidates = Rendezvous::register(fake.client_options()).await.unwrap();
    let raw = fake.accept();
    raw.try_send(&fake.local([0x5a; 16]), &[memory().as_fd()]).unwrap();
    let reasons = candidates.finish(Duration::ZERO).await.unwrap_err().reasons;
    assert_eq!(reasons, [Reason::Impostor(fake.path.display().to_string())]);
    assert!(raw.receive().is_some());
    assert!(raw.is_closed());
}

#[tokio::test]
async fn invalid_messages_of_a_server_in_the_handshake() {
    type Say = fn(&FakeServer, [u8; 16], &Raw);
    let table: [(&str, Say); 7] = [
        ("no message of the handshake", |_, _, raw| raw.send(&[0xff; 40])),
        ("no message of the handshake", |_, _, raw| raw.send(&message::encode(&LaneReply::Drain))),
        ("no interlock memory", |fake, nonce, raw| raw.send(&fake.local(nonce))),
        ("isn't a memfd", |fake, nonce, raw| {
            let (reader, _writer) = tell_tale();
            raw.try_send(&fake.local(nonce), &[reader.as_fd()]).unwrap();
        }),
        ("unexpected descriptors", |fake, nonce, raw| {
            let memory = memory();
            raw.try_send(&fake.local(nonce), &[memory.as_fd(), memory.as_fd()]).unwrap();
        }),
        ("a version that we didn't offer", |fake, nonce, raw| {
            let (nonce, instance) = (Nonce(nonce), fake.instance);
            let local = LaneReply::Local { version: 6, nonce, instance, grants: 1, outstanding: 1, slots: 0 };
            raw.try_send(&message::encode(&local), &[memory().as_fd()]).unwrap();
        }),
        ("closed the connection", |_, _, raw| {
            rustix::net::shutdown(&raw.0, rustix::net::Shutdown::Both).unwrap();
        }),
    ];
    for (expected, say) in table {
        let fake = FakeServer::new();
        let candidates = Rendezvous::register(fake.client_options()).await.unwrap();
        let raw = fake.accept();
        assert!(raw.receive().is_some());
        say(&fake, candidates.nonce(), &raw);
        let error = candidates.finish(Duration::ZERO).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error} instead of {expected}");
    }
}

#[tokio::test]
async fn invalid_messages_of_a_server_on_a_lane() {
    type Say = fn(&Raw);
    let table: [Say; 9] = [
        // A call socket that wasn't requested, one without a descriptor, and one with two.
        |raw| raw.send(&message::encode(&LaneReply::CallSocket { serial: 77 })),
        |raw| {
            let (bytes, _) = raw.receive().unwrap();
            let Ok(LaneRequest::Calls { serial, .. }) = message::decode(&bytes) else { panic!() };
            raw.send(&message::encode(&LaneReply::CallSocket { serial }));
        },
        |raw| {
            let (bytes, _) = raw.receive().unwrap();
            let Ok(LaneRequest::Calls { serial, .. }) = message::decode(&bytes) else { panic!() };
            let (reader, writer) = tell_tale();
            let reply = message::encode(&LaneReply::CallSocket { serial });
            raw.try_send(&reply, &[writer.as_fd(); 2]).unwrap();
            drop(writer);
            assert!(all_closed(&reader));
        },
        |raw| raw.send(&[0xff; 4]),
        |raw| raw.send(&message::encode(&LaneReply::NotOpened { serial: 77, status: OpenStatus::Io })),
        |raw| raw.send(&vec![0; MAX_MESSAGE + 1]),
        |raw| raw.send(&message::encode(&LaneRequest::Release(vec![]))),
        |raw| {
            let (reader, writer) = tell_tale();
            raw.try_send(&message::encode(&LaneReply::Drain), &[writer.as_fd()]).unwrap();
            drop(writer);
            assert!(all_closed(&reader));
        },
        |raw| {
            let (reader, writer) = tell_tale();
            raw.try_send(&message::encode(&LaneReply::Drain), &[writer.as_fd(); 8]).unwrap();
            drop(writer);
            assert!(all_closed(&reader));
        },
    ];
    for say in table {
        let fake = FakeServer { version: 5, ..FakeServer::new() };
        let (lane, raw, _memory) = fake.lane().await;
        let requesting = lane.clone();
        let request = tokio::spawn(async move { requesting.call_socket().await.map(drop) });
        let said = tokio::task::spawn_blocking(move || {
            say(&raw);
            raw
        });
        tokio::time::timeout(LONG, lane.gone()).await.unwrap();
        let _ = request.await.unwrap();
        let raw = said.await.unwrap();
        assert_eq!(lane.state(), LaneState::Gone);
        assert_eq!(lane.open(by_name(b"hello", &root())).await.unwrap_err(), OpenError::Gone);
        assert!(raw.is_closed());
    }
}

#[tokio::test]
async fn a_flood_of_requests_for_call_sockets_is_answered_and_harms_no_one() {
    let world = World::new();
    let honest = world.connect().await;
    let (raw, _memory) = world.raw_lane();
    let calls = |serial| message::encode(&LaneRequest::Calls { serial, releases: vec![] });
    for serial in 0..2 * common::MAX_CALL_SOCKETS {
        raw.send(&calls(serial as u32));
        let (bytes, socket) = raw.receive().unwrap();
        let serial = serial as u32;
        let expected = match world.call_sockets.lock().len() {
            full if full == common::MAX_CALL_SOCKETS && socket.is_none() => {
                LaneReply::NotOpened { serial, status: OpenStatus::TooMany }
            }
            _ => LaneReply::CallSocket { serial },
        };
        assert_eq!(message::decode(&bytes), Ok(expected));
    }
    // A client that reads none of its replies loses its lane.
    for serial in 0..100_000 {
        if raw.try_send(&calls(serial), &[]).is_err() {
            break;
        }
    }
    assert!(raw.is_closed());
    assert_eq!(content(honest.open(by_name(b"hello", &root())).await.unwrap().grant), "hello");
    // A release of a grant that isn't open.
    let (raw, _memory) = world.raw_lane();
    raw.send(&message::encode(&LaneRequest::Calls { serial: 1, releases: vec![9] }));
    assert!(raw.is_closed());
}

#[test]
fn a_user_gets_files_only_as_itself() {
    let world = std::sync::Arc::new(World::new());
    let its = std::sync::Arc::clone(&world);
    as_user(4711, 4712, &[27, 100], move || {
        let (raw, _memory) = its.raw_lane();
        let claim = |uid, gid, gids: &[u32]| LaneCredential { uid, gid, gids: gids.to_vec() };
        let table = [
            (claim(4711, 4712, &[]), true),
            (claim(4711, 4712, &[100, 27]), true),
            (claim(4711, 27, &[4712]), true),
            (claim(0, 0, &[]), false),
            (claim(4711, 0, &[]), false),
            (claim(4711, 4712, &[27, 0]), false),
            (claim(1000, 4712, &[]), false),
            (claim(65534, 65534, &[]), false),
        ];
        for (serial, (credential, may)) in (0..).zip(table) {
            raw.open_as(serial, b"hello", credential.clone());
            let (bytes, fd) = raw.receive().unwrap();
            assert_eq!(fd.is_some(), may, "{credential:?}");
            if !may {
                assert_eq!(
                    message::decode(&bytes),
                    Ok(LaneReply::NotOpened { serial, status: OpenStatus::Denied })
                );
            }
        }
    });
}

#[test]
fn the_overflow_user_never_matches() {
    let world = std::sync::Arc::new(World::new());
    let its = std::sync::Arc::clone(&world);
    as_user(65534, 65534, &[], move || {
        let (raw, _memory) = its.raw_lane();
        raw.open_as(1, b"hello", LaneCredential { uid: 65534, gid: 65534, gids: vec![] });
        let (bytes, fd) = raw.receive().unwrap();
        assert!(fd.is_none());
        assert_eq!(
            message::decode(&bytes),
            Ok(LaneReply::NotOpened { serial: 1, status: OpenStatus::Denied })
        );
    });
}

#[test]
fn a_flood_of_one_user_does_not_displace_others() {
    let world = std::sync::Arc::new(World::limits(|limits| limits.waiting = 16));
    let honest = world.raw();
    let nonce = Nonce::random().unwrap();
    honest.register(&nonce);
    for uid in [4711, 4712, 4713] {
        let its = std::sync::Arc::clone(&world);
        as_user(uid, uid, &[], move || {
            let flood: Vec<_> = (0..100)
                .map(|_| {
                    let raw = its.raw();
                    raw.register(&Nonce::random().unwrap());
                    raw
                })
                .collect();
            assert!(its.server.waiting() <= 16);
            flood
        });
    }
    assert!(world.nonce_arrives(nonce.0));
}

#[test]
fn an_untrusted_server_learns_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let path = dir.path().join(lane::run_dir::lane_name(&[8; 16]));
    let its = path.clone();
    // SO_PEERCRED of a server is the process that called listen(2).
    let Some(listener) = as_user(4711, 4711, &[], move || lane::run_dir::listen(&its, 8).unwrap()) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut options = RendezvousOptions::new(dir.path().into());
    options.search_namespaces = false;
    let error = runtime.block_on(async {
        let candidates = Rendezvous::register(options.clone()).await.unwrap();
        candidates.finish(LONG).await.unwrap_err()
    });
    assert_eq!(error.reasons, [Reason::Untrusted { through: path.display().to_string(), uid: 4711 }]);
    assert!(error.to_string().contains("--trust-uid 4711"));
    let accept = || Raw(rustix::net::accept_with(&listener, rustix::net::SocketFlags::CLOEXEC).unwrap());
    assert!(accept().receive().is_none(), "not even the commitment");

    // Unless the configuration names it.
    options.trusted_uids.push(4711);
    let _candidates = runtime.block_on(Rendezvous::register(options)).unwrap();
    assert!(accept().receive().is_some());
}

/// In a directory the client would use its own rights, and anyone can get a descriptor of any directory.
#[test]
fn a_server_whose_user_was_named_is_asked_for_files_only() {
    let fake = || FakeServer { version: *message::VERSIONS.end(), ..FakeServer::new() };
    let (Some(named), own) = (as_user(4711, 4711, &[], fake), fake()) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (server, is_asked) in [(named, false), (own, true)] {
        runtime.block_on(async {
            let mut options = server.client_options();
            options.trusted_uids.push(4711);
            let (lane, raw, _memory) = server.lane_with(options).await;
            let who = root();
            for target in [Target::Tree(b"root"), Target::Mount(b"root"), Target::Handle(b"file")] {
                let access = lane::Access::ReadWrite;
                let open = lane.open(OpenRequest { target, access, credential: &who });
                // Nobody answers.
                let answer = tokio::time::timeout(Duration::from_millis(20), open).await;
                if is_asked || matches!(target, Target::Handle(_)) {
                    assert!(answer.is_err(), "{target:?}: {answer:?}");
                    let (bytes, _) = raw.receive().unwrap();
                    let Ok(LaneRequest::Open { target: asked, .. }) = message::decode(&bytes) else {
                        panic!("no Open: {bytes:?}");
                    };
                    assert_eq!(asked, target);
                } else {
                    let error = answer.unwrap().unwrap_err();
                    assert_eq!(error, OpenError::FilesOnly);
                    assert!(error.to_string().contains("--trust-uid"), "{error}");
                }
            }
        });
    }
}
