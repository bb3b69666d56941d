//! Bounds on what peers can make the server hold.

use std::{io::Write as _, net::SocketAddr, time::Duration};

use samehost_rpc::server::{Limits, TcpOwner};

use crate::rig::{
    ECHO, FILE, LENGTH, Obedient, SOON, WAIT, Wire, ZEROES, call, eventually, marked, opaque, serve,
    serve_program, word,
};
use crate::slow_file::{BYTE, SIZE, SlowFile};

fn mib(bytes: usize) -> usize {
    bytes << 20
}

#[test]
fn sixty_four_connections_write_a_mebibyte_each_at_once() {
    let limits = Limits { receive_memory: mib(8), ..Limits::default() };
    let (server, _, address) = serve(limits);
    let bytes = call(1, LENGTH, &opaque(&vec![1; mib(1)]));
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut wire = Wire::to(address);
                for _ in 0..4 {
                    wire.send(&bytes);
                    assert_eq!(wire.results(), (1, word(1 << 20)));
                }
            });
        }
    });
    let totals = server.totals();
    assert!(totals.receive_memory_peak <= mib(4), "one peer's share: {totals:?}");
    assert!(totals.receive_memory_peak >= mib(2), "{totals:?}");
    assert_eq!((totals.receive_memory, totals.broken), (0, 0));
}

#[test]
fn a_stalled_holder_of_contended_memory_is_closed() {
    // Room for one large call only.
    let limits = Limits { receive_memory: mib(1), stall: Duration::from_millis(200), ..Limits::default() };
    let (server, program, address) = serve(limits);
    let bytes = call(1, LENGTH, &opaque(&vec![1; mib(1)]));
    let mut slow = Wire::to(address);
    slow.send(&bytes[..50_000]);
    eventually("the slow one holds the memory", || server.totals().receive_memory > 0);
    let mut patient = Wire::to(address);
    patient.send(&bytes);
    assert_eq!(patient.results(), (1, word(1 << 20)));
    program.wait_for_closed(1);
    slow.assert_closed();
    assert_eq!(server.totals().broken, 1);
}

#[test]
fn connections_that_wait_for_memory_do_not_affect_others() {
    let limits = Limits { receive_memory: mib(1), max_record: mib(1) - 1000, ..Limits::default() };
    let (server, _, address) = serve(limits);
    let bytes = call(1, LENGTH, &opaque(&vec![1; mib(1) - 2000]));
    let mut first = Wire::to(address);
    first.send(&bytes[..1000]);
    eventually("the first holds the memory", || server.totals().receive_memory > 0);
    // Each sends small calls first, so that more than a header arrives with the beginning of the large one.
    let small = [call(1, LENGTH, &opaque(&[1; 30_000])).repeat(8), bytes[..60_000].to_vec()].concat();
    let mut waiting: Vec<_> = (0..100).map(|_| Wire::to(address)).collect();
    for wire in &mut waiting {
        let _ = wire.0.write_all(&small);
    }
    // A partly received small call waits for memory as well, so how far each one gets depends on timing.
    eventually("every one of them waits or is closed", || {
        let served = server.connections().iter().filter(|info| info.bytes_in > 0).count();
        served + server.totals().broken as usize >= 101
    });
    let mut other = Wire::to(address);
    other.send(&call(1, ECHO, &opaque(b"unhurt")));
    assert_eq!(other.results(), (1, opaque(b"unhurt")));
    first.send(&bytes[1000..]);
    assert_eq!(first.results().0, 1);
}

#[test]
fn a_closed_connection_leaves_the_memory_queue() {
    let limits = Limits { receive_memory: mib(1), ..Limits::default() };
    let (server, program, address) = serve(limits);
    let bytes = call(1, LENGTH, &opaque(&vec![1; mib(1)]));
    let mut first = Wire::to(address);
    first.send(&bytes[..100_000]);
    eventually("the first holds the memory", || server.totals().receive_memory > 0);
    let mut second = Wire::to(address);
    second.send(&bytes[..100_000]);
    let mut third = Wire::to(address);
    third.send(&bytes[..1000]);
    eventually("all three have been read from", || {
        server.connections().iter().filter(|info| info.bytes_in > 0).count() == 3
    });
    // A reset, so that the server notices although it doesn't read.
    rustix::net::sockopt::set_socket_linger(&second.0, Some(Duration::ZERO)).unwrap();
    drop(second);
    program.wait_for_closed(1);
    first.send(&bytes[100_000..]);
    assert_eq!(first.results(), (1, word(1 << 20)));
    third.send(&bytes[1000..]);
    assert_eq!(third.results(), (1, word(1 << 20)));
    eventually("all given back", || server.totals().receive_memory == 0);
}

#[test]
fn a_client_that_never_reads_is_not_served_any_further_and_then_closed() {
    let limits = Limits { stall: Duration::from_millis(300), ..Limits::default() };
    let (server, program, address) = serve(limits);
    let mut wire = Wire::to(address);
    // 2 GiB of replies, if all calls were run.
    let calls: Vec<u8> = (0..20_000).flat_map(|xid| call(xid, ZEROES, &word(100_000))).collect();
    let mut sender = wire.0.try_clone().unwrap();
    let sender = std::thread::spawn(move || drop(sender.write_all(&calls)));
    eventually("replies sent until the socket was full", || server.totals().bytes_out > 0);
    let mut other = Wire::to(address);
    other.send(&call(1, ECHO, &opaque(b"unhurt")));
    assert_eq!(other.results(), (1, opaque(b"unhurt")));
    let mut peak = 0;
    eventually("closed", || {
        peak = peak.max(server.totals().reply_memory);
        server.connections().len() == 1
    });
    program.wait_for_closed(1);
    assert!(peak <= Limits::default().reply_queue + mib(1), "{peak}");
    // The bytes in the sockets' buffers, and a few more; not all of them.
    assert!(server.totals().calls < 5000, "{:?}", server.totals());
    assert_eq!(server.totals().reply_memory, 0);
    assert_eq!(server.totals().broken, 1);
    sender.join().unwrap();
    // The bytes that were sent can still be read; then comes the end.
    wire.0.set_read_timeout(Some(SOON)).unwrap();
    let _ = std::io::copy(&mut wire.0, &mut std::io::sink());
}

/// Replies wait behind one whose bytes come from a slow disk. As many calls are run as there may be replies.
#[test]
fn a_slow_disk_stops_calls_when_replies_reach_their_limit() {
    const CALLS: u32 = 500;
    const REPLY: usize = 10_000;
    let disk = SlowFile::new();
    let (server, _, address) = serve_program(Limits::default(), Obedient::serving(disk.open()));
    let mut wire = Wire::to(address);
    let slow = [0u64.to_be_bytes().to_vec(), word(SIZE as u32)].concat();
    wire.send(&call(0, FILE, &slow));
    disk.wait_for_reader();
    for xid in 1..=CALLS {
        wire.send(&call(xid, ZEROES, &word(REPLY as u32)));
    }
    let fit = (Limits::default().reply_queue / REPLY) as u64;
    eventually("another worker runs as many calls as fit", || server.totals().calls > fit);
    eventually("it stops", || server.busy_workers() == 1);
    let calls = server.totals().calls;
    assert!(calls <= fit + 10, "{calls} calls, {fit} replies fit");
    let mut other = Wire::to(address);
    other.send(&call(1, ECHO, &opaque(b"unhurt")));
    assert_eq!(other.results(), (1, opaque(b"unhurt")));
    disk.deliver();
    let replies = wire.replies(CALLS as usize + 1);
    assert!(replies[0].2 == opaque(&vec![BYTE; SIZE as usize]));
    assert!(replies[1..].iter().all(|(_, _, results)| *results == opaque(&[0; REPLY])));
    assert_eq!(server.totals().calls, u64::from(CALLS) + 2);
}

#[test]
fn peers_together_cannot_leave_more_unread_than_there_is_memory() {
    let limits = Limits { reply_memory: mib(4), ..Limits::default() };
    let (server, program, address) = serve(limits);
    // Each leaves a reply of 16 MiB unread: more than a socket buffer of 6 MiB holds.
    let mut wires: Vec<_> = (0..4).map(|_| Wire::to(address)).collect();
    wires.iter_mut().for_each(|wire| wire.send(&call(1, ZEROES, &word(16 << 20))));
    program.wait_for_closed(4);
    assert_eq!(server.totals().broken, 4);
    let mut other = Wire::to(address);
    other.send(&call(1, ECHO, &opaque(b"unhurt")));
    assert_eq!(other.results(), (1, opaque(b"unhurt")));
}

#[test]
fn exhausted_reply_memory_closes_the_largest_holder() {
    let (server, program, address) = serve(Limits { reply_memory: mib(32), ..Limits::default() });
    // 30 MiB, of which the sockets' buffers hold less than 6.
    let mut greedy = Wire::narrow(1000, address);
    greedy.send(&call(1, ZEROES, &word(30 << 20)));
    eventually("the greedy one's reply is left", || server.totals().reply_memory > mib(22));
    let mut modest = Wire::narrow(1001, address);
    modest.send(&call(2, ZEROES, &word(18 << 20)));
    program.wait_for_closed(1);
    assert_eq!(modest.results(), (2, opaque(&vec![0; 18 << 20])));
    let left: Vec<_> = server.connections().iter().map(|info| info.peer.owner).collect();
    assert_eq!(left, [TcpOwner::User(1001)]);
    assert_eq!(server.totals().broken, 1);
    eventually("nothing is held any more", || server.totals().reply_memory == 0);
}

/// Whether a connection is served.
fn is_served(address: SocketAddr) -> Option<Wire> {
    let mut wire = Wire::to(address);
    let _ = wire.0.write_all(&call(1, 0, &[]));
    let mut byte = [0];
    let served = matches!(wire.0.peek(&mut byte), Ok(1));
    served.then_some(wire)
}

#[test]
fn a_flood_of_connections() {
    // One peer, and so half of the limit.
    let (server, program, address) = serve(Limits { max_connections: 100, ..Limits::default() });
    let mut kept: Vec<Wire> = (0..50).map(|_| is_served(address).expect("within the limit")).collect();
    for _ in 0..200 {
        assert!(is_served(address).is_none(), "above the limit");
    }
    let first = &mut kept[0];
    first.results();
    first.send(&call(2, ECHO, &opaque(b"unhurt")));
    assert_eq!(first.results(), (2, opaque(b"unhurt")));
    kept.truncate(49);
    program.wait_for_closed(1);
    kept.push(is_served(address).expect("one has gone, one may come"));
    let totals = server.totals();
    assert_eq!((totals.connections, totals.refused, totals.displaced), (51, 200, 0));
}

#[test]
fn slow_senders_of_many_sizes_do_not_affect_others() {
    let (server, program, address) = serve(Limits { threads: 2, ..Limits::default() });
    let cuts = [2, 10, 3000, 5000, 31_000, 40_000, 100_000];
    let mut slow: Vec<_> = cuts
        .iter()
        .map(|cut| {
            let mut wire = Wire::to(address);
            let bytes = call(1, ECHO, &opaque(&vec![9; 150_000]));
            wire.send(&bytes[..*cut]);
            (wire, bytes[*cut..].to_vec())
        })
        .collect();
    let mut other = Wire::to(address);
    other.send(&marked(&[call(1, ECHO, &opaque(b"unhurt"))[4..].to_vec()].concat()));
    assert_eq!(other.results(), (1, opaque(b"unhurt")));
    for (wire, rest) in &mut slow {
        wire.send(rest);
        assert!(wire.results() == (1, opaque(&vec![9; 150_000])));
    }
    program.open(1);
    other.send(&call(2, WAIT, &word(1)));
    assert_eq!(other.results(), (2, word(1)));
    assert_eq!(server.totals().receive_memory, 0);
}
