//! Stopping a server.

use std::{
    io::Read as _,
    net::TcpStream,
    time::{Duration, Instant},
};

use samehost_rpc::server::Limits;

use crate::rig::{ECHO, SOON, WAIT, Wire, call, eventually, opaque, serve, word};

#[test]
fn calls_finish_and_replies_go_out() {
    let (server, program, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    let mut idle = Wire::to(address);
    idle.send(&call(1, 0, &[]));
    idle.results();
    wire.send(&[call(1, WAIT, &word(1)), call(2, WAIT, &word(2))].concat());
    program.wait_for_caller(1);
    program.wait_for_caller(2);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| server.shutdown(SOON));
        idle.assert_closed();
        eventually("no new connection", || TcpStream::connect(address).is_err());
        program.open(2);
        assert_eq!(wire.results(), (2, word(2)));
        program.open(1);
        assert_eq!(wire.results(), (1, word(1)));
        wire.assert_closed();
        assert!(stopped.join().unwrap(), "in time");
    });
    program.wait_for_closed(2);
    assert!(server.shutdown(Duration::ZERO), "a second time is nothing");
}

#[test]
fn shutdown_does_not_wait_beyond_its_grace_period() {
    let (server, program, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    wire.send(&call(1, WAIT, &word(1)));
    program.wait_for_caller(1);
    assert!(!server.shutdown(Duration::from_millis(50)));
    wire.assert_closed();
    program.open(1);
    program.wait_for_closed(1);
}

#[test]
fn under_load_every_call_that_was_run_is_answered() {
    let (server, program, address) = serve(Limits::default());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut wire = Wire::to(address);
                    let (mut answered, mut xid) = (0u64, 0);
                    loop {
                        let bytes: Vec<u8> =
                            (0..8).flat_map(|i| call(xid + i, ECHO, &opaque(&[3; 4096]))).collect();
                        if std::io::Write::write_all(&mut wire.0, &bytes).is_err() {
                            break;
                        }
                        xid += 8;
                        let mut replies = vec![0; 8 * (4 + 24 + 4 + 4096)];
                        let mut filled = 0;
                        while filled < replies.len() {
                            match wire.0.read(&mut replies[filled..]) {
                                Ok(0) | Err(_) => return answered + (filled / (replies.len() / 8)) as u64,
                                Ok(some) => filled += some,
                            }
                        }
                        answered += 8;
                    }
                    answered
                })
            })
            .collect();
        eventually("some load", || server.totals().calls > 1000);
        assert!(server.shutdown(SOON));
        let answered: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        assert_eq!(answered, server.totals().calls);
    });
    program.wait_for_closed(4);
}

#[test]
fn an_idle_server_has_no_thread_that_wakes_up() {
    let (server, _, address) = serve(Limits::default());
    let mut wire = Wire::to(address);
    wire.send(&call(1, 0, &[]));
    wire.results();
    // Every thread of the engine sleeps without a timeout, so its count of wake-ups stays the same.
    let switches = || -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks
            .filter_map(|task| {
                let path = task.ok()?.path();
                let status = std::fs::read_to_string(path.join("status")).ok()?;
                let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
                let name = std::fs::read_to_string(path.join("comm")).ok()?;
                name.starts_with("nfs-supervisor")
                    .then(|| line.split_whitespace().nth(1)?.parse::<u64>().ok())?
            })
            .sum()
    };
    // Other tests of this process have supervisors, too: wait until all of them sleep.
    eventually("the supervisor sleeps", || {
        let before = switches();
        std::thread::sleep(Duration::from_millis(50));
        switches() == before
    });
    drop(server);
}

#[test]
fn a_dropped_server_stops_listening() {
    for _ in 0..20 {
        let (server, _, address) = serve(Limits { threads: 3, ..Limits::default() });
        let mut wire = Wire::to(address);
        wire.send(&call(1, 0, &[]));
        wire.results();
        let start = Instant::now();
        drop(server);
        assert!(start.elapsed() < SOON);
        assert!(TcpStream::connect(address).is_err());
        wire.assert_closed();
    }
}

/// Prometheus takes a counter that goes back for one that began again at 0.
#[test]
fn totals_do_not_go_back_while_connections_end() {
    const CONNECTIONS: u32 = 2000;
    let (server, _, address) = serve(Limits::default());
    let numbers = || {
        let totals = server.totals();
        [totals.connections, totals.calls, totals.bytes_in, totals.bytes_out]
    };
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            for xid in 0..CONNECTIONS {
                let mut wire = Wire::to(address);
                wire.send(&call(xid, ECHO, &opaque(b"hello")));
                assert_eq!(wire.results(), (xid, opaque(b"hello")));
            }
        });
        let mut last = numbers();
        while !clients.is_finished() {
            let next = numbers();
            assert!(last.iter().zip(&next).all(|(last, next)| last <= next), "{last:?}, then {next:?}");
            last = next;
        }
    });
    assert_eq!(server.totals().calls, u64::from(CONNECTIONS));
}
