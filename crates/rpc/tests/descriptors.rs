//! A server process without free descriptors. The server is a process of its own, with a low limit.

#[allow(dead_code, reason = "shared with the tests of the engine")]
#[path = "server/rig.rs"]
mod rig;

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use rig::{ECHO, Wire, call, opaque, serve};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use samehost_rpc::server::Limits;

/// The server's process; killed when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve_with_few_descriptors() -> ! {
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let (_server, _program, address) = serve(Limits::default());
    println!("\nserving {address}");
    loop {
        std::thread::park();
    }
}

fn assert_served(user: u32, address: SocketAddr) -> Wire {
    let mut wire = Wire::of_user(user, address);
    wire.send(&call(1, ECHO, &opaque(b"unhurt")));
    assert_eq!(wire.results(), (1, opaque(b"unhurt")), "user {user}");
    wire
}

#[test]
fn a_peer_that_holds_all_descriptors_is_displaced() {
    if std::env::var_os("SAMEHOST_SERVE").is_some() {
        serve_with_few_descriptors();
    }
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_peer_that_holds_all_descriptors_is_displaced", "--nocapture"])
        .env("SAMEHOST_SERVE", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut serving = Serving(process);
    let lines = BufReader::new(serving.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.into_iter().find(|line| line.starts_with("serving")).expect("the server starts");
    let address: SocketAddr = line["serving ".len()..].parse().unwrap();

    let _greedy: Vec<_> = (0..100).map(|_| Wire::of_user(1000, address)).collect();
    // Repeatedly: the descriptors are reserved again afterwards.
    let others: Vec<_> = (0..20).map(|number| assert_served([0, 1001][number % 2], address)).collect();
    drop(others);
    assert_served(1002, address);
}
