//! Call sockets: the calls of a TCP connection, made over a Unix socket.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use samehost_rpc::{
    message::{AuthStat, AuthSys, Credential, ReplyStatus},
    server::{CallSocketError, CallSocketRules, Limits, Server},
};

use crate::rig::{
    ECHO, PROGRAM, SOON, WAIT, WHO, Wire, ZEROES, bare, bare_as, call, eventually, marked, opaque, serve,
    word,
};

/// A call socket of a connection, for the users below 1000, and its number.
fn open(server: &Server, connection: u64) -> Result<(u64, Wire), CallSocketError> {
    let rules = CallSocketRules {
        connection,
        programs: &[(PROGRAM, 3)],
        may_claim: Box::new(|credential| match credential {
            Credential::None => true,
            Credential::Sys(sys) => sys.uid < 1000,
        }),
    };
    let (number, theirs) = server.call_sockets().open(rules)?;
    let stream = TcpStream::from(theirs);
    stream.set_read_timeout(Some(SOON)).unwrap();
    Ok((number, Wire(stream)))
}

/// The number of the only connection.
fn only(server: &Server) -> u64 {
    eventually("the connection", || server.connections().len() == 1);
    server.connections()[0].peer.connection
}

#[test]
fn calls_are_answered_and_counted_with_their_connection() {
    let (server, program, address) = serve(Limits::default());
    let mut tcp = Wire::to(address);
    let (number, mut socket) = open(&server, only(&server)).unwrap();
    for xid in 1..=100 {
        socket.send(&call(xid, ECHO, &opaque(b"over the socket")));
        assert_eq!(socket.results(), (xid, opaque(b"over the socket")));
    }
    // Large replies and batches of calls, as over TCP.
    let batch: Vec<u8> = (1..=50).flat_map(|xid| call(xid, ZEROES, &word(100_000))).collect();
    let mut sender = Wire(socket.0.try_clone().unwrap());
    let sending = std::thread::spawn(move || sender.send(&batch));
    for (_, status, results) in socket.replies(50) {
        assert_eq!((status, results.len()), (ReplyStatus::Success, 100_004));
    }
    sending.join().unwrap();
    tcp.send(&call(7, ECHO, &opaque(b"over TCP")));
    assert_eq!(tcp.results(), (7, opaque(b"over TCP")));
    let infos = server.connections();
    assert_eq!(infos.iter().map(|info| info.calls).collect::<Vec<_>>(), [151]);
    assert_eq!(server.totals().connections, 1, "only TCP connections are accepted");

    server.call_sockets().close(number);
    socket.assert_closed();
    tcp.send(&call(8, ECHO, &opaque(b"still")));
    assert_eq!(tcp.results(), (8, opaque(b"still")));
    drop(tcp);
    program.wait_for_closed(1); // and never more than that
}

#[test]
fn other_programs_and_users_are_refused() {
    let (server, _program, address) = serve(Limits::default());
    let _tcp = Wire::to(address);
    let (_, mut socket) = open(&server, only(&server)).unwrap();
    let user = |uid| Credential::Sys(AuthSys { uid, ..AuthSys::default() });
    socket.send(&marked(&bare_as(1, WHO, &user(999), &[])));
    assert_eq!(socket.results(), (1, word(999)));
    for uid in [1000, u32::MAX] {
        socket.send(&marked(&bare_as(2, WHO, &user(uid), &[])));
        assert_eq!(socket.reply(), (2, ReplyStatus::AuthError(AuthStat::TooWeak), vec![]));
    }
    for (at, number) in [(12, PROGRAM + 1), (16, 2)] {
        // Another program, and another version of this one.
        let mut other = bare(3, ECHO, &opaque(b""));
        other[at..at + 4].copy_from_slice(&number.to_be_bytes());
        socket.send(&marked(&other));
        assert_eq!(socket.reply(), (3, ReplyStatus::ProgUnavail, vec![]));
    }
    socket.send(&marked(&bare_as(4, WHO, &user(1), &[])));
    assert_eq!(socket.results(), (4, word(1)));
}

#[test]
fn a_slow_call_delays_no_other() {
    let (server, program, address) = serve(Limits::default());
    let _tcp = Wire::to(address);
    let (_, mut socket) = open(&server, only(&server)).unwrap();
    socket.send(&call(1, WAIT, &word(5)));
    program.wait_for_caller(5);
    for xid in 2..20 {
        socket.send(&call(xid, ECHO, &opaque(b"quick")));
        assert_eq!(socket.results(), (xid, opaque(b"quick")));
    }
    program.open(5);
    assert_eq!(socket.results(), (1, word(5)));
}

#[test]
fn calls_that_have_arrived_are_answered_before_the_end() {
    let (server, program, address) = serve(Limits::default());
    let _tcp = Wire::to(address);
    let (number, mut socket) = open(&server, only(&server)).unwrap();
    socket.send(&[call(1, WAIT, &word(5)), call(2, ECHO, &opaque(b"too"))].concat());
    program.wait_for_caller(5);
    server.call_sockets().close(number);
    assert!(socket.0.write_all(&call(3, ECHO, &opaque(b"late"))).is_err());
    program.open(5);
    let replies = socket.replies(2);
    assert_eq!(
        replies.iter().map(|(xid, status, _)| (*xid, *status)).collect::<Vec<_>>(),
        [(1, ReplyStatus::Success), (2, ReplyStatus::Success)]
    );
    socket.assert_closed();
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_socket_only() {
    let (server, _program, address) = serve(Limits::default());
    let mut tcp = Wire::to(address);
    let connection = only(&server);
    let garbage = [
        vec![0xff; 64],
        marked(&[0; 3]),
        marked(b"no call of any kind"),
        (0x8000_0000_u32 | 64 << 20).to_be_bytes().to_vec(),
    ];
    for bytes in garbage {
        let (_, mut socket) = open(&server, connection).unwrap();
        socket.send(&bytes);
        socket.assert_closed();
    }
    // A call that is never completed, and a peer that hangs up before its replies.
    let (_, mut half) = open(&server, connection).unwrap();
    half.send(&call(1, ECHO, &opaque(b"half"))[..10]);
    let (_, mut gone) = open(&server, connection).unwrap();
    gone.send(&call(1, ZEROES, &word(1 << 20)));
    gone.0.shutdown(Shutdown::Both).unwrap();
    drop((half, gone));
    tcp.send(&call(9, ECHO, &opaque(b"unharmed")));
    assert_eq!(tcp.results(), (9, opaque(b"unharmed")));
}

#[test]
fn descriptors_in_the_stream_are_closed() {
    let (server, _program, address) = serve(Limits::default());
    let _tcp = Wire::to(address);
    let (_, mut socket) = open(&server, only(&server)).unwrap();
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    {
        let fds = [writer.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = call(1, ECHO, &opaque(b"with a descriptor"));
        let slices = [std::io::IoSlice::new(&bytes)];
        rustix::net::sendmsg(&socket.0, &slices, &mut control, SendFlags::empty()).unwrap();
    }
    drop(writer);
    assert_eq!(socket.results(), (1, opaque(b"with a descriptor")));
    // The end of the pipe: no copy of the writing end is left.
    assert_eq!(std::fs::File::from(reader).read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_peer_has_no_more_connections_with_call_sockets_than_without() {
    let (server, _program, address) = serve(Limits { max_connections: 8, ..Limits::default() });
    let mut tcp = Wire::to(address);
    let connection = only(&server);
    let mut sockets: Vec<Wire> = Vec::new();
    let refused = loop {
        match open(&server, connection) {
            Ok((_, socket)) => sockets.push(socket),
            Err(error) => break error,
        }
        assert!(sockets.len() < 8, "no bound");
    };
    assert!(matches!(refused, CallSocketError::TooMany));
    // None was displaced, and each works.
    for socket in &mut sockets {
        socket.send(&call(1, ECHO, &opaque(b"mine")));
        assert_eq!(socket.results(), (1, opaque(b"mine")));
    }
    tcp.send(&call(1, ECHO, &opaque(b"mine")));
    assert_eq!(tcp.results(), (1, opaque(b"mine")));
    sockets.clear();
    eventually("room again", || open(&server, connection).is_ok());
}

#[test]
fn without_its_connection_there_is_none() {
    let (server, program, address) = serve(Limits::default());
    let tcp = Wire::to(address);
    let connection = only(&server);
    drop(tcp);
    program.wait_for_closed(1);
    assert!(matches!(open(&server, connection), Err(CallSocketError::Ended)));
    let sockets = server.call_sockets();
    drop(server);
    let rules = CallSocketRules { connection, programs: &[], may_claim: Box::new(|_| true) };
    let opened: Result<(u64, OwnedFd), _> = sockets.open(rules);
    assert!(matches!(opened, Err(CallSocketError::Ended)));
    sockets.close(connection);
}
