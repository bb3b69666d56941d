//! Fairness between peers. The peers are users of this host, which the server distinguishes by uid.

use std::{net::SocketAddr, time::Duration};

use samehost_rpc::server::{Limits, Server};

use crate::rig::{ECHO, LENGTH, WAIT, WAIT_ANNOUNCED, Wire, call, eventually, fragment, opaque, serve, word};

/// Limits without a stall time, so that no connection is closed for being slow.
fn without_stall() -> Limits {
    Limits { stall: Duration::from_secs(3600), ..Limits::default() }
}

/// A WRITE of 128 KiB, and one of the largest.
const SIZES: [usize; 2] = [128 << 10, 1 << 20];

fn assert_served(address: SocketAddr, user: u32) {
    let mut wire = Wire::of_user(user, address);
    for size in SIZES {
        wire.send(&call(1, LENGTH, &opaque(&vec![1; size])));
        assert_eq!(wire.results(), (1, word(size as u32)), "user {user}");
    }
}

fn received(server: &Server) -> u64 {
    server.totals().bytes_in
}

#[test]
fn silent_connections_delay_only_their_own_peer() {
    let (server, _, address) = serve(without_stall());
    // The first fragment of a call that could become as long as any.
    let begun = &fragment(&[7; 1 << 20], false)[..5];
    let mut silent: Vec<_> = (0..300).map(|_| Wire::of_user(1000, address)).collect();
    silent.iter_mut().for_each(|wire| wire.send(begun));
    eventually("all are received", || received(&server) == 300 * 5);
    assert_eq!(server.totals().receive_memory, 0, "a few bytes need no permit");
    assert_served(address, 1001);
    assert_served(address, 1000);
    assert_eq!(server.totals().broken, 0, "the silent ones are let be");
}

#[test]
fn slow_senders_delay_only_their_own_peer() {
    let (server, _, address) = serve(without_stall());
    let whole = call(1, LENGTH, &opaque(&vec![7; 1 << 20]));
    let mut slow: Vec<_> = (0..40).map(|_| Wire::of_user(1000, address)).collect();
    slow.iter_mut().for_each(|wire| wire.send(&whole[..100_000]));
    eventually("some have memory, and the others wait", || received(&server) >= 40 * 4096);
    let held = server.totals().receive_memory;
    assert!(held <= 8 << 20, "more than a peer's share: {held}");
    assert_served(address, 1001);
    assert_served(address, 0);
    // They are served as well when they continue; one after the other, as far as memory suffices.
    for wire in &mut slow {
        let mut sender = wire.0.try_clone().unwrap();
        let rest = whole[100_000..].to_vec();
        std::thread::spawn(move || std::io::Write::write_all(&mut sender, &rest));
    }
    for wire in &mut slow {
        assert_eq!(wire.results(), (1, word(1 << 20)));
    }
    eventually("all is given back", || server.totals().receive_memory == 0);
    assert_eq!(server.totals().broken, 0);
}

#[test]
fn slow_senders_of_fragments_delay_only_their_own_peer() {
    let (server, _, address) = serve(without_stall());
    let begun = &fragment(&[7; 1 << 20], false)[..100_000];
    let mut slow: Vec<_> = (0..100).map(|_| Wire::of_user(1000, address)).collect();
    slow.iter_mut().for_each(|wire| wire.send(begun));
    eventually("some have memory, and the others wait", || received(&server) >= 100 * 4096);
    let held = server.totals().receive_memory;
    assert!(held <= 8 << 20, "more than a peer's share: {held}");
    assert_served(address, 1001);
    assert_served(address, 0);
    drop(slow);
    eventually("all is given back", || server.totals().receive_memory == 0);
}

#[test]
fn several_greedy_peers_leave_enough_for_the_next() {
    let (server, _, address) = serve(without_stall());
    let begun = &call(1, LENGTH, &opaque(&vec![7; 1 << 20]))[..100_000];
    let mut greedy: Vec<_> = (0..60).map(|number| Wire::of_user(1000 + number % 4, address)).collect();
    greedy.iter_mut().for_each(|wire| wire.send(begun));
    eventually("they have what they may", || received(&server) >= 60 * 4096);
    assert_served(address, 2000);
    assert_served(address, 0);
}

#[test]
fn a_call_in_fragments_takes_memory_as_it_comes() {
    let (server, _, address) = serve(without_stall());
    let mut wire = Wire::of_user(1000, address);
    let small = call(1, ECHO, &opaque(b"in pieces"))[4..].to_vec();
    let small: Vec<u8> =
        small.chunks(7).flat_map(|piece| fragment(piece, false)).chain(fragment(&[], true)).collect();
    wire.send(&[&small[..], &small, &small].concat());
    (0..3).for_each(|_| assert_eq!(wire.results(), (1, opaque(b"in pieces"))));
    assert_eq!(server.totals().receive_memory_peak, 0);

    let data: Vec<u8> = (0..900_000_u32).map(|at| at as u8).collect();
    let record = call(2, ECHO, &opaque(&data))[4..].to_vec();
    let (last, first) = record.split_at(600_000);
    let large = [fragment(last, false), fragment(first, true)].concat();
    wire.send(&large[..300_000]);
    eventually("the beginning is there", || received(&server) >= 300_000);
    let held = server.totals().receive_memory;
    assert!((300_000..400_000).contains(&held), "{held} bytes for the first 300,000");
    // The calls that follow in the same piece are found, too. Replies may overtake a slow one.
    wire.send(&[&large[300_000..], &call(3, 0, &[])].concat());
    let mut replies = [wire.results(), wire.results()];
    replies.sort_by_key(|(xid, _)| *xid);
    assert!(replies[0] == (2, opaque(&data)) && replies[1] == (3, vec![]));
    eventually("all is given back", || server.totals().receive_memory == 0);
}

/// Connects as `user` and calls. Returns whether it was answered.
fn is_served_as(user: u32, address: SocketAddr) -> Option<Wire> {
    let mut wire = Wire::of_user(user, address);
    let _ = std::io::Write::write_all(&mut wire.0, &call(1, 0, &[]));
    let mut byte = [0];
    let served = matches!(wire.0.peek(&mut byte), Ok(1));
    served.then(|| {
        wire.results();
        wire
    })
}

#[test]
fn idle_connections_of_few_peers_leave_room_for_others() {
    let (server, _, address) = serve(Limits { max_connections: 64, ..without_stall() });
    let greedy: Vec<_> = (0..128).map(|number| is_served_as(1000 + number % 2, address)).collect();
    let held = greedy.iter().flatten().count();
    assert!((40..=44).contains(&held), "two peers have a third each: {held}");
    for user in [0, 1002, 1003, 0] {
        assert_served(address, user);
    }
    let totals = server.totals();
    assert_eq!((totals.refused as usize, totals.displaced), (128 - held, 0));
    // With many peers, one that has many connections loses some to peers that have none.
    let many: Vec<_> = (2000..2050).map(|user| is_served_as(user, address)).collect();
    assert!(many.iter().all(Option::is_some), "each of fifty peers has one");
    assert!(server.totals().displaced > 0);
    assert_served(address, 0);
}

#[test]
fn a_connection_in_use_is_not_displaced() {
    let (server, program, address) = serve(Limits { max_connections: 8, ..without_stall() });
    let mut busy: Vec<_> = (0..4).map(|_| is_served_as(1000, address).expect("its share")).collect();
    for (gate, wire) in (1..).zip(&mut busy) {
        wire.send(&call(2, WAIT, &word(gate)));
        program.wait_for_caller(gate);
    }
    let mut kept: Vec<_> = (0..2).map(|_| is_served_as(1001, address).expect("its share")).collect();
    assert!(is_served_as(1001, address).is_none(), "nobody who has more is idle");
    for (gate, wire) in (1..).zip(&mut busy) {
        program.open(gate);
        assert_eq!(wire.results(), (2, word(gate)));
    }
    // The last replies may not have been sent yet.
    eventually("one makes way", || is_served_as(1001, address).map(|wire| kept.push(wire)).is_some());
    assert_eq!(server.totals().displaced, 1);
}

#[test]
fn hanging_calls_delay_only_their_own_peer() {
    let (_server, program, address) = serve(Limits { threads: 8, ..without_stall() });
    let mut hanging: Vec<_> = (0..20).map(|_| Wire::of_user(1000, address)).collect();
    // Several on one connection, too.
    for (gate, wire) in (1..).zip(&mut hanging) {
        wire.send(&[call(1, WAIT, &word(gate)), call(2, WAIT_ANNOUNCED, &word(100 + gate))].concat());
    }
    eventually("three quarters of the workers hang", || program.callers() >= 6);
    for user in [1001, 0, 1002] {
        assert_served(address, user);
    }
    (1..=20).for_each(|gate| {
        program.open(gate);
        program.open(100 + gate);
    });
    for wire in &mut hanging {
        let mut answered = [wire.results().0, wire.results().0];
        answered.sort_unstable();
        assert_eq!(answered, [1, 2]);
    }
}
