//! The resident memory of connections, measured in a process of its own.

#[allow(dead_code, reason = "shared with the tests of the engine")]
#[path = "server/rig.rs"]
mod rig;

use rig::{ECHO, Wire, call, eventually, opaque, serve};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use samehost_rpc::server::Limits;

/// Resident memory of this process, in KiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
}

/// Both ends of a connection are this process's, and the usual limit is 1,024 descriptors.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

#[test]
fn a_thousand_idle_connections_cost_next_to_nothing() {
    raise_descriptor_limit();
    let (server, program, address) = serve(Limits::default());
    let before = resident();
    let mut wires: Vec<_> = (0..1000).map(|_| Wire::to(address)).collect();
    for wire in &mut wires {
        wire.send(&call(1, ECHO, &opaque(&[7; 3000])));
        assert_eq!(wire.results(), (1, opaque(&[7; 3000])));
    }
    assert_eq!(server.connections().len(), 1000);
    let idle = resident().saturating_sub(before);
    println!("{idle} KiB for 1000 idle connections");
    assert!(idle < 4 << 10, "{idle} KiB: 4 KiB for each, the workers' buffers included");

    // The beginnings of calls, which are never finished.
    for wire in &mut wires {
        wire.send(&call(1, ECHO, &opaque(&[7; 9000]))[..4000]);
    }
    eventually("all received", || server.totals().bytes_in >= 1000 * 7000);
    let begun = resident().saturating_sub(before);
    println!("{begun} KiB for 1000 connections with 4000 bytes of an unfinished call each");
    assert!(begun < 10 << 10, "{begun} KiB");
    drop(wires);
    program.wait_for_closed(1000);
}
