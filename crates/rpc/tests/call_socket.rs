//! The client's calls on a call socket, and what becomes of them when it fails.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpc::client::{CallSocket, Client, Error, Options, Policy, Reply, Request};
use rpc::message::{AuthStat, CallHeader, Credential, ReplyHeader, ReplyStatus};
use samehost_rpc as rpc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use xdr::{Decoder, Encoder};

const LAST: u32 = 1 << 31;

/// Longer than any operation here takes.
const LONG: Duration = Duration::from_secs(60);

/// The transaction id and the arguments of the next call.
async fn next_call(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u32, Vec<u8>)> {
    let mark = stream.read_u32().await?;
    let mut record = vec![0; (mark & !LAST) as usize];
    stream.read_exact(&mut record).await?;
    let mut from = Decoder::new(&record);
    let header = CallHeader::decode(&mut from).map_err(io::Error::other)?;
    Ok((header.xid, from.rest().to_vec()))
}

fn reply(xid: u32, status: ReplyStatus, results: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new();
    to.u32(0);
    to.put(&ReplyHeader { xid, status });
    to.raw(results);
    let length = to.position() as u32 - 4;
    to.patch_u32(0, length | LAST);
    to.into_vec()
}

fn success(xid: u32, results: &[u8]) -> Vec<u8> {
    reply(xid, ReplyStatus::Success, results)
}

/// A client, the server's end of its TCP connection, and that of its call socket.
struct World {
    client: Arc<Client>,
    socket: Arc<CallSocket>,
    tcp: TcpStream,
    unix: UnixStream,
}

impl World {
    async fn new(policy: Policy) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let options = Options { policy, ..Options::default() };
        let client = Client::connect(listener.local_addr().unwrap(), options).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let socket = Arc::new(CallSocket::new(ours.into()).unwrap());
        Self { client: Arc::new(client), socket, tcp, unix: UnixStream::from_std(theirs).unwrap() }
    }

    async fn soft() -> Self {
        Self::new(Policy::soft(LONG)).await
    }

    /// Makes a call with these arguments in the background.
    fn call(&self, args: &'static [u8]) -> tokio::task::JoinHandle<Result<Reply, Error>> {
        let (client, socket) = (self.client.clone(), self.socket.clone());
        tokio::spawn(async move { call_on(&client, &socket, args).await })
    }
}

async fn call_on(client: &Client, socket: &CallSocket, args: &[u8]) -> Result<Reply, Error> {
    let request = Request {
        program: 77,
        version: 1,
        procedure: 1,
        credential: &Credential::None,
        payload: Bytes::new(),
        trailer: Bytes::new(),
        receive: None,
    };
    client.call_on(socket, request, |to| to.raw(args)).await
}

#[tokio::test]
async fn replies_come_in_any_order_and_in_any_pieces() {
    let mut world = World::soft().await;
    let calls: Vec<_> = (0..20).map(|_| world.call(b"args")).collect();
    let mut seen = Vec::new();
    for _ in 0..20 {
        let (xid, args) = next_call(&mut world.unix).await.unwrap();
        assert_eq!(args, b"args");
        seen.push(xid);
    }
    let bytes: Vec<u8> = seen.iter().rev().flat_map(|xid| success(*xid, &xid.to_be_bytes())).collect();
    for piece in bytes.chunks(7) {
        world.unix.write_all(piece).await.unwrap();
    }
    let mut results = Vec::new();
    for call in calls {
        let reply = call.await.unwrap().unwrap();
        assert!(reply.local);
        results.push(u32::from_be_bytes(reply.results.try_into().unwrap()));
    }
    seen.sort_unstable();
    results.sort_unstable();
    assert_eq!(results, seen, "each reply has reached its call");
    assert_eq!(world.client.stats(), rpc::client::Stats::default());
}

#[tokio::test]
async fn a_call_whose_socket_ends_is_made_over_tcp_under_the_same_id() {
    let mut world = World::soft().await;
    let calls = [world.call(b"one!"), world.call(b"two!")];
    let mut on_socket =
        vec![next_call(&mut world.unix).await.unwrap(), next_call(&mut world.unix).await.unwrap()];
    world.unix = UnixStream::pair().unwrap().0;
    let mut over_tcp = Vec::new();
    for _ in 0..2 {
        let (xid, args) = next_call(&mut world.tcp).await.unwrap();
        world.tcp.write_all(&success(xid, &args)).await.unwrap();
        over_tcp.push((xid, args));
    }
    on_socket.sort();
    over_tcp.sort();
    assert_eq!(on_socket, over_tcp);
    for (call, expected) in calls.into_iter().zip([b"one!", b"two!"]) {
        let reply = call.await.unwrap().unwrap();
        assert_eq!((&reply.results[..], reply.local), (&expected[..], false));
    }
    assert!(!world.socket.is_usable());
    tokio::time::timeout(LONG, world.socket.ended()).await.unwrap();
    // Later calls don't try it.
    let call = world.call(b"more");
    let (xid, _) = next_call(&mut world.tcp).await.unwrap();
    world.tcp.write_all(&success(xid, b"done")).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().results, b"done");
}

#[tokio::test]
async fn unsuccessful_replies_send_the_call_to_tcp() {
    for (status, still_used) in [
        (ReplyStatus::AuthError(AuthStat::TooWeak), false),
        (ReplyStatus::ProgUnavail, true),
        (ReplyStatus::SystemErr, true),
    ] {
        let mut world = World::soft().await;
        let call = world.call(b"args");
        let (xid, _) = next_call(&mut world.unix).await.unwrap();
        world.unix.write_all(&reply(xid, status, &[])).await.unwrap();
        assert_eq!(next_call(&mut world.tcp).await.unwrap(), (xid, b"args".to_vec()));
        world.tcp.write_all(&success(xid, b"done")).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap().results, b"done");
        assert_eq!(world.socket.is_usable(), still_used, "{status:?}");
    }
}

#[tokio::test]
async fn nonsense_ends_the_socket_and_no_call() {
    let too_long = (LAST | 1 << 20).to_be_bytes().to_vec();
    let fragment = 8_u32.to_be_bytes().to_vec();
    for nonsense in [b"no reply of any kind".to_vec(), too_long, fragment, vec![0; 4]] {
        let mut world = World::soft().await;
        let call = world.call(b"args");
        let (xid, _) = next_call(&mut world.unix).await.unwrap();
        // A late reply, or one to no call, is no nonsense.
        world.unix.write_all(&success(xid.wrapping_add(7), b"what")).await.unwrap();
        world.unix.write_all(&nonsense).await.unwrap();
        assert_eq!(next_call(&mut world.tcp).await.unwrap().0, xid);
        world.tcp.write_all(&success(xid, b"done")).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap().results, b"done");
        assert_eq!(world.unix.read(&mut [0]).await.unwrap_or(0), 0, "closed");
    }
}

#[tokio::test]
async fn a_late_call_is_repeated_over_tcp_and_the_first_reply_counts() {
    for local in [true, false] {
        let policy = Policy { timeo: Duration::from_millis(100), retrans: 1000, hard: true };
        let mut world = World::new(policy).await;
        let call = world.call(b"args");
        let (xid, _) = next_call(&mut world.unix).await.unwrap();
        assert_eq!(next_call(&mut world.tcp).await.unwrap(), (xid, b"args".to_vec()));
        let answered = success(xid, b"done");
        if local {
            // The server ignores the repeated call, because it is executing the first.
            world.unix.write_all(&answered).await.unwrap();
        } else {
            world.tcp.write_all(&answered).await.unwrap();
        }
        let reply = call.await.unwrap().unwrap();
        assert_eq!((&reply.results[..], reply.local), (&b"done"[..], local));
        // The other reply is late then. Neither end minds it.
        if local {
            world.tcp.write_all(&answered).await.unwrap();
        } else {
            world.unix.write_all(&answered).await.unwrap();
        }
        let call = world.call(b"next");
        let (xid, _) = next_call(&mut world.unix).await.unwrap();
        world.unix.write_all(&success(xid, b"more")).await.unwrap();
        assert_eq!(call.await.unwrap().unwrap().results, b"more");
    }
}

#[tokio::test]
async fn a_soft_call_has_one_timeout_for_both() {
    let timeout = Duration::from_secs(2);
    let mut world = World::new(Policy::soft(timeout)).await;
    let begun = std::time::Instant::now();
    let call = world.call(b"args");
    let (xid, _) = next_call(&mut world.unix).await.unwrap();
    assert_eq!(next_call(&mut world.tcp).await.unwrap().0, xid);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut { after, .. } if after >= timeout), "{error}");
    assert!(begun.elapsed() >= timeout);
}

#[tokio::test]
async fn a_forgotten_call_leaves_room_for_others() {
    let mut world = World::soft().await;
    for _ in 0..1000 {
        let call = world.call(b"args");
        next_call(&mut world.unix).await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    let call = world.call(b"last");
    let (xid, _) = next_call(&mut world.unix).await.unwrap();
    world.unix.write_all(&success(xid, b"done")).await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().results, b"done");
}

#[tokio::test]
async fn calls_that_are_long_or_find_the_socket_full_go_over_tcp() {
    let mut world = World::soft().await;
    let long: &'static [u8] = vec![7; 9000].leak();
    let call = world.call(long);
    let (xid, args) = next_call(&mut world.tcp).await.unwrap();
    assert_eq!(args, long);
    world.tcp.write_all(&success(xid, b"done")).await.unwrap();
    assert!(!call.await.unwrap().unwrap().local);
    // The server reads nothing. In the end a call finds no room, and is made over TCP.
    let fill: &'static [u8] = vec![7; 8000].leak();
    let calls: Vec<_> = (0..100).map(|_| world.call(fill)).collect();
    let (xid, args) = next_call(&mut world.tcp).await.unwrap();
    assert_eq!(args, fill);
    world.tcp.write_all(&success(xid, b"done")).await.unwrap();
    let World { tcp, .. } = world;
    drop(tcp);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_dropped_client_ends_the_socket_and_its_calls() {
    let World { client, socket, tcp: _tcp, mut unix } = World::soft().await;
    drop(socket);
    drop(client);
    assert_eq!(unix.read(&mut [0]).await.unwrap(), 0);
    let world = World::soft().await;
    let ended = world.socket.ended();
    drop(world.socket);
    tokio::time::timeout(LONG, ended).await.unwrap();
}
