//! The order of calls: in sequence while they are fast, past one another when one is slow.

use samehost_rpc::server::Limits;

use crate::rig::{ECHO, WAIT, WAIT_ANNOUNCED, Wire, bare, call, eventually, fragment, opaque, serve, word};

#[test]
fn a_call_is_answered() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    wire.send(&call(7, ECHO, &opaque(b"hello")));
    assert_eq!(wire.results(), (7, opaque(b"hello")));
    wire.send(&call(8, 0, &[]));
    assert_eq!(wire.results(), (8, vec![]), "NULL");
}

#[test]
fn many_calls_in_flight_on_one_connection() {
    let (server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    for round in 0..20 {
        let sizes = [0usize, 1, 4, 100, 4096, 16_000];
        let all: Vec<u8> = (0..64)
            .flat_map(|i: u32| call(round * 64 + i, ECHO, &opaque(&vec![i as u8; sizes[i as usize % 6]])))
            .collect();
        std::thread::scope(|scope| {
            let mut sender = Wire(wire.0.try_clone().unwrap());
            scope.spawn(move || sender.send(&all));
            let mut replies: Vec<_> = (0..64).map(|_| wire.results()).collect();
            replies.sort();
            for (i, (xid, results)) in (0u32..).zip(replies) {
                assert_eq!(xid, round * 64 + i);
                assert_eq!(results, opaque(&vec![i as u8; sizes[i as usize % 6]]));
            }
        });
    }
    let info = &server.connections()[0];
    assert_eq!(info.calls, 64 * 20);
    assert_eq!(server.totals().calls, 64 * 20);
}

#[test]
fn a_slow_call_does_not_delay_the_calls_behind_it() {
    for slow in [WAIT, WAIT_ANNOUNCED] {
        let (_server, program, address) = serve(Limits::default());
        let mut wire = Wire::to(address);
        // In one piece: the calls behind the slow one are in the same buffer as its arguments.
        let mut bytes = call(1, ECHO, &opaque(b"before"));
        bytes.extend(call(2, slow, &word(5)));
        for xid in 3..40 {
            bytes.extend(call(xid, ECHO, &opaque(format!("after {xid}").as_bytes())));
        }
        wire.send(&bytes);
        assert_eq!(wire.results(), (1, opaque(b"before")));
        for xid in 3..40 {
            assert_eq!(wire.results(), (xid, opaque(format!("after {xid}").as_bytes())));
        }
        wire.send(&call(40, ECHO, &opaque(b"later")));
        assert_eq!(wire.results(), (40, opaque(b"later")));
        program.open(5);
        assert_eq!(wire.results(), (2, word(5)));
    }
}

#[test]
fn slow_calls_are_answered_in_the_order_in_which_they_end() {
    let (_server, program, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    let bytes: Vec<u8> = (0..8)
        .flat_map(|xid| call(xid, if xid % 2 == 0 { WAIT } else { WAIT_ANNOUNCED }, &word(xid)))
        .collect();
    wire.send(&bytes);
    (0..8).for_each(|gate| program.wait_for_caller(gate));
    for gate in [3, 7, 0, 1, 6, 2, 5, 4] {
        program.open(gate);
        assert_eq!(wire.results(), (gate, word(gate)));
    }
}

#[test]
fn a_connection_cannot_take_every_worker() {
    let (_server, program, address) = serve(Limits { threads: 4, ..Limits::default() });
    let mut greedy = Wire::to(address);
    let bytes: Vec<u8> = (0..20).flat_map(|xid| call(xid, WAIT, &word(xid))).collect();
    greedy.send(&bytes);
    // One detached worker and one driver: the third worker is left for other connections, the fourth for
    // other peers.
    program.wait_for_caller(0);
    program.wait_for_caller(1);
    let mut other = Wire::to(address);
    other.send(&call(1, 0, &[]));
    assert_eq!(other.results(), (1, vec![]));
    other.send(&call(2, WAIT, &word(100)));
    program.wait_for_caller(100);
    let mut others = Wire::of_user(1000, address);
    others.send(&call(1, 0, &[]));
    assert_eq!(others.results(), (1, vec![]));
    program.open(100);
    assert_eq!(other.results(), (2, word(100)));
    (0..20).for_each(|gate| program.open(gate));
    let mut xids: Vec<u32> = (0..20).map(|_| greedy.results().0).collect();
    xids.sort_unstable();
    assert_eq!(xids, (0..20).collect::<Vec<_>>());
}

#[test]
fn calls_in_fragments() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    let data: Vec<u8> = (0..50_000u32).map(|i| i as u8).collect();
    let record = bare(1, ECHO, &opaque(&data));
    for size in [1000, 4096, 30_000] {
        let mut bytes = fragment(&[], false);
        let pieces = record.chunks(size).count();
        for (i, piece) in record.chunks(size).enumerate() {
            bytes.extend(fragment(piece, i + 1 == pieces));
        }
        // An ordinary call on either side, and cuts at arbitrary positions.
        bytes.extend(call(2, ECHO, &opaque(b"behind")));
        wire.send(&call(0, ECHO, &opaque(b"before")));
        for piece in bytes.chunks(7777) {
            wire.send(piece);
        }
        assert_eq!(wire.results(), (0, opaque(b"before")));
        assert_eq!(wire.results(), (1, opaque(&data)));
        assert_eq!(wire.results(), (2, opaque(b"behind")));
    }
}

#[test]
fn a_call_byte_by_byte() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    for byte in call(1, ECHO, &opaque(b"drop by drop")) {
        wire.send(&[byte]);
    }
    assert_eq!(wire.results(), (1, opaque(b"drop by drop")));
}

#[test]
fn large_and_small_calls_in_turns() {
    let (_server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    let sizes = [10, 40_000, 70_000, 3, 1_000_000, 32_000, 33_000, 5000, 1_000_000, 0];
    let mut sender = Wire(wire.0.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (xid, size) in (0u32..).zip(sizes) {
                sender.send(&call(xid, ECHO, &opaque(&vec![xid as u8; size])));
            }
        });
        let mut replies: Vec<_> = sizes.iter().map(|_| wire.results()).collect();
        replies.sort();
        for ((xid, size), reply) in (0u32..).zip(sizes).zip(replies) {
            assert!(reply == (xid, opaque(&vec![xid as u8; size])), "call {xid}");
        }
    });
}

#[test]
fn replies_reach_a_client_that_has_shut_its_sending_side_down() {
    let (server, program, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    wire.send(&[call(1, WAIT, &word(1)), call(2, ECHO, &opaque(b"x"))].concat());
    wire.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(wire.results(), (2, opaque(b"x")));
    program.open(1);
    assert_eq!(wire.results(), (1, word(1)));
    wire.assert_closed();
    program.wait_for_closed(1);
    eventually("empty", || server.connections().is_empty());
}

#[test]
fn several_addresses_of_both_families() {
    let program = std::sync::Arc::new(crate::rig::Obedient::default());
    let server = samehost_rpc::server::Server::builder()
        .program(program)
        .bind("127.0.0.1:0".parse().unwrap())
        .bind("[::1]:0".parse().unwrap())
        .bind("127.0.0.2:0".parse().unwrap())
        .start()
        .unwrap();
    let addresses = server.local_addrs();
    let mut wires: Vec<_> = addresses.iter().map(|address| Wire::to(*address)).collect();
    for wire in &mut wires {
        wire.send(&call(1, ECHO, &opaque(b"x")));
        assert_eq!(wire.results(), (1, opaque(b"x")));
    }
    let mut locals: Vec<_> = server.connections().iter().map(|info| info.peer.local).collect();
    locals.sort();
    let mut expected = addresses.clone();
    expected.sort();
    assert_eq!(locals, expected);
    let taken = samehost_rpc::server::Server::builder().bind(addresses[0]).start();
    assert!(taken.is_err(), "an address that is taken is an error, not a surprise later");
}
