//! Connections of peers that no export names, while admitted clients go on.

mod common;

use std::net::TcpStream;
use std::path::Path;

use common::{Client, Scratch, TIMEOUT, address, encoded, sys};
use proto::nfs3::{self, Procedure};
use rpc::message::{AuthStat, ReplyStatus};
use rustix::net::{AddressFamily, SocketType, connect, socket};
use samehost_server::{Config, Server};
use xdr::Opaque;

/// A server with room for few connections, whose export is for reserved ports.
fn serve(scratch: &Scratch) -> Server {
    Server::start(Config { max_connections: 64, ..scratch.config("*(rw,no_root_squash)") }).unwrap()
}

/// A connection of an ordinary user of this host.
fn of_user(uid: u32, server: &Server) -> Client {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::fs::fchown(&socket, Some(rustix::fs::Uid::from_raw(uid)), None).expect("this test needs root");
    connect(&socket, &address(server)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    Client { stream, credential: sys(uid, uid, &[]), xid: 1000 }
}

/// Asserts that MNT and GETATTR from a reserved port succeed.
fn assert_root_mounts(server: &Server, export: &Path) {
    // Other processes of this host may use some of the ports.
    let mut client = (700..900)
        .find_map(|port| Client::try_from(server, [127, 0, 0, 1].into(), port).ok())
        .expect("root binds reserved ports");
    let root = client.mnt(export).unwrap();
    client.getattr(&root);
}

#[test]
fn idle_connections_of_users_without_an_export_do_not_shut_out_root() {
    let scratch = Scratch::new();
    let server = serve(&scratch);
    let _idle: Vec<_> = (0..256).map(|number| of_user(1000 + number % 2, &server)).collect();
    assert_root_mounts(&server, &scratch.export());
    let status = server.status();
    assert!(
        status.connections.iter().filter(|connection| !connection.admitted).count() <= 48,
        "three quarters"
    );
    assert!(status.wire.refused >= 256 - 48);
    assert_root_mounts(&server, &scratch.export());
}

#[test]
fn a_write_of_a_user_without_an_export_is_denied_and_not_received() {
    let scratch = Scratch::new();
    let server = serve(&scratch);
    let mut stranger = of_user(1000, &server);
    let data = vec![7; 1 << 20];
    let args = nfs3::Write3Args {
        file: Opaque(&[1; 32]),
        offset: 0,
        count: 1 << 20,
        stable: nfs3::StableHow::Unstable,
        data: Opaque(&data),
    };
    for _ in 0..3 {
        let (status, _) = stranger.raw(nfs3::PROGRAM, 3, Procedure::Write.number(), &encoded(&args));
        assert_eq!(status, ReplyStatus::AuthError(AuthStat::BadCred));
    }
    assert_eq!(server.status().wire.denied, 3);
}
