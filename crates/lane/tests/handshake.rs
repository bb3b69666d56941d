//! The handshake: which connections become lanes.

mod common;

use common::{LONG, Raw, World};
use lane::message::{self, HandshakeRefusal, LaneReply, LaneRequest};
use lane::{Nonce, Reason, Rendezvous, RendezvousOptions};
use samehost_lane as lane;
use std::time::Duration;

/// The server's refusal, after which it hangs up.
fn refusal(raw: &Raw) -> Option<HandshakeRefusal> {
    let (bytes, fd) = raw.receive()?;
    assert!(fd.is_none());
    assert!(raw.is_closed());
    match message::decode(&bytes) {
        Ok(LaneReply::Refused(refusal)) => Some(refusal),
        other => panic!("{other:?} is no refusal"),
    }
}

#[tokio::test]
async fn a_nonce_that_was_not_sent_over_the_wire_makes_no_lane() {
    let world = World::new();
    let candidates = Rendezvous::register(world.client_options()).await.unwrap();
    let reasons = candidates.finish(Duration::ZERO).await.unwrap_err().reasons;
    assert_eq!(reasons, [Reason::AnotherServer(world.socket_file().display().to_string())]);
    assert!(world.server.status().is_empty());
}

#[test]
fn guessed_nonces_match_no_registration() {
    let world = World::new();
    let raw = world.raw();
    raw.register(&Nonce::random().unwrap());
    for _ in 0..1000 {
        assert!(!world.nonce_arrives(Nonce::random().unwrap().0));
    }
    assert_eq!(world.server.waiting(), 1);
    assert!(world.server.status().is_empty());
}

#[test]
fn the_server_speaks_before_it_answers_the_rpc() {
    // A thousand times, so that the acceptor's thread and the nonce meet in every order.
    let world = World::new();
    for _ in 0..1000 {
        let (raw, _memory) = world.raw_lane();
        drop(raw);
    }
}

#[test]
fn a_nonce_works_once() {
    let world = World::new();
    let nonce = Nonce::random().unwrap();
    let first = world.raw();
    first.register(&nonce);
    assert!(world.nonce_arrives(nonce.0));
    // Sent again (a retransmission, an eavesdropper): nothing happens.
    assert!(!world.nonce_arrives(nonce.0));
    // Registered again: refused, and of no use.
    let second = world.raw();
    second.register(&nonce);
    assert!(!world.nonce_arrives(nonce.0));
    assert_eq!(refusal(&second), Some(HandshakeRefusal::Ambiguous));
    assert_eq!(world.server.status().len(), 1);
}

#[test]
fn two_registrations_of_one_commitment_make_no_lane() {
    let world = World::new();
    let nonce = Nonce::random().unwrap();
    let (one, two) = (world.raw(), world.raw());
    one.register(&nonce);
    two.register(&nonce);
    assert!(!world.nonce_arrives(nonce.0));
    assert_eq!(refusal(&one), Some(HandshakeRefusal::Ambiguous));
    assert_eq!(refusal(&two), Some(HandshakeRefusal::Ambiguous));
    assert!(!world.nonce_arrives(nonce.0));
    assert!(world.server.status().is_empty());
}

#[test]
fn a_nonce_expires() {
    let world = World::limits(|limits| limits.waiting_life = Duration::from_millis(50));
    let nonce = Nonce::random().unwrap();
    let raw = world.raw();
    raw.register(&nonce);
    assert!(raw.is_closed());
    assert!(!world.nonce_arrives(nonce.0));
    // So does a connection that never registers.
    assert!(world.raw().is_closed());
    assert_eq!(world.server.waiting(), 0);
}

#[tokio::test]
async fn a_thousand_registrations_use_bounded_descriptors() {
    let world = World::limits(|limits| limits.waiting = 64);
    // The server closes displaced connections; here they stay open, so count this test's own descriptors,
    // too.
    let mut flood = Vec::new();
    for round in 0..1000 {
        let raw = world.raw();
        raw.register(&Nonce::random().unwrap());
        flood.push(raw);
        if round % 100 == 0 {
            // Meanwhile, an honest client.
            world.connect().await;
        }
        assert!(world.server.waiting() <= 32);
        if flood.len() > 200 {
            flood.remove(0);
        }
    }
    assert_eq!(refusal(&flood[0]), Some(HandshakeRefusal::TooMany));
    world.connect().await;
}

#[test]
fn versions_are_negotiated_by_the_first_message() {
    let world = World::new();
    let register = |raw: &Raw, lowest, highest| {
        let commitment = Nonce([1; 16]).commitment();
        raw.send(&message::encode(&LaneRequest::Register { lowest, highest, commitment }));
    };
    for (lowest, highest) in [(6, 9), (0, 1), (9, 4), (u32::MAX, u32::MAX)] {
        let raw = world.raw();
        register(&raw, lowest, highest);
        assert_eq!(
            refusal(&raw),
            Some(HandshakeRefusal::Version { lowest: 2, highest: 5 }),
            "{lowest} to {highest}"
        );
    }
    for (number, highest, common) in [(1, 77, 5), (2, 2, 2), (3, 3, 3), (4, 4, 4)] {
        let raw = world.raw();
        let commitment = Nonce([number; 16]).commitment();
        raw.send(&message::encode(&LaneRequest::Register { lowest: 1, highest, commitment }));
        assert!(world.nonce_arrives([number; 16]));
        let (bytes, _) = raw.receive().unwrap();
        assert!(matches!(message::decode(&bytes), Ok(LaneReply::Local { version, .. }) if version == common));
    }
}

#[test]
fn lanes_are_bounded() {
    let world = World::limits(|limits| limits.lanes = 4);
    // One user, even root, gets half of them.
    let lanes = [world.raw_lane(), world.raw_lane()];
    let third = world.raw();
    let nonce = Nonce::random().unwrap();
    third.register(&nonce);
    assert!(!world.nonce_arrives(nonce.0));
    assert_eq!(refusal(&third), Some(HandshakeRefusal::TooMany));
    drop(lanes);
    world.wait_for("the lanes' end", |world| world.server.status().is_empty());
    drop(world.raw_lane());
}

#[tokio::test]
async fn two_servers_share_a_run_directory() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("shared-run");
    let one = World::with(|options| options.run_dir = Some(run.clone()));
    let two = World::with(|options| options.run_dir = Some(run.clone()));
    let mut options = RendezvousOptions::new(run.clone());
    options.search_namespaces = false;
    for mine in [&one, &two] {
        let candidates = Rendezvous::register(options.clone()).await.unwrap();
        assert!(mine.nonce_arrives(candidates.nonce()));
        let lane = candidates.finish(Duration::ZERO).await.unwrap();
        assert_eq!(lane.instance(), mine.instance);
    }
    drop(one);
    // Its name is removed, the other's stays.
    assert_eq!(lane::run_dir::sockets(&run, "lane").unwrap().len(), 1);
    drop(two);
    assert_eq!(lane::run_dir::sockets(&run, "lane").unwrap().len(), 0);
}

#[tokio::test]
async fn a_dead_server_s_socket_is_named_and_then_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join(lane::run_dir::lane_name(&[9; 16]));
    drop(lane::run_dir::listen(&dead, 1).unwrap());
    let mut options = RendezvousOptions::new(dir.path().into());
    options.search_namespaces = false;
    let candidates = Rendezvous::register(options).await.unwrap();
    let reasons = candidates.finish(LONG).await.unwrap_err();
    assert_eq!(reasons.reasons, [Reason::Dead(dead.display().to_string())]);
    assert!(reasons.to_string().contains("is dead"));
    let world = World::with(|options| options.run_dir = Some(dir.path().into()));
    assert!(!dead.exists());
    drop(world);
}

#[tokio::test]
async fn missing_sockets_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    for (run, expected) in
        [(dir.path().join("none"), "there is no run directory"), (dir.path().into(), "--run-dir")]
    {
        let mut options = RendezvousOptions::new(run);
        options.search_namespaces = false;
        let candidates = Rendezvous::register(options).await.unwrap();
        assert!(!candidates.may_be_called());
        let error = candidates.finish(LONG).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("bind mount"), "{error}");
    }
}

#[tokio::test]
async fn an_abstract_socket_is_enough_in_one_network_namespace() {
    let world = World::with(|options| (options.run_dir, options.abstract_socket) = (None, true));
    let mut options = RendezvousOptions::new(world.dir.path().join("none"));
    options.trusted_uids = vec![4711];
    let candidates = Rendezvous::register(options).await.unwrap();
    assert!(world.nonce_arrives(candidates.nonce()));
    let lane = candidates.finish(Duration::ZERO).await.unwrap();
    assert_eq!(lane.through(), format!("@samehost/{}", lane::nonce::hex(&world.instance)));
}

#[tokio::test]
async fn both_sockets_of_one_server_are_one_candidate() {
    // Registered twice, the nonce would be ambiguous.
    let world = World::with(|options| options.abstract_socket = true);
    let candidates = Rendezvous::register(RendezvousOptions::new(world.run_dir())).await.unwrap();
    assert!(world.nonce_arrives(candidates.nonce()));
    assert_eq!(candidates.finish(Duration::ZERO).await.unwrap().instance(), world.instance);
}

#[test]
fn no_socket_at_all_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let mut options = lane::LaneOptions::new(dir.path().join("file/run"), [1; 16]);
    options.abstract_socket = false;
    let files = common::Files::new(dir.path());
    let error = lane::LaneServer::start(options, std::sync::Arc::new(files)).err().unwrap();
    assert!(error.to_string().contains("--run-dir"), "{error}");
}

#[test]
fn an_answered_client_does_not_wait_to_be_called() {
    let world = World::new();
    let options = RendezvousOptions::new(world.run_dir());
    // Capabilities belong to threads: this one sees less than the host.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(None, sets).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                // Servers of other tests may appear and disappear meanwhile.
                let mut candidates = Rendezvous::register(options.clone()).await.unwrap();
                assert!(candidates.may_be_called());
                assert!(world.nonce_arrives(candidates.nonce()));
                assert_eq!(candidates.look().unwrap().instance(), world.instance);
                // A client that was refused, or got no answer, may still be called by another server.
                let mut candidates = Rendezvous::register(options).await.unwrap();
                drop(world);
                assert!(candidates.look().is_none());
                assert!(candidates.may_be_called());
            });
        });
    });
}
